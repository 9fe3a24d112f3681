"""Exponential backoff with jitter and a maximum (KIP-580)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

_MAX_EXPONENT: Final = 64  # reaches every maximum; a larger one could overflow


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times that grow from `initial` to `maximum` seconds.

    They vary by +-`jitter` (a fraction of the time), so that clients that failed together do not retry together.
    """

    initial: float
    maximum: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay(self, attempt: int, rng: Random) -> float:
        """Return the seconds to wait after failure number `attempt` (0 is the first), at most `maximum`."""
        growth = self.multiplier ** min(attempt, _MAX_EXPONENT)
        base = min(self.maximum, self.initial * growth)
        spread = rng.uniform(1.0 - self.jitter, 1.0 + self.jitter)
        return min(self.maximum, base * spread)
