"""A clock that only advances when a test advances it."""

from __future__ import annotations


class ManualClock:
    """A `Clock` whose time passes only by `advance`.

    >>> clock = ManualClock()
    >>> clock.advance(1.5)
    >>> clock.monotonic()
    1.5
    """

    __slots__ = ("_epoch_ms", "_now")

    def __init__(self, *, start: float = 0.0, epoch_ms: int = 1_700_000_000_000) -> None:
        self._now = start
        self._epoch_ms = epoch_ms

    def monotonic(self) -> float:
        """Return the seconds passed by `advance`, added to `start`."""
        return self._now

    def time_ms(self) -> int:
        """Return the milliseconds since the epoch, which `advance` moves, too."""
        return self._epoch_ms + round(self._now * 1000)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; raise `ValueError` if they are negative."""
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds})")
        self._now += seconds

    def __repr__(self) -> str:
        return f"<ManualClock {self._now:.3f}s>"
