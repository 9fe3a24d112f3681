"""A commit made in on_revoked is stored before other members get the partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import PATIENCE, ConsumerFactory, EventLog, partitions, poll_until, read, shares

NewTopic = Callable[..., str]
Produce = Callable[..., None]


class Committing(EventLog):
    """Commits the positions in on_revoked, and notes them."""

    def __init__(self, consumer: Any) -> None:
        super().__init__()
        self.processed: dict[int, int] = {}
        self.given_up_at: dict[int, int] = {}
        self._consumer = consumer.raw

    def on_revoked(self, revoked: Any) -> Any:
        super().on_revoked(revoked)
        self.given_up_at |= {p.partition: self.processed.get(p.partition, 0) for p in revoked}
        return self._consumer.commit()

    def process(self, records: Any) -> None:
        for record in records:
            self.processed[record.partition] = record.offset + 1


@pytest.fixture
def topic(new_topic: NewTopic, produce: Produce) -> str:
    """Return a topic with ten records in each of four partitions."""
    name = new_topic(4)
    for partition in range(4):
        produce(name, *[b"%d" % n for n in range(10)], partition=partition)
    return name


@pytest.mark.parametrize("fault", [None, errors.CoordinatorLoadInProgress, errors.NotCoordinator])
def test_next_owner_starts_where_the_callback_committed(
    fault: type[errors.BrokerError] | None,
    consumers: ConsumerFactory,
    topic: str,
    produce: Produce,
    group: str,
    cluster: EmbeddedCluster,
) -> None:
    first = consumers(group_id=group, enable_auto_commit=False)
    listener = Committing(first)
    first.subscribe(topic, listener=listener)
    listener.process(read(first, 23))
    second = consumers(topic, group_id=group, enable_auto_commit=False)
    if fault is not None:
        cluster.faults.fail("OffsetCommit", fault, times=2, group=group)
    begun: dict[int, int] = {}
    waiting = [0, 1, 2, 3]
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if len(second.assignment()) < 2:
            listener.process(first.poll(0.02, max_records=1))
        else:
            for partition in waiting:  # so that there is something to begin with
                produce(topic, b"more", partition=partition)
            waiting = []
        for record in second.poll(0.02):
            begun.setdefault(record.partition, record.offset)
        if len(begun) == 2:
            break
    taken_over = [partition.partition for partition in second.assignment()]
    assert begun == {number: listener.given_up_at[number] for number in taken_over}


def test_partition_moves_only_after_the_commit_response(
    consumers: ConsumerFactory, topic: str, group: str, cluster: EmbeddedCluster
) -> None:
    first = consumers(group_id=group, enable_auto_commit=False)
    listener = Committing(first)
    first.subscribe(topic, listener=listener)
    listener.process(read(first, 23))
    held = first.assignment()
    assert held == set(partitions(topic, 0, 1, 2, 3))
    stop = threading.Event()

    def keep_polling() -> None:
        while not stop.is_set():
            first.poll(0.02, max_records=1)

    with cluster.faults.hold("OffsetCommit", group=group) as fault:
        thread = threading.Thread(target=keep_polling)
        thread.start()
        try:
            second = consumers(topic, group_id=group, enable_auto_commit=False)
            second.poll(0.05)
            fault.wait(1)
            for _ in range(20):
                second.poll(0.02)
                assert second.assignment() == set()
            fault.release()
            poll_until([second], lambda: len(shares([second])[0]) == 2)
        finally:
            stop.set()
            thread.join()
    assert second.assignment().isdisjoint(first.assignment())


def test_next_owner_starts_at_the_auto_commit_without_a_listener(
    consumers: ConsumerFactory, topic: str, group: str
) -> None:
    first = consumers(topic, group_id=group, auto_commit_interval_ms=3_600_000)
    seen = [(record.partition, record.offset) for record in read(first, 23)]
    second = consumers(topic, group_id=group, auto_commit_interval_ms=3_600_000)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for member in (first, second):
            seen += [(record.partition, record.offset) for record in member.poll(0.02)]
        if len(seen) >= 40 and len(second.assignment()) == 2:
            break
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(10)]
