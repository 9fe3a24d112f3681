"""A node of the simulated metadata quorum: a `RaftReplica` with a disk that forgets what was not synced."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pyclient.broker_embedded.controller.raft.election_state import ElectionState
from pyclient.broker_embedded.controller.raft.messages import (
    Answer,
    Append,
    AppendLeaderChange,
    AppendRecords,
    AppendVoters,
    Batch,
    DeleteBefore,
    FetchResponse,
    FetchSnapshotResponse,
    HighWatermark,
    InstallSnapshot,
    LeaderChange,
    SaveElection,
    Send,
    StoreSnapshotPiece,
    Truncate,
)
from pyclient.broker_embedded.controller.raft.quorum_state import LocalReplica
from pyclient.broker_embedded.controller.raft.raft import RaftReplica
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch, ReplicaLog
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, Voter, VoterSet, VoterSetHistory
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from pyclient.broker_embedded.controller.raft.messages import Effect, Response
    from pyclient.broker_embedded.controller.raft.quorum_state import RaftTimeouts

PIECE = 2
"""Records of a snapshot that one FetchSnapshot returns; a record counts as a byte."""


class Entry(NamedTuple):
    """A record of the simulated log: its epoch, and what it has.

    That is a proposal, a voter set, or None for a leader's first record.
    """

    epoch: int
    value: Any


@dataclass
class Disk:
    """The state that survives a crash: the synced part of the log, the election state, and the snapshots."""

    start: int = 0
    entries: list[Entry] = field(default_factory=list)
    synced: int = 0
    election: ElectionState = field(default_factory=ElectionState)
    snapshots: dict[OffsetAndEpoch, tuple[Entry, ...]] = field(default_factory=dict)
    oldest: OffsetAndEpoch | None = None
    directory_id: UUID = ZERO_UUID

    @property
    def end(self) -> int:
        """The offset after the last entry, synced or not."""
        return self.start + len(self.entries)

    def entry(self, offset: int) -> Entry:
        """Return the entry at an offset."""
        return self.entries[offset - self.start]

    def crash(self, rng: Random) -> None:
        """Lose some of what was not synced: a random tail of it."""
        kept = rng.randint(min(self.synced, self.end), self.end)
        del self.entries[kept - self.start :]
        self.synced = self.end

    def history(self, initial: VoterSet, bootstrap: VoterSet | None) -> VoterSetHistory:
        """Return the voter sets of the log and its snapshot. `bootstrap` is the set that a new cluster begins with."""
        history = VoterSetHistory(initial)
        before = self.snapshots[self.oldest] if self.oldest is not None else ()
        history.restart(self.start, voters_in(before) or bootstrap)
        for offset, entry in enumerate(self.entries, self.start):
            if isinstance(entry.value, VoterSet):
                history.add(offset, entry.value)
        return history

    def view(self) -> ReplicaLog:
        """Return what the core sees of the log after a restart."""
        epochs: list[tuple[int, int]] = []
        for offset, entry in enumerate(self.entries, self.start):
            if not epochs or epochs[-1][0] != entry.epoch:
                epochs.append((entry.epoch, offset))
        newest = max(self.snapshots, key=lambda snapshot: snapshot.order, default=None)
        return ReplicaLog(
            start_offset=self.start, end_offset=self.end, epochs=epochs, oldest_snapshot=self.oldest, snapshot=newest
        )


def voters_in(entries: Sequence[Entry]) -> VoterSet | None:
    """Return the newest voter set among entries."""
    return next((entry.value for entry in reversed(entries) if isinstance(entry.value, VoterSet)), None)


class SimulatedNode:
    """Carries out the effects of a replica on its disk, and hands messages to `deliver`.

    `voters` are those of the configuration; with `bootstrap` they are those of a new cluster's first snapshot, which
    changes may follow, and this node asks the nodes of `bootstrap` for the leader.
    """

    def __init__(
        self, node: int, voters: VoterSet, timeouts: RaftTimeouts, rng: Random, *, bootstrap: tuple[int, ...] = ()
    ) -> None:
        self.disk = Disk(directory_id=UUID(int=node) if bootstrap else ZERO_UUID)
        self._bootstrap = bootstrap
        self.key = ReplicaKey(node, self.disk.directory_id)
        self.raft: RaftReplica | None = None
        self.incarnation = 0
        self.applied: list[Entry] = []
        """The committed entries, from offset 0 on: the state machine."""
        self.sync_due = False
        self._voters = voters
        self._timeouts = timeouts
        self._rng = rng
        self.pieces: list[Entry] = []

    @property
    def running(self) -> RaftReplica:
        """The replica, which must be running."""
        assert self.raft is not None
        return self.raft

    def disk_voters(self) -> VoterSet:
        """Return the newest voters in the log or its snapshot."""
        if not self._bootstrap:
            return self._voters
        disk = self.disk
        before = disk.snapshots[disk.oldest] if disk.oldest is not None else ()
        return voters_in(disk.entries) or voters_in(before) or self._voters

    def start(self, now: float) -> None:
        """Start from what is on the disk."""
        view = self.disk.view()
        self.applied = list(self.disk.snapshots[view.oldest_snapshot]) if view.oldest_snapshot is not None else []
        initial, first = (VoterSet([]), self._voters) if self._bootstrap else (self._voters, None)
        others = tuple(node for node in self._bootstrap if node != self.key.id)
        self.raft = RaftReplica(
            LocalReplica(self.key, Voter(self.key) if self._bootstrap else None, others),
            view,
            self.disk.history(initial, first if first is not None and self.key in first else None),
            self.disk.election,
            self._rng,
            self._timeouts,
        )
        self.incarnation += 1
        self.sync_due = False
        self.raft.start(now)

    def replace_disk(self, directory_id: UUID) -> None:
        """Take an empty disk, which makes it another replica."""
        self.disk = Disk(directory_id=directory_id)
        self.key = ReplicaKey(self.key.id, directory_id)

    def crash(self) -> None:
        """Stop at once and lose what was not synced."""
        self.raft = None
        self.incarnation += 1
        self.disk.crash(self._rng)

    def sync(self, now: float) -> None:
        """Finish a sync of the log."""
        self.sync_due = False
        self.disk.synced = self.disk.end
        self.running.flushed(self.disk.end, now)

    def perform(self, effect: Effect, now: float, deliver: Callable[[Send | Answer], None]) -> None:
        """Carry out one effect."""
        disk = self.disk
        match effect:
            case Send():
                deliver(effect)
            case Answer(token, response, read_from, snapshot):
                deliver(Answer(token, self._filled(response, read_from, snapshot)))
            case SaveElection(state):
                disk.election = state
            case Append(batches):
                for batch in batches:
                    disk.entries.extend(batch.data)
                self.sync_due = True
            case AppendRecords(_offset, _epoch, data):
                disk.entries.extend(data)
                self.sync_due = True
            case AppendLeaderChange(_offset, epoch):
                disk.entries.append(Entry(epoch, None))
                self.sync_due = True
            case AppendVoters(_offset, epoch, voters):
                disk.entries.append(Entry(epoch, voters))
                disk.entries.extend([Entry(epoch, None)] * (effect.count - 1))
                self.sync_due = True
            case Truncate(offset):
                del disk.entries[offset - disk.start :]
                disk.synced = min(disk.synced, offset)
            case StoreSnapshotPiece(_snapshot, position, data):
                del self.pieces[position:]
                self.pieces.extend(data)  # type: ignore[arg-type]  # entries take the place of bytes here
            case InstallSnapshot(snapshot):
                self.install(snapshot, now)
            case DeleteBefore(snapshot):
                del disk.entries[: snapshot.offset - disk.start]
                disk.start, disk.oldest = snapshot.offset, snapshot
                disk.snapshots = {snapshot: disk.snapshots[snapshot]}
            case HighWatermark(offset):
                self.applied.extend(disk.entry(at) for at in range(len(self.applied), offset))
            case LeaderChange():
                pass

    def create_snapshot(self, *, delete: bool) -> None:
        """Write a snapshot of the applied entries; with `delete` let the log start there."""
        raft = self.running
        end = len(self.applied)
        if end <= self.disk.start:
            return
        snapshot = OffsetAndEpoch(end, self.applied[-1].epoch)
        self.disk.snapshots[snapshot] = tuple(self.applied)
        raft.snapshot_created(snapshot)
        if delete:
            raft.delete_before_snapshot()

    def install(self, snapshot: OffsetAndEpoch, now: float) -> None:
        """Replace the log by the fetched snapshot."""
        disk = self.disk
        disk.snapshots = {snapshot: tuple(self.pieces)}
        disk.start = disk.synced = snapshot.offset
        disk.entries.clear()
        disk.oldest = snapshot
        self.applied = list(self.pieces)
        first = self._voters if self._bootstrap else None
        self.running.snapshot_installed(snapshot, voters_in(self.pieces) or first, now)

    def _filled(self, response: Response, read_from: int | None, snapshot: OffsetAndEpoch | None) -> Response:
        if read_from is not None and isinstance(response, FetchResponse):
            end = min(self.disk.end, read_from + self._rng.randint(1, 8))
            batches: list[Batch] = []
            for offset in range(read_from, end):
                entry = self.disk.entry(offset)
                voters = entry.value if isinstance(entry.value, VoterSet) else None
                batches.append(Batch(offset, offset + 1, entry.epoch, (entry,), voters))
            return FetchResponse(
                response.error, response.epoch, response.leader_id, response.high_watermark, batches=tuple(batches)
            )
        if snapshot is not None and isinstance(response, FetchSnapshotResponse):
            entries: Any = self.disk.snapshots[snapshot]
            return FetchSnapshotResponse(
                response.error,
                response.epoch,
                response.leader_id,
                snapshot,
                response.position,
                len(entries),
                entries[response.position : response.position + PIECE],
            )
        return response
