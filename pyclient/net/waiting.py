"""Who waits for a response, and how he is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from pyclient.protocol.fields import Request

Answered = Callable[[Any, BaseException | None], object]
"""Is called with a response and None, or with None and an error."""


class Told:
    """Stands where a future would: tells a response in the turn of the loop in which its frame was received.

    A future's callback comes a turn later (measured: 15 us of CPU time for a small request). Errors take that turn,
    too: they come up where the connection is not ready for what a caller may do next.
    """

    __slots__ = ("_answered", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, answered: Answered) -> None:
        self._loop = loop
        self._answered: Answered | None = answered

    def done(self) -> bool:
        """Whether a response or an error was told, or will be in the loop's next turn."""
        return self._answered is None

    def set_result(self, response: Any) -> None:
        """Tells the response, now."""
        answered, self._answered = self._answered, None
        assert answered is not None
        try:
            answered(response, None)
        except Exception as error:  # whatever it is, the connection's other answers are not to wait for it
            text = "what was to happen after a response failed"
            self._loop.call_exception_handler({"message": text, "exception": error})

    def set_exception(self, error: BaseException) -> None:
        """Tells the error, soon."""
        self._loop.call_soon(self._take(), None, error)

    def forget(self) -> None:
        """Tells nobody any more: what is waited for is sent in another way."""
        self._answered = None

    def _take(self) -> Answered:
        """Who is to be told, once. Like a future it then forgets him: the traceback of a bad answer holds on to it."""
        assert self._answered is not None
        answered, self._answered = self._answered, None
        return answered


class Waiting(NamedTuple):
    """A request that was sent, or is held back, and has no answer yet. Times are the loop's, in seconds."""

    correlation_id: int
    request: type[Request[Any]]
    version: int
    future: asyncio.Future[Any] | Told
    deadline: float
    timeout: float
    read: Callable[[memoryview], Any] | None = None  # reads a plain answer's frame; None for what is not plain

    @property
    def no_answer(self) -> str:
        """What to say when it is late."""
        return f"no answer to {self.request.name} v{self.version} within {self.timeout:g} s"
