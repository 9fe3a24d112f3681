"""The producer lock, and what takes it from clients in a forked child."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Any, Protocol, cast

from pyclient.producer.implementation import compiled_only


class ProducerLock(Protocol):
    """The lock's interface. Acquiring it first stops the `fast_path`, if there is one, and takes over its records."""

    fast_path: Any

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def locked(self) -> bool:
        """Return True if the lock is held."""
        ...


def producer_lock() -> ProducerLock:
    """Return a new lock, without a fast path at first; in pure Python a `threading.Lock`."""
    fast_path_lock = compiled_only("FastPathLock")
    return cast(ProducerLock, threading.Lock() if fast_path_lock is None else fast_path_lock(threading.Lock()))


class Forkable(Protocol):
    """An object to notify in a forked child."""

    def after_fork(self) -> None:
        """Handle the fork, in the child."""
        ...


_producers: weakref.WeakSet[Forkable] = weakref.WeakSet()


def call_after_fork(producer: Forkable) -> None:
    """Call `producer.after_fork()` in every child made by `fork`, while the producer exists."""
    _producers.add(producer)


def _in_child() -> None:
    for producer in list(_producers):
        producer.after_fork()


os.register_at_fork(after_in_child=_in_child)
