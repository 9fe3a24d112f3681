"""StickyPartitioner: the partition of records without a key (KIP-480, KIP-794)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from pyclient.clock import Rng

Partitioner = Callable[[str, bytes | None, int], int]
"""A user's partitioner: `partitioner(topic, key, partition_count)` returns the partition number."""


class StickyPartitioner:
    """Assigns a topic's records without a key to one partition until about `batch_size` bytes went there.

    Bytes are counted when a batch is closed: at that moment no incomplete batch is queued, which is when KIP-794 lets
    the partition change, and nothing has to be counted per record.
    """

    __slots__ = ("_batch_size", "_bytes", "_rng", "adaptive", "partition")

    def __init__(self, rng: Rng, batch_size: int, *, adaptive: bool) -> None:
        self._rng = rng
        self._batch_size = batch_size
        self._bytes = 0
        self.adaptive = adaptive
        self.partition = -1

    def closed(self, size: int) -> bool:
        """Count a closed batch of `size` bytes on the sticky partition; return True if `switch` is due."""
        self._bytes += size
        return self._bytes >= self._batch_size

    @property
    def bytes_left(self) -> int:
        """The number of bytes that the sticky partition may still get."""
        return self._batch_size - self._bytes - 1

    def switch(self, candidates: Sequence[int], queued: Sequence[int] | None = None) -> int:
        """Choose and return the next partition among `candidates`, and reset the byte count.

        `queued` has each candidate's number of queued batches: with adaptive partitioning the shorter a queue, the
        likelier its partition. None, or all equal, is a uniform choice.
        """
        self._bytes = 0
        if len(candidates) == 1:
            self.partition = candidates[0]
        elif queued is None or not self.adaptive:
            self.partition = self._rng.choice(candidates)
        else:
            self.partition = candidates[pick_by_queue(queued, self._rng)]
        return self.partition


def pick_by_queue(queued: Sequence[int], rng: Rng) -> int:
    """Return a random index with the weight "longest queue + 1 - own queue", so that slow brokers get less."""
    longest = max(queued)
    bounds = list(accumulate([longest + 1 - length for length in queued]))
    return bisect_right(bounds, rng.random() * bounds[-1])
