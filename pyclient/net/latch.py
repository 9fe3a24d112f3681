"""What threads wait for that happens once, such that Ctrl-C in who waits breaks nothing.

`threading.Event` has a lock inside that an interrupt between its taking and its `with` leaves taken: then `set` hangs.
And one in `threading.Thread.join` or `is_alive` marks a living thread as ended (Python 3.11).
"""

from __future__ import annotations

import threading
import time
from typing import Final

_SLICE_SECONDS: Final = 0.25


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

        In slices: a signal that comes in the moment before a thread blocks in a lock does not wake it, and of several
        who wait one may have been interrupted between taking the lock and letting the next one have it.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.opened:
            left = _SLICE_SECONDS if deadline is None else min(_SLICE_SECONDS, deadline - time.monotonic())
            if self._lock.acquire(timeout=max(left, 0.0)):
                self._lock.release()
            elif deadline is not None and time.monotonic() >= deadline:
                break
        return self.opened
