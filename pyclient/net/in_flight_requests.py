"""The requests of one connection that have no response yet, and what decides when the next one may be sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import asyncio

    from pyclient.protocol.fields import Part, Request

_MAX_CORRELATION_ID: Final = 0x7FFF_FFFF

OnResponse = Callable[[Any, BaseException | None], object]
"""Called with a response and None, or with None and an error."""


class ResponseCallback:
    """Completes a request in the event-loop iteration that received its response, one iteration before a future would.

    Takes the place of a future, which costs CPU time (docs/measurements.md, "Latency at linger 0"). Errors are still
    delivered in the next iteration: they can arise where the connection is not ready for another request of the
    callback.
    """

    __slots__ = ("_loop", "_on_response")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_response: OnResponse) -> None:
        self._loop = loop
        self._on_response: OnResponse | None = on_response

    def done(self) -> bool:
        """Return True once the callback has been called, or is scheduled for the loop's next iteration."""
        return self._on_response is None

    def set_result(self, response: Any) -> None:
        """Call the callback with the response, synchronously."""
        on_response, self._on_response = self._on_response, None
        assert on_response is not None
        try:
            on_response(response, None)
        except Exception as error:  # the connection's other responses must still be processed
            self._loop.call_exception_handler({"message": "a response callback failed", "exception": error})

    def set_exception(self, error: BaseException) -> None:
        """Schedule the callback with the error."""
        self._loop.call_soon(self._take(), None, error)

    def forget(self) -> None:
        """Drop the callback: the request is sent in another way."""
        self._on_response = None

    def _take(self) -> OnResponse:
        """Return the callback and drop the reference to it, since the traceback of a failure may keep this alive."""
        assert self._on_response is not None
        on_response, self._on_response = self._on_response, None
        return on_response


class InFlightRequest(NamedTuple):
    """A request that was sent, or is held back, and has no response yet. Times are the loop's, in seconds."""

    correlation_id: int
    request: type[Request[Any]]
    version: int
    future: asyncio.Future[Any] | ResponseCallback
    deadline: float
    timeout: float
    read: Callable[[memoryview], Any] | None = None  # fast decoder; it returns None for a frame that needs the full one

    @property
    def no_answer(self) -> str:
        """Return the text of the timeout error."""
        return f"no answer to {self.request.name} v{self.version} within {self.timeout:g} s"


class InFlightRequests:
    """The state of a connection's requests, in public fields.

    They are changed under the gate of the connection's stream only. Compiled code that holds the gate may send a
    request without `Connection`, as any call of Python may run a signal handler or another thread. It may do so if
    `ended`, `on_hold` and `held` are all false, `timer_at` is not None and no later than the deadline of the request,
    `throttled_until` is over, and `queue` has only requests of the same caller.
    """

    __slots__ = ("correlation_id", "ended", "held", "on_hold", "queue", "throttled_until", "timer_at")

    def __init__(self) -> None:
        self.queue: deque[InFlightRequest] = deque()
        """The requests without a response, in order; the last ones may be held back."""
        self.correlation_id = 0
        """The id of the last request."""
        self.timer_at: float | None = None
        """The loop's time of the next check of deadlines; None if there is none planned."""
        self.throttled_until = 0.0
        """The loop's time until which requests are held back, as the broker demanded (KIP-219)."""
        self.held: list[list[Part]] = []
        """Requests held back while the broker throttles, or while `on_hold`."""
        self.on_hold = False
        """True while only requests of a login are sent."""
        self.ended = False
        """True once the connection has ended."""

    def __repr__(self) -> str:
        return f"<InFlightRequests {len(self.queue)} last id {self.correlation_id} held={len(self.held)}>"

    def next_correlation_id(self) -> int:
        """Return the id for a new request."""
        self.correlation_id = correlation_id = (self.correlation_id + 1) & _MAX_CORRELATION_ID
        return correlation_id
