"""A clock for code that must not wait for real time to pass."""

from __future__ import annotations

import time


class MovedClock:
    """The system's clock, moved ahead by `seconds`."""

    seconds = 0.0

    def time_ms(self) -> int:
        return int((time.time() + self.seconds) * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self.seconds
