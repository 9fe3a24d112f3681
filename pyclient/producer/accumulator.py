"""Records that wait to be sent: batches per partition, and which of them are ready when."""

from __future__ import annotations

import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pyclient.clock import Rng
from pyclient.producer.batch import ProducerBatch
from pyclient.producer.buffer_pool import BufferPool
from pyclient.producer.delivery import Delivery
from pyclient.producer.delivery_desk import DeliveryDesk
from pyclient.producer.partition_queue import NO_LEADER, PartitionQueue, TopicQueues
from pyclient.producer.partitioner import StickyPartitioner
from pyclient.records import HEADER_SIZE, TopicLanes

NEVER: Final = float("inf")


class RecordAccumulator:
    """All batches of one producer.

    It neither locks nor reads a clock: the caller holds the lock and says what time it is, in monotonic seconds.
    """

    def __init__(
        self,
        desk: DeliveryDesk,
        rng: Rng,
        *,
        batch_size: int,
        buffer_memory: int,
        linger: float,
        delivery_timeout: float,
        adaptive: bool = True,
    ) -> None:
        self.topics: dict[str, TopicQueues] = {}
        self.lanes: dict[str, TopicLanes] = {}  # by topic, for appends that take no lock
        self.batch_size = min(max(batch_size, HEADER_SIZE + 1), buffer_memory)
        self.alone = batch_size == 0  # every record in a batch of its own
        self.pool = BufferPool(buffer_memory, self.batch_size)
        self.incomplete: OrderedDict[ProducerBatch, None] = OrderedDict()  # by age; their futures are pending
        self.stalled_nodes: Callable[[], set[int]] = set
        self.desk = desk
        self._rng = rng
        self._linger = linger
        self._delivery_timeout = delivery_timeout
        self._patience = linger + delivery_timeout / 20  # a batch's age at which it takes no records any more
        self._adaptive = adaptive
        self._lingering: deque[ProducerBatch] = deque()  # by age; some are closed already
        self._aging: deque[ProducerBatch] = deque()  # ready, and still open because their broker takes nothing
        self._led: Counter[int] = Counter()  # by leader, how many partitions it was given
        self._ready: dict[int, dict[PartitionQueue, None]] = {}  # by leader; a dict keeps the order of arrival

    def __repr__(self) -> str:
        return f"<RecordAccumulator {len(self.topics)} topics, {len(self.incomplete)} batches, {self.pool!r}>"

    # -- topics

    def update_topic(self, name: str, topic_id: uuid.UUID, leaders: Sequence[int], now: float) -> TopicQueues:
        """Takes over what metadata says of a topic: the leader of each partition, -1 where there is none."""
        topic = self.topics.get(name)
        if topic is None:
            partitioner = StickyPartitioner(self._rng, self.batch_size, adaptive=self._adaptive)
            topic = self.topics[name] = TopicQueues(name, partitioner)
            self.lanes[name] = topic.lanes
            topic.last_used = now
        if topic.topic_id != topic_id:
            if topic.queues:
                for queue in topic.queues:  # created anew: the log knows nothing of this producer
                    queue.begin_anew()
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
        """Drops topics that nothing was sent to since `before`; says which. None while somebody waits for memory."""
        if self.pool.waiting:
            return []
        idle = [topic for topic in self.topics.values() if topic.last_used < before and topic.idle]
        for topic in idle:
            del self.topics[topic.name], self.lanes[topic.name]
        return idle

    def _move(self, queue: PartitionQueue, leader: int) -> None:
        if queue.leader != leader:
            was_ready = queue in self._ready.get(queue.leader, ())
            self.unmark(queue)
            queue.leader, queue.turn = leader, self._led[leader]
            self._led[leader] += 1
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
        """How large the buffer for a new batch must be whose first record takes up to `record_bound` bytes."""
        return max(self.batch_size, HEADER_SIZE + record_bound)

    def new_batch(self, queue: PartitionQueue, buffer: bytearray, now: float) -> ProducerBatch:
        """A batch that nobody knows of until it is listed; the partition has none open."""
        assert queue.open is None
        delivery = Delivery(self.desk, queue.topic.name, queue.partition)
        return ProducerBatch(
            queue, delivery, buffer, position=queue.records, created=now, deadline=now + self._delivery_timeout
        )

    def open_batch(self, queue: PartitionQueue, buffer: bytearray, now: float) -> ProducerBatch:
        """Begins a batch; the partition has none open."""
        batch = self.new_batch(queue, buffer, now)
        self.list_open(batch)
        return batch

    def list_open(self, batch: ProducerBatch) -> None:
        """Takes over a new batch, which may hold records already and takes more."""
        self._count_new(batch)
        pool, queue = self.pool, batch.queue
        try:
            # Nothing is called from here until it is in the queue: Ctrl-C comes before or after all of this.
            queue.open, queue.append = batch, batch.builder.append
            pool.unowned = self.incomplete[batch] = None
            queue.waiting.append(batch)
            queue.topic.lanes.open(queue.partition, batch.builder)
            if self._linger == 0 or pool.waiting:
                self.make_ready(batch)
            else:
                self._lingering.append(batch)
        except BaseException:  # Ctrl-C
            self.drop_if_empty(batch)
            raise

    def list_full(self, batch: ProducerBatch) -> None:
        """Takes over a new batch that was filled before anybody could append to it: it may be sent."""
        self._count_new(batch)
        batch.builder.close()
        queue, count = batch.queue, batch.builder.count
        # Nothing is called from here until it is in the queue: Ctrl-C comes before or after all of this.
        batch.closed = True
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
        """The partition's open batch takes no more records, and may be sent."""
        if queue.open is not None:
            self._close(queue)
            self.mark_ready(queue)

    def _close(self, queue: PartitionQueue) -> None:
        batch = queue.close()
        if batch is not None:
            self.count_closed(batch)

    def count_closed(self, batch: ProducerBatch) -> None:
        """A batch takes no more records: keyless ones go elsewhere if this partition has had its share of them."""
        topic = batch.queue.topic
        if batch.queue is topic.sticky and topic.partitioner.closed(batch.builder.size):
            self._switch(topic)

    # -- readiness

    def make_ready(self, batch: ProducerBatch) -> None:
        """An open batch may be sent as it is; until then it still takes records."""
        if not batch.ready and not batch.closed:
            batch.ready = True
            self._aging.append(batch)
            self.mark_ready(batch.queue)

    def make_all_ready(self) -> None:
        """Nothing lingers any more: for a flush, a close, or when memory is short."""
        for batch in self._lingering:
            self.make_ready(batch)
        self._lingering.clear()

    def end_linger(self, now: float) -> None:
        """Batches whose linger is over become ready.

        Those that have been ready for long, as their broker takes nothing, are closed: a batch's deadline is that of
        its first record, so it may not take records for ever.
        """
        while self._lingering and (self._lingering[0].closed or self._lingering[0].created + self._linger <= now):
            self.make_ready(self._lingering.popleft())
        while self._aging and (self._aging[0].closed or self._aging[0].created + self._patience <= now):
            batch = self._aging.popleft()
            if not batch.closed:
                self.close_open(batch.queue)

    def next_change(self) -> float:
        """When `end_linger` or a deadline is due next."""
        while self._aging and self._aging[0].closed:  # else the next look would be for nothing
            self._aging.popleft()
        linger = self._lingering[0].created + self._linger if self._lingering else NEVER
        closing = self._aging[0].created + self._patience if self._aging else NEVER
        deadline = next(iter(self.incomplete)).deadline if self.incomplete else NEVER
        return min(linger, closing, deadline)

    def mark_ready(self, queue: PartitionQueue) -> None:
        """The partition's first batch may be sent; behind others that became ready before it."""
        self._ready.setdefault(queue.leader, {})[queue] = None

    def unmark(self, queue: PartitionQueue) -> None:
        """The partition has nothing to send."""
        self._ready.get(queue.leader, {}).pop(queue, None)

    @property
    def has_ready(self) -> bool:
        """Whether any partition has something to send."""
        return any(self._ready.values())

    def ready_at(self, node: int) -> int:
        """How many partitions led by `node` have something to send."""
        return len(self._ready.get(node, ()))

    def ready_nodes(self) -> list[int]:
        """Leaders of partitions that have something to send; -1 among them if some have no leader."""
        return [node for node, queues in self._ready.items() if queues]

    def ready_queues(self, node: int) -> list[PartitionQueue]:
        """Partitions led by `node` that have something to send, first come first."""
        return list(self._ready.get(node, ()))

    # -- ends

    def taken(self, batch: ProducerBatch) -> None:
        """The partition's first batch was put into a request."""
        queue = batch.queue
        if queue.open is batch:
            self._close(queue)
        waiting = queue.waiting
        removed = waiting.popleft()
        assert removed is batch
        ready = self._ready.setdefault(queue.leader, {})
        ready.pop(queue, None)
        if waiting and (waiting[0].closed or waiting[0].ready):
            ready[queue] = None  # behind the others

    def put_back(self, batches: Sequence[ProducerBatch]) -> None:
        """Batches of one partition are to be sent (again), in their old place."""
        queue = batches[0].queue
        queue.put_back(batches)
        self.mark_ready(queue)

    def replace(self, batch: ProducerBatch, parts: Iterable[ProducerBatch]) -> None:
        """A batch goes on as its parts, which are as old as it was."""
        for part in reversed(list(parts)):
            self.incomplete[part] = None
            self.incomplete.move_to_end(part, last=False)
        self.incomplete.pop(batch, None)

    def remove(self, batch: ProducerBatch) -> None:
        """A batch that waits will not be sent."""
        queue = batch.queue
        if queue.open is batch:
            self.close_open(queue)
        queue.waiting.remove(batch)
        if not queue.head_is_ready:
            self.unmark(queue)

    def drop_if_empty(self, batch: ProducerBatch) -> None:
        """A new batch whose first record turned out to be none is given up, unless others have appended to it."""
        if batch.queue.open is batch:
            self.close_open(batch.queue)  # first, as they need no lock for it
        if not batch.count:
            batch.closed = True
            if batch in batch.queue.waiting:
                self.remove(batch)
            self.release(batch)

    def release(self, batch: ProducerBatch, *, patient: bool = False) -> None:
        """The batch is over and no request holds its bytes: its buffer goes back, see `BufferPool.release`."""
        assert not batch.on_wire
        self.incomplete.pop(batch, None)
        buffer = batch.take_buffer()
        if buffer is not None:
            self.pool.release(buffer, patient=patient)
