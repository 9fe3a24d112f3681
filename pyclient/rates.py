"""How much there was a second, of late: what a client's metrics make their rates from."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 30
"""How far a rate looks back."""


class Rate:
    """Two sums over the last `WINDOW_SECONDS`, kept by the second. Times are monotonic seconds.

    One thread adds; any may ask meanwhile.
    """

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int, int]] = deque()  # (second, first, second sum) in which there was something

    def add(self, now: float, first: int, second: int) -> None:
        """There was so much of both at `now`, which is never earlier than before."""
        when = int(now)
        if self._seconds and self._seconds[-1][0] == when:
            _, before, behind = self._seconds.pop()
            first, second = first + before, second + behind
        self._seconds.append((when, first, second))
        while self._seconds[0][0] <= now - WINDOW_SECONDS:
            self._seconds.popleft()

    def per_second(self, now: float) -> tuple[float, float]:
        """Both, a second, on the average of the window; a younger client counts as having had nothing before."""
        since = now - WINDOW_SECONDS
        recent = [each for each in list(self._seconds) if each[0] > since]
        return sum(each[1] for each in recent) / WINDOW_SECONDS, sum(each[2] for each in recent) / WINDOW_SECONDS
