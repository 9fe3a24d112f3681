"""The controls over HTTP, by Starlette and uvicorn on the broker's event loop: JSON in and out.

It is meant for tests on the same machine. A page in a browser must not use it: requests that a browser makes for
another site (they have an Origin) and requests to a host name other than this machine's (DNS rebinding) are refused.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import nullcontext
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Protocol

import h11
import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from pyclient.broker_embedded.controls.endpoint import MethodNotAllowed, NotFound, WrongState
from pyclient.errors import ConfigError, KafkaError, KafkaTimeout

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from starlette.types import Receive, Scope, Send

log = logging.getLogger("pyclient.broker_embedded")

_MAX_HEAD: Final = 16 << 10
_MAX_BODY: Final = 1 << 20
_IDLE_SECONDS: Final = 300
_MAX_CONNECTIONS: Final = 256
SLICE_SECONDS: Final = 0.005
"""Seconds for which the encoding of a large answer may keep the loop."""
_METHODS: Final = frozenset({"GET", "POST", "DELETE"})
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})

_STATUS: Final[tuple[tuple[type[Exception], HTTPStatus], ...]] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (MethodNotAllowed, HTTPStatus.METHOD_NOT_ALLOWED),
    (WrongState, HTTPStatus.CONFLICT),
    (KafkaTimeout, HTTPStatus.REQUEST_TIMEOUT),
    (ConfigError, HTTPStatus.BAD_REQUEST),
    (KafkaError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


class Handling(Protocol):
    """The handler of the requests: the controls of a node, or of a cluster."""

    async def handle(self, method: str, path: str, values: Mapping[str, Any]) -> Any:
        """Serve a request. Return JSON values."""


class Refused(Exception):
    """Raised for a request that is answered with an error status, which ends the connection."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class ControlServer:
    """Serves controls on a listening TCP socket."""

    def __init__(self, controls: Handling, listener: socket.socket) -> None:
        app = ControlApp(controls, listener.getsockname()[0])
        self._listener = listener
        self._server = _Server(
            uvicorn.Config(
                app,
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=_IDLE_SECONDS,
                h11_max_incomplete_event_size=_MAX_HEAD,
            )
        )
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Serve on the running loop until `close`."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))

    async def close(self) -> None:
        """Stop serving and end the connections and their requests."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        for server in getattr(self._server, "servers", ()):
            server.close()
        self._listener.close()
        state = self._server.server_state
        for connection in list(state.connections):
            connection.transport.abort()
        requests = list(state.tasks)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


class ControlApp:
    """The ASGI application of the controls."""

    def __init__(self, controls: Handling, host: str) -> None:
        """`host` is the address that it is served on: a name in the Host header besides those of this machine."""
        self._controls = controls
        self._hosts = None if host in _WILDCARDS else _LOOPBACK | {host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = {"Cache-Control": "no-store"}
        try:
            status, answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except asyncio.CancelledError:
            return  # the server ends; uvicorn would log it as an error of the application
        except Refused as refused:
            status, answer = refused.status, _problem(refused)
            headers["Connection"] = "close"
        response = Response(await encoded(answer), status.value, headers, "application/json")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> tuple[HTTPStatus, Any]:
        path: str = request.scope["raw_path"].decode("latin-1")
        if request.method not in _METHODS:
            message = f"{request.method:.20}: only {', '.join(sorted(_METHODS))}"
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, message)
        if not path.startswith("/") or path.startswith("//"):
            raise Refused(HTTPStatus.BAD_REQUEST, f"{path:.100}: a path starts with one slash")
        check_origin(request.headers, self._hosts)
        values = {**request.query_params, **_fields(await _body(request))}
        try:
            return HTTPStatus.OK, await self._controls.handle(request.method, path, values)
        except Exception as error:  # every failure becomes an HTTP status
            for kind, status in _STATUS:
                if isinstance(error, kind):
                    return status, _problem(error)
            log.exception("%s %.200r failed", request.method, path)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _problem(error)


class _Server(uvicorn.Server):
    """A server that leaves signals to the process."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


class _Connection(H11Protocol):
    """A connection, which may be closed in one direction while its request is answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.access_log = False
        if len(self.connections) > _MAX_CONNECTIONS:
            transport.close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return True if the connection stays open for an answer."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            return False
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE):
            self.cycle.keep_alive = False
            return not self.cycle.response_complete
        self.loop.call_soon(self._refuse_part)  # after the answer that needs no more of the request, as a 413
        return True

    def _refuse_part(self) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.send_400_response("The request ends early.")


def url_of(listener: socket.socket) -> str:
    """Return the URL of the controls on a TCP socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_origin(headers: Mapping[str, str], hosts: frozenset[str] | None) -> None:
    """Raise `Refused` for a request of another site's page. `hosts` are the allowed names in Host, None: any."""
    if "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refused(HTTPStatus.FORBIDDEN, "a page of another site may not use these controls")
    if hosts is None:
        return
    host = headers.get("host", "").lower()
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    if name not in hosts:
        allowed = ", ".join(sorted(hosts))
        raise Refused(HTTPStatus.FORBIDDEN, f"the Host header is {host:.100}: it must name this machine ({allowed})")


async def _body(request: Request) -> bytes:
    if "transfer-encoding" in request.headers:
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
    if int(request.headers.get("content-length", "0")) > _MAX_BODY:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {_MAX_BODY} bytes")
    return await request.body()


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


async def encoded(answer: Any) -> bytes:
    """Return the answer as JSON. A large one is encoded in slices, between which the loop serves others."""
    parts: list[str] = []
    end = perf_counter() + SLICE_SECONDS
    for part in json.JSONEncoder(indent=2).iterencode(answer):
        parts.append(part)
        if perf_counter() > end:
            await asyncio.sleep(0)
            end = perf_counter() + SLICE_SECONDS
    parts.append("\n")
    return "".join(parts).encode()
