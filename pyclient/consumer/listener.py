"""What a user can do when partitions come and go."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from pyclient.types import TopicPartition


class RebalanceListener:
    """Give an instance of a subclass to `subscribe(topics, listener=...)`; the methods run in the thread that polls.

    They may commit, seek, pause and ask for positions, but not poll. What they raise comes out of `poll`, when the
    rebalance is done. With `AsyncConsumer` they may be `async def`.
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
