"""Requests of many items are served in slices, in turns, so that those of other connections are served in between."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

log = logging.getLogger("pyclient.broker_embedded")

SLICE: Final = 0.0005
"""Seconds after which a request makes way for others. Its steps are short: an item, or a few."""

LARGE_FRAME: Final = 4096
"""Bytes from which on a request may have so many items that it is decoded in steps."""


class SlicedRequest:
    """A request that is served in steps; `over` is called when it is done, unless it was `abandoned` before."""

    __slots__ = ("_began", "_spent", "_steps", "abandoned", "over")

    def __init__(self, steps: Generator[Any, None, None], over: Callable[[], None]) -> None:
        self.over = over
        self.abandoned = False
        """Its client has gone: what is not done yet is left undone, as if it had not been asked for."""
        self._steps = steps
        self._spent = 0.0
        self._began = 0.0

    def __repr__(self) -> str:
        return f"<SlicedRequest {self._spent * 1e3:.1f} ms{' abandoned' if self.abandoned else ''}>"

    def seconds(self) -> float:
        """The time that it has taken so far, for its own steps to ask."""
        return self._spent + time.perf_counter() - self._began

    def advance(self, seconds: float) -> bool:
        """Take steps for that long, at least one; True when there are no more."""
        clock = time.perf_counter
        self._began = clock()
        end = self._began + seconds
        try:
            next(self._steps)
            while clock() < end:
                next(self._steps)
        except StopIteration:
            return True
        self._spent += clock() - self._began
        return False

    def close(self) -> None:
        """Take no more steps."""
        self._steps.close()


class RequestSlices:
    """The requests of a node that are under way in slices, served in turns: one slice in a turn of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[SlicedRequest] = deque()
        self.on_busy: Callable[[bool], None] = lambda _busy: None
        """Called when the first request of several slices begins, and when the last one of them is over."""

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<RequestSlices {len(self)} under way>"

    def begin(self, request: SlicedRequest) -> bool:
        """Serve the first slice at once; True when that was all, else the others follow.

        While others are under way that slice is a single step, or connections could add slices to one turn at will.
        """
        if request.advance(0.0 if self._waiting else SLICE):
            return True
        self._waiting.append(request)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._turn)
            self.on_busy(True)
        return False

    def _turn(self) -> None:
        request = self._waiting.popleft()
        if request.abandoned:
            request.close()
        elif self._advance(request):
            request.over()
        else:
            self._waiting.append(request)
        if self._waiting:
            self._loop.call_soon(self._turn)
        else:
            self.on_busy(False)

    def _advance(self, request: SlicedRequest) -> bool:
        try:
            return request.advance(SLICE)
        except Exception:  # its connection answers what fails: this is a mistake in that, and the others go on
            log.exception("%r failed", request)
            return True
