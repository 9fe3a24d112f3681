"""The metadata log `__cluster_metadata-0`, kept as a Raft log with this node as its one voter, and its replay."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pyclient.broker_embedded.controller import records as metadata_records
from pyclient.broker_embedded.controller.features import FEATURES, METADATA_VERSION
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.partition_log import PartitionLog
from pyclient.broker_embedded.log.steps import run_here
from pyclient.errors import ConfigError
from pyclient.protocol import codec
from pyclient.protocol.messages.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from pyclient.records import (
    ControlType,
    build_batch,
    check_crc,
    control_key,
    decode_key_values,
    iter_batches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.clock import Clock

TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = UUID(int=1)
"""The id that Kafka gives the metadata topic everywhere."""

_CONFIG: Final = LogConfig(
    flush_messages=1,  # what is answered is on the disk, as in Kafka's quorum
    max_message_bytes=64 << 20,
    retention_ms=-1,
    retention_bytes=-1,
    message_timestamp_after_max_ms=2**63 - 1,
)
_READ_BYTES: Final = 8 << 20
_BEGIN, _END, _ABORT = 23, 24, 25
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class MetadataLog:
    """Appends metadata records and applies them to the image.

    There is one voter, so what is written is committed. `epoch` is the Raft epoch: one more at every start.
    """

    def __init__(self, log: PartitionLog, image: MetadataImage, *, node_id: int, epoch: int, clock: Clock) -> None:
        self.epoch = epoch
        self._log = log
        self._image = image
        self._node_id = node_id
        self._clock = clock

    @classmethod
    def open(
        cls, data_dir: str, image: MetadataImage, *, fs: FileSystem, clock: Clock, node_id: int, clean: bool
    ) -> MetadataLog:
        """Open (or make) the log in `data_dir`, replay it into `image`, and begin a new epoch as its leader.

        Raises `CorruptRecord` for a log that makes no sense and `ConfigError` for one of several voters.
        """
        directory = os.path.join(data_dir, f"{TOPIC}-0")
        fs.make_directory(directory)
        log = run_here(PartitionLog.opening(directory, TOPIC, 0, TOPIC_ID, _CONFIG, fs=fs, clock=clock, clean=clean))
        epoch = _next_epoch(fs, directory, log, node_id)
        replay = _Replay(image)
        replay.snapshot(fs, directory)
        replay.log(log)
        opened = cls(log, image, node_id=node_id, epoch=epoch, clock=clock)
        opened._begin_epoch()
        return opened

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.end_offset

    def sync_beside(self, arrange: Callable[[PartitionLog], None]) -> None:
        """Have changes synced without waiting: `arrange` says where. Until then `append` returns when it is done."""
        arrange(self._log)

    def append(self, records: Sequence[Any]) -> None:
        """Write records as one batch and apply them. After an `OSError` nothing is written and nothing changed.

        A sync beside the loop that fails takes the log offline: what was applied stays until the next start, and
        everything after it is refused.
        """
        level = self._level(records)
        values = [(None, metadata_records.encode(record, level)) for record in records]
        self._write(build_batch(values, timestamp_ms=self._clock.time_ms()))
        for record in records:
            self._image.apply(record)

    def _level(self, records: Sequence[Any]) -> int:
        """The metadata.version that holds behind `records`."""
        levels = [record.feature_level for record in records if getattr(record, "name", None) == METADATA_VERSION]
        return levels[-1] if levels else self._image.features.get(METADATA_VERSION, FEATURES[METADATA_VERSION].first)

    def close(self, *, clean: bool = True) -> None:
        """Flush and close the files; with `clean=False` leave them as they are."""
        self._log.close(clean=clean)

    def _begin_epoch(self) -> None:
        voters = [LeaderChangeMessageVoter(voter_id=self._node_id)]
        change = LeaderChangeMessage(version=0, leader_id=self._node_id, voters=voters, granting_voters=voters)
        record = (control_key(ControlType.LEADER_CHANGE), codec.encode(change, 0))
        self._write(build_batch([record], timestamp_ms=self._clock.time_ms(), control=True))

    def _write(self, batch: bytes) -> None:
        self._log.append(batch, leader_epoch=self.epoch, now_ms=self._clock.time_ms(), origin="coordinator")


class _Replay:
    """Applies records to an image in the order of the log; those of an aborted metadata transaction are dropped."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._from_offset = 0
        self._transaction: list[Any] | None = None

    def snapshot(self, fs: FileSystem, directory: str) -> None:
        """Start from the newest snapshot, if there is one: the log before it may be gone."""
        found = [match for name in fs.list_files(directory) if (match := _SNAPSHOT.fullmatch(name))]
        if not found:
            return
        newest = max(found, key=lambda match: (int(match[1]), int(match[2])))
        content = fs.read(os.path.join(directory, newest[0])) or b""
        self._batches(content)
        self._from_offset = int(newest[1])

    def log(self, log: PartitionLog) -> None:
        """Go on from there to the end of the log."""
        if log.end_offset < self._from_offset:  # the log was lost behind a snapshot that covers it
            log.truncate_fully_and_start_at(self._from_offset)
        offset = max(self._from_offset, log.start_offset)
        while offset < log.end_offset:
            offset = self._batches(log.read_bytes(offset, _READ_BYTES), offset)

    def _batches(self, buffer: bytes, from_offset: int = 0) -> int:
        for position, header in iter_batches(buffer):
            check_crc(buffer, position, header)
            from_offset = header.next_offset
            if header.is_control:
                continue
            for _offset, _timestamp, _key, value in decode_key_values(buffer, position, header):
                record = None if value is None else metadata_records.decode(value)
                if record is not None:
                    self._take(record)
        return from_offset

    def _take(self, record: Any) -> None:
        kind = record.api_key
        if kind == _BEGIN:
            self._transaction = []
        elif kind in (_END, _ABORT):
            for held in (self._transaction or ()) if kind == _END else ():
                self._image.apply(held)
            self._transaction = None
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._image.apply(record)


def _next_epoch(fs: FileSystem, directory: str, log: PartitionLog, node_id: int) -> int:
    """Note in `quorum-state`, before anything is written in it, that this node leads the next epoch."""
    path = os.path.join(directory, "quorum-state")
    content = fs.read(path)
    state = json.loads(content) if content else {}
    voters = [voter["voterId"] for voter in state.get("currentVoters", ())]
    if voters and voters != [node_id]:
        raise ConfigError(
            f"{directory} belongs to a quorum of nodes {voters}: node {node_id} would have to be its only voter"
        )
    epoch = max(int(state.get("leaderEpoch", 0)), log.leader_epoch) + 1
    state = {
        "clusterId": "",
        "leaderId": node_id,
        "leaderEpoch": epoch,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": node_id}],
        "data_version": 0,
    }
    fs.replace(path, json.dumps(state, separators=(",", ":")).encode())
    return epoch
