"""Leader epochs and their first offsets: the table for truncation and fencing (KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

UNDEFINED = -1
"""Epoch and end offset of an unknown epoch."""


class LeaderEpochFileCache:
    """Epochs and their first offsets, both strictly increasing. Pure: the caller saves changes."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start in entries:
            self.assign(epoch, start)

    @property
    def latest(self) -> int:
        """Return the newest epoch, -1 if there is none."""
        return self._epochs[-1] if self._epochs else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`. Return True if that changed the table.

        Contradicting entries are removed: those of this or a later epoch, and those at or after that offset.
        """
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def end_offset(self, epoch: int, log_end: int, leader_epoch: int = UNDEFINED) -> tuple[int, int]:
        """Return (largest known epoch not above `epoch`, its end) for OffsetForLeaderEpoch; (-1, -1) if unknown.

        A `leader_epoch` beyond the latest begins at `log_end`, as if it were in the table, where Kafka adds it with the
        election of the leader.
        """
        if leader_epoch > self.latest:
            known = LeaderEpochFileCache(self)
            known.assign(leader_epoch, log_end)
            return known.end_offset(epoch, log_end)
        if epoch == UNDEFINED or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED, UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end
        index = bisect_right(self._epochs, epoch)
        if index == 0:  # older than all known epochs: it ended before the first of them began
            return epoch, self._starts[0]
        return self._epochs[index - 1], self._starts[index]

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which `offset` was written, -1 if unknown."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove epochs that begin at or after `end_offset`. Return True if there were any."""
        count = len(self._epochs)
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        return len(self._epochs) != count

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove epochs that ended at or before `start_offset`; the one that covers it then begins there."""
        index = bisect_right(self._starts, start_offset)
        if index == 0 or (index == 1 and self._starts[0] == start_offset):
            return False
        del self._epochs[: index - 1], self._starts[: index - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> None:
        """Remove all entries."""
        self._epochs.clear()
        self._starts.clear()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._epochs, self._starts, strict=True)

    def __len__(self) -> int:
        return len(self._epochs)

    def __repr__(self) -> str:
        return f"<LeaderEpochFileCache {list(self)}>"
