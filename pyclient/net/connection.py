"""One connection to one broker: requests out, responses back in order, and one end for all that wait."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from pyclient.clock import Clock
from pyclient.config import ClientConfig, format_address
from pyclient.errors import (
    ConnectionFailed,
    KafkaTimeout,
    MalformedMessage,
    ProtocolError,
    UnsupportedVersion,
)
from pyclient.net.connect import Connector, TcpConnector
from pyclient.net.stream import FrameStream
from pyclient.net.stream_protocol import Stream
from pyclient.net.version_agreement import MAXIMUM, agree_on_versions
from pyclient.net.waiting import Answered, Told, Waiting
from pyclient.protocol.fields import Part, Request, Response
from pyclient.protocol.framing import decode_response, encode_request, peek_correlation_id
from pyclient.protocol.versions import negotiate

R = TypeVar("R", bound=Response)

_MAX_CORRELATION_ID: Final = 2**31 - 1


class Connection:
    """A connection that is ready for requests: `Connection.open` connects and agrees on versions.

    Requests are pipelined, and answers come in the order of the requests, as Kafka promises. A timeout, an answer that
    makes no sense or a lost socket ends the connection once, with one cause that everybody who waits is told; a late
    answer can therefore never be taken for another.
    """

    def __init__(self, host: str, port: int, *, config: ClientConfig, clock: Clock, node_id: int = -1) -> None:
        self.address = format_address(host, port)
        self.node_id = node_id
        self.api_ranges: Mapping[int, tuple[int, int]] = {}
        self.finalized_features: Mapping[str, int] = {}
        self.on_closed: list[Callable[[Connection], None]] = []
        self.last_used = clock.monotonic()
        self._host, self._port = host, port
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._gate = threading.RLock()  # held while a request gets its place in the order, and at the end
        self.stream: Stream | None = None
        self._cause: BaseException | None = None
        self._waiting: deque[Waiting] = deque()
        self._correlation_id = 0
        self._versions: dict[type[Request[Any]], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._throttled_until = 0.0
        self._held: list[list[Part]] = []
        self._opening = 0  # the requests that opened it
        self._unanswered = 0  # when it ended

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        config: ClientConfig,
        clock: Clock,
        node_id: int = -1,
        connector: Connector | None = None,
    ) -> Connection:
        """Connects and asks for the broker's versions; `ConnectionFailed` says what failed and where."""
        connection = cls(host, port, config=config, clock=clock, node_id=node_id)
        connector = connector or TcpConnector(config)
        connection.stream = stream = await connector(host, port, connection._on_frame, connection._on_closed)
        if type(stream) is FrameStream:
            connection._gate = stream.gate
        try:
            await agree_on_versions(connection, config.socket_connection_setup_timeout_ms / 1000)
        except BaseException:
            connection.end("given up while connecting")
            raise
        connection._opening = connection._correlation_id
        return connection

    # -- state

    @property
    def closed(self) -> bool:
        """Whether the connection has ended; it never comes back."""
        return self._cause is not None

    @property
    def cause(self) -> BaseException | None:
        """Why the connection has ended; None while it lives."""
        return self._cause

    @property
    def encrypted(self) -> bool:
        """Whether it is a connection by TLS."""
        return self._config.security_protocol == "SSL"

    @property
    def refused(self) -> bool:
        """Whether it ended before a single request was answered, but for those that opened it."""
        return self._cause is not None and 0 < self._unanswered == self._correlation_id - self._opening

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answer."""
        return len(self._waiting)

    @property
    def throttled_for(self) -> float:
        """Seconds for which the broker asked for silence (KIP-219); requests are held back as long."""
        return max(0.0, self._throttled_until - self._loop.time())

    def version_for(self, request: type[Request[Any]], maximum: int | None = None) -> int:
        """The version in which a request is sent; `UnsupportedVersion` if broker and client have none in common."""
        version = self._versions.get(request) if maximum is None else None
        if version is None:
            limit = MAXIMUM.get(request.api_key) if maximum is None else maximum
            try:
                version = negotiate(request, self.api_ranges, limit)
            except UnsupportedVersion as error:
                raise UnsupportedVersion(f"{self._who}: {error}") from None
            if maximum is None:
                self._versions[request] = version
        return version

    def version_used(self, request: type[Request[Any]]) -> int | None:
        """The version in which such requests are sent, None before the first one."""
        return self._versions.get(request)

    # -- requests

    async def request(self, message: Request[R], *, timeout: float | None = None, version: int | None = None) -> R:
        """Sends a request and waits for its response.

        `timeout` in seconds, `request_timeout_ms` by default. Raises `KafkaTimeout` after it, which ends the
        connection; `ConnectionFailed` if the connection ends before the answer; `ProtocolError` for an answer that
        makes no sense. Error codes inside the response are the caller's.
        """
        return await self.submit(message, version=version, timeout=timeout)

    def submit(
        self, message: Request[R], *, version: int | None = None, timeout: float | None = None
    ) -> asyncio.Future[R]:
        """Sends a request at once; the future gets its response, or an error as `request` raises it."""
        future: asyncio.Future[R] = self._loop.create_future()
        self._submit(message, future, version, timeout)
        return future

    def tell(
        self,
        message: Request[R],
        answered: Callable[[R | None, BaseException | None], object],
        *,
        version: int | None = None,
    ) -> None:
        """Sends a request at once and calls `answered(response, None)` or `answered(None, error)`, from the loop.

        Raises `UnsupportedVersion` if broker and client have no version in common.
        """
        self._submit(message, Told(self._loop, answered), version, None)

    def tell_prepared(
        self,
        request: type[Request[Any]],
        version: int,
        make: Callable[[int], list[Part]],
        read: Callable[[memoryview], Any],
        answered: Answered,
    ) -> None:
        """Like `tell` with a frame that `make(correlation_id)` gives.

        `answered` gets what `read(frame)` makes of the answer, or where that is None the response as `tell` gives it.
        """
        told = Told(self._loop, answered)
        if self._cause is not None:
            told.set_exception(self._failure(request, version))
            return
        with self._gate:
            correlation_id = self._next_correlation_id()
            parts = make(correlation_id)
            self._expect(Waiting(correlation_id, request, version, told, *self._time_limit(None), read), parts)

    def tell_now(
        self,
        request: type[Request[Any]],
        version: int,
        make: Callable[[int], list[Part]],
        read: Callable[[memoryview], Any],
        told: Told,
    ) -> bool:
        """Like `tell_prepared`, from any thread, which writes the request to the socket itself.

        False, and nothing has happened, if that is the loop's to do: something waits to be written, the broker asked
        for silence, or the loop has no timer yet that would find a late answer.
        """
        stream = self.stream
        timeout = self._config.request_timeout_ms / 1000
        with self._gate:
            now = time.monotonic()  # the loop's clock, which tells another thread when its last turn began
            if (
                type(stream) is not FrameStream or not stream.free or self._cause is not None or self._held
                or self._throttled_until > now or self._timer is None or now + timeout < self._timer_at
            ):  # fmt: skip
                return False
            correlation_id = self._next_correlation_id()
            parts = make(correlation_id)
            self._waiting.append(Waiting(correlation_id, request, version, told, now + timeout, timeout, read))
            self.last_used = self._clock.monotonic()
            stream.write_here(parts)
        return True

    def interrupted(self, told: Told, error: BaseException) -> None:
        """A `tell_now` raised: tells `error`. If the request may be on its way, the connection ends with that."""
        if any(waiting.future is told for waiting in list(self._waiting)):
            self.end(f"interrupted while it was written to ({error!r})")
        if not told.done():
            told.set_exception(error)

    def _submit(
        self, message: Request[R], future: asyncio.Future[R] | Told, version: int | None, timeout: float | None
    ) -> None:
        request = type(message)
        if version is None:
            version = self._versions.get(request)
            if version is None:
                version = self.version_for(request)
        if self._cause is not None:
            future.set_exception(self._failure(request, version))
            return
        with self._gate:
            correlation_id = self._next_correlation_id()
            parts = encode_request(message, version, correlation_id, self._config.client_id)
            self._expect(Waiting(correlation_id, request, version, future, *self._time_limit(timeout)), parts)

    def _time_limit(self, timeout: float | None) -> tuple[float, float]:
        """When an answer to what is sent now is late, and the timeout behind it."""
        if timeout is None:
            timeout = self._config.request_timeout_ms / 1000
        return max(self._loop.time(), self._throttled_until) + timeout, timeout

    def _expect(self, waiting: Waiting, parts: list[Part]) -> None:
        self._waiting.append(waiting)
        if self._timer is None or waiting.deadline < self._timer_at:
            self._wake_at(waiting.deadline)
        self._send(parts)

    def send_only(self, message: Request[Any], *, version: int | None = None) -> None:
        """Sends a request that has no response (Produce with acks=0); `ConnectionFailed` if the end was reached."""
        request = type(message)
        if version is None:
            version = self.version_for(request)
        if self._cause is not None:
            raise self._failure(request, version)
        with self._gate:
            self._send(encode_request(message, version, self._next_correlation_id(), self._config.client_id))

    def cork(self) -> None:
        """Requests from now on leave together at `uncork`: one system call costs as much as several kilobytes."""
        assert self.stream is not None
        self.stream.cork()

    def uncork(self) -> None:
        """Sends what was requested since `cork`."""
        assert self.stream is not None
        self.stream.uncork()

    async def drain(self) -> None:
        """Waits until the network has taken all that was sent, so that its buffers are free again.

        `ConnectionFailed` if the connection ends before.
        """
        while self._held and self._cause is None:  # noqa: ASYNC110  # until a moment, in one step but for rounding
            await asyncio.sleep(self.throttled_for)
        assert self.stream is not None
        await self.stream.drain()

    async def close(self) -> None:
        """Ends the connection; who still waits gets `ConnectionFailed`."""
        self.end("closed by this client")

    def end(self, reason: str) -> None:
        """Ends the connection at once; who still waits gets `ConnectionFailed` with the reason."""
        self._end(ConnectionFailed(reason))

    def _next_correlation_id(self) -> int:
        self._correlation_id = correlation_id = (self._correlation_id + 1) & _MAX_CORRELATION_ID
        return correlation_id

    def _send(self, parts: list[Part]) -> None:
        self.last_used = self._clock.monotonic()
        assert self.stream is not None
        if self._held or (self._throttled_until and self.throttled_for):
            self._held.append(parts)
        else:
            self.stream.send(parts)

    # -- responses

    def _on_frame(self, frame: memoryview) -> None:
        """Takes one response; what it raises ends the connection with that cause."""
        correlation_id = peek_correlation_id(frame)
        if not self._waiting:
            raise MalformedMessage(f"a response came (correlation id {correlation_id}) and no request waits for one")
        waiting = self._waiting[0]
        if waiting.correlation_id != correlation_id:
            raise MalformedMessage(
                f"a response came with correlation id {correlation_id}, and the next one is"
                f" {waiting.correlation_id} ({waiting.request.name} v{waiting.version})"
            )
        self._waiting.popleft()
        future = waiting.future
        if waiting.read is not None and (plain := waiting.read(frame)) is not None:
            if not future.done():
                future.set_result(plain)
            return
        try:
            _, response = decode_response(waiting.request.response, waiting.version, frame)
        except ProtocolError as error:
            text = f"the answer to {waiting.request.name} v{waiting.version} makes no sense: {error}"
            if not future.done():
                future.set_exception(type(error)(f"{self._who}: {text}"))
            raise type(error)(text) from error
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:  # before who is told sends the next one
            self._throttle(throttle_ms / 1000)
        if not future.done():
            future.set_result(response)

    def _throttle(self, seconds: float) -> None:
        """Holds requests back as the broker asks, but never longer than an answer may take."""
        seconds = min(seconds, self._config.request_timeout_ms / 1000)
        self._throttled_until = max(self._throttled_until, self._loop.time() + seconds)
        self._loop.call_at(self._throttled_until, self._send_held)

    def _send_held(self) -> None:
        if self._cause is not None:
            return
        if self.throttled_for:
            self._loop.call_at(self._throttled_until, self._send_held)
            return
        with self._gate:
            held, self._held = self._held, []
            for parts in held:
                self._send(parts)

    # -- time

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        now = self._loop.time()
        with self._gate:  # so that no thread that still saw the timer adds a request that it would have to find
            self._timer = None
            pending = list(self._waiting)
        late = [waiting for waiting in pending if waiting.deadline <= now]
        if late:
            for waiting in late:
                if not waiting.future.done():
                    waiting.future.set_exception(KafkaTimeout(f"{self._who}: {waiting.no_answer}"))
            self._end(KafkaTimeout(late[0].no_answer))
        elif pending:
            self._wake_at(min(waiting.deadline for waiting in pending))

    # -- the end

    def _on_closed(self, error: BaseException | None) -> None:
        self._end(error or ConnectionFailed("the broker closed the connection"))

    def _end(self, cause: BaseException) -> None:
        with self._gate:
            if self._cause is not None:
                return
            self._cause = cause
            if self._timer is not None:
                self._timer.cancel()
            if self.stream is not None:
                self.stream.close(cause)
            waiting, self._waiting = self._waiting, deque()
            self._unanswered = len(waiting)
            self._held.clear()
        for each in waiting:
            if not each.future.done():
                each.future.set_exception(self._failure(each.request, each.version))
        for callback in self.on_closed:
            callback(self)

    def _failure(self, request: type[Request[Any]], version: int) -> ConnectionFailed:
        failure = ConnectionFailed(f"{self._who}: no answer to {request.name} v{version}: {self._cause}")
        failure.__cause__ = self._cause
        return failure

    @property
    def _who(self) -> str:
        return self.address if self.node_id < 0 else f"{self.address} (node {self.node_id})"

    def __repr__(self) -> str:
        state = "closed" if self.closed else "ready"
        return f"<Connection {self._who} {state} in_flight={self.in_flight}>"
