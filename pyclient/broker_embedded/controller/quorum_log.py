"""The log of a quorum's node on the disk: applies the Raft core's effects to it, and syncs it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from pyclient.broker_embedded.controller.metadata_log import leader_change
from pyclient.broker_embedded.controller.raft import messages as raft
from pyclient.broker_embedded.controller.snapshots import start_log_at
from pyclient.broker_embedded.controller.voter_records import voters_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.unified_log import UnifiedLog

LogEffect: TypeAlias = (
    raft.Append | raft.AppendRecords | raft.AppendLeaderChange | raft.AppendVoters | raft.Truncate | raft.DeleteBefore
)
"""The effects of the Raft core that change the log."""


class QuorumLog:
    """Writes the log, in the background where the node has a thread for that: one flush at a time.

    `flushed` is called after a flush with the offset below which all is on the disk.
    """

    def __init__(self, log: UnifiedLog, fs: FileSystem, flushed: Callable[[int], object]) -> None:
        self._log = log
        self._fs = fs
        self._flushed = flushed
        self._flushing_to = 0

    def __repr__(self) -> str:
        return f"<QuorumLog flushing to {self._flushing_to} {self._log!r}>"

    def write(self, effect: LogEffect, now_ms: int) -> None:
        """Carry out an effect. Raise `OSError`, `KafkaStorageError` or `ProtocolError`."""
        match effect:
            case raft.Append(batches):
                data = b"".join(batch.data for batch in batches)
                self._log.append(data, leader_epoch=batches[-1].epoch, now_ms=now_ms, origin="replica")
            case raft.AppendRecords(base_offset, epoch, data):
                self._append(base_offset, epoch, data, now_ms)
            case raft.AppendLeaderChange(offset, epoch, leader_id, voters, granting):
                self._append(offset, epoch, leader_change(leader_id, voters, granting, now_ms), now_ms)
            case raft.AppendVoters(offset, epoch, voters, kraft_version):
                self._append(offset, epoch, voters_batch(voters, kraft_version, now_ms), now_ms)
            case raft.Truncate(offset):
                self.replaced()
                self._log.truncate_to(offset)
            case raft.DeleteBefore(snapshot):
                start_log_at(self._log, self._fs, snapshot, now_ms)

    def _append(self, offset: int, epoch: int, batch: bytes, now_ms: int) -> None:
        written = self._log.append(batch, leader_epoch=epoch, now_ms=now_ms, origin="coordinator")
        assert written.base_offset == offset, (written, offset)

    def replaced(self) -> None:
        """Ignore a flush in progress, whose records are no longer in the log: the next flush does not wait for it."""
        self._flushing_to = 0

    def flush(self, known: int) -> int | None:
        """Sync what follows the offset `known`. Return the offset up to which it is on the disk now.

        None if there is nothing to sync, or if it is synced in the background.
        """
        log = self._log
        end = log.end_offset
        if known >= end or self._flushing_to:
            return None
        flush_later = log.flush_later
        if flush_later is None:
            if self._fs.durable:
                log.flush()
            return end
        segments, then = log.local.unflushed_segments(), partial(self._synced, end)
        self._flushing_to = end
        flush_later(log.local.begin_flush(log, segments, then, offline=lambda: log.failure is not None))
        return None

    def _synced(self, end: int) -> None:
        self._flushing_to = 0
        self._log.local.flushed_to(end)
        self._flushed(end)
