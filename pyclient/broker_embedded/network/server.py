"""The connections of clients and of other nodes: frames in, one request at a time, responses out in order."""

from __future__ import annotations

import asyncio
import logging
from inspect import iscoroutine
from time import perf_counter
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded import dispatch
from pyclient.broker_embedded.config.principal_rules import user_of
from pyclient.broker_embedded.failures import traceback_of
from pyclient.broker_embedded.network.answer_cache import METADATA
from pyclient.broker_embedded.request_context import CloseConnection, RequestContext
from pyclient.broker_embedded.scheduling.request_slices import LARGE_FRAME, SlicedRequest
from pyclient.protocol import framing
from pyclient.protocol.parts import fields_of

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Coroutine, Generator

    from pyclient.broker_embedded.network.listeners import BoundListener
    from pyclient.broker_embedded.network.produce_template import ProduceTemplates
    from pyclient.broker_embedded.request_context import Route
    from pyclient.broker_embedded.scheduling.timers import Timer
    from pyclient.broker_embedded.services import BrokerServices
    from pyclient.protocol.fields import Part, Request, Response

log = logging.getLogger("pyclient.broker_embedded")

PAUSE_ABOVE: Final = 4 << 20
"""Bytes of unsent responses above which a client's next request is not read (Kafka: one response at a time)."""

_API_VERSIONS: Final = 18
_PRODUCE: Final = 0
_LOGIN: Final = (17, 36)  # SaslHandshake and SaslAuthenticate
HANDSHAKE_SECONDS: Final = 30.0
"""Seconds for a TLS handshake."""
_LEAST_PROGRESS: Final = 1024  # bytes per second of an unfinished request


def address_of(sock: socket.socket) -> str:
    """Return the peer's address."""
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "a peer that is gone"


def _has_throttle_time(response: type[Response], version: int) -> bool:
    return any(each.name == "throttle_time_ms" and each.present_in(version) for each in fields_of(response))


def _ignore(_event: object) -> None:
    """Do nothing."""


