"""Callbacks for partitions that are assigned or revoked."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyclient.types import TopicPartition


class RebalanceListener:
    """Give an instance of a subclass to `subscribe(topics, listener=...)`; the methods run in the thread that polls.

    They may commit, seek, pause and ask for positions, but not poll. An exception does not prevent the other callbacks:
    `poll` raises the first one when the rebalance is complete, with a note that says where it was raised, and logs
    later ones. With `AsyncConsumer` they may be `async def`.
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle newly assigned partitions, of which nothing was read yet.

        The last step of every rebalance, also of one without new partitions.
        """
        return None

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that are assigned to another member as soon as this returns: commit what is processed."""
        return None

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """Handle partitions that another member already owns, which cannot be committed; default: `on_revoked`."""
        return self.on_revoked(partitions)


@contextmanager
def calling(listener: RebalanceListener, method: str, partitions: Sequence[TopicPartition]) -> Iterator[None]:
    """Add a note to an error of the user's callback: where and when it was raised (PEP 678)."""
    try:
        yield
    except Exception as error:  # the user's own code may raise anything
        names = ", ".join(map(str, partitions)) or "no partitions"
        error.add_note(
            f"raised by {method} of the rebalance listener {listener!r} for {names}; the rebalance is complete"
        )
        raise


def refuse_coroutine(result: Any, method: str) -> None:
    """Raise `TypeError` for an `async def` method of a synchronous consumer."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"{method} is `async def`, which only an AsyncConsumer awaits: make it a plain function")
