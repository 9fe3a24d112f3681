"""RecordAccumulator: when batches become ready, and the queues in which they wait."""

from __future__ import annotations

import random
import uuid

import pytest

from pyclient.clock import SYSTEM_CLOCK
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.delivery import DeliveryContext
from pyclient.producer.record_accumulator import NEVER, NO_LEADER, RecordAccumulator

TOPIC_ID = uuid.UUID(int=1)


class AccumulatorFixture:
    """An accumulator, a topic with three partitions, and a clock that is a number."""

    def __init__(self, **options):
        self.now = 100.0
        context = DeliveryContext(None, None, SYSTEM_CLOCK)
        given = {"batch_size": 200, "buffer_memory": 10_000, "linger": 1.0, "delivery_timeout": 60.0} | options
        self.accumulator = RecordAccumulator(context, random.Random(1), **given)
        self.lead([1, 1, 2])

    def lead(self, leaders, topic_id=TOPIC_ID):
        self.topic = self.accumulator.update_topic("t", topic_id, leaders, self.now)

    def send(self, value=b"x" * 50, partition=None):
        queue = self.topic.sticky if partition is None else self.topic.queues[partition]
        future = queue.append(0, None, value, None)
        if future is None:
            self.accumulator.close_open(queue)
            queue = self.topic.sticky if partition is None else queue
            buffer = self.accumulator.pool.try_acquire(self.accumulator.buffer_size(len(value) + 22))
            self.accumulator.open_batch(queue, buffer, self.now)
            future = queue.append(0, None, value, None)
        return future

    def fill_sticky(self):
        """Send a full batch to the sticky partition: records without a key go elsewhere afterwards."""
        sticky = self.topic.sticky
        self.send(b"x" * 200)
        self.accumulator.close_open(sticky)

    def ready(self):
        self.accumulator.end_linger(self.now)
        nodes = sorted(self.accumulator.ready_nodes())
        return {node: [queue.partition for queue in self.accumulator.ready_queues(node)] for node in nodes}


def test_batch_is_ready_when_its_linger_is_over():
    fixture = AccumulatorFixture()
    fixture.send(partition=0)
    assert fixture.ready() == {} and fixture.accumulator.next_change() == 101.0
    fixture.now = 100.9
    fixture.send(partition=0)
    assert fixture.ready() == {}
    fixture.now = 101.0
    assert fixture.ready() == {1: [0]}


def test_unsent_open_batch_is_closed_after_a_twentieth_of_the_timeout():
    fixture = AccumulatorFixture()
    fixture.send(partition=0)
    fixture.now = 101.0
    assert fixture.ready() == {1: [0]} and fixture.accumulator.next_change() == 100 + 1 + 60 / 20
    fixture.now = 103.9
    assert fixture.ready() == {1: [0]} and not fixture.topic.queues[0].waiting[0].closed
    fixture.now = 104.0
    assert fixture.ready() == {1: [0]} and fixture.topic.queues[0].waiting[0].closed
    assert fixture.accumulator.next_change() == 160.0


def test_batch_without_linger_is_ready_at_once_and_still_takes_records():
    fixture = AccumulatorFixture(linger=0.0)
    first = fixture.send(partition=0)
    assert fixture.ready() == {1: [0]}
    assert fixture.send(partition=0).batch is first.batch


def test_a_full_batch_is_ready_at_once():
    fixture = AccumulatorFixture()
    for _ in range(3):
        fixture.send(partition=2)
    assert fixture.ready() == {2: [2]} and len(fixture.topic.queues[2].waiting) == 2


def test_partitions_are_served_in_the_order_they_became_ready():
    fixture = AccumulatorFixture()
    fixture.send(partition=1)
    fixture.now += 0.5
    fixture.send(partition=0)
    fixture.now += 2
    assert fixture.ready() == {1: [1, 0]}


def test_flush_and_short_memory_end_every_linger():
    fixture = AccumulatorFixture()
    for partition in range(3):
        fixture.send(partition=partition)
    fixture.accumulator.make_all_ready()
    assert fixture.ready() == {1: [0, 1], 2: [2]}
    fixture = AccumulatorFixture(buffer_memory=1024)
    fixture.accumulator.pool.wait(Waiter(print), 5000)
    fixture.accumulator.open_batch(fixture.topic.queues[0], bytearray(1024), fixture.now)
    assert fixture.ready() == {1: [0]}


def test_a_partition_without_a_leader_waits_for_one_and_follows_it():
    fixture = AccumulatorFixture(linger=0.0)
    fixture.lead([NO_LEADER, 1, 2])
    fixture.send(partition=0)
    assert fixture.ready() == {NO_LEADER: [0]}
    fixture.lead([2, 1, 2])
    assert fixture.ready() == {2: [0]}


