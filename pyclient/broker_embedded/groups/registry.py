"""The groups that this broker coordinates, and their storage: partitions of `__consumer_offsets`, replay, writes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.consumer.log_format import encode as encode_consumer
from pyclient.broker_embedded.groups.consumer.model import EpochRecord, RegexRecord, TargetEpochRecord
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.coordinator_runtime import TransactionEnd
from pyclient.broker_embedded.groups.log_records import (
    GroupRecord,
    KeyValue,
    LogRecord,
    OffsetRecord,
    decode,
    encode_group,
    encode_offset,
)
from pyclient.broker_embedded.groups.partitioning import partition_in
from pyclient.broker_embedded.groups.pending_offsets import PendingOffsets
from pyclient.broker_embedded.groups.replay import Replay
from pyclient.broker_embedded.groups.state import EMPTY, ClassicGroup
from pyclient.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaStorageError,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    ProtocolError,
    RecordListTooLarge,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from pyclient.records import build_batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyclient.broker_embedded.groups.consumer.model import Record
    from pyclient.broker_embedded.groups.coordinator_runtime import CoordinatorRuntime, TimerHandle
    from pyclient.broker_embedded.groups.log_records import CommittedOffset
    from pyclient.types import TopicPartition

_log = logging.getLogger(__name__)

_COORDINATOR_ERRORS: Final[dict[type[BrokerError], type[BrokerError]]] = {
    UnknownTopicOrPartition: CoordinatorNotAvailable,
    NotEnoughReplicas: CoordinatorNotAvailable,
    NotEnoughReplicasAfterAppend: CoordinatorNotAvailable,
    RequestTimedOut: CoordinatorNotAvailable,
    NotLeaderOrFollower: NotCoordinator,
    KafkaStorageError: NotCoordinator,
    MessageTooLarge: UnknownServerError,
    RecordListTooLarge: UnknownServerError,
}
"""The coordinator error for each error of a write to `__consumer_offsets`, as in Kafka."""


@dataclass(slots=True)
class GroupEntry:
    """A group with its committed offsets, those of open transactions, its timer, and the time (epoch ms) of its last
    state change."""

    group: ClassicGroup | ConsumerGroup
    partition: int
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    state_ms: int = -1
    in_log: bool = False
    timer: TimerHandle | None = None
    timer_at: float = 0.0
    pending: PendingOffsets = field(default_factory=PendingOffsets)

    @property
    def group_id(self) -> str:
        """The group's id."""
        return self.group.group_id

    @property
    def classic(self) -> ClassicGroup | None:
        """The group if it is a classic group, else None."""
        return self.group if isinstance(self.group, ClassicGroup) else None

    @property
    def consumer(self) -> ConsumerGroup | None:
        """The group if it is a consumer group (KIP-848), else None."""
        return self.group if isinstance(self.group, ConsumerGroup) else None

    def stop_timer(self) -> None:
        """Cancel the timer if there is one."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class GroupRegistry:
    """The groups that this broker coordinates. A partition's groups are known from `load` until `unload`."""

    def __init__(self, runtime: CoordinatorRuntime) -> None:
        self.runtime = runtime
        self._entries: dict[str, GroupEntry] = {}
        self._loaded: set[int] = set()
        self._loading: set[int] = set()
        self._in_transactions: dict[tuple[int, int], set[str]] = {}  # (partition, producer id) -> groups

    def __iter__(self) -> Iterator[GroupEntry]:
        return iter(list(self._entries.values()))

    def __len__(self) -> int:
        return len(self._entries)

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that stores the group.

        Raise `NotCoordinator` if the topic does not exist: only FindCoordinator creates it.
        """
        return partition_in("__consumer_offsets", group_id, self.runtime.partition_count())

    def find(self, group_id: str) -> GroupEntry | None:
        """Return the group, None if it does not exist.

        Raise NotCoordinator or CoordinatorLoadInProgress if this broker is not (yet) the group's coordinator.
        """
        self._require(self.partition_of(group_id))
        return self._entries.get(group_id)

    def find_or_create(self, group_id: str) -> GroupEntry:
        """Return the group; create it as an empty classic group if it does not exist. Raise as `find` does."""
        partition = self.partition_of(group_id)
        self._require(partition)
        entry = self._entries.get(group_id)
        if entry is None:
            entry = self._entries[group_id] = GroupEntry(self.new_classic(group_id), partition)
        return entry

    def new_classic(self, group_id: str) -> ClassicGroup:
        """Return an empty classic group that is not registered yet."""
        config = self.runtime.group_config
        delay, size = config.group_initial_rebalance_delay_ms, config.group_max_size
        return ClassicGroup(group_id, delay, size, config.internal_group_session_cap_ms)

    def add(self, entry: GroupEntry) -> None:
        """Register a group."""
        self._entries[entry.group_id] = entry

    def is_current(self, entry: GroupEntry) -> bool:
        """Return True unless the group was deleted or its partition was unloaded."""
        return self._entries.get(entry.group_id) is entry

    def _require(self, partition: int) -> None:
        if partition in self._loaded:
            return
        if partition in self._loading:
            raise CoordinatorLoadInProgress(f"__consumer_offsets-{partition} is being loaded")
        raise NotCoordinator(f"__consumer_offsets-{partition} is not led by this broker")

    def forget(self, entry: GroupEntry) -> None:
        """Remove a group and cancel its timer."""
        entry.stop_timer()
        if self._entries.get(entry.group_id) is entry:
            del self._entries[entry.group_id]

    def load(self, partition: int) -> list[GroupEntry]:
        """Replay a partition and return its groups."""
        if partition in self._loading:
            raise CoordinatorLoadInProgress(f"__consumer_offsets-{partition} is already being loaded")
        self._loading.add(partition)
        try:
            entries = self._replay(partition)
            self._entries.update((entry.group_id, entry) for entry in entries)
            for entry in entries:
                for producer_id in entry.pending:
                    self._in_transactions.setdefault((partition, producer_id), set()).add(entry.group_id)
            self._loaded.add(partition)
        finally:
            self._loading.discard(partition)
        return entries

    def unload(self, partition: int) -> list[GroupEntry]:
        """Stop coordinating the partition's groups and return them, so that parked requests can be answered."""
        self._loaded.discard(partition)
        for key in [key for key in self._in_transactions if key[0] == partition]:
            del self._in_transactions[key]
        unloaded = [entry for entry in self._entries.values() if entry.partition == partition]
        for entry in unloaded:
            self.forget(entry)
        return unloaded

    def loaded_partitions(self) -> frozenset[int]:
        """Return the partitions of `__consumer_offsets` that this broker coordinates."""
        return frozenset(self._loaded)

    def _replay(self, partition: int) -> list[GroupEntry]:
        replay = Replay()
        for stored in self.runtime.read_partition(partition):
            if isinstance(stored, TransactionEnd):
                replay.end(stored.producer_id, commit=stored.commit)
                continue
            record = _decode_or_skip(partition, stored.key, stored.value)
            if record is not None:
                replay.apply(record, stored.producer_id)
        entries = [self._restore(name, partition, replay) for name in replay.names()]
        for entry in entries:
            entry.pending = replay.pending.get(entry.group_id, entry.pending)
        return entries

    def _restore(self, group_id: str, partition: int, replay: Replay) -> GroupEntry:
        offsets = replay.offsets.get(group_id, {})
        consumer = replay.consumer_group(group_id)
        now = self.runtime.clock.monotonic()
        if consumer is not None:
            config = self.runtime.group_config
            options = self.runtime.group_options(group_id)
            session = int(options.get("consumer.session.timeout.ms", config.group_consumer_session_timeout_ms))
            consumer.start_timers(now, session, config.internal_group_session_cap_ms)
            return GroupEntry(consumer, partition, offsets, in_log=True)
        record = replay.classic.get(group_id)
        if record is None or record.snapshot is None:
            return GroupEntry(self.new_classic(group_id), partition, offsets)
        classic = self.new_classic(group_id)
        classic.restore(record.snapshot, now)
        return GroupEntry(classic, partition, offsets, record.state_ms, in_log=True)

    def write(
        self, partition: int, records: Iterable[KeyValue], *, producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        """Append records to the partition, with a producer id in that producer's transaction.

        Raise the coordinator error that corresponds to a failed write.
        """
        batch = build_batch(
            records,
            timestamp_ms=self.runtime.clock.time_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=producer_id >= 0,
        )
        try:
            self.runtime.append(partition, batch)
        except BrokerError as error:
            mapped = _COORDINATOR_ERRORS.get(type(error))
            if mapped is None:
                raise
            raise mapped(f"could not write to __consumer_offsets-{partition}: {error}") from error

    def write_tombstones(self, entry: GroupEntry, partitions: Iterable[TopicPartition], *, group: bool) -> None:
        """Delete offsets, and with `group` the group itself, from the log and from memory."""
        deleted = list(partitions)
        records = [encode_offset(OffsetRecord(entry.group_id, partition, None)) for partition in deleted]
        if group and entry.in_log:
            records += group_tombstones(entry.group)
        if records:
            self.write(entry.partition, records)
        for partition in deleted:
            entry.offsets.pop(partition, None)
        entry.pending.overwritten(deleted)
        if group:
            self.forget(entry)

    def add_pending(
        self, entry: GroupEntry, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        """Note offsets that a producer's open transaction has written."""
        entry.pending.add(producer_id, offsets)
        self._in_transactions.setdefault((entry.partition, producer_id), set()).add(entry.group_id)

    def transaction_ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Make the offsets of a producer's transaction in a partition visible, or drop them."""
        for group_id in self._in_transactions.pop((partition, producer_id), ()):
            entry = self._entries.get(group_id)
            if entry is not None:
                entry.offsets.update(entry.pending.end(producer_id, commit=commit))


def group_tombstones(group: ClassicGroup | ConsumerGroup) -> list[KeyValue]:
    """Return the tombstones that delete a group without members from the log; its offsets are kept."""
    if isinstance(group, ClassicGroup):
        return [encode_group(GroupRecord(group.group_id, None))]
    records: list[Record] = [RegexRecord(regex, None) for regex in group.regexes]
    records += [TargetEpochRecord(None), EpochRecord(None)]
    return [encode_consumer(group.group_id, record) for record in records]


def is_empty(entry: GroupEntry) -> bool:
    """Return True if the group has no members."""
    return not entry.group.members if entry.classic is None else entry.classic.state is EMPTY


def is_unused(entry: GroupEntry) -> bool:
    """Return True if the group has no members, no undecided offsets, and no member id was given out to join it."""
    return is_empty(entry) and not entry.pending and not (entry.classic is not None and entry.classic.pending)


def _decode_or_skip(partition: int, key: bytes | None, value: bytes | None) -> LogRecord | None:
    """Decode a record; log and skip an unreadable one, so that it affects only its own group."""
    if key is None:
        _log.error("__consumer_offsets-%d: skipped a record without a key", partition)
        return None
    try:
        return decode(key, value)
    except (ProtocolError, UnsupportedVersion) as error:
        _log.error("__consumer_offsets-%d: skipped a record that cannot be read: %s", partition, error)
        return None
