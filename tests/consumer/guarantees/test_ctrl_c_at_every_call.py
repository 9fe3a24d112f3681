"""Ctrl-C whenever Python runs a signal handler: the consumer stays usable, and no record is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from pyclient import Consumer, RebalanceListener
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import partitions, poll_until
from tests.producer.test_interrupts import interrupted

NewTopic = Callable[..., str]
Produce = Callable[..., None]
PLACES = (
    "consumer/consumer.py", "consumer/base_consumer.py", "consumer/runners.py", "consumer/client.py",
    "consumer/deserialization.py", "consumer/subscription.py", "consumer/fetch_buffer.py",
    "consumer/completed_fetch.py", "consumer/rebalance_listener.py", "consumer/records.py",
    "consumer/commit_request_manager.py",
)  # fmt: skip
RECORDS = 40
# Every so many moments are tried, of calls that take long.
STRIDES = [17, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]


@pytest.fixture
def topic(new_topic: NewTopic, produce: Produce) -> str:
    name = new_topic(2)
    for partition in range(2):
        produce(name, *[b"%d" % n for n in range(RECORDS)], partition=partition)
    return name


@pytest.fixture
def consumer(cluster: EmbeddedCluster, topic: str) -> Iterator[Consumer[bytes, int]]:
    """Yield a consumer of both partitions, with all records in its buffer before a test begins."""
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=f"g-{topic}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        value_deserializer=int,
    ) as consumer:
        consumer.assign(partitions(topic, 0, 1))
        for partition in partitions(topic, 0, 1):
            consumer.position(partition)
        yield consumer


def usable_elsewhere(consumer: Consumer[Any, Any]) -> bool:
    """Check that another thread may use the consumer: no lock or guard is left acquired."""
    outcome: list[Any] = []

    def use() -> None:
        try:
            outcome.append(consumer.lag())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(30)
    return bool(outcome) and not isinstance(outcome[0], BaseException)


def positions(consumer: Consumer[Any, Any], topic: str) -> list[int]:
    return [consumer.position(partition) for partition in partitions(topic, 0, 1)]


class Reader:
    """Checks that records come once and in order, and that positions are after them."""

    def __init__(self, consumer: Consumer[Any, Any], topic: str) -> None:
        self.consumer = consumer
        self.topic = topic
        self.seen = [0, 0]

    def take(self, records: Any) -> None:
        for record in records:
            assert record.value == record.offset == self.seen[record.partition]
            self.seen[record.partition] += 1

    def start_over(self) -> None:
        self.consumer.seek_to_beginning()
        self.seen = [0, 0]


def test_poll_interrupted_at_any_call_moves_no_position(consumer: Consumer[Any, Any], topic: str) -> None:
    reader = Reader(consumer, topic)
    for number in count():
        returned: list[Any] = []

        def poll() -> None:
            returned[:] = [consumer.poll(30, max_records=3)]  # noqa: B023

        more = interrupted(number, poll, PLACES)
        assert usable_elsewhere(consumer), f"moment {number}"
        if not returned:
            assert positions(consumer, topic) == reader.seen, f"moment {number}"
        for records in returned:
            reader.take(records)
        reader.take(consumer.poll(30, max_records=2))
        assert positions(consumer, topic) == reader.seen, f"moment {number}"
        if sum(reader.seen) > 2 * RECORDS - 20:
            reader.start_over()
        if not more:
            break
    assert number > 40


def test_iteration_interrupted_at_any_call_loses_no_record(consumer: Consumer[Any, Any], topic: str) -> None:
    reader = Reader(consumer, topic)
    for number in count():

        def iterate() -> None:
            with closing(iter(consumer)) as records:  # the garbage collector could only print the interrupt of a close
                for step, record in enumerate(records):
                    reader.take([record])
                    if step == 1:
                        consumer.pause()
                    if step == 3:
                        return

        more = interrupted(number, iterate, PLACES)
        assert usable_elsewhere(consumer), f"moment {number}"
        assert positions(consumer, topic) == reader.seen, f"moment {number}"
        if sum(reader.seen) > 2 * RECORDS - 20:
            reader.start_over()
        if not more:
            break
    assert number > 40


CALLS: dict[str, Callable[[Consumer[Any, Any], str], object]] = {
    "commit": lambda consumer, topic: consumer.commit(),
    "position": lambda consumer, topic: consumer.position((topic, 0)),
    "pause": lambda consumer, topic: consumer.pause((topic, 0)),
    "assign": lambda consumer, topic: consumer.assign(partitions(topic, 0, 1)),
    "lag": lambda consumer, topic: consumer.lag(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_call_interrupted_after_an_iteration_keeps_positions(
    call: Callable[[Consumer[Any, Any], str], object], consumer: Consumer[Any, Any], topic: str
) -> None:
    reader = Reader(consumer, topic)
    for number in count():
        reader.take([next(iter(consumer))])
        more = interrupted(number, lambda: call(consumer, topic), PLACES)
        consumer.resume()
        assert usable_elsewhere(consumer), f"moment {number}"
        assert positions(consumer, topic) == reader.seen, f"moment {number}"
        reader.take(consumer.poll(30, max_records=3))
        if sum(reader.seen) > 2 * RECORDS - 20:
            reader.start_over()
        if not more:
            break
    assert number > 5


def test_seek_interrupted_at_any_call_is_done_or_not(consumer: Consumer[Any, Any], topic: str) -> None:
    consumer.poll(30, max_records=3)
    for number in count():
        consumer.seek((topic, 0), 7)
        more = interrupted(number, lambda: consumer.seek((topic, 0), 20), PLACES)
        at = consumer.position((topic, 0))
        assert at in (7, 20), f"moment {number}"
        consumer.pause((topic, 1))
        assert consumer.poll(30, max_records=1)[0].offset == at, f"moment {number}"
        consumer.resume()
        if not more:
            break
    assert number > 5


class Partitions(RebalanceListener):
    """The assignment according to the callbacks."""

    def __init__(self) -> None:
        self.held: set[Any] = set()

    def on_assigned(self, partitions: Any) -> None:
        self.held |= set(partitions)

    def on_revoked(self, partitions: Any) -> None:
        self.held -= set(partitions)


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalance_interrupted_at_any_call_continues_with_the_next_poll(
    protocol: Any, stride: int, cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    options: Any = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
    if protocol == "classic":
        options |= {"heartbeat_interval_ms": 20, "partition_assignment_strategy": "cooperative-sticky"}
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=group, **options) as consumer:
        changes = Partitions()
        for number in count(0, stride):
            consumer.subscribe(topic, listener=changes)
            poll_until([consumer], lambda: len(consumer.assignment()) == 2)
            more = True
            with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, **options) as other:
                while more and len(consumer.assignment()) == 2:
                    other.poll(0.01)
                    if consumer.health()["group_waits_for_poll"]:
                        more = interrupted(number, lambda: consumer.poll(0.05), PLACES)
                        break
                    consumer.poll(0)
                poll_until([consumer, other], lambda: len(consumer.assignment()) == len(other.assignment()) == 1)
                poll_until([consumer], lambda: changes.held == consumer.assignment())
                assert usable_elsewhere(consumer), f"moment {number}"
            consumer.unsubscribe()
            if not more:
                break
    assert number > 20


@pytest.mark.parametrize("stride", STRIDES)
def test_close_interrupted_at_any_call_completes_when_repeated(
    stride: int, cluster: EmbeddedCluster, topic: str
) -> None:
    for number in count(0, stride):
        group = f"g-{topic}-{number}"  # of its own: with an earlier one's commits, records would run out
        consumer: Consumer[Any, Any] = Consumer(
            topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
        )
        assert len(consumer.poll(30, max_records=1)) == 1
        more = interrupted(number, consumer.close, PLACES)
        consumer.close()
        assert consumer.closed, f"moment {number}"
        if not more:
            break
    assert number > 20


def test_first_call_interrupted_at_any_call_is_completed_later(cluster: EmbeddedCluster, topic: str) -> None:
    for number in count():
        with Consumer(
            bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=int
        ) as consumer:
            more = interrupted(number, lambda: consumer.assign(partitions(topic, 0)), (*PLACES, "net/loop_thread.py"))
            consumer.assign(partitions(topic, 0))
            assert consumer.poll(30, max_records=1)[0].value == 0, f"moment {number}"
        if not more:
            break
    assert number > 20
