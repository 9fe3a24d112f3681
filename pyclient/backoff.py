"""How long to wait before the next attempt: exponential, bounded, with jitter (KIP-580)."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

_ENOUGH: Final = 64  # doublings after which every bound is reached; keeps a large attempt from overflowing


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waiting times that grow from `initial` to `maximum` seconds.

    They are spread by +-`jitter` (a share of the time), so that clients that failed together do not retry together.
    """

    initial: float
    maximum: float
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay(self, attempt: int, rng: Random) -> float:
        """Seconds to wait after failure number `attempt` (0 is the first); never more than `maximum`."""
        growth = self.multiplier ** min(attempt, _ENOUGH)
        base = min(self.maximum, self.initial * growth)
        spread = rng.uniform(1.0 - self.jitter, 1.0 + self.jitter)
        return min(self.maximum, base * spread)