class BrokerConnection:
    """One connection. The next request is read when the last one is answered, which keeps responses in order.

    `on_closed` is called with it when it is closed.
    """

    def __init__(
        self,
        services: BrokerServices,
        sock: socket.socket,
        number: int,
        bound: BoundListener,
        on_closed: Callable[[BrokerConnection], None],
    ) -> None:
        self.services = services
        self._on_forgotten = on_closed
        self.number = number
        self.bound = bound
        self.listener = bound.kind
        self.local_address: tuple[str, int] = sock.getsockname()[:2]
        self.last_active = services.loop.time()
        self.on_abandoned: Callable[[], None] | None = None
        """Called when the connection closes while its request waits; set by the code that makes it wait."""
        self.on_ended: Callable[[], None] | None = None
        """Called when the client has closed its sending side while its request waits."""
        self.address = address_of(sock)
        self._of_client = not bound.config.is_controller
        self._find_route = dispatch.ROUTES[bound.kind].find
        self._cache = bound.answer_cache
        self._authorization = services.authorization
        self._is_simple = self._of_client and services.authorization is None  # answers do not depend on the client
        self._principal: str | None = None
        self.token_authenticated = False
        """True if the client logged in by a delegation token."""
        self._templates: ProduceTemplates | None = None
        self._waiting: asyncio.Future[Any] | None = None
        self._on_answer: Callable[[asyncio.Future[Any]], None] | None = None  # what `_waiting` calls
        self._sliced: SlicedRequest | None = None
        self._muted: Timer | None = None
        self._spent = 0.0  # seconds that the handler of the current request took, if there are quotas
        self._unfinished: tuple[int, float] | None = None  # bytes of an incomplete request, and when they were counted
        self.stream = bound.stream(
            sock,
            max_frame=services.configs.current.integer("socket.request.max.bytes"),
            on_frame=self._on_frame if bound.contexts is None or bound.config.uses_sasl else self._on_first_frame,
            on_closed=self._on_closed,
            pause_above=PAUSE_ABOVE,
        )
        self.stream.on_end = self._on_end
        self._deadline = services.timers.schedule(HANDSHAKE_SECONDS, self._check_handshake) if bound.contexts else None
        self.client_host = "/" + self.stream.peername.rsplit(":", 1)[0].strip("[]")
        self.sasl = bound.new_sasl_session(self) if bound.config.uses_sasl else None

    def __repr__(self) -> str:
        waiting = self._waiting is not None or self._sliced is not None
        state = "closed" if self.stream.closed else "waiting" if waiting else "open"
        return f"<BrokerConnection {self.number} {self.stream.peername} {state} pending={self.stream.pending}>"

    @property
    def principal(self) -> str:
        """The client's principal, like `User:alice`: by SASL, by its certificate, or `User:ANONYMOUS`."""
        if self._principal is None:
            self._principal = self.bound.principal_of(self.stream)
        return self._principal

    @principal.setter
    def principal(self, proved: str) -> None:
        self._principal = proved

    @property
    def is_known(self) -> bool:
        """Return True if the client has logged in, or ended its TLS handshake on a listener without SASL."""
        return self.sasl.user is not None if self.sasl is not None else self.bound.is_ready(self.stream)

    def close(self) -> None:
        """Close the socket. The later answer of a waiting request is dropped."""
        self.stream.close()

    def close_after_answer(self) -> None:
        """Close the socket once the answer of the request that is served now was given to it."""
        call_soon = self.services.loop.call_soon
        call_soon(call_soon, self.close)  # between the two the answer is sent

    def refuse(self, frame: memoryview, error: errors.BrokerError) -> None:
        """Answer a request that authentication does not allow with an error, after the delay; then close the socket."""
        from pyclient.broker_embedded.faults.error_answers import failed_answer

        try:
            header = framing.decode_request_header(frame)
            route = self._find_route(header.api_key, header.api_version)
            if route is None:
                self._refuse(header)
                return
            request = route.decode(frame, header.body_offset)
        except (errors.ProtocolError, errors.UnsupportedVersion) as unreadable:
            self._unreadable(unreadable)
            return
        name, session = route.name, self.sasl

        async def late() -> Response | None:
            if session is not None:
                await session.delay_refusal()
            self.close_after_answer()
            return failed_answer(name, request, header.api_version, self.services.image.topic_name, error)

        self._park(late(), route, header, request)

    def wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Read nothing more until `work` is done, which answers a frame itself."""
        self._waiting = task = self.services.loop.create_task(work)
        self.stream.pause_reading()
        task.add_done_callback(self._waited)

    def _waited(self, done: asyncio.Task[None]) -> None:
        self._waiting = None
        if done.cancelled() or done.exception() is not None:
            if not done.cancelled():
                log.error("%s: closing the connection", self.stream.peername, exc_info=done.exception())
            self.stream.close()
        self._resume_reading()

    def stalled(self, now: float, seconds: float) -> bool:
        """Return True if an incomplete request grew by less than 1 KiB/s for `seconds`, as seen by repeated calls.

        A client that sends a byte now and then would hold its connection for ever.
        """
        size = self.stream.unfinished()
        seen = self._unfinished
        if size is None:
            self._unfinished = None
            return False
        if seen is None or self.last_active > seen[1]:  # another request
            self._unfinished = (size, now)
            return False
        if now - seen[1] < seconds:
            return False
        self._unfinished = (size, now)
        return size - seen[0] < _LEAST_PROGRESS * seconds

    @property
    def produce_templates(self) -> int:
        """Return the number of kinds of single-batch Produce requests that are kept for the connection."""
        return 0 if self._templates is None else len(self._templates)

    @property
    def muted_until(self) -> float | None:
        """Return the loop's time until which the connection is not read for a quota; None if it is read."""
        return None if self._muted is None else self._muted.due

    def mute(self, seconds: float) -> None:
        """Read nothing for `seconds`: the client is above its quota (KIP-219). Responses are still sent.

        Of several quotas the longest time applies.
        """
        if self._muted is not None:
            if self._muted.due >= self.services.loop.time() + seconds:
                return
            self._muted.cancel()
        self._muted = self.services.timers.schedule(seconds, self._unmute)
        self.stream.pause_reading()

    def _unmute(self) -> None:
        self._muted = None
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Read the next request, unless there is still a reason not to."""
        self.last_active = self.services.loop.time()
        if self._waiting is None and self._sliced is None and self._muted is None:
            self.stream.resume_reading()

    def _on_first_frame(self, frame: memoryview) -> None:
        """Serve the client by its certificate, or close the connection, as Kafka does, if no rule gives it a name."""
        if self._principal is None:  # else this frame came together with the first one
            if self.stream.closed:
                return
            try:
                self._principal = self.bound.principal_of(self.stream)
            except errors.ConfigError as error:
                self._unreadable(error)
                return
            self.stream.on_frame = self._on_frame
        self._on_frame(frame)

    def _on_frame(self, frame: memoryview) -> None:
        services = self.services
        self.last_active = services.loop.time()
        began = perf_counter() if services.image.client_quotas and self._of_client else 0.0
        plain = services.interceptor is None and not began and self._is_simple
        templates = self._templates
        if templates is not None and plain and (known := templates.answer(services, frame)) is not None:
            self.stream.send([known])
            return
        cache = self._cache if plain else None
        if cache is not None and (known := cache.answer(frame)) is not None:
            self.stream.send([known])
            return
        try:
            header = framing.decode_request_header(frame)
            route = self._find_route(header.api_key, header.api_version)
            release = services.release if self._of_client else None
            if route is None or (release is not None and not release.serves(header.api_key, header.api_version)):
                self._refuse(header)
                return
            if len(frame) >= LARGE_FRAME:
                self._in_slices(self._serve_large(frame, route, header))
                return
            request = route.decode(frame, header.body_offset)
        except (errors.ProtocolError, errors.UnsupportedVersion) as error:
            self._unreadable(error)
            return
        before = services.image.version
        try:
            answer = self._call(route, header, request)
        except Exception as error:
            self._fail(error, route, header, request)
            return
        if began:
            self._spent = perf_counter() - began
        if type(answer) is route.response:
            parts = self._send(answer, route, header, request)
            if parts is not None and plain:
                self._remember(frame, header, request, answer, parts, before)
        elif type(answer) is GeneratorType:
            self._in_slices(self._answer_large(answer, frame, route, header, request))
        elif answer is not None:
            self._park(answer, route, header, request)

    def _call(self, route: Route, header: framing.RequestHeader, request: Request[Any]) -> Any:
        """Return the handler's result: a response, the steps to one, or an awaitable."""
        context = RequestContext(self.services, header.api_key, header.api_version, header.client_id, self)
        if self._authorization is None:
            return self._serve(route, request, context, header.correlation_id)
        return self._authorization.serve(
            route, request, context, lambda chosen, left: self._serve(chosen, left, context, header.correlation_id)
        )

    def _serve(self, route: Route, request: Request[Any], context: RequestContext, number: int) -> Any:
        interceptor = self.services.interceptor
        if interceptor is None or not self._of_client:
            return route.handler(request, context)
        return interceptor.serve(route, request, context, number)  # for faults and the request log

    def _remember(
        self,
        frame: memoryview,
        header: framing.RequestHeader,
        request: Request[Any],
        answer: Response,
        parts: list[Part],
        version: int,
    ) -> None:
        """Prepare the fast path for requests like this one; `version` is the metadata version of the answer."""
        services = self.services
        if not self._is_simple:
            return
        if header.api_key == METADATA:
            if self._cache is not None and version == services.image.version:
                self._cache.keep(frame, answer, parts)
        elif header.api_key == _PRODUCE:
            self._keep(frame, header, request)

    def _unreadable(self, error: Exception) -> None:
        log.warning("%s: closing the connection: %s", self.stream.peername, error)
        self.stream.close()

    # Requests of many items

    def _in_slices(self, steps: Generator[Any, None, None]) -> None:
        """Serve a request in steps, and read nothing more until it is done."""
        self._sliced = sliced = SlicedRequest(steps, self._slices_over)
        if self.services.request_slices.begin(sliced):
            self._sliced = None
        else:
            self.stream.pause_reading()

    def _slices_over(self) -> None:
        self._sliced = None
        self._resume_reading()

    def _serve_large(
        self, frame: memoryview, route: Route, header: framing.RequestHeader
    ) -> Generator[Any, None, None]:
        try:
            request = yield from route.decode_in_steps(frame, header.body_offset)
        except errors.ProtocolError as error:
            self._unreadable(error)
            return
        before = self.services.image.version
        try:
            answer = self._call(route, header, request)
        except Exception as error:
            self._fail(error, route, header, request)
            return
        if type(answer) is GeneratorType:
            yield from self._answer_large(answer, frame, route, header, request)
            return
        self._count_time()
        if type(answer) is not route.response:
            if answer is not None:
                self._park(answer, route, header, request, large=True)
            return
        parts = self._send(answer, route, header, request)
        if parts is not None and self.services.interceptor is None and not self.services.image.client_quotas:
            self._remember(frame, header, request, answer, parts, before)

    def _answer_large(
        self,
        steps: Generator[Any, None, Any],
        frame: memoryview | None,
        route: Route,
        header: framing.RequestHeader,
        request: Request[Any],
    ) -> Generator[Any, None, None]:
        """Take the steps to an answer, and encode it in steps."""
        before = self.services.image.version
        try:
            answer = yield from steps
            if type(answer) is not route.response:
                self._count_time()
                if answer is not None:
                    self._park(answer, route, header, request, large=True)
                return
            self._count_time()
        except Exception as error:
            self._fail(error, route, header, request)
            return
        parts = yield from self._send_large(answer, route, header, request)
        if parts is None:
            return
        if frame is not None and self.services.interceptor is None and not self.services.image.client_quotas:
            self._remember(frame, header, request, answer, parts, before)

    def _send_large(
        self, answer: Response, route: Route, header: framing.RequestHeader, request: Request[Any]
    ) -> Generator[Any, None, list[Part] | None]:
        """Send an answer of many items, encoded in steps. Return its parts, None if it could not be encoded."""
        if self._spent:
            self._charge(answer, route, header)
        try:
            parts = yield from framing.encode_response_in_steps(answer, header.api_version, header.correlation_id)
        except Exception as error:
            self._fail(error, route, header, request)
            return None
        self.stream.send(parts)
        return parts

    def _end_large(
        self, answer: Response, route: Route, header: framing.RequestHeader, request: Request[Any]
    ) -> Generator[Any, None, None]:
        yield from self._send_large(answer, route, header, request)

    def _count_time(self) -> None:
        if self._sliced is not None and self.services.image.client_quotas:
            self._spent = self._sliced.seconds()

    def _send(
        self, answer: Response, route: Route, header: framing.RequestHeader, request: Request[Any] | None
    ) -> list[Part] | None:
        """Send an answer. Return its parts, None if it could not be encoded."""
        if self._spent:
            self._charge(answer, route, header)
        try:
            parts = framing.encode_response(answer, header.api_version, header.correlation_id)
        except Exception as error:
            self._fail(error, route, header, request)
            return None
        self.stream.send(parts)  # a closed stream releases the files they hold
        return parts

    def _keep(self, frame: memoryview, header: framing.RequestHeader, request: Request[Any]) -> None:
        """Prepare the fast path for Produce requests like this one."""
        templates = self._templates
        if templates is None:
            from pyclient.broker_embedded.network.produce_template import ProduceTemplates

            templates = self._templates = ProduceTemplates()
        templates.keep(frame, header, request)  # type: ignore[arg-type]  # a ProduceRequest

    def _charge(self, answer: Response, route: Route, header: framing.RequestHeader) -> None:
        """Count the time that a handler took, and mute a client that is above its request quota (KIP-124).

        Waiting time does not count, nor does a login. The client is muted for one window at most, as in Kafka.
        """
        spent, self._spent = self._spent, 0.0
        if header.api_key in _LOGIN or (self.sasl is not None and self.sasl.user is None):
            return
        services = self.services
        client = user_of(self.principal), header.client_id or ""
        seconds = services.quotas.request.charge(client, spent * 100, services.clock.monotonic())
        seconds = min(seconds, services.configs.current.integer("quota.window.size.seconds"))
        if seconds <= 0:
            return
        self.mute(seconds)
        if _has_throttle_time(route.response, header.api_version):
            response: Any = answer
            response.throttle_time_ms = max(response.throttle_time_ms, round(seconds * 1000))

    def _refuse(self, header: framing.RequestHeader) -> None:
        """Refuse an API or version that is not served. Only ApiVersions is answered, in version 0 (KIP-511)."""
        if header.api_key == _API_VERSIONS:
            from pyclient.broker_embedded.handlers.api_versions import unsupported_version

            answer = unsupported_version(self.services.release)
            self.stream.send(framing.encode_response(answer, 0, header.correlation_id))
            return
        log.warning(
            "%s (client id %.100r): closing the connection: API %d version %d is not served",
            self.stream.peername,
            header.client_id,
            header.api_key,
            header.api_version,
        )
        self.stream.close()

    def _park(
        self, answer: Any, route: Route, header: framing.RequestHeader, request: Request[Any], *, large: bool = False
    ) -> None:
        """Read nothing more until the answer is ready; a `large` one is encoded in slices."""
        waiting: asyncio.Future[Any] = self.services.loop.create_task(answer) if iscoroutine(answer) else answer
        self._waiting = waiting
        self.stream.pause_reading()

        def answer_once(done: asyncio.Future[Any]) -> None:
            if self._waiting is done:
                self._on_answer = None
                self._answer(done, route, header, request, large)

        self._on_answer = None if large else answer_once
        waiting.add_done_callback(answer_once)

    def answer_now(self, waiting: asyncio.Future[Any]) -> None:
        """Send the answer in `waiting`, which is done, in this iteration of the loop, if the request waits for it.

        A large answer, which is encoded in slices, is left to the next iteration.
        """
        if self._waiting is waiting and self._on_answer is not None:
            self._on_answer(waiting)

    def _answer(
        self,
        done: asyncio.Future[Any],
        route: Route,
        header: framing.RequestHeader,
        request: Request[Any],
        large: bool,
    ) -> None:
        self._waiting = None
        if done.cancelled():
            self.stream.close()
            return
        error = done.exception()
        if error is not None:
            self._fail(error, route, header, request)
        elif type(answer := done.result()) is GeneratorType:
            self._in_slices(self._answer_large(answer, None, route, header, request))
        elif answer is not None and large:
            self._in_slices(self._end_large(answer, route, header, request))
        elif answer is not None:
            self._send(answer, route, header, request)
        self._resume_reading()

    def _fail(
        self, error: BaseException, route: Route, header: framing.RequestHeader, request: Request[Any] | None
    ) -> None:
        """Handle the exception of a handler: it closes the connection on purpose, or the request has failed.

        A failure is answered as an error of the request; `request` is None if sending that has failed, too.
        """
        if isinstance(error, CloseConnection):
            log.info("%s: closing the connection: %s", self.stream.peername, error)
            self.stream.close()
            return
        log.log(
            logging.INFO if isinstance(error, errors.NotController) else logging.ERROR,  # the other one will be asked
            "%s: %s version %d failed: %s",
            self.stream.peername,
            route.name,
            header.api_version,
            error,
            exc_info=traceback_of(error),
        )
        answer = None
        if request is not None:
            from pyclient.broker_embedded.faults.error_answers import failed_answer

            answer = failed_answer(route.name, request, header.api_version, self.services.image.topic_name, error)
        if answer is None:
            self.stream.close()
        else:
            self._send(answer, route, header, None)

    def _check_handshake(self) -> None:
        """Close a connection whose TLS handshake takes too long."""
        self._deadline = None
        if not self.bound.is_ready(self.stream):
            log.info("%s: closing the connection: its TLS handshake is not done in time", self.stream.peername)
            self.close()

    def _on_end(self, reset: bool) -> None:
        if self.on_ended is not None:
            self.on_ended()
        if reset and self._sliced is not None:
            self.close()  # nothing reads the answer; a client that has only finished sending gets it

    def _on_closed(self, error: BaseException | None) -> None:
        if self.on_abandoned is not None:
            self.on_abandoned()
        if self._muted is not None:
            self._muted.cancel()
        if self._deadline is not None:
            self._deadline.cancel()
            if isinstance(error, errors.ConnectionFailed) and not self.bound.is_ready(self.stream):
                log.info("%s: the TLS handshake failed: %s", self.stream.peername, error.__cause__ or error)
        if self._sliced is not None:
            self._sliced.abandoned = True
        if isinstance(error, errors.ProtocolError):
            log.warning("%s: connection closed: %s", self.stream.peername, error)
        elif error is not None and not isinstance(error, errors.ConnectionFailed):
            log.error("%s: connection closed", self.stream.peername, exc_info=error)
        self._on_forgotten(self)
        # without these cycles it is freed now, also when a garbage collection has frozen it
        self.stream.on_frame = self.stream.on_closed = _ignore
        self.stream.on_end = None
        if self.sasl is not None:
            self.sasl.end()
            self.sasl = None
