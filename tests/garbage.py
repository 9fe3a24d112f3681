"""Garbage collections that call finalizers in an order that owners do not expect."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from pyclient.net.loop_thread import LoopThread


class Cycle:
    """An object that only a garbage collection frees, and with it what `held` refers to."""

    def __init__(self, held: Any) -> None:
        self.held = held
        self.itself = self


def younger_loop_thread(*arguments: Any, **options: Any) -> LoopThread:
    """Return a loop thread that is in a younger generation of the garbage collector than its owner."""
    gc.collect(0)
    return LoopThread(*arguments, **options)


@contextmanager
def loop_threads_first(module: str) -> Iterator[None]:
    """Have `gc.collect()` in the block finalize the loop threads that a module makes before the objects that own them.

    A full collection begins with the youngest objects.
    """
    gc.collect()
    gc.disable()
    try:
        with patch(f"{module}.LoopThread", younger_loop_thread):
            yield
    finally:
        gc.enable()
