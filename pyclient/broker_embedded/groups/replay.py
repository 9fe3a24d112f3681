"""Replay of a partition of `__consumer_offsets`: classic groups, consumer groups and committed offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.consumer.log_format import ConsumerGroupRecord
from pyclient.broker_embedded.groups.consumer.model import EpochRecord
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.log_records import GroupRecord, OffsetRecord
from pyclient.broker_embedded.groups.pending_offsets import PendingOffsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyclient.broker_embedded.groups.log_records import CommittedOffset, LogRecord
    from pyclient.types import TopicPartition


class Replay:
    """The state of the groups after the records applied so far."""

    def __init__(self) -> None:
        self.classic: dict[str, GroupRecord] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.pending: dict[str, PendingOffsets] = {}

    def apply(self, record: LogRecord, producer_id: int = -1) -> None:
        """Apply the next record. `producer_id` is that of the transaction that wrote it, -1 without one."""
        match record:
            case OffsetRecord(group_id, partition, committed):
                pending = self.pending.get(group_id)
                if producer_id >= 0 and committed is not None:
                    if pending is None:
                        pending = self.pending[group_id] = PendingOffsets()
                    pending.add(producer_id, {partition: committed})
                    return
                if pending is not None:
                    pending.overwritten([partition])
                if committed is None:
                    self.offsets.get(group_id, {}).pop(partition, None)
                else:
                    self.offsets.setdefault(group_id, {})[partition] = committed
            case GroupRecord(group_id, snapshot):
                self.classic.pop(group_id, None)
                if snapshot is not None:
                    self.classic[group_id] = record
            case ConsumerGroupRecord():
                self._apply_consumer(record)

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Apply the end of a producer's transaction."""
        for group_id, pending in list(self.pending.items()):
            visible = pending.end(producer_id, commit=commit)
            if visible:
                self.offsets.setdefault(group_id, {}).update(visible)
            if not pending:
                del self.pending[group_id]

    def _apply_consumer(self, record: ConsumerGroupRecord) -> None:
        """Apply the record even if its group is unknown: compaction may move the group's first record to the end."""
        group_id, change = record
        if change == EpochRecord(None):
            self.consumer.pop(group_id, None)
            return
        group = self.consumer.get(group_id)
        if group is None:
            group = self.consumer[group_id] = ConsumerGroup(group_id)
        group.apply(change)

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return the consumer group with that id; None for the last tombstones of a deleted group."""
        group = self.consumer.get(group_id)
        return group if group is not None and group.epoch else None

    def names(self) -> Iterator[str]:
        """Iterate over the ids of the groups that exist."""
        names = dict.fromkeys((*filter(self.consumer_group, self.consumer), *self.classic))
        names.update((name, None) for name, offsets in self.offsets.items() if offsets)
        names.update(dict.fromkeys(self.pending))
        return iter(names)
