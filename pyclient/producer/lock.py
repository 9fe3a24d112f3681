"""The one lock of a producer, which also stops the compiled lane, that works without it; and what a lock may wait."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any, Protocol, cast

from pyclient.records import compiled_only


class ProducerLock(Protocol):
    """A lock as far as it is used. Where there is a `lane`, whoever takes it finds nothing under way there."""

    lane: Any

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def locked(self) -> bool:
        """Whether somebody has it."""
        ...


def lock_timeout(seconds: float | None) -> float:
    """The `timeout` with which a lock waits for so many seconds: below 0 not at all, with None for ever."""
    return -1 if seconds is None else min(max(float(seconds), 0.0), threading.TIMEOUT_MAX)


def producer_lock() -> ProducerLock:
    """A new lock, without a lane at first; in pure Python one like any other."""
    lane_lock = compiled_only("LaneLock")
    return cast(ProducerLock, threading.Lock() if lane_lock is None else lane_lock(threading.Lock()))