def test_open_batch_of_a_stalled_broker_is_closed_in_time():
    """Its deadline is that of its first record, so it may not take records until then."""
    fixture = AccumulatorFixture(linger=0.0)
    first = fixture.send(b"1", partition=0)
    fixture.now += 2.9
    fixture.ready()
    assert fixture.send(b"2", partition=0).batch is first.batch
    fixture.now += 0.1
    fixture.ready()
    assert fixture.send(b"3", partition=0).batch is not first.batch


def test_keyless_records_change_the_partition_with_the_batch():
    fixture = AccumulatorFixture(batch_size=400)
    seen = []
    for _ in range(60):
        partition = fixture.send().batch.partition
        if not seen or seen[-1] != partition:
            seen.append(partition)
    assert set(seen) == {0, 1, 2}
    runs = len(seen)
    assert runs <= 15  # five records to a batch


def test_small_batches_count_together_before_the_partition_changes():
    fixture = AccumulatorFixture(linger=0.0)
    sticky = fixture.topic.sticky
    for _ in range(2):
        fixture.send(b"x" * 10)
        fixture.accumulator.taken(sticky.waiting[0])
        sticky.waiting.clear()
    changed = [fixture.topic.sticky]
    for _ in range(4):
        fixture.send(b"x" * 10)
        fixture.accumulator.close_open(fixture.topic.sticky)
        changed.append(fixture.topic.sticky)
    assert changed[0] is sticky and len({id(queue) for queue in changed}) > 1


def test_the_sticky_partition_is_one_with_a_leader():
    fixture = AccumulatorFixture()
    for alone in (0, 1, 2):
        fixture.lead([7 if partition == alone else NO_LEADER for partition in range(3)])
        fixture.fill_sticky()
        assert fixture.topic.sticky.partition == alone
    fixture.lead([NO_LEADER] * 3)
    assert fixture.topic.sticky.partition in (0, 1, 2)


def test_stalled_brokers_are_left_out_while_there_are_others():
    fixture = AccumulatorFixture()
    fixture.accumulator.stalled_nodes = lambda: {1}
    for _ in range(20):
        fixture.fill_sticky()
        assert fixture.topic.sticky.partition == 2
    fixture.accumulator.stalled_nodes = lambda: {1, 2}
    fixture.fill_sticky()
    assert fixture.topic.sticky.partition in (0, 1, 2)


def test_added_partitions_are_used_and_recreated_topic_restarts_sequences():
    fixture = AccumulatorFixture()
    fixture.lead([1, 1, 2, 2])
    assert [queue.partition for queue in fixture.topic.queues] == [0, 1, 2, 3]
    queue = fixture.topic.queues[0]
    queue.sequence.phase = queue.sequence.phase.STEADY
    fixture.lead([1, 1, 2, 2])
    assert queue.sequence.phase.name == "STEADY"
    fixture.lead([1], uuid.UUID(int=2))
    assert queue.sequence.phase.name == "BROKEN" and fixture.topic.count == 1
    assert fixture.topic.queues[3].leader == NO_LEADER


def test_idle_topics_are_forgotten_and_busy_ones_are_not():
    fixture = AccumulatorFixture()
    assert fixture.accumulator.forget_idle(100.0) == []
    fixture.send(partition=0)
    assert fixture.accumulator.forget_idle(1000.0) == []
    batch = fixture.topic.queues[0].waiting[0]
    fixture.accumulator.remove(batch)
    fixture.accumulator.release(batch)
    waiter = Waiter(lambda: None)
    fixture.accumulator.pool.wait(waiter, 100)
    assert fixture.accumulator.forget_idle(1000.0) == []  # a column may be half appended
    fixture.accumulator.pool.abandon(waiter)
    assert fixture.accumulator.forget_idle(1000.0) == [fixture.topic] and fixture.accumulator.topics == {}


def test_removed_batch_is_closed_and_its_memory_released():
    fixture = AccumulatorFixture()
    queue = fixture.topic.queues[0]
    fixture.send(partition=0)
    append, batch = queue.append, queue.open
    fixture.accumulator.remove(batch)
    fixture.accumulator.release(batch)
    assert append(0, None, b"late", None) is None and batch.count == 1
    assert fixture.accumulator.pool.available == 10_000
    assert fixture.accumulator.next_change() == NEVER or fixture.accumulator.next_change() == 101.0


@pytest.mark.parametrize("batch_size", [0, 1, 61, 300])
def test_record_larger_than_batch_size_gets_its_own_batch(batch_size):
    fixture = AccumulatorFixture(batch_size=batch_size)
    futures = [fixture.send(b"x" * 1000, partition=0) for _ in range(3)]
    assert len({id(future.batch) for future in futures}) == 3
    assert fixture.accumulator.pool.available == 10_000 - 3 * (61 + 1000 + 22)
