"""A slow user: memory stays bounded, partitions do not wait for each other, listeners run in polls."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import Admin, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import PATIENCE, ConsumerFactory, EventLog, partitions, poll_until, read, shares
from tests.consumer.parts import bytes_held, is_fetching
from tests.waiting import until

NewTopic = Callable[..., str]
Produce = Callable[..., None]

SHARE = 100_000


def fill(producer: Producer, topic: str, partition: int, count: int, size: int = 1_000) -> None:
    producer.send_many(topic, [bytes(size)] * count, partition=partition)
    producer.flush()


def wait_until_no_fetch_is_in_flight(consumer: Any) -> None:
    """Wait until something is fetched and no fetch is in flight."""
    until(lambda: consumer.metrics()["fetched_bytes"] and not is_fetching(consumer), "the node does not answer")


@pytest.mark.parametrize("room", [2, 5, 50])
def test_idle_user_has_at_most_fetch_max_bytes_buffered(
    room: int, consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer
) -> None:
    topic, bound = new_topic(4), room * SHARE
    for number in range(4):
        fill(producer, topic, number, 1_500)
    consumer = consumers(fetch_max_bytes=bound, max_partition_fetch_bytes=SHARE)
    consumer.assign(partitions(topic, 0, 1, 2, 3))
    taken = len(read(consumer, 1))
    for _ in range(10):
        wait_until_no_fetch_is_in_flight(consumer)
        buffered = consumer.health()["buffered_bytes"]
        held = bytes_held(consumer)
        # a user with nothing to poll gets one partition's share, whatever else is kept; batches come whole
        assert buffered <= held <= bound + SHARE + 20_000
        taken += len(consumer.poll(PATIENCE, max_records=37))
    assert taken + len(read(consumer, 6_000 - taken)) == 6_000


def test_large_backlog_does_not_block_other_partitions(
    consumers: ConsumerFactory, new_topic: NewTopic, producer: Producer
) -> None:
    topic = new_topic(3)
    fill(producer, topic, 0, 5_000)
    for number in (1, 2):
        fill(producer, topic, number, 10)
    consumer = consumers(max_poll_records=20, max_partition_fetch_bytes=SHARE)
    consumer.assign(partitions(topic, 0, 1, 2))
    seen = {0: 0, 1: 0, 2: 0}
    while min(seen[1], seen[2]) < 10:
        for record in consumer.poll(PATIENCE):
            seen[record.partition] += 1
        assert seen[0] < 2_500, seen
    fill(producer, topic, 2, 10)
    while seen[2] < 20:
        for record in consumer.poll(PATIENCE):
            seen[record.partition] += 1
        assert seen[0] < 5_000, seen


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_listener_runs_in_the_polling_thread(protocol: str, consumers: ConsumerFactory, new_topic: NewTopic) -> None:
    topic, group = new_topic(2), f"g-{uuid.uuid4().hex[:8]}"
    polling: set[str] = set()

    class Where(EventLog):
        def _note(self, sign: str, partitions: Any) -> None:
            super()._note(sign, partitions)
            polling.add(threading.current_thread().name)

    event_log = Where()
    first = consumers(group_id=group, group_protocol=protocol)
    first.subscribe(topic, listener=event_log)
    poll_until([first], lambda: shares([first]) == [[0, 1]])
    second = consumers(topic, group_id=group, group_protocol=protocol)
    poll_until([first, second], lambda: sorted(map(len, shares([first, second]))) == [1, 1])
    assert {line[0] for line in event_log.lines} == {"+", "-"}
    expected = threading.current_thread().name if consumers.name == "sync" else "test-async-consumers"
    assert polling == {expected}


@pytest.mark.parametrize("hidden", [True, False])
def test_pattern_leaves_out_internal_topics_unless_they_are_wanted(
    hidden: bool, consumers: ConsumerFactory, new_topic: NewTopic, admin: Admin
) -> None:
    topic = new_topic()
    group = f"g-{uuid.uuid4().hex[:8]}"
    owner = consumers(group_id=group)
    owner.assign(partitions(topic, 0))
    owner.commit({(topic, 0): 0})  # so that there are committed offsets somewhere
    consumer = consumers(exclude_internal_topics=hidden)
    consumer.subscribe(re.compile(f"__consumer_offsets|{topic}"))
    expected = {topic} if hidden else {topic, "__consumer_offsets"}
    poll_until([consumer], lambda: topic in consumer.subscription())
    assert consumer.subscription() == expected


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_refused_commit_names_member_generation_and_what_to_do(
    protocol: str, consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, cluster: EmbeddedCluster
) -> None:
    topic, group = new_topic(), f"g-{uuid.uuid4().hex[:8]}"
    produce(topic, b"x")
    consumer = consumers(topic, group_id=group, group_protocol=protocol, enable_auto_commit=False)
    read(consumer, 1)
    poll_until([consumer], lambda: consumer.health()["group_state"] == "stable")
    health = consumer.health()
    counted = "member epoch" if protocol == "consumer" else "generation"
    message = rf"'{group}', {re.escape(health['member_id'])}, {counted} {health['generation']}: {topic}-0 .*Call poll"
    refusal = errors.UnknownMemberId
    with cluster.faults.fail("OffsetCommit", refusal, group=group), pytest.raises(errors.CommitFailed, match=message):
        consumer.commit()


def test_health_has_nodes_lag_and_buffered_bytes(
    consumers: ConsumerFactory, new_topic: NewTopic, produce: Produce, cluster: EmbeddedCluster
) -> None:
    topic = new_topic()
    produce(topic, *[b"x"] * 5)
    consumer = consumers()
    (partition,) = partitions(topic, 0)
    consumer.assign([partition])
    read(consumer, 2)
    health = consumer.health()
    assert (health["state"], health["connected_nodes"]) == ("open", [cluster.bootstrap_servers])
    assert (health["assignment"], health["lag"]) == ([str(partition)], {str(partition): 3})
    read(consumer, 3)
    assert consumer.health()["buffered_bytes"] == 0
    assert consumer.health()["last_errors"] == {}
