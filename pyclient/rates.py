"""Rates per second over a sliding window, for the clients' metrics."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_SECONDS: Final = 30
"""The length of the window."""


class Rate:
    """Two sums over the last `WINDOW_SECONDS`, with a resolution of one second. Times are monotonic seconds.

    One thread calls `add`; any thread may call `per_second`.
    """

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, int, int]] = deque()  # (time, first sum, second sum), without empty seconds

    def add(self, now: float, first: int, second: int) -> None:
        """Add to both sums at `now`, which must not be earlier than in the call before."""
        when = int(now)
        if self._seconds and self._seconds[-1][0] == when:
            _, first_before, second_before = self._seconds.pop()
            first, second = first + first_before, second + second_before
        self._seconds.append((when, first, second))
        while self._seconds[0][0] <= now - WINDOW_SECONDS:
            self._seconds.popleft()

    def per_second(self, now: float) -> tuple[float, float]:
        """Return both rates per second, averaged over the whole window even if the client is younger."""
        since = now - WINDOW_SECONDS
        recent = [each for each in list(self._seconds) if each[0] > since]
        return sum(each[1] for each in recent) / WINDOW_SECONDS, sum(each[2] for each in recent) / WINDOW_SECONDS
