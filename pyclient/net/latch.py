"""Waits of threads that stay consistent if KeyboardInterrupt hits them: for a lock, an event, and a flag.

With `threading.Event`, an interrupt between acquiring its inner lock and entering the `with` leaves the lock held, and
`set` hangs. An interrupt in `threading.Thread.join` or `is_alive` marks a running thread as ended (Python 3.11).
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final, Protocol

_SLICE_SECONDS: Final = 0.25


class Acquirable(Protocol):
    """A lock of any kind."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; return False if that took longer than `timeout` seconds."""
        ...


def acquire(lock: Acquirable, timeout: float | None) -> bool:
    """Acquire the lock; return False if that took longer than `timeout` seconds (None: no limit; below 0: as 0).

    Waits in slices: a signal that arrives just before a thread blocks does not wake it, so an unbounded wait could
    miss a Ctrl-C.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while not lock.acquire(timeout=_slice(deadline)):
        if deadline is not None and time.monotonic() >= deadline:
            return False
    return True


def _slice(deadline: float | None) -> float:
    return _SLICE_SECONDS if deadline is None else max(0.0, min(_SLICE_SECONDS, deadline - time.monotonic()))


class Latch:
    """A one-shot event. Closed at first; opened once, by one thread, permanently."""

    __slots__ = ("_lock", "opened")

    def __init__(self) -> None:
        self.opened = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Release all current and later waiters."""
        self.opened = True
        self._lock.release()

    def wait(self, timeout: float | None) -> bool:
        """Wait until the latch is open; return False if it is not after `timeout` seconds (None: no limit).

        Waits in slices, for the reason given in `acquire`, and because one of several waiters may be interrupted
        between acquiring the lock and releasing it for the next one.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.opened:
            if self._lock.acquire(timeout=_slice(deadline)):
                self._lock.release()
            elif deadline is not None and time.monotonic() >= deadline:
                break
        return self.opened


class Flag:
    """Set by any thread; one thread waits for it, which clears it. A single lock, free while the flag is set."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Set the flag."""
        with suppress(RuntimeError):  # already set
            self._lock.release()

    def clear(self) -> None:
        """Clear the flag."""
        self._lock.acquire(blocking=False)

    def wait(self, timeout: float | None) -> bool:
        """Wait until the flag is set and clear it; return False after `timeout` seconds (None: no limit)."""
        return acquire(self._lock, timeout)
