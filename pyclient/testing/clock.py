"""A clock that stands still until a test moves it."""

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
        """Seconds, as far as the test has moved them."""
        return self._now

    def time_ms(self) -> int:
        """Milliseconds since the epoch; they move with `advance` too."""
        return self._epoch_ms + round(self._now * 1000)

    def advance(self, seconds: float) -> None:
        """Lets `seconds` pass; time never goes back."""
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds})")
        self._now += seconds

    def __repr__(self) -> str:
        return f"<ManualClock {self._now:.3f}s>"
