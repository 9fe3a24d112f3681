"""A producer in a child made by `fork`: its thread and sockets are the parent's, so every use is refused."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """What must know that it was forked."""

    def after_fork(self) -> None:
        """Called in the child."""
        ...


_producers: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_after_fork(producer: Forkable) -> None:
    """From now until it dies, `producer.after_fork()` is called in every child made by `fork`."""
    _producers.add(producer)


def _in_child() -> None:
    for producer in list(_producers):
        producer.after_fork()


os.register_at_fork(after_in_child=_in_child)
