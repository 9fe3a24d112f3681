"""The schedule of metadata refreshes: by age and on request, with a backoff."""

from __future__ import annotations

import asyncio
import contextlib

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng


class RefreshGate:
    """Merges requests for a refresh and spaces refreshes out.

    Refreshes in quick succession are delayed by growing pauses (`backoff`), those of `request_at_once` are not. Without
    a request, a refresh is due when the last one is `max_age` seconds old.
    """

    def __init__(self, backoff: Backoff, max_age: float, clock: Clock, rng: Rng) -> None:
        self._backoff = backoff
        self._max_age = max_age
        self._clock = clock
        self._rng = rng
        self._wanted = asyncio.Event()
        self._at_once = asyncio.Event()
        self._running = False
        self._urgent = False  # the last refresh was requested at once, which resets the backoff
        self._last = float("-inf")
        self._in_a_row = 0

    def request(self) -> None:
        """Request a refresh, unless one is running."""
        if not self._running:
            self._wanted.set()

    def request_at_once(self) -> None:
        """Request a refresh that begins after this call, without a pause."""
        self._wanted.set()
        self._at_once.set()

    def begin(self) -> None:
        """Record that a refresh begins, which serves all requests until now."""
        self._running = True
        self._urgent = self._at_once.is_set()
        self._wanted.clear()
        self._at_once.clear()

    def end(self) -> None:
        """Record that a refresh has succeeded."""
        self._running = False
        now = self._clock.monotonic()
        in_a_row = now - self._last < 2 * self._backoff.maximum and not self._urgent
        self._in_a_row = self._in_a_row + 1 if in_a_row else 0
        self._last = now

    def failed(self) -> None:
        """Record that a refresh has failed, and request another one after a pause."""
        self._running = False
        self._last = self._clock.monotonic()
        self._wanted.set()

    async def wait_until_due(self) -> None:
        """Wait until the next refresh should begin."""
        if not await self._wait(self._wanted, self._max_age - (self._clock.monotonic() - self._last)):
            self._in_a_row = 0  # due by age, not requested
        pause = self._backoff.delay(self._in_a_row, self._rng)
        await self._wait(self._at_once, pause - (self._clock.monotonic() - self._last))

    async def _wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Wait for the event, at most `seconds`; return True if it is set."""
        if seconds > 0 and not event.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
        return event.is_set()
