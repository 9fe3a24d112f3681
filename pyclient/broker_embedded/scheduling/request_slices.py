"""Requests of many items are served in slices by turns, so that other connections are served in between."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from pyclient.net.surroundings import SURROUNDINGS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

log = logging.getLogger("pyclient.broker_embedded")

SLICE: Final = 0.0005
"""Seconds after which a request pauses for others. Its steps are short: an item, or a few."""

LARGE_FRAME: Final = 4096
"""Bytes from which on a request may have so many items that it is decoded in steps."""


class SlicedRequest:
    """A request that is served in steps; `over` is called when it is done, unless it was `abandoned`."""

    __slots__ = ("_began", "_clock", "_spent", "abandoned", "over", "steps")

    def __init__(self, steps: Generator[Any, None, None], over: Callable[[], None]) -> None:
        self.over = over
        self.abandoned = False
        """True if its client has disconnected: the remaining steps are not taken."""
        self.steps = steps
        self._spent = 0.0
        self._began = 0.0
        self._clock: Callable[[], float] = time.perf_counter

    def __repr__(self) -> str:
        return f"<SlicedRequest {self._spent * 1e3:.1f} ms{' abandoned' if self.abandoned else ''}>"

    def seconds(self) -> float:
        """Return the seconds that it has taken so far; for use by its own steps."""
        return self._spent + self._clock() - self._began

    def advance(self, seconds: float, clock: Callable[[], float] = time.perf_counter) -> bool:
        """Take steps for `seconds` of a clock, at least one. Return True when there are no more."""
        self._clock = clock
        self._began = clock()
        end = self._began + seconds
        try:
            next(self.steps)
            while clock() < end:
                next(self.steps)
        except StopIteration:
            return True
        self._spent += clock() - self._began
        return False

    def close(self) -> None:
        """Take no more steps."""
        self.steps.close()


class RequestSlices:
    """The requests of a node that are served in slices, by turns: one slice per iteration of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[SlicedRequest] = deque()
        self._clock = SURROUNDINGS.get().clock.monotonic

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<RequestSlices {len(self)} under way>"

    def begin(self, request: SlicedRequest) -> bool:
        """Serve the first slice at once. Return True if that was all; otherwise the others follow.

        While others are in progress that slice is a single step: connections must not add full slices to an iteration.
        """
        if request.advance(0.0 if self._waiting else SLICE, self._clock):
            return True
        self._waiting.append(request)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._turn)
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

    def _advance(self, request: SlicedRequest) -> bool:
        try:
            return request.advance(SLICE, self._clock)
        except (
            Exception
        ):  # the connection handles failures: this is a bug there, which must not stop the other requests
            log.exception("%r failed", request)
            return True
