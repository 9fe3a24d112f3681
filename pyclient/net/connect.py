"""Connect a stream to "host:port": name lookup, TCP, TLS, and an error that names the step that failed."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import os
import socket
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from pyclient.config import ClientConfig, format_address
from pyclient.errors import ConnectionFailed, ProtocolError
from pyclient.net.stream import FrameStream, Stream
from pyclient.net.tasks import first_success, in_daemon_thread
from pyclient.net.tls import ContextSource, TlsEnd, TlsStream
from pyclient.protocol.framing import decode_response, encode_request
from pyclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

OnFrame = Callable[[memoryview], None]
OnClosed = Callable[[BaseException | None], None]
_Address = tuple[socket.AddressFamily, Any]

_NEXT_ADDRESS_SECONDS: Final = 0.25
_PROBE: Final = 1  # the correlation id of the probe
PROBE_SECONDS: Final = 2.0
"""Seconds for the answer to the probe without TLS."""
_LONGEST_ANSWER: Final = 64 * 1024
_REASONS: Final = {
    errno.ECONNREFUSED: "connection refused: nothing listens there (is the broker running, is the port right?)",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "the network cannot be reached",
}


class Connector(Protocol):
    """Opens a client's streams: `TcpConnector` by default; tests and simulations pass their own."""

    async def __call__(self, host: str, port: int, on_frame: OnFrame, on_closed: OnClosed) -> Stream:
        """Return a connected stream to that broker; raise `ConnectionFailed` if there is none."""
        ...


class TcpConnector:
    """Connects by TCP, with TLS if `security_protocol` is SSL or SASL_SSL, to the first address of a host that accepts.

    Raises `ConfigError` for unusable TLS options, and `ConnectionFailed` in a process forked after it was created.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._pid = os.getpid()
        self._timeout = config.socket_connection_setup_timeout_ms / 1000
        self._contexts = ContextSource(config) if config.uses_tls else None

    async def __call__(self, host: str, port: int, on_frame: OnFrame, on_closed: OnClosed) -> Stream:
        """Try each address of the name, the next one when one fails or is slow (RFC 8305, Happy Eyeballs).

        The error contains the failure of every address.
        """
        target = format_address(host, port)
        if self._pid != os.getpid():
            raise ConnectionFailed(f"{target}: this client belongs to process {self._pid}, only that one can connect")
        failures: list[ConnectionFailed] = []

        def attempt(family: socket.AddressFamily, address: Any) -> Callable[[], Coroutine[Any, Any, Stream]]:
            return lambda: self._attempt(family, address, host, on_frame, on_closed, failures)

        attempts = [attempt(*each) for each in await resolve(host, port, self._timeout)]
        try:
            return await first_success(attempts, _NEXT_ADDRESS_SECONDS, discard=_discard)
        except ConnectionFailed:
            prefix = f"{target}: "
            text = prefix + "; ".join(str(failure).removeprefix(prefix) for failure in failures)
            raise ConnectionFailed(text, lasting=all(failure.lasting for failure in failures)) from None

    async def _attempt(
        self,
        family: socket.AddressFamily,
        address: Any,
        host: str,
        on_frame: OnFrame,
        on_closed: OnClosed,
        failures: list[ConnectionFailed],
    ) -> Stream:
        lasting = False
        try:
            async with asyncio.timeout(self._timeout):
                return await self._connect(family, address, host, on_frame, on_closed)
        except TimeoutError:
            reason = f"no connection within {self._timeout:g} s"
        except ConnectionFailed as error:
            reason, lasting = str(error), error.lasting
        except OSError as error:
            reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        failures.append(ConnectionFailed(f"{format_address(*address[:2])}: {reason}", lasting=lasting))
        raise failures[-1]

    async def _connect(
        self, family: socket.AddressFamily, address: Any, host: str, on_frame: OnFrame, on_closed: OnClosed
    ) -> Stream:
        loop = asyncio.get_running_loop()
        limit = self._config.receive_message_max_bytes
        sock = await self._connected_socket(loop, family, address)
        try:
            if self._contexts is None:
                return FrameStream(loop, sock, max_frame=limit, on_frame=on_frame, on_closed=on_closed)
            end = TlsEnd(self._contexts.current(), host)
            stream = TlsStream(loop, sock, end, max_frame=limit, on_frame=on_frame, on_closed=on_closed)
        except BaseException:
            sock.close()
            raise
        try:
            await stream.handshake()
        except BaseException as error:
            _discard(stream)  # its error is raised here
            if isinstance(error, ConnectionFailed) and not stream.heard:
                await self._check_plaintext(loop, family, address)
            raise
        return stream

    async def _check_plaintext(
        self, loop: asyncio.AbstractEventLoop, family: socket.AddressFamily, address: Any
    ) -> None:
        """Raise a lasting `ConnectionFailed` if the port speaks Kafka's protocol without TLS.

        A broker that stops ends a handshake in silence, too: it is worth another attempt.
        """
        try:
            plain = await answers_without_tls(loop, await self._connected_socket(loop, family, address))
        except OSError:
            return
        if plain:
            protocol = "SASL_PLAINTEXT" if self._config.uses_sasl else "PLAINTEXT"
            text = f"TLS failed: the port speaks Kafka's protocol without TLS; set security_protocol={protocol!r}"
            raise ConnectionFailed(text, lasting=True)

    async def _connected_socket(
        self, loop: asyncio.AbstractEventLoop, family: socket.AddressFamily, address: Any
    ) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        isolate_after_fork(sock)
        try:
            self._set_options(sock)
            await _connect_socket(loop, sock, address)
        except BaseException:
            sock.close()
            raise
        return sock

    def _set_options(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._config.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._config.send_buffer_bytes)
        if self._config.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._config.receive_buffer_bytes)


async def resolve(host: str, port: int, timeout: float) -> list[_Address]:
    """Return every address of a name, IPv4 and IPv6, in the resolver's order; raise `ConnectionFailed` if DNS fails.

    Each lookup runs in a daemon thread of its own, `pyclient-dns-<host>`, since the system's resolver blocks: one that
    hangs blocks neither the loop nor interpreter exit. A numeric address needs no thread.
    """
    with contextlib.suppress(OSError, UnicodeError):  # a name, not an address
        return _look_up(host, port, socket.AI_NUMERICHOST)
    target = format_address(host, port)
    try:
        async with asyncio.timeout(timeout):
            return await in_daemon_thread(f"pyclient-dns-{host}", lambda: _look_up(host, port, 0))
    except TimeoutError:
        raise ConnectionFailed(f"{target}: DNS did not answer within {timeout:g} s") from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        lasting = getattr(error, "errno", None) != socket.EAI_AGAIN  # a temporary failure of the resolver
        text = f"{target}: DNS does not know the name {host!r} ({reason})"
        raise ConnectionFailed(text, lasting=lasting) from error


def _look_up(host: str, port: int, flags: int) -> list[_Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


async def _connect_socket(loop: asyncio.AbstractEventLoop, sock: socket.socket, address: Any) -> None:
    """Connect a non-blocking socket; its writer is removed from the loop before the caller can close the socket."""
    try:
        sock.connect(address)
    except (BlockingIOError, InterruptedError):
        pass
    else:
        return
    writable: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock.fileno(), _wake, writable)
    try:
        await writable
    finally:
        loop.remove_writer(sock.fileno())
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _discard(stream: Stream) -> None:
    """Close a stream that was never returned, without a call of its `on_closed`."""
    stream.on_closed = _ignore
    stream.close()


def _ignore(_: BaseException | None) -> None:
    """Do nothing: the stream's failure was raised already."""


