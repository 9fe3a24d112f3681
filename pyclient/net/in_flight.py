"""In-flight requests and the callbacks that complete them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from pyclient.protocol.fields import Request

OnResponse = Callable[[Any, BaseException | None], object]
"""Called with a response and None, or with None and an error."""


class ResponseCallback:
    """Completes a request in the event-loop iteration that received its response, one iteration before a future would.

    Takes the place of a future (measured: saves 15 us of CPU time for a small request). Errors are still delivered in
    the next iteration: they can arise where the connection is not ready for another request of the callback.
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
