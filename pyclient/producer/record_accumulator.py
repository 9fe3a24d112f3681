"""RecordAccumulator: the batches of each partition that wait to be sent, and when they become ready."""

from __future__ import annotations

import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from pyclient.clock import Rng
from pyclient.producer.buffer_pool import BufferPool
from pyclient.producer.delivery import Delivery, DeliveryContext
from pyclient.producer.idempotence import EVERYTHING, PartitionSequence
from pyclient.producer.implementation import OpenBatches, compiled_only
from pyclient.producer.partitioner import StickyPartitioner
from pyclient.producer.produce_template import ProduceTemplate
from pyclient.producer.producer_batch import BatchState, ProducerBatch
from pyclient.records import HEADER_SIZE, partition_for_key

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

    `append` is that of the open batch, for callers that hold the producer's lock; `OpenBatches` calls it, too.
    """

    __slots__ = (
        "append", "leader", "name", "on_wire", "open", "outstanding", "partition", "records", "sequence", "template",
        "topic", "turn", "undecided", "waiting", "wire_connection", "wire_node",
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
        self.wire_connection = 0
        self.outstanding: list[ProducerBatch] = []  # batches with sequence numbers and without an outcome, in order
        self.undecided: list[ProducerBatch] = []  # the first of those, if a later one decides whether they are written
        self.sequence = PartitionSequence()
        self.template: ProduceTemplate | None = None  # created for the first batch that is sent alone

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.name} leader={self.leader} waiting={len(self.waiting)} on_wire={self.on_wire}>"

    def close(self) -> ProducerBatch | None:
        """Close the open batch to all appends and return it; None if there is none."""
        batch = self.open
        if batch is None:
            return None
        batch.builder.close()
        count = batch.count
        # No calls but the first: an interrupt comes before or after all of these lines.
        batch.become(BatchState.CLOSED)
        self.append = refuse
        self.open = None
        self.records += count
        self.topic.open_batches.close(self.partition)
        return batch

    def reset_sequence(self) -> None:
        """Reset the numbers for a recreated topic, after batches of which a request may still reach the new log."""
        if self.undecided:
            self.put_back(self.undecided)
            self.undecided = []
        unsure = [batch.position for batch in self.outstanding if batch.outcome_unknown or batch.on_wire]
        self.sequence.mark_broken(unsure[-1] + 1 if unsure else EVERYTHING)

    def put_back(self, batches: Sequence[ProducerBatch]) -> None:
        """Queue batches again, at their place in the partition's order."""
        index = 0
        while index < len(self.waiting) and self.waiting[index].position < batches[0].position:
            index += 1
        for offset, batch in enumerate(batches):
            self.waiting.insert(index + offset, batch)

    @property
    def first_pending(self) -> ProducerBatch | None:
        """The first numbered batch without an outcome that is not undecided; None if there is none."""
        index = len(self.undecided)
        return self.outstanding[index] if index < len(self.outstanding) else None

    @property
    def head_is_ready(self) -> bool:
        """True if the first waiting batch may be sent."""
        return bool(self.waiting) and self.waiting[0].state is not BatchState.OPEN


class TopicQueues:
    """A topic's partitions by the last metadata, and the sticky one for records without a key."""

    __slots__ = (
        "available", "count", "last_used", "name", "open_batches", "partitioner", "queues", "sticky", "topic_id",
        "unused",
    )  # fmt: skip

    def __init__(self, name: str, partitioner: StickyPartitioner) -> None:
        self.name = name
        self.open_batches = OpenBatches()
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
        self.open_batches.resize(count)

    def stick_to(self, queue: PartitionQueue) -> None:
        """Set the partition of records without a key."""
        if queue is not self.sticky:
            self.sticky = queue
            self.open_batches.stick_to(queue.partition)

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


NEVER: Final = float("inf")