async def answers_without_tls(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> bool:
    """Return True if a broker answers ApiVersions 0 on this connected socket within two seconds. Close the socket.

    The request has no client id: nothing of the client's is sent without encryption.
    """
    answer: asyncio.Future[bytes] = loop.create_future()

    def on_frame(frame: memoryview) -> None:
        if not answer.done():
            answer.set_result(bytes(frame))

    def on_closed(_error: BaseException | None) -> None:
        if not answer.done():
            answer.set_result(b"")

    stream = FrameStream(loop, sock, max_frame=_LONGEST_ANSWER, on_frame=on_frame, on_closed=on_closed)
    try:
        stream.send(encode_request(ApiVersionsRequest(), 0, _PROBE, None))
        async with asyncio.timeout(PROBE_SECONDS):
            number, response = decode_response(ApiVersionsResponse, 0, await answer)
    except (TimeoutError, ProtocolError):
        return False
    finally:
        stream.close()
    return number == _PROBE and bool(response.api_keys)


# -- forked children

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def isolate_after_fork(sock: socket.socket) -> None:
    """In every child forked from now on, replace this socket's descriptor with one that is always idle.

    A child inherits every connection of its parent. An event loop that keeps running there, or that asyncio shuts down
    at exit, would write to them, read responses meant for the parent, and remove them from the parent's loop, since the
    kernel shares an epoll instance's list of descriptors between the two.
    """
    _sockets.add(sock)


def _replace_in_child() -> None:
    inherited = [sock for sock in list(_sockets) if sock.fileno() >= 0]
    if not inherited:
        return
    idle, peer = socket.socketpair()
    idle.setblocking(False)
    for sock in inherited:
        os.dup2(idle.fileno(), sock.fileno(), inheritable=False)
    idle.close()
    peer.detach()  # left open, otherwise the replaced sockets would read an end of file
    atexit.register(_detach, inherited)  # not before: the loop may still be woken for one of these descriptors


def _detach(inherited: list[socket.socket]) -> None:
    for sock in inherited:
        sock.detach()  # avoids a ResourceWarning about an unclosed socket


os.register_at_fork(after_in_child=_replace_in_child)
