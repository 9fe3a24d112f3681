"""One connection to one broker: pipelined requests and their responses, which arrive in the same order."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyclient.clock import Clock
from pyclient.config import ClientConfig, format_address
from pyclient.errors import (
    ConnectionFailed,
    KafkaTimeout,
    MalformedMessage,
    ProtocolError,
    UnsupportedVersion,
)
from pyclient.net.api_versions import MAXIMUM, negotiate_versions
from pyclient.net.connect import Connector, TcpConnector
from pyclient.net.in_flight_requests import InFlightRequest, InFlightRequests, OnResponse, ResponseCallback
from pyclient.net.stream import FrameStream, Stream
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.protocol.fields import Part, Request, Response
from pyclient.protocol.framing import decode_response, encode_request, peek_correlation_id
from pyclient.protocol.versions import negotiate

if TYPE_CHECKING:
    from pyclient.net.sasl.authentication import Authenticator, Session

R = TypeVar("R", bound=Response)


class Connection:
    """A connection that is ready for requests: `Connection.open` connects and negotiates API versions.

    Requests are pipelined, and responses come in the order of the requests, as Kafka guarantees. A timeout, an invalid
    response or a lost socket ends the connection once and fails every in-flight request with that cause; a late
    response can therefore never be taken for another.
    """

    def __init__(self, host: str, port: int, *, config: ClientConfig, clock: Clock, node_id: int = -1) -> None:
        self.address = format_address(host, port)
        self.node_id = node_id
        self.api_ranges: Mapping[int, tuple[int, int]] = {}
        self.finalized_features: Mapping[str, int] = {}
        self.on_closed: list[Callable[[Connection], None]] = []
        self.last_used = clock.monotonic()
        self.host = host
        self._config = config
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._gate = threading.RLock()  # held while a request is queued, so that threads keep the order, and at the end
        self.stream: Stream | None = None
        self._cause: BaseException | None = None
        self.in_flight_requests = self._requests = InFlightRequests()
        self._versions: dict[type[Request[Any]], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._held_waiting = 0  # requests held back that have a response
        self._opening = 0  # requests of the version negotiation and of the authentication
        self._session: Session | None = None
        self._unanswered = 0  # requests in flight when the connection ended

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
        authenticator: Authenticator | None = None,
    ) -> Connection:
        """Connect, negotiate API versions and authenticate; without an `authenticator`, with one of its own.

        Raise `ConnectionFailed` with the address and the step that failed.
        """
        connection = cls(host, port, config=config, clock=clock, node_id=node_id)
        connector = connector or SURROUNDINGS.get().connector or TcpConnector(config)
        connection.stream = stream = await connector(host, port, connection._on_frame, connection._on_closed)
        if type(stream) is FrameStream:
            connection._gate = stream.gate
        try:
            await negotiate_versions(connection, config.socket_connection_setup_timeout_ms / 1000)
            if config.uses_sasl:
                await connection._begin_session(authenticator)
        except BaseException:
            connection.end("given up while connecting")
            raise
        connection._opening = connection.in_flight_requests.correlation_id
        return connection

    async def _begin_session(self, authenticator: Authenticator | None) -> None:
        from pyclient.net.sasl.authentication import Authenticator, Session  # few clients need them

        authenticator = authenticator or Authenticator(self._config, self._clock)
        lifetime = await authenticator.authenticate(self)
        self._session = Session(self, authenticator, lifetime)

    # -- state

    @property
    def closed(self) -> bool:
        """True once the connection has ended; it is never reopened."""
        return self._cause is not None

    @property
    def cause(self) -> BaseException | None:
        """The error that ended the connection; None while it is open."""
        return self._cause

    @property
    def encrypted(self) -> bool:
        """True if the connection uses TLS."""
        return self._config.uses_tls

    @property
    def authenticates(self) -> bool:
        """True if the connection uses SASL."""
        return self._config.uses_sasl

    @property
    def refused(self) -> bool:
        """True if the connection ended before any request was answered.

        Those of the version negotiation and of the authentication do not count.
        """
        return self._cause is not None and 0 < self._unanswered == self._requests.correlation_id - self._opening

    @property
    def in_flight(self) -> int:
        """The number of requests without a response."""
        return len(self._requests.queue)

    @property
    def unanswered_for(self) -> float:
        """Seconds since the oldest request without a response was sent; 0 if there is none."""
        try:
            oldest = self._requests.queue[0]
        except IndexError:  # another thread may have taken the last one
            return 0.0
        return max(0.0, self._loop.time() - (oldest.deadline - oldest.timeout))

    @property
    def throttled_for(self) -> float:
        """Seconds left of the broker's throttle time (KIP-219), during which requests are held back."""
        return max(0.0, self._requests.throttled_until - self._loop.time())

    def version_for(self, request: type[Request[Any]], maximum: int | None = None) -> int:
        """Return the version to send a request in; raise `UnsupportedVersion` if broker and client share none."""
        version = self._versions.get(request) if maximum is None else None
        if version is None:
            limit = MAXIMUM.get(request.api_key) if maximum is None else maximum
            try:
                version = negotiate(request, self.api_ranges, limit)
            except UnsupportedVersion as error:
                raise UnsupportedVersion(f"{self._label}: {error}") from None
            if maximum is None:
                self._versions[request] = version
        return version

    def version_used(self, request: type[Request[Any]]) -> int | None:
        """Return the version in which such requests are sent; None before the first one."""
        return self._versions.get(request)

    # -- requests

    async def request(self, message: Request[R], *, timeout: float | None = None, version: int | None = None) -> R:
        """Send a request and wait for its response.

        `timeout` is in seconds, `request_timeout_ms` by default. Raise `KafkaTimeout` after it, which also ends the
        connection; `ConnectionFailed` if the connection ends before the response; `ProtocolError` for an invalid
        response. The caller checks error codes inside the response.
        """
        return await self.submit(message, version=version, timeout=timeout)

    async def request_before_others(self, message: Request[R], *, timeout: float) -> R:
        """Send a request before those that are held back, and wait for its response as `request` does."""
        version = self.version_for(type(message))
        if self._cause is not None:
            raise self._failure(type(message), version)
        future: asyncio.Future[R] = self._loop.create_future()
        with self._gate:
            correlation_id = self._requests.next_correlation_id()
            request = InFlightRequest(
                correlation_id, type(message), version, future, self._loop.time() + timeout, timeout
            )
            self._requests.queue.insert(len(self._requests.queue) - self._held_waiting, request)
            if self._requests.timer_at is None or request.deadline < self._requests.timer_at:
                self._wake_at(request.deadline)
            assert self.stream is not None
            self.stream.send(encode_request(message, version, correlation_id, self._config.client_id))
        return await future

    def hold(self) -> None:
        """Hold requests back until `release`; only `request_before_others` sends."""
        with self._gate:
            self._requests.on_hold = True

    def release(self) -> None:
        """Send the requests since `hold`, and later ones at once."""
        self._requests.on_hold = False
        self._send_held()

    def submit(
        self, message: Request[R], *, version: int | None = None, timeout: float | None = None
    ) -> asyncio.Future[R]:
        """Send a request at once and return a future of its response, or of the errors that `request` raises."""
        future: asyncio.Future[R] = self._loop.create_future()
        self._submit(message, future, version, timeout)
        return future

    def send(
        self,
        message: Request[R],
        on_response: Callable[[R | None, BaseException | None], object],
        *,
        version: int | None = None,
    ) -> None:
        """Send a request at once; call `on_response(response, None)` or `on_response(None, error)` on the loop.

        Raise `UnsupportedVersion` if broker and client have no version in common.
        """
        self._submit(message, ResponseCallback(self._loop, on_response), version, None)

    def send_prepared(
        self,
        request: type[Request[Any]],
        version: int,
        make: Callable[[int], list[Part]],
        read: Callable[[memoryview], Any],
        on_response: OnResponse,
    ) -> None:
        """Send the frame that `make(correlation_id)` returns; otherwise like `send`.

        `on_response` gets the result of `read(frame)`, or, where that is None, the decoded response.
        """
        callback = ResponseCallback(self._loop, on_response)
        if self._cause is not None:
            callback.set_exception(self._failure(request, version))
            return
        with self._gate:
            correlation_id = self._requests.next_correlation_id()
            parts = make(correlation_id)
            time_limit = self._time_limit(None)
            self._expect(InFlightRequest(correlation_id, request, version, callback, *time_limit, read), parts)

    def _submit(
        self,
        message: Request[R],
        future: asyncio.Future[R] | ResponseCallback,
        version: int | None,
        timeout: float | None,
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
            correlation_id = self._requests.next_correlation_id()
            parts = encode_request(message, version, correlation_id, self._config.client_id)
            self._expect(InFlightRequest(correlation_id, request, version, future, *self._time_limit(timeout)), parts)

    def _time_limit(self, timeout: float | None) -> tuple[float, float]:
        """Return the deadline of a request that is sent now, and its timeout."""
        if timeout is None:
            timeout = self._config.request_timeout_ms / 1000
        return max(self._loop.time(), self._requests.throttled_until) + timeout, timeout

    def _expect(self, request: InFlightRequest, parts: list[Part]) -> None:
        self._requests.queue.append(request)
        if self._requests.timer_at is None or request.deadline < self._requests.timer_at:
            self._wake_at(request.deadline)
        self._held_waiting += self._send(parts)

    def send_only(self, message: Request[Any], *, version: int | None = None) -> None:
        """Send a request without a response (Produce with acks=0); raise `ConnectionFailed` on a closed connection."""
        request = type(message)
        if version is None:
            version = self.version_for(request)
        if self._cause is not None:
            raise self._failure(request, version)
        with self._gate:
            self._send(encode_request(message, version, self._requests.next_correlation_id(), self._config.client_id))

    def cork(self) -> None:
        """Hold requests until `uncork` and write them together: a system call costs as much as several kilobytes."""
        assert self.stream is not None
        self.stream.cork()

    def uncork(self) -> None:
        """Write the requests since `cork`."""
        assert self.stream is not None
        self.stream.uncork()

    async def drain(self) -> None:
        """Wait until everything sent was written to the socket, so that its buffers are free again.

        Raise `ConnectionFailed` if the connection ends before.
        """
        while self._requests.held and self._cause is None:  # noqa: ASYNC110  # again for rounding, and on hold
            await asyncio.sleep(max(self.throttled_for, 0.005 if self._requests.on_hold else 0.0))
        assert self.stream is not None
        await self.stream.drain()

    async def close(self) -> None:
        """End the connection; in-flight requests fail with `ConnectionFailed`."""
        self.end("closed by this client")

    def end(self, reason: str) -> None:
        """End the connection at once; in-flight requests fail with `ConnectionFailed` and the reason."""
        self._end(ConnectionFailed(reason))

    def _send(self, parts: list[Part]) -> bool:
        """Send a request; return True if it is held back instead."""
        self.last_used = self._clock.monotonic()
        assert self.stream is not None
        requests = self._requests
        if requests.held or requests.on_hold or (requests.throttled_until and self.throttled_for):
            requests.held.append(parts)
            return True
        self.stream.send(parts)
        return False

    # -- responses

    def _on_frame(self, frame: memoryview) -> None:
        """Complete the oldest request with one response; an exception raised here ends the connection."""
        correlation_id = peek_correlation_id(frame)
        if not self._requests.queue:
            raise MalformedMessage(f"a response came (correlation id {correlation_id}) and no request waits for one")
        in_flight = self._requests.queue[0]
        if in_flight.correlation_id != correlation_id:
            raise MalformedMessage(
                f"a response came with correlation id {correlation_id}, and the next one is"
                f" {in_flight.correlation_id} ({in_flight.request.name} v{in_flight.version})"
            )
        self._requests.queue.popleft()
        future = in_flight.future
        if in_flight.read is not None and (result := in_flight.read(frame)) is not None:
            if not future.done():
                future.set_result(result)
            return
        try:
            _, response = decode_response(in_flight.request.response, in_flight.version, frame)
        except ProtocolError as error:
            text = f"invalid {in_flight.request.name} v{in_flight.version} response: {error}"
            if not future.done():
                future.set_exception(type(error)(f"{self._label}: {text}"))
            raise type(error)(text) from error
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:  # before the callback can send the next request
            self._throttle(throttle_ms / 1000)
        if not future.done():
            future.set_result(response)

    def _throttle(self, seconds: float) -> None:
        """Hold requests back for the broker's throttle time, at most for the request timeout."""
        seconds = min(seconds, self._config.request_timeout_ms / 1000)
        until = max(self._requests.throttled_until, self._loop.time() + seconds)
        self._requests.throttled_until = until
        self._loop.call_at(until, self._send_held)

    def _send_held(self) -> None:
        if self._cause is not None or self._requests.on_hold:
            return
        if self.throttled_for:
            self._loop.call_at(self._requests.throttled_until, self._send_held)
            return
        with self._gate:
            held, self._requests.held, self._held_waiting = self._requests.held, [], 0
            for parts in held:
                self._send(parts)

    # -- time

    def _wake_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._requests.timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        now = self._loop.time()
        with self._gate:  # a thread that writes itself relies on the timer that it saw
            self._timer = self._requests.timer_at = None
            pending = list(self._requests.queue)
        expired = [request for request in pending if request.deadline <= now]
        if expired:
            for request in expired:
                if not request.future.done():
                    request.future.set_exception(KafkaTimeout(f"{self._label}: {request.no_answer}"))
            self._end(KafkaTimeout(expired[0].no_answer))
        elif pending:
            self._wake_at(min(request.deadline for request in pending))

    # -- the end

    def _on_closed(self, error: BaseException | None) -> None:
        self._end(error or ConnectionFailed("the broker closed the connection"))

    def _end(self, cause: BaseException) -> None:
        with self._gate:
            if self._cause is not None:
                return
            self._cause, self._requests.ended = cause, True
            if self._timer is not None:
                self._timer.cancel()
            if self.stream is not None:
                self.stream.close(cause)
            requests, self._requests.queue = self._requests.queue, deque()
            self._unanswered = len(requests)
            self._requests.held.clear()
        if self._session is not None:
            self._session.end()
        for each in requests:
            if not each.future.done():
                each.future.set_exception(self._failure(each.request, each.version))
        for callback in self.on_closed:
            callback(self)

    def _failure(self, request: type[Request[Any]], version: int) -> ConnectionFailed:
        failure = ConnectionFailed(f"{self._label}: no answer to {request.name} v{version}: {self._cause}")
        failure.__cause__ = self._cause
        return failure

    @property
    def _label(self) -> str:
        return self.address if self.node_id < 0 else f"{self.address} (node {self.node_id})"

    def __repr__(self) -> str:
        state = "closed" if self.closed else "ready"
        return f"<Connection {self._label} {state} in_flight={self.in_flight}>"
