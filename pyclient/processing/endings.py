"""End a loop of transactions by an event of threads or of asyncio, or by a signal; pause between its failures."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol


class Event(Protocol):
    """An event of threads or of asyncio."""

    def is_set(self) -> bool:
        """Return True if it is set."""


class Ending:
    """Return True if a loop of transactions is to end."""

    def __init__(self, stop: Event) -> None:
        self._stop = stop
        self._signalled = False

    @property
    def has_come(self) -> bool:
        """True if no further transaction is to begin."""
        return self._signalled or self._stop.is_set()

    def signal(self) -> None:
        """End the loop after the present transaction; a signal handler may call it, as it takes no lock."""
        self._signalled = True


def pause(stop: threading.Event, seconds: float) -> None:
    """Wait, at most until `stop` is set."""
    stop.wait(seconds)


async def async_pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait, at most until `stop` is set."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


@contextmanager
def ending_on(signals: Iterable[signal.Signals], end: Callable[[], None]) -> Iterator[None]:
    """Call `end` for these signals; elsewhere than in the main thread, which alone gets them, do nothing."""
    before: Mapping[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {each: signal.signal(each, lambda number, frame: end()) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
