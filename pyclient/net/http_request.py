"""Ask an identity server by HTTP, or read a `file:` URL. Blocks: callers run it in a thread."""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit, urlunsplit

from pyclient.config.urls import LOOPBACK

if TYPE_CHECKING:
    import ssl

_LONGEST: Final = 1 << 20


class HttpAnswer(NamedTuple):
    """The status and the body of an answer, whose text may be a secret."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"<HttpAnswer {self.status}, {len(self.body)} bytes>"


class Unreachable(Exception):
    """There was no answer. The text names the URL and the cause; nothing of what was sent is in it."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: it would send the client's secret to another server."""

    def redirect_request(self, *_: object) -> None:
        """Return None: the redirect itself is the answer."""


class _PlainConnection(http.client.HTTPConnection):
    """A connection with one timeout for connecting and another for its answer."""

    read_timeout: float

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self.read_timeout)


class _TlsConnection(http.client.HTTPSConnection):
    """The same with TLS, whose handshake is part of connecting."""

    read_timeout: float

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(self.read_timeout)


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, read_timeout: float) -> None:
        super().__init__()
        self._kind: Any = type("Connection", (_PlainConnection,), {"read_timeout": read_timeout})

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind, request)


class _Tls(urllib.request.HTTPSHandler):
    def __init__(self, read_timeout: float, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._kind: Any = type("Connection", (_TlsConnection,), {"read_timeout": read_timeout})
        self._given = context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(self._kind, request, context=self._given)


def path_of(url: str) -> str:
    """Return the path of a `file:` URL."""
    return unquote(urlsplit(url).path)


def shown(url: str) -> str:
    """Return a URL without its query, for messages."""
    return urlunsplit((*urlsplit(url)[:3], "", ""))


def request(
    url: str,
    *,
    timeout: float,
    body: bytes | None = None,
    headers: Mapping[str, str] = {},
    context: ssl.SSLContext | None = None,
    connect_timeout: float | None = None,
    read_timeout: float | None = None,
) -> HttpAnswer:
    """Send GET, or POST with a `body`, and return the answer of any status. Raise `Unreachable` without one.

    `timeout` is in seconds, for each step of the network; `connect_timeout` and `read_timeout` may make it shorter for
    connecting, TLS included, and for the answer. Without a `context` certificates are checked against the
    system's authorities. An answer of more than 1 MiB is refused.
    """
    try:
        if urlsplit(url).scheme == "file":
            with open(path_of(url), "rb") as file:
                return HttpAnswer(200, _bounded(url, file))
        sent = urllib.request.Request(url, body, dict(headers))
        reading = timeout if read_timeout is None else min(timeout, read_timeout)
        connecting = timeout if connect_timeout is None else min(timeout, connect_timeout)
        handlers: list[Any] = [_NoRedirects, _Plain(reading), _Tls(reading, context)]
        if urlsplit(url).hostname in LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))  # what stays on this machine goes to no proxy
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(sent, timeout=connecting) as answer:
                return HttpAnswer(answer.status, _bounded(url, answer))
        except HTTPError as error:
            with error:
                return HttpAnswer(error.code, _bounded(url, error))
    except URLError as error:
        reason = error.reason
        text = (getattr(reason, "strerror", None) if isinstance(reason, OSError) else None) or str(reason)
    except OSError as error:
        text = error.strerror or str(error) or type(error).__name__
    except (http.client.HTTPException, ValueError) as error:  # no HTTP at all: its text may quote what was received
        text = f"the answer is not HTTP ({type(error).__name__})"
    raise Unreachable(f"{shown(url)}: {text}") from None


def _bounded(url: str, answer: IO[bytes] | Any) -> bytes:
    content: bytes = answer.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise Unreachable(f"{shown(url)}: the answer has more than {_LONGEST} bytes")
    return content
