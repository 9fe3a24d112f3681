"""The one lock of a producer, which also stops the compiled lane, that works without it."""

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


def producer_lock() -> ProducerLock:
    """A new lock, without a lane at first; in pure Python one like any other."""
    lane_lock = compiled_only("LaneLock")
    return cast(ProducerLock, threading.Lock() if lane_lock is None else lane_lock(threading.Lock()))
