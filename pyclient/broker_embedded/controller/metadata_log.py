"""The metadata log `__cluster_metadata-0`, a Raft log with this node as the only voter, and its replay."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from pyclient.broker_embedded.controller import records as metadata_records
from pyclient.broker_embedded.controller.features import FEATURES, KRAFT_VERSION, METADATA_VERSION
from pyclient.broker_embedded.controller.image import NewPartitions
from pyclient.broker_embedded.controller.metadata_recovery import (
    METADATA_DIRECTORY,
    DamagedMetadataLog,
    MetadataEnd,
    QuorumState,
    read_metadata_log,
    read_quorum_state,
    write_quorum_state,
)
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
from pyclient.broker_embedded.controller.snapshots import SnapshotGenerator, path_of, snapshots_in, start_log_at
from pyclient.broker_embedded.controller.voter_records import kraft_version_in, voters_in
from pyclient.broker_embedded.log.checkpoints import stored_topic_id, write_topic_id
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.log.log_loader import LogCheckpoint, open_log
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.errors import ConfigError, CorruptRecord, KafkaStorageError, ProtocolError
from pyclient.protocol import codec
from pyclient.protocol.messages.control_records import LeaderChangeMessage, LeaderChangeMessageVoter
from pyclient.records import (
    BatchHeader,
    ControlType,
    build_batch,
    check_crc,
    control_key,
    decode_key_values,
    iter_batches,
)
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyclient.broker_embedded.controller.image import MetadataImage
    from pyclient.broker_embedded.controller.raft.voters import VoterSet
    from pyclient.broker_embedded.environment import NodeEnvironment
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.clock import Clock

TOPIC: Final = "__cluster_metadata"
TOPIC_ID: Final = UUID(int=1)
"""The fixed id of the metadata topic in Kafka."""

CONFIG: Final = LogConfig(
    flush_messages=1,  # a change is on the disk before it is acknowledged, as in Kafka's quorum
    max_message_bytes=64 << 20,
    retention_ms=-1,
    retention_bytes=-1,
    message_timestamp_after_max_ms=2**63 - 1,
)
_FEATURE_LEVEL: Final = 12
_PARTITION, _REMOVE_TOPIC, _BEGIN, _END, _ABORT = 3, 9, 23, 24, 25


_AT_ONCE: Final = 50
"""Records that are encoded in one step, in about a millisecond."""


class EncodedTopic:
    """Encoded records that create a topic or add partitions to one; `MetadataLog.append_topic` writes them.

    `level` is the metadata.version for which they are encoded.
    """

    __slots__ = ("level", "others", "partitions", "values")

    def __init__(self, level: int, topic_id: UUID) -> None:
        self.level = level
        self.values: list[tuple[None, bytes]] = []
        self.others: list[Any] = []
        self.partitions = NewPartitions(topic_id)

    def add(self, record: Any) -> None:
        """Encode a record. Those of partitions come last."""
        self.values.append((None, metadata_records.encode(record, self.level)))
        if record.api_key == _PARTITION:
            self.partitions.add(record)
        else:
            self.others.append(record)


class MetadataLog:
    """Appends metadata records and applies them to the image.

    With a single voter a written record is committed. `epoch` is the Raft epoch, incremented at every start. With other
    voters `write` appends a batch of some records for them to replicate, and may raise `NotController`.
    """

    def __init__(
        self,
        log: UnifiedLog,
        image: MetadataImage,
        *,
        node_id: int,
        epoch: int,
        clock: Clock,
        write: Callable[[bytes, int], object] | None = None,
    ) -> None:
        self.epoch = epoch
        self.removed_topics: set[UUID] = set()
        """The ids of the topics that were removed before this start."""
        self._uninterpreted: list[bytes] = []
        self._snapshots: SnapshotGenerator | None = None
        self._unsynced: dict[str, int] = {}  # topic -> offset of its newest partitions in the log, oldest first
        self._log = log
        self._image = image
        self._node_id = node_id
        self._clock = clock
        self._write = write if write is not None else self._append

    @classmethod
    def open(
        cls,
        data_dir: str,
        image: MetadataImage,
        *,
        fs: FileSystem,
        clock: Clock,
        node_id: int,
        clean: bool,
        before_changes: Callable[[], None] = lambda: None,
    ) -> MetadataLog:
        """Open or create the log in `data_dir`, replay it into `image`, and start a new epoch as its leader.

        The existing files are read and checked before `before_changes` is called; nothing is written until then.
        Raise `DamagedMetadataLog` (a `CorruptRecord`) for a damaged log, and `ConfigError` for a quorum of other voters
        or an unreadable `quorum-state`.
        """
        directory = os.path.join(data_dir, METADATA_DIRECTORY)
        quorum = read_quorum_state(fs, directory)
        if quorum.voters not in ([], [node_id]):
            raise ConfigError(
                f"{directory} belongs to a quorum of nodes {quorum.voters}: node {node_id} would have to be its only "
                "voter"
            )
        replay = MetadataReplay(image)
        replay.snapshot(fs, directory)
        end = read_metadata_log(
            fs, directory, replay.take_batch, clean=clean, newest_epoch=quorum.epoch, start=replay.from_offset
        )
        before_changes()
        make_directory(fs, data_dir, directory)
        log = open_files(fs, clock, directory, end, clean=clean and not end.torn_bytes)
        if log.end_offset < replay.from_offset:  # the log ends before its snapshot, which has all of its records
            log.truncate_fully_and_start_at(replay.from_offset)
        log.advance_start(replay.from_offset)
        epoch = max(quorum.epoch, replay.epoch, end.epoch) + 1
        write_quorum_state(fs, directory, QuorumState(epoch, [node_id], node_id))  # before the epoch's first batch
        metadata = cls(log, image, node_id=node_id, epoch=epoch, clock=clock)
        metadata.removed_topics = replay.removed_topics
        metadata._uninterpreted = replay.uninterpreted
        metadata._begin_epoch()
        return metadata

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        """The offset after the last committed record."""
        return self._log.high_watermark

    def flush_in_background(self, arrange: Callable[[UnifiedLog], None]) -> None:
        """Flush changes in the background: `arrange` sets up the log. Before this call `append` waits for the sync."""
        arrange(self._log)

    def snapshot_in_background(self, env: NodeEnvironment) -> None:
        """Write snapshots as the log grows, and delete the log before them."""
        self._snapshots = SnapshotGenerator(
            env,
            self._log,
            position=self._position,
            uninterpreted=lambda: self._uninterpreted,
            written=lambda snapshot: start_log_at(self._log, env.fs, snapshot, env.clock.time_ms()),
        )

    def _position(self) -> OffsetAndEpoch | None:
        end = self._log.end_offset
        return OffsetAndEpoch(end, self.epoch) if self._log.high_watermark == end else None

    def append(self, records: Sequence[Any]) -> None:
        """Write records as one batch and apply them. An `OSError` means that nothing was written or changed.

        A failed background sync takes the log offline: applied changes remain until the next start, and further ones
        are refused.
        """
        level = self._level(records)
        values = [(None, metadata_records.encode(record, level)) for record in records]
        self._write(build_batch(values, timestamp_ms=self._clock.time_ms()), len(values))
        for record in records:
            self._image.apply(record)
            if record.api_key == _PARTITION:
                self._note_partitions(record.topic_id)
        self._drop_synced()

    @property
    def image(self) -> MetadataImage:
        """The image that appended records are applied to."""
        return self._image

    @property
    def level(self) -> int:
        """The metadata.version in force."""
        return self._image.features.get(METADATA_VERSION, FEATURES[METADATA_VERSION].first)

    def encode_topic(self, topic_id: UUID, records: Iterable[Any]) -> IncrementalTask[EncodedTopic]:
        """Encode the records of a topic, with a pause after every 50 of them, for `append_topic`."""
        encoded = EncodedTopic(self.level, topic_id)
        for count, record in enumerate(records):
            if count and not count % _AT_ONCE:
                yield None
            encoded.add(record)
        return encoded

    def append_topic(self, encoded: EncodedTopic) -> None:
        """Write encoded records of a topic as one batch and apply them at once; for failures see `append`.

        The caller has checked that they are still valid: `level` is the same, and the topic as it was.
        """
        self._write(build_batch(encoded.values, timestamp_ms=self._clock.time_ms()), len(encoded.values))
        for record in encoded.others:
            self._image.apply(record)
        self._image.add_partitions(encoded.partitions)
        self._note_partitions(encoded.partitions.topic_id)
        self._drop_synced()

    def unsynced_partitions(self, topic: str) -> tuple[UnifiedLog, int] | None:
        """Return the log and the offset of the topic's newest partitions in it, None if they are on the disk.

        Records in such a partition would be lost with it.
        """
        self._drop_synced()
        offset = self._unsynced.get(topic)
        return None if offset is None else (self._log, offset)

    def _note_partitions(self, topic_id: UUID) -> None:
        name = self._image.topics_by_id[topic_id].name
        self._unsynced.pop(name, None)
        self._unsynced[name] = self._log.end_offset - 1

    def _drop_synced(self) -> None:
        while self._unsynced:
            name, offset = next(iter(self._unsynced.items()))
            if offset >= self._log.high_watermark:
                return
            del self._unsynced[name]

    def _level(self, records: Sequence[Any]) -> int:
        """Return the metadata.version that is in force after `records`."""
        levels = [
            record.feature_level
            for record in records
            if record.api_key == _FEATURE_LEVEL and record.name == METADATA_VERSION
        ]
        return levels[-1] if levels else self.level

    def close(self, *, clean: bool = True) -> None:
        """Flush and close the files; with `clean=False` close them without a flush."""
        if self._snapshots is not None:
            self._snapshots.close()
        self._log.close(clean=clean)

    def _begin_epoch(self) -> None:
        voters = (self._node_id,)
        self._append(leader_change(self._node_id, voters, voters, self._clock.time_ms()), 1)

    def _append(self, batch: bytes, _count: int) -> None:
        self._log.append(batch, leader_epoch=self.epoch, now_ms=self._clock.time_ms(), origin="coordinator")


def leader_change(leader_id: int, voters: Iterable[int], granting: Iterable[int], now_ms: int) -> bytes:
    """Return the batch that opens a leader's epoch."""
    change = LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[LeaderChangeMessageVoter(voter_id=voter) for voter in voters],
        granting_voters=[LeaderChangeMessageVoter(voter_id=voter) for voter in granting],
    )
    record = (control_key(ControlType.LEADER_CHANGE), codec.encode(change, 0))
    return build_batch([record], timestamp_ms=now_ms, control=True)


