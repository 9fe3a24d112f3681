"""When to ask for metadata again: by age, on request, and never in a rush."""

from __future__ import annotations

import asyncio
import contextlib

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng


class RefreshGate:
    """Joins requests for a refresh and keeps refreshes apart.

    Requests that follow each other closely find growing pauses (`backoff`); `request_at_once` finds none. Without any
    request the gate opens when the last refresh is `max_age` seconds old.
    """

    def __init__(self, backoff: Backoff, max_age: float, clock: Clock, rng: Rng) -> None:
        self._backoff = backoff
        self._max_age = max_age
        self._clock = clock
        self._rng = rng
        self._wanted = asyncio.Event()
        self._at_once = asyncio.Event()
        self._going_on = False
        self._urgent = False  # the last refresh was asked for at once: the first of a new row
        self._last = float("-inf")
        self._in_a_row = 0

    def request(self) -> None:
        """Asks for a refresh; one that is going on counts."""
        if not self._going_on:
            self._wanted.set()

    def request_at_once(self) -> None:
        """Asks for a refresh that begins after this call, without a pause."""
        self._wanted.set()
        self._at_once.set()

    def begin(self) -> None:
        """A refresh begins: requests until now are served by it."""
        self._going_on = True
        self._urgent = self._at_once.is_set()
        self._wanted.clear()
        self._at_once.clear()

    def end(self) -> None:
        """A refresh has succeeded."""
        self._going_on = False
        now = self._clock.monotonic()
        in_a_row = now - self._last < 2 * self._backoff.maximum and not self._urgent
        self._in_a_row = self._in_a_row + 1 if in_a_row else 0
        self._last = now

    def failed(self) -> None:
        """A refresh was given up: another one is wanted, after a pause."""
        self._going_on = False
        self._last = self._clock.monotonic()
        self._wanted.set()

    async def wait_until_due(self) -> None:
        """Returns when the next refresh should begin."""
        if not await self._wait(self._wanted, self._max_age - (self._clock.monotonic() - self._last)):
            self._in_a_row = 0  # nobody asked: it is only time
        pause = self._backoff.delay(self._in_a_row, self._rng)
        await self._wait(self._at_once, pause - (self._clock.monotonic() - self._last))

    async def _wait(self, event: asyncio.Event, seconds: float) -> bool:
        """Waits for the event, up to so many seconds; whether it came."""
        if seconds > 0 and not event.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
        return event.is_set()
