"""The producer lock. Acquiring it also disables the lock-free fast path."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Protocol, cast

from pyclient.records import compiled_only


class ProducerLock(Protocol):
    """The lock's interface. Acquiring it first stops the `lane`, if there is one, and takes over its records."""

    lane: Any

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def locked(self) -> bool:
        """Return True if the lock is held."""
        ...


def producer_lock() -> ProducerLock:
    """Return a new lock, without a lane at first; in pure Python a `threading.Lock`."""
    lane_lock = compiled_only("LaneLock")
    return cast(ProducerLock, threading.Lock() if lane_lock is None else lane_lock(threading.Lock()))
