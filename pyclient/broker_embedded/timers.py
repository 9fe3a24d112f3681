"""The node's time, which a test may move on: a clock in front of the real one, and the timers that follow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle
    from collections.abc import Callable

    from pyclient.clock import Clock


class ShiftedClock:
    """A clock that is ahead of another by as much as it was told to be."""

    __slots__ = ("_monotonic", "_shift", "_shift_ms", "_time_ms")

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._time_ms = clock.time_ms
        self._shift = 0.0
        self._shift_ms = 0

    @property
    def shift(self) -> float:
        """How far ahead it is, in seconds."""
        return self._shift

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return self._monotonic() + self._shift

    def time_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._time_ms() + self._shift_ms

    def advance(self, seconds: float) -> None:
        """Go `seconds` further ahead."""
        self._shift += seconds
        self._shift_ms = round(self._shift * 1000)


class Timer:
    """A call that is due at a time of the node's; `cancel` takes it back."""

    __slots__ = ("_callback", "_handle", "_timers", "due")

    def __init__(self, timers: Timers, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self._timers = timers
        self._callback = callback
        self._handle: TimerHandle | None = None

    def arm(self, loop: AbstractEventLoop, delay: float) -> None:
        """Be called in `delay` seconds, whatever was said before."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle = loop.call_later(max(delay, 0.0), self._run)

    def cancel(self) -> None:
        """Make sure that the callback does not run."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._timers.pending.discard(self)

    def _run(self) -> None:
        self._handle = None
        self._timers.pending.discard(self)
        self._callback()


class Timers:
    """All calls that a node has due; when its time jumps, they are due so much sooner."""

    __slots__ = ("_loop", "pending")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.pending: set[Timer] = set()

    def schedule(self, delay: float, callback: Callable[[], object]) -> Timer:
        """Call `callback` on the loop in `delay` seconds."""
        timer = Timer(self, self._loop.time() + delay, callback)
        self.pending.add(timer)
        timer.arm(self._loop, delay)
        return timer

    def advance(self, seconds: float) -> int:
        """Let `seconds` pass at once; how many calls are due by that. They run from the loop, in order."""
        now = self._loop.time()
        timers = sorted(self.pending, key=lambda timer: timer.due)
        for timer in timers:
            timer.due -= seconds
            timer.arm(self._loop, timer.due - now)
        return sum(timer.due <= now for timer in timers)
