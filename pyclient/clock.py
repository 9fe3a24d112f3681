"""The clock, passed to all code with deadlines, ages or timestamps, so that tests can replace it."""

from __future__ import annotations

import random
import time
from typing import Final, Protocol

Rng = random.Random
"""The random generator for jitter and choices; a seeded one makes a run repeatable."""


class Clock(Protocol):
    """Two readings: `monotonic` for durations and deadlines, `time_ms` for timestamps that leave the process."""

    def monotonic(self) -> float:
        """Return the seconds since some fixed moment; never decreases."""
        ...

    def time_ms(self) -> int:
        """Return the milliseconds since the epoch, like Kafka's timestamps."""
        ...


class SystemClock:
    """The clock of the operating system."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)  # the same clock as an event loop's `time()`

    def time_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK: Final = SystemClock()
