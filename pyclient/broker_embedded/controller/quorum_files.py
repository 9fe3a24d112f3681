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
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey
from pyclient.config.options import LONG_MAX
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyclient.broker_embedded.controller.image import MetadataImage
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


def open_quorum_log(
    data_dir: str,
    image: MetadataImage,
    *,
    fs: FileSystem,
    clock: Clock,
    voters: Iterable[int],
    clean: bool,
    before_changes: Callable[[], None],
) -> OpenedLog:
    """Open or create the log in `data_dir`. Nothing is written until `before_changes` is called.

    Raise `DamagedMetadataLog` (a `CorruptRecord`) for a damaged log, and `ConfigError` for a quorum of other voters or
    an unreadable `quorum-state`.
    """
    directory = os.path.join(data_dir, METADATA_DIRECTORY)
    known = read_quorum_state(fs, directory)
    if known.voters and sorted(known.voters) != sorted(voters):
        raise ConfigError(
            f"controller.quorum.voters are {sorted(voters)}, and {os.path.join(directory, QUORUM_STATE)} belongs to a "
            f"quorum of {sorted(known.voters)}: start the node with the voters that it had"
        )
    replay = MetadataReplay(image)
    replay.snapshot(fs, directory)
    start = replay.from_offset
    epochs: list[tuple[int, int]] = []

    def take(_batch: bytes, header: BatchHeader) -> None:
        if header.base_offset >= start and (not epochs or epochs[-1][0] != header.leader_epoch):
            epochs.append((header.leader_epoch, header.base_offset))

    end = read_metadata_log(fs, directory, take, clean=clean, newest_epoch=known.epoch, start=start)
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
        start_offset=start,
        end_offset=opened.end_offset,
        epochs=epochs,
        oldest_snapshot=snapshot,
        snapshot=snapshot,
    )
    election = ElectionState(
        max(known.epoch, replay.epoch, end.epoch, 0),
        known.leader_id if known.leader_id >= 0 else None,
        ReplicaKey(known.voted_id) if known.voted_id >= 0 else None,
    )
    return OpenedLog(directory, opened, view, election, replay, start)


def save_election(fs: FileSystem, directory: str, state: ElectionState, voters: Iterable[int]) -> None:
    """Write what the replica must remember of an election, and sync it."""
    leader = -1 if state.leader_id is None else state.leader_id
    voted = -1 if state.voted is None else state.voted.id
    write_quorum_state(fs, directory, QuorumState(state.epoch, sorted(voters), leader, voted))
