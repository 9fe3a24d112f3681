"""The files of a replica of the metadata quorum: its log, and what it remembers of elections."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.metadata_log import CONFIG, MetadataReplay, make_directory, open_files
from pyclient.broker_embedded.controller.metadata_recovery import (
    METADATA_DIRECTORY,
    QUORUM_STATE,
    QuorumState,
    read_metadata_log,
    read_quorum_state,
    write_quorum_state,
)
from pyclient.broker_embedded.controller.raft.election_state import ElectionState
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch, ReplicaLog
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, VoterSetHistory
from pyclient.broker_embedded.controller.snapshots import first_snapshot, path_of
from pyclient.broker_embedded.controller.voter_records import voters_in
from pyclient.broker_embedded.log.checkpoints import uuid_from_text, uuid_text
from pyclient.config.options import LONG_MAX
from pyclient.errors import ConfigError
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.controller.raft.voters import VoterSet
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.clock import Clock
    from pyclient.records import BatchHeader

_CONFIG: Final = replace(CONFIG, flush_messages=LONG_MAX)  # the quorum syncs it


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """The opened metadata log: its files, the core's view of it, and the election that the replica remembers.

    The image has the records below `applied`, from a snapshot; what follows is applied once it is known as committed.
    """

    directory: str
    log: UnifiedLog
    view: ReplicaLog
    election: ElectionState
    replay: MetadataReplay
    applied: int
    voters: VoterSetHistory


def open_quorum_log(
    data_dir: str,
    image: MetadataImage,
    *,
    fs: FileSystem,
    clock: Clock,
    voters: VoterSet,
    clean: bool,
    before_changes: Callable[[], None],
) -> OpenedLog:
    """Open or create the log in `data_dir`. Nothing is written until `before_changes` is called.

    `voters` are those of the configuration; none if the log has them.

    Raise `DamagedMetadataLog` (a `CorruptRecord`) for a damaged log, and `ConfigError` for a quorum of other voters or
    an unreadable `quorum-state`.
    """
    directory = os.path.join(data_dir, METADATA_DIRECTORY)
    known = read_quorum_state(fs, directory)
    _check_voters(voters, known, directory)
    replay = MetadataReplay(image)
    replay.snapshot(fs, directory)
    start = replay.from_offset
    epochs: list[tuple[int, int]] = []
    history = VoterSetHistory(voters)
    history.restart(start, replay.voters)

    def take(batch: bytes, header: BatchHeader) -> None:
        if header.base_offset < start:
            return
        if not epochs or epochs[-1][0] != header.leader_epoch:
            epochs.append((header.leader_epoch, header.base_offset))
        written = voters_in(batch, 0, header)
        if written is not None:
            history.add(header.base_offset, written)

    end = read_metadata_log(fs, directory, take, clean=clean, newest_epoch=known.epoch, start=start)
    if voters and history.kraft_version:
        raise ConfigError(
            f"{directory} has the voters {history.newest} in its log: start the node with "
            "controller.quorum.bootstrap.servers instead of controller.quorum.voters"
        )
    before_changes()
    make_directory(fs, data_dir, directory)
    opened = open_files(
        fs, clock, directory, end, clean=clean and not end.torn_bytes, config=_CONFIG, high_watermark=start
    )
    if opened.end_offset < start:  # the log ends before its snapshot, which has all of its records
        opened.truncate_fully_and_start_at(start)
    opened.advance_start(start)
    opened.advance_high_watermark(start)
    snapshot = OffsetAndEpoch(start, replay.epoch) if start else None
    view = ReplicaLog(
        start_offset=start, end_offset=opened.end_offset, epochs=epochs, oldest_snapshot=snapshot, snapshot=snapshot
    )
    leader = known.leader_id if known.leader_id >= 0 else None
    election = ElectionState(max(known.epoch, replay.epoch, end.epoch, 0), leader, _voted(known))
    return OpenedLog(directory, opened, view, election, replay, start, history)


def _check_voters(voters: VoterSet, known: QuorumState, directory: str) -> None:
    """Raise `ConfigError` if the configuration has other voters than the quorum that the directory belongs to."""
    if known.voters and sorted(known.voters) != list(voters.ids):
        raise ConfigError(
            f"controller.quorum.voters are {list(voters.ids)}, and {os.path.join(directory, QUORUM_STATE)} belongs to "
            f"a quorum of {sorted(known.voters)}: start the node with the voters that it had"
        )


def _voted(known: QuorumState) -> ReplicaKey | None:
    if known.voted_id < 0:
        return None
    directory = uuid_from_text(known.voted_directory) if known.voted_directory else ZERO_UUID
    return ReplicaKey(known.voted_id, directory)


def save_election(fs: FileSystem, directory: str, state: ElectionState, voters: VoterSet) -> None:
    """Write what the replica must remember of an election, and sync it.

    `voters` are those of the configuration; none if the log has them.
    """
    leader = -1 if state.leader_id is None else state.leader_id
    voted = ReplicaKey(-1) if state.voted is None else state.voted
    known = QuorumState(state.epoch, list(voters.ids), leader, voted.id, uuid_text(voted.directory_id), not voters)
    write_quorum_state(fs, directory, known)


def format_quorum(fs: FileSystem, data_dir: str, voters: VoterSet) -> None:
    """Write the first snapshot of a new cluster, which has its voters (KIP-853), for one of them.

    All of them begin with the same snapshot; other nodes begin with nothing, and find the leader.
    """
    directory = os.path.join(data_dir, METADATA_DIRECTORY)
    make_directory(fs, data_dir, directory)
    fs.replace(path_of(directory, OffsetAndEpoch(0, 0)), first_snapshot(voters, 0))