class RecordTarget(Protocol):
    """A target of records: an image, or a delta of one."""

    def apply(self, record: Any) -> None:
        """Apply a record."""
        ...


class MetadataReplay:
    """Applies the records of the log to `target` in order; records of aborted metadata transactions are dropped."""

    def __init__(self, target: RecordTarget) -> None:
        self.from_offset = 0
        """The end offset of the snapshot, which contains the earlier batches."""
        self.epoch = 0
        self.removed_topics: set[UUID] = set()
        self.voters: VoterSet | None = None
        """The voters in the snapshot, None if it has none."""
        self.uninterpreted: list[bytes] = []
        """Records of types that are not interpreted, as they are in the log: a snapshot keeps them."""
        self.target = target
        self._transaction: list[Any] | None = None

    def snapshot(self, fs: FileSystem, directory: str) -> None:
        """Apply the newest snapshot if there is one; the log may start at its end.

        Raise `DamagedMetadataLog` if it is damaged.
        """
        found = snapshots_in(fs, directory)
        if not found:
            return
        newest = found[-1]
        path = path_of(directory, newest)
        content = fs.read(path) or b""
        position = 0
        try:
            for position, header in iter_batches(content):
                check_crc(content, position, header)
                self.apply_snapshot(content, position, header)
        except ProtocolError as error:
            raise DamagedMetadataLog(path, position, error) from error
        self.from_offset, self.epoch = newest.offset, newest.epoch

    def apply_snapshot(self, content: bytes, position: int, header: BatchHeader) -> None:
        """Apply a batch of a snapshot."""
        self.voters = voters_in(content, position, header) or self.voters
        self.apply_batch(content, position, header)

    def take_batch(self, batch: bytes, header: BatchHeader) -> None:
        """Apply a batch of the log. Raise `CorruptRecord` if it is inconsistent with earlier records."""
        if header.base_offset >= self.from_offset:
            self.apply_batch(batch, 0, header)

    @property
    def in_transaction(self) -> bool:
        """True after the beginning of a metadata transaction, until its end."""
        return self._transaction is not None

    def take_removed_topics(self) -> set[UUID]:
        """Return the ids of the topics that were removed, and forget them."""
        removed, self.removed_topics = self.removed_topics, set()
        return removed

    def apply_batch(self, buffer: bytes, position: int, header: BatchHeader) -> None:
        """Apply the batch at a position. Raise `CorruptRecord` if it is inconsistent with earlier records."""
        if header.is_control:
            level = kraft_version_in(buffer, position, header)
            if level is not None:
                from pyclient.protocol.messages.metadata_log import FeatureLevelRecord

                self.target.apply(FeatureLevelRecord(name=KRAFT_VERSION, feature_level=level))
            return
        for offset, _timestamp, _key, value in decode_key_values(buffer, position, header):
            record = None if value is None else metadata_records.decode(value)
            if record is None:
                if value is not None and not metadata_records.is_no_op(value):
                    self.uninterpreted.append(bytes(value))
            else:
                try:
                    self._apply(record)
                except (KeyError, ValueError, TypeError) as error:
                    name = type(record).__name__
                    raise CorruptRecord(f"{name} at offset {offset} contradicts earlier records: {error!r}") from error

    def _apply(self, record: Any) -> None:
        kind = record.api_key
        if kind == _REMOVE_TOPIC and self._transaction is None:
            self.removed_topics.add(record.topic_id)
        if kind == _BEGIN:
            self._transaction = []
        elif kind in (_END, _ABORT):
            records, self._transaction = self._transaction, None
            for each in (records or ()) if kind == _END else ():
                self._apply(each)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self.target.apply(record)


def make_directory(fs: FileSystem, data_dir: str, directory: str) -> None:
    """Create the directory of the metadata log if there is none."""
    if not fs.exists(directory):
        fs.make_directory(directory)
        fs.sync_directory(data_dir)
    if stored_topic_id(fs, directory) != TOPIC_ID:  # the directory's name already identifies the topic
        write_topic_id(fs, directory, TOPIC_ID)


def open_files(
    fs: FileSystem,
    clock: Clock,
    directory: str,
    end: MetadataEnd,
    *,
    clean: bool,
    config: LogConfig = CONFIG,
    high_watermark: int | None = None,
) -> UnifiedLog:
    """Open the log; rebuild its indexes if they do not end where the checked batches end.

    A log with a `high_watermark` is replicated.
    """
    while True:
        checkpoint = LogCheckpoint(clean=clean, high_watermark=high_watermark)
        opening = open_log(directory, TopicPartition(TOPIC, 0), TOPIC_ID, config, checkpoint, fs=fs, clock=clock)
        log = run_here(opening)
        if log.end_offset == end.offset:
            return log
        log.close(clean=False)
        if not clean:
            raise KafkaStorageError(
                f"{directory} changed while it was opened: {log!r}, expected end offset {end.offset}"
            )
        clean = False
