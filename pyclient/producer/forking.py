"""Notification of producers in a forked child: their thread and sockets are the parent's, so all use is refused."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """An object to notify in a forked child."""

    def after_fork(self) -> None:
        """Handle the fork, in the child."""
        ...


_producers: weakref.WeakSet[Forkable] = weakref.WeakSet()


def tell_after_fork(producer: Forkable) -> None:
    """Call `producer.after_fork()` in every child made by `fork`, while the producer exists."""
    _producers.add(producer)


def _in_child() -> None:
    for producer in list(_producers):
        producer.after_fork()


os.register_at_fork(after_in_child=_in_child)
