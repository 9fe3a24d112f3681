"""PartitionQueue, the batches of one partition in order, and TopicQueues, the partitions of one topic."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyclient.producer.batch import ProducerBatch
from pyclient.producer.idempotence import EVERYTHING, PartitionSequence
from pyclient.producer.lone_batch import LoneBatch
from pyclient.producer.partitioner import StickyPartitioner
from pyclient.records import TopicLanes, compiled_only, partition_for_key

NO_LEADER = -1

Append = Callable[[int, Any, Any, Any], Any]

ATOMIC_APPEND: Final = bool(compiled_only("ATOMIC"))
"""True if an append is atomic with other appends and with closing the batch: then it needs no lock.

The lock would cost as much as the append itself (docs/measurements.md, "Appending without a lock").
"""


def refuse(timestamp_ms: int, key: object, value: object, headers: object) -> None:
    """Return None, as `append` does for a record that does not fit; used by partitions without an open batch."""
    return


class PartitionQueue:
    """The waiting batches of one partition, oldest first; the last one may be open.

    `append` is that of the open batch, for callers that hold the producer's lock; the topic's lanes call it, too.
    """

    __slots__ = (
        "append", "leader", "lone", "name", "on_wire", "open", "outstanding", "partition", "records",
        "sequence", "topic", "turn", "undecided", "waiting", "wire_link", "wire_node",
    )  # fmt: skip

    def __init__(self, topic: TopicQueues, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.name = f"{topic.name}-{partition}"
        self.leader = NO_LEADER
        self.turn = 0  # its number among its leader's partitions, which selects the connection
        self.append: Append = refuse
        self.open: ProducerBatch | None = None
        self.waiting: deque[ProducerBatch] = deque()
        self.records = 0
        self.on_wire = 0  # batches in flight
        self.wire_node = NO_LEADER  # node and connection of the batches in flight
        self.wire_link = 0
        self.outstanding: list[ProducerBatch] = []  # batches with sequence numbers and without an outcome, in order
        self.undecided: list[ProducerBatch] = []  # the first of those, if a later one decides whether they are written
        self.sequence = PartitionSequence()
        self.lone: LoneBatch | None = None  # created for the first batch that is sent alone

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.name} leader={self.leader} waiting={len(self.waiting)} on_wire={self.on_wire}>"

    def close(self) -> ProducerBatch | None:
        """Close the open batch to all appends and return it; None if there is none."""
        batch = self.open
        if batch is None:
            return None
        batch.builder.close()
        count = batch.count  # no calls in the next lines: an interrupt comes before or after all of them
        batch.closed = True
        self.append = refuse
        self.open = None
        self.records += count
        self.topic.lanes.close(self.partition)
        return batch

    def begin_anew(self) -> None:
        """Reset the numbers for a recreated topic, after batches of which a request may still reach the new log."""
        if self.undecided:
            self.put_back(self.undecided)
            self.undecided = []
        unsure = [batch.position for batch in self.outstanding if batch.doubtful or batch.on_wire]
        self.sequence.broke(unsure[-1] + 1 if unsure else EVERYTHING)

    def put_back(self, batches: Sequence[ProducerBatch]) -> None:
        """Queue batches again, at their place in the partition's order."""
        index = 0
        while index < len(self.waiting) and self.waiting[index].position < batches[0].position:
            index += 1
        for offset, batch in enumerate(batches):
            self.waiting.insert(index + offset, batch)

    @property
    def first_unsettled(self) -> ProducerBatch | None:
        """The first numbered batch without an outcome that is not undecided; None if there is none."""
        index = len(self.undecided)
        return self.outstanding[index] if index < len(self.outstanding) else None

    @property
    def head_is_ready(self) -> bool:
        """True if the first waiting batch may be sent."""
        return bool(self.waiting) and (self.waiting[0].closed or self.waiting[0].ready)


class TopicQueues:
    """A topic's partitions by the last metadata, and the sticky one for records without a key."""

    __slots__ = (
        "available", "count", "lanes", "last_used", "name", "partitioner", "queues", "sticky", "topic_id", "unused",
    )  # fmt: skip

    def __init__(self, name: str, partitioner: StickyPartitioner) -> None:
        self.name = name
        self.lanes = TopicLanes()
        self.partitioner = partitioner
        self.topic_id = uuid.UUID(int=0)
        self.count = 0
        self.queues: list[PartitionQueue] = []
        self.available: list[int] = []  # partitions with a leader
        self.unused = 0  # partitions that never had a batch
        self.last_used = 0.0
        self.sticky = PartitionQueue(self, -1)
        """The partition of records without a key; one numbered -1 before the first is chosen."""

    def grow(self, count: int) -> None:
        """Set the number of partitions; queues of removed partitions stay for the batches that they hold."""
        for partition in range(len(self.queues), count):
            self.queues.append(PartitionQueue(self, partition))
            self.unused += 1
        self.count = count
        self.lanes.resize(count)

    def stick_to(self, queue: PartitionQueue) -> None:
        """Set the partition of records without a key."""
        if queue is not self.sticky:
            self.sticky = queue
            self.lanes.stick_to(queue.partition)

    @property
    def idle(self) -> bool:
        """True if no batch of the topic waits or is in flight."""
        return not any(queue.waiting or queue.on_wire for queue in self.queues)


def choose_queue(queues: TopicQueues, key: Any, partition: int | None) -> PartitionQueue:
    """Return a record's partition; the caller holds the lock and has checked `partition`."""
    if partition is not None:
        return queues.queues[partition]
    if key is None:
        return queues.sticky
    return queues.queues[partition_for_key(key, queues.count)]
