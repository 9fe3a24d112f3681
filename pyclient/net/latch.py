"""What threads wait for that happens once, such that Ctrl-C in who waits breaks nothing.

`threading.Event` has a lock inside that an interrupt between its taking and its `with` leaves taken: then `set` hangs.
And one in `threading.Thread.join` or `is_alive` marks a living thread as ended (Python 3.11).
"""

from __future__ import annotations

import threading
import time
from typing import Final, Protocol

_SLICE_SECONDS: Final = 0.25


class Acquirable(Protocol):
    """A lock of any kind."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Takes it; False if it was not free within `timeout` seconds."""
        ...


def acquire(lock: Acquirable, timeout: float | None) -> bool:
    """Takes the lock; False if it was not free within `timeout` seconds (None: never gives up; below 0: as 0).

    In slices: a signal that comes in the moment before a thread blocks does not wake it, so one endless wait could miss
    a Ctrl-C.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while not lock.acquire(timeout=_slice(deadline)):
        if deadline is not None and time.monotonic() >= deadline:
            return False
    return True


def _slice(deadline: float | None) -> float:
    return _SLICE_SECONDS if deadline is None else max(0.0, min(_SLICE_SECONDS, deadline - time.monotonic()))


class Latch:
    """Closed at first; opened once, by one thread, for good."""

    __slots__ = ("_lock", "opened")

    def __init__(self) -> None:
        self.opened = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Lets all go on who wait, now and later."""
        self.opened = True
        self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Waits until it is open; False if it is not after `timeout` seconds (None: never).

        In slices, as `acquire`, and as of several who wait one may have been interrupted between taking the lock and
        letting the next one have it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.opened:
            if self._lock.acquire(timeout=_slice(deadline)):
                self._lock.release()
            elif deadline is not None and time.monotonic() >= deadline:
                break
        return self.opened
