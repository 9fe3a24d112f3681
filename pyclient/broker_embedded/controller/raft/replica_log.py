"""A replica's log as Raft sees it: offsets, epochs and snapshots, without the records themselves."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class OffsetAndEpoch:
    """The end of a log or a snapshot: the offset after its last record, and that record's epoch."""

    offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.offset}/{self.epoch}"

    @property
    def order(self) -> tuple[int, int]:
        """The key by which logs compare: the later epoch is newer, then the longer log."""
        return self.epoch, self.offset


@dataclass(frozen=True, slots=True)
class Valid:
    """The follower's log is a prefix of the leader's: records can follow."""


@dataclass(frozen=True, slots=True)
class Diverging:
    """The follower's log differs from the leader's: it has to truncate to `end` or below."""

    end: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class NeedsSnapshot:
    """The records after the follower's log were deleted: it has to fetch this snapshot first."""

    snapshot: OffsetAndEpoch


class ReplicaLog:
    """Offsets and epochs of a log whose start may have been replaced by a snapshot.

    `end_offset` counts what was handed to the disk, `flushed_end` what is certainly on it. Only the latter may be
    reported to others: a majority of answers decides that a record is committed.
    """

    __slots__ = ("_epochs", "_starts", "end_offset", "flushed_end", "oldest_snapshot", "snapshot", "start_offset")

    def __init__(
        self,
        *,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        oldest_snapshot: OffsetAndEpoch | None = None,
        snapshot: OffsetAndEpoch | None = None,
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_end = end_offset
        self.oldest_snapshot = oldest_snapshot
        """The snapshot at which the log starts, None for a log from offset 0."""
        self.snapshot = snapshot
        """The newest snapshot."""
        pairs = list(epochs)
        self._epochs = [epoch for epoch, _start in pairs]
        self._starts = [start for _epoch, start in pairs]

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, of the snapshot if none follows it, 0 for an empty log."""
        return self._epochs[-1] if self._epochs else self._epoch_before

    @property
    def end(self) -> OffsetAndEpoch:
        """The end of the log with its epoch, flushed or not."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    def epoch_before(self, offset: int) -> int:
        """Return the epoch of the record before `offset`."""
        index = bisect_right(self._starts, offset - 1)
        return self._epochs[index - 1] if index else self._epoch_before

    def append(self, epoch: int, end_offset: int) -> None:
        """Note that records of `epoch` were appended up to `end_offset`."""
        if end_offset <= self.end_offset or epoch < self.last_epoch:
            raise ValueError(f"records of epoch {epoch} up to {end_offset} cannot follow the end {self.end}")
        if not self._epochs or self._epochs[-1] != epoch:
            self._epochs.append(epoch)
            self._starts.append(self.end_offset)
        self.end_offset = end_offset

    def truncate(self, offset: int) -> None:
        """Drop everything from `offset` on."""
        if not self.start_offset <= offset <= self.end_offset:
            raise ValueError(f"cannot truncate to {offset}: the log has {self.start_offset} to {self.end_offset}")
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = offset
        self.flushed_end = min(self.flushed_end, offset)

    def restart(self, snapshot: OffsetAndEpoch) -> None:
        """Replace everything by a snapshot, whose end is the log's new start and end."""
        self._epochs, self._starts = [], []
        self.start_offset = self.end_offset = self.flushed_end = snapshot.offset
        self.oldest_snapshot = self.snapshot = snapshot

    def delete_before(self, snapshot: OffsetAndEpoch) -> None:
        """Move the start to the end of a snapshot."""
        if snapshot.offset > self.end_offset:
            raise ValueError(f"the snapshot {snapshot} is beyond the log's end {self.end}")
        index = bisect_right(self._starts, snapshot.offset)
        if index:
            kept = index - 1 if snapshot.offset < self.end_offset else index
            del self._epochs[:kept], self._starts[:kept]
            if kept == index - 1 and self._starts:
                self._starts[0] = snapshot.offset
        self.start_offset = snapshot.offset
        self.oldest_snapshot = snapshot

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the largest known epoch up to `epoch` and the offset at which it ends (KIP-101)."""
        index = bisect_right(self._epochs, epoch)
        if index == len(self._epochs):
            return self.end
        if index == 0:
            return OffsetAndEpoch(self.start_offset, self._epoch_before)
        return OffsetAndEpoch(self._starts[index], self._epochs[index - 1])

    def check_fetch(self, offset: int, last_epoch: int) -> Valid | Diverging | NeedsSnapshot:
        """Compare the end of a follower's log with this one (KIP-595, KIP-630)."""
        if self.start_offset == offset == last_epoch == 0:
            return Valid()
        oldest, newest = self.oldest_snapshot, self.snapshot
        if oldest is not None and newest is not None:
            at_start = offset == self.start_offset and last_epoch != oldest.epoch
            if offset < self.start_offset or at_start or last_epoch < oldest.epoch:
                return NeedsSnapshot(newest)
        end = self.end_of_epoch(last_epoch)
        if end.epoch != last_epoch or end.offset < offset:
            return Diverging(end)
        return Valid()

    def truncation_point(self, leader_end: OffsetAndEpoch) -> int:
        """Return where to truncate when the leader says where its log diverges from this one."""
        own = self.end_of_epoch(leader_end.epoch)
        point = min(own.offset, leader_end.offset) if own.epoch == leader_end.epoch else own.offset
        return min(point, self.end_offset)

    @property
    def _epoch_before(self) -> int:
        return self.oldest_snapshot.epoch if self.oldest_snapshot is not None else 0
