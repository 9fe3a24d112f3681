"""Where time comes from: the clock that everything with a deadline, an age or a timestamp is handed."""

from __future__ import annotations

import random
import time
from typing import Final, Protocol

Rng = random.Random
"""The random generator that jitter and choices draw from; a seeded one makes a run repeatable."""


class Clock(Protocol):
    """Two readings: `monotonic` for durations and deadlines, `time_ms` for timestamps that leave the process."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def time_ms(self) -> int:
        """Milliseconds since the epoch, as Kafka's timestamps have them."""
        ...


class SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)  # which is also what an event loop's `time()` gives

    def time_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK: Final = SystemClock()
