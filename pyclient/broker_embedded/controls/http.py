"""The controls over HTTP: a small server, one request at a time per connection, JSON in and out.

It is meant for tests on the same machine. A page in a browser must not use it: requests that a browser makes for
another site (they have an Origin) and requests to a host name other than this machine's (DNS rebinding) are refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pyclient.broker_embedded.controls.endpoint import MethodNotAllowed, NotNow, NotThere
from pyclient.errors import ConfigError, KafkaError, KafkaTimeout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.controls.controls import Controls

log = logging.getLogger("pyclient.broker_embedded")

_MAX_HEAD: Final = 16 << 10
_MAX_BODY: Final = 1 << 20
_IDLE_SECONDS: Final = 300.0
_MAX_CONNECTIONS: Final = 256
_METHODS: Final = frozenset({"GET", "POST", "DELETE"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})

_STATUS: Final[tuple[tuple[type[Exception], HTTPStatus], ...]] = (
    (NotThere, HTTPStatus.NOT_FOUND),
    (MethodNotAllowed, HTTPStatus.METHOD_NOT_ALLOWED),
    (NotNow, HTTPStatus.CONFLICT),
    (KafkaTimeout, HTTPStatus.REQUEST_TIMEOUT),
    (ConfigError, HTTPStatus.BAD_REQUEST),
    (KafkaError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


class HttpRequest(NamedTuple):
    """A parsed request. `values` are the fields of the query and of the body."""

    method: str
    path: str
    values: Mapping[str, Any]
    keep_alive: bool


class Refused(Exception):
    """Raised for a request that is answered with an error status, which ends the connection."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class ControlServer:
    """Serves controls on a listening TCP or Unix socket."""

    def __init__(self, controls: Controls, *, host: str | None = None) -> None:
        """`host` is the address of a TCP socket; None for a Unix socket, which no browser can reach."""
        self._controls = controls
        self._hosts = None if host is None or host in _WILDCARDS else _LOOPBACK | {host.lower()}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, sock: socket.socket) -> None:
        """Serve until `close`."""
        if sock.family == socket.AF_UNIX:
            self._server = await asyncio.start_unix_server(self._connected, sock=sock, limit=_MAX_HEAD)
        else:
            self._server = await asyncio.start_server(self._connected, sock=sock, limit=_MAX_HEAD)

    async def close(self) -> None:
        """Stop serving and end the connections."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= _MAX_CONNECTIONS:
                while await self._serve(reader, writer):
                    pass
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the peer has disconnected or is silent, or the node ends
        except Exception:  # a bug ends this connection, not the server
            log.exception("a control connection failed")
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request. Return False if it was the connection's last."""
        keep_alive = False
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                request = await read_request(reader, self._hosts)
            if request is None:
                return False
            keep_alive = request.keep_alive
            status, answer = await self._answer(request)
        except Refused as refused:
            status, answer = refused.status, _problem(refused)
        writer.write(_response(status, answer, keep_alive=keep_alive))
        await writer.drain()
        return keep_alive

    async def _answer(self, request: HttpRequest) -> tuple[HTTPStatus, Any]:
        try:
            return HTTPStatus.OK, await self._controls.handle(request.method, request.path, request.values)
        except Exception as error:  # every failure becomes an HTTP status
            for kind, status in _STATUS:
                if isinstance(error, kind):
                    return status, _problem(error)
            log.exception("%s %.200r failed", request.method, request.path)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _problem(error)


def url_of(listener: socket.socket) -> str | None:
    """Return the URL of the controls on a TCP socket; None for a Unix socket."""
    if listener.family == socket.AF_UNIX:
        return None
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def read_request(reader: asyncio.StreamReader, hosts: frozenset[str] | None) -> HttpRequest | None:
    """Return the next request; None at the end of the connection. Raises `Refused`.

    `hosts` are the allowed names in the Host header, None: any.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise Refused(HTTPStatus.BAD_REQUEST, "the request ends early") from None
        return None
    except asyncio.LimitOverrunError:
        raise Refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the head of a request has at most {_MAX_HEAD} bytes"
        ) from None
    method, target, version, headers = parse_head(head)
    _check_origin(headers, hosts)
    body = await _body(reader, headers)
    parts = urlsplit(target)
    values: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True))
    values |= _fields(body)
    keep_alive = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return HttpRequest(method, parts.path, values, keep_alive)


def parse_head(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    """Return method, target, version and headers (names in lower case). Raises `Refused`."""
    lines = head.decode("latin-1").split("\r\n")
    first = lines[0].split(" ")
    if len(first) != 3 or first[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise Refused(HTTPStatus.BAD_REQUEST, "this is no HTTP/1.1 request; GET / lists the endpoints")
    method, target, version = first
    if method not in _METHODS:
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{method:.20}: only {', '.join(sorted(_METHODS))}")
    if not target.startswith("/") or target.startswith("//"):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{target:.100}: a path starts with one slash")
    headers: dict[str, str] = {}
    for line in lines[1:-2]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Refused(HTTPStatus.BAD_REQUEST, f"{line:.100}: this is no header")
        headers[name.lower()] = value.strip()
    return method, target, version, headers


def _check_origin(headers: Mapping[str, str], hosts: frozenset[str] | None) -> None:
    if "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refused(HTTPStatus.FORBIDDEN, "a page of another site may not use these controls")
    if hosts is None:
        return
    host = headers.get("host", "").lower()
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name not in hosts:
        raise Refused(HTTPStatus.FORBIDDEN, f"the Host header is {host:.100}: it must name this machine ({_or(hosts)})")


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if "transfer-encoding" in headers:
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
    text = headers.get("content-length", "0")
    if not text.isascii() or not text.isdecimal():
        raise Refused(HTTPStatus.BAD_REQUEST, f"Content-Length is {text:.100}")
    if len(text) > 9 or int(text) > _MAX_BODY:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {_MAX_BODY} bytes")
    try:
        return await reader.readexactly(int(text))
    except asyncio.IncompleteReadError:
        raise Refused(HTTPStatus.BAD_REQUEST, "the body ends early") from None


def _fields(body: bytes) -> dict[str, Any]:
    if not body.strip():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(HTTPStatus.BAD_REQUEST, 'the body is a JSON object, such as {"seconds": 5}')
    return found


def _problem(error: Exception) -> dict[str, Any]:
    return {"error": {"type": type(error).__name__, "message": str(error)}}


def _response(status: HTTPStatus, answer: Any, *, keep_alive: bool) -> bytes:
    body = json.dumps(answer, indent=2).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        f"Connection: {'keep-alive' if keep_alive else 'close'}\r\n\r\n"
    )
    return head.encode() + body


def _or(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