class RecordAccumulator:
    """All batches of one producer.

    It neither locks nor reads a clock: the caller holds the producer's lock and passes the time in monotonic seconds.
    """

    def __init__(
        self,
        context: DeliveryContext,
        rng: Rng,
        *,
        batch_size: int,
        buffer_memory: int,
        linger: float,
        delivery_timeout: float,
        adaptive: bool = True,
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.open_batches: dict[str, OpenBatches] = {}  # by topic: the open batches, for appends without the lock
        self.batch_size = min(max(batch_size, HEADER_SIZE + 1), buffer_memory)
        self.alone = batch_size == 0  # each record gets its own batch
        self.pool = BufferPool(buffer_memory, self.batch_size)
        self.incomplete: OrderedDict[ProducerBatch, None] = OrderedDict()  # by age; their futures are pending
        self.stalled_nodes: Callable[[], set[int]] = set
        self.context = context
        self._rng = rng
        self._linger = linger
        self._delivery_timeout = delivery_timeout
        self._patience = linger + delivery_timeout / 20  # seconds; an open batch of this age is closed
        self._adaptive = adaptive
        self._lingering: deque[ProducerBatch] = deque()  # oldest first; some are closed already
        self._aging: deque[ProducerBatch] = deque()  # ready but still open because their broker accepts no requests
        self._led: Counter[int] = Counter()  # by leader, number of partitions assigned to it so far
        self._ready: dict[int, dict[PartitionQueue, None]] = {}  # by leader; dicts as ordered sets

    def __repr__(self) -> str:
        return f"<RecordAccumulator {len(self.topics)} topics, {len(self.incomplete)} batches, {self.pool!r}>"

    # -- topics

    def update_topic(self, name: str, topic_id: uuid.UUID, leaders: Sequence[int], now: float) -> TopicQueues:
        """Apply metadata of a topic and return its queues; `leaders` has each partition's leader, -1 for none."""
        topic = self.topics.get(name)
        if topic is None:
            partitioner = StickyPartitioner(self._rng, self.batch_size, adaptive=self._adaptive)
            topic = self.topics[name] = TopicQueues(name, partitioner)
            self.open_batches[name] = topic.open_batches
            topic.last_used = now
        if topic.topic_id != topic_id:
            if topic.queues:
                for queue in topic.queues:  # the topic was recreated: its log has no state of this producer
                    queue.reset_sequence()
                    if queue.head_is_ready:
                        self.mark_ready(queue)
            topic.topic_id = topic_id
        topic.grow(len(leaders))
        for queue in topic.queues:
            self._move(queue, leaders[queue.partition] if queue.partition < len(leaders) else NO_LEADER)
        topic.available = [partition for partition, leader in enumerate(leaders) if leader != NO_LEADER]
        if topic.count and (topic.sticky.partition < 0 or topic.sticky.leader == NO_LEADER):
            self._switch(topic)
        return topic

    def forget_idle(self, before: float) -> list[TopicQueues]:
        """Remove and return the topics that nothing was sent to since `before`; none while a send waits for memory."""
        if self.pool.waiting:
            return []
        idle = [topic for topic in self.topics.values() if topic.last_used < before and topic.idle]
        for topic in idle:
            del self.topics[topic.name], self.open_batches[topic.name]
        return idle

    def _move(self, queue: PartitionQueue, leader: int) -> None:
        if queue.leader != leader:
            was_ready = queue in self._ready.get(queue.leader, ())
            self.unmark(queue)
            queue.leader, queue.turn = leader, self._led[leader]
            self._led[leader] += 1
            if leader != NO_LEADER:  # pauses between retries are for the earlier leader (KIP-951)
                for batch in queue.waiting:
                    batch.retry_at = 0.0
            if was_ready:
                self.mark_ready(queue)

    def _switch(self, topic: TopicQueues) -> None:
        queues = topic.queues
        candidates = topic.available or list(range(topic.count))
        stalled = self.stalled_nodes()
        if stalled:
            candidates = [number for number in candidates if queues[number].leader not in stalled] or candidates
        alone = len(candidates) == 1
        queued = None if alone or topic.unused else [len(queues[number].waiting) for number in candidates]
        topic.stick_to(queues[topic.partitioner.switch(candidates, queued)])

    # -- appending

    def buffer_size(self, record_bound: int) -> int:
        """Return the buffer size in bytes for a new batch whose first record takes up to `record_bound` bytes."""
        return max(self.batch_size, HEADER_SIZE + record_bound)

    def new_batch(self, queue: PartitionQueue, buffer: bytearray, now: float) -> ProducerBatch:
        """Create a batch for a partition without an open one. It is not queued before `list_open` or `list_full`."""
        assert queue.open is None
        delivery = Delivery(self.context, queue.topic.name, queue.partition)
        return ProducerBatch(
            queue, delivery, buffer, position=queue.records, created=now, deadline=now + self._delivery_timeout
        )

    def open_batch(self, queue: PartitionQueue, buffer: bytearray, now: float) -> ProducerBatch:
        """Create and queue an open batch for a partition that has none."""
        batch = self.new_batch(queue, buffer, now)
        self.list_open(batch)
        return batch

    def list_open(self, batch: ProducerBatch) -> None:
        """Queue a new batch as the partition's open one; it may hold records already."""
        self._count_new(batch)
        pool, queue = self.pool, batch.queue
        try:
            # No calls until the batch is queued: an interrupt comes before or after all of these lines.
            queue.open, queue.append = batch, batch.builder.append
            pool.unowned = self.incomplete[batch] = None
            queue.waiting.append(batch)
            queue.topic.open_batches.open(queue.partition, batch.builder)
            if self._linger == 0 or pool.waiting:
                self.make_ready(batch)
            else:
                self._lingering.append(batch)
        except BaseException:  # an interrupt
            self.drop_if_empty(batch)
            raise

    def list_full(self, batch: ProducerBatch) -> None:
        """Queue a new batch that is full already; it may be sent."""
        self._count_new(batch)
        batch.builder.close()
        queue, count = batch.queue, batch.builder.count
        # No calls but the first until the batch is queued: an interrupt comes before or after all of these lines.
        batch.become(BatchState.CLOSED)
        queue.records += count
        self.pool.unowned = self.incomplete[batch] = None
        queue.waiting.append(batch)
        self.count_closed(batch)
        self.mark_ready(queue)

    def _count_new(self, batch: ProducerBatch) -> None:
        topic = batch.queue.topic
        if not batch.position:
            topic.unused -= 1
        topic.last_used = batch.created

    def close_open(self, queue: PartitionQueue) -> None:
        """Close the partition's open batch, if any; it may be sent."""
        if queue.open is not None:
            self._close(queue)
            self.mark_ready(queue)

    def _close(self, queue: PartitionQueue) -> None:
        batch = queue.close()
        if batch is not None:
            self.count_closed(batch)

    def count_closed(self, batch: ProducerBatch) -> None:
        """Count a closed batch for the sticky partitioner, which may switch to another partition."""
        topic = batch.queue.topic
        if batch.queue is topic.sticky and topic.partitioner.closed(batch.builder.size):
            self._switch(topic)

    # -- readiness

    def make_ready(self, batch: ProducerBatch) -> None:
        """Allow an open batch to be sent; it takes records until then."""
        if batch.state is BatchState.OPEN:
            batch.become(BatchState.READY)
            self._aging.append(batch)
            self.mark_ready(batch.queue)

    def make_all_ready(self) -> None:
        """End the linger of all batches: for a flush, a close, or when memory is short."""
        for batch in self._lingering:
            self.make_ready(batch)
        self._lingering.clear()

    def close_all(self) -> None:
        """Close every open batch, so that no more records join them; they may be sent."""
        for batch in self.incomplete:
            if not batch.closed:
                self.close_open(batch.queue)

    def end_linger(self, now: float) -> None:
        """Make the batches ready whose linger is over.

        Close those that have been ready for long because their broker accepts no requests: a batch's deadline is that
        of its first record, so it may not take records forever.
        """
        while self._lingering and (self._lingering[0].closed or self._lingering[0].created + self._linger <= now):
            self.make_ready(self._lingering.popleft())
        while self._aging and (self._aging[0].closed or self._aging[0].created + self._patience <= now):
            batch = self._aging.popleft()
            if not batch.closed:
                self.close_open(batch.queue)

    def next_change(self) -> float:
        """Return the time at which `end_linger` or a delivery deadline is due next."""
        while self._aging and self._aging[0].closed:  # a closed batch would cause a useless wake-up
            self._aging.popleft()
        linger = self._lingering[0].created + self._linger if self._lingering else NEVER
        closing = self._aging[0].created + self._patience if self._aging else NEVER
        deadline = next(iter(self.incomplete)).deadline if self.incomplete else NEVER
        return min(linger, closing, deadline)

    def mark_ready(self, queue: PartitionQueue) -> None:
        """Append the partition to its leader's ready partitions: its first batch may be sent."""
        self._ready.setdefault(queue.leader, {})[queue] = None

    def unmark(self, queue: PartitionQueue) -> None:
        """Remove the partition from its leader's ready partitions."""
        self._ready.get(queue.leader, {}).pop(queue, None)

    @property
    def has_ready(self) -> bool:
        """True if any partition has a batch to send."""
        return any(self._ready.values())

    def ready_at(self, node: int) -> int:
        """Return the number of partitions led by `node` that have a batch to send."""
        return len(self._ready.get(node, ()))

    def ready_nodes(self) -> list[int]:
        """Return the leaders of partitions that have a batch to send; -1 is one of them if some have no leader."""
        return [node for node, queues in self._ready.items() if queues]

    def is_left_behind(self, node: int) -> bool:
        """Return True if every partition with batches in flight to a broker is known to have another leader."""
        queues = {batch.queue for batch in self.incomplete if batch.on_wire}
        leaders = [queue.leader for queue in queues if queue.wire_node == node]
        return bool(leaders) and not {node, NO_LEADER}.intersection(leaders)

    def ready_queues(self, node: int) -> list[PartitionQueue]:
        """Return the partitions led by `node` that have a batch to send, in the order in which they became ready."""
        return list(self._ready.get(node, ()))

    # -- removing

    def taken(self, batch: ProducerBatch) -> None:
        """Dequeue the partition's first batch, which was put into a request."""
        queue = batch.queue
        if queue.open is batch:
            self._close(queue)
        waiting = queue.waiting
        removed = waiting.popleft()
        assert removed is batch
        ready = self._ready.setdefault(queue.leader, {})
        ready.pop(queue, None)
        if queue.head_is_ready:
            ready[queue] = None  # after the others

    def put_back(self, batches: Sequence[ProducerBatch]) -> None:
        """Queue batches of one partition to be sent (again), in their old place in the order."""
        queue = batches[0].queue
        queue.put_back(batches)
        self.mark_ready(queue)

    def replace(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """Replace a split batch in `incomplete` by its parts, which have its age."""
        for part in reversed(list(parts)):
            self.incomplete[part] = None
            self.incomplete.move_to_end(part, last=False)
        self.incomplete.pop(batch, None)

    def remove(self, batch: ProducerBatch) -> None:
        """Dequeue a waiting batch that will not be sent."""
        queue = batch.queue
        if queue.open is batch:
            self.close_open(queue)
        queue.waiting.remove(batch)
        if not queue.head_is_ready:
            self.unmark(queue)

    def drop_if_empty(self, batch: ProducerBatch) -> None:
        """Discard a new batch whose first append failed, unless other threads have appended to it."""
        if batch.queue.open is batch:
            self.close_open(batch.queue)  # first: appends take no lock
        if not batch.count:
            if not batch.closed:
                batch.become(BatchState.CLOSED)
            if batch in batch.queue.waiting:
                self.remove(batch)
            self.release(batch)

    def release(self, batch: ProducerBatch, *, patient: bool = False) -> None:
        """Return the buffer of a completed batch, which no request holds, to the pool; see `BufferPool.release`."""
        self.incomplete.pop(batch, None)
        batch.become(BatchState.RELEASED)
        buffer = batch.take_buffer()
        if buffer is not None:
            self.pool.release(buffer, patient=patient)
