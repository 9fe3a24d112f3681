"""What a user can do when partitions come and go."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyclient.types import TopicPartition


class RebalanceListener:
    """Give an instance of a subclass to `subscribe(topics, listener=...)`; the methods run in the thread that polls.

    They may commit, seek, pause and ask for positions, but not poll. What they raise keeps no other of them from being
    called; the first error comes out of `poll` when the rebalance is done, with a note that says where it was raised,
    later ones are logged. With `AsyncConsumer` they may be `async def`.
    """

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are this consumer's now; nothing of them was read yet.

        The last step of every rebalance, also of one that brought none.
        """
        return None

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions go to somebody else as soon as this returns: commit what is done."""
        return None

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are somebody else's already, and cannot be committed. By default as `on_revoked`."""
        return self.on_revoked(partitions)


@contextmanager
def calling(listener: RebalanceListener, method: str, partitions: Sequence[TopicPartition]) -> Iterator[None]:
    """Notes on an error that it came out of the user's own code, and when (PEP 678)."""
    try:
        yield
    except Exception as error:  # the user's own code may raise anything
        names = ", ".join(map(str, partitions)) or "no partitions"
        error.add_note(f"raised by {method} of the rebalance listener {listener!r} for {names}; the rebalance is done")
        raise


def refuse_coroutine(result: Any, method: str) -> None:
    """`TypeError` for an `async def` method that was called where nothing awaits it."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(f"{method} is `async def`, which only an AsyncConsumer awaits: make it a plain function")
