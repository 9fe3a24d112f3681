"""Reset policies are exact for missing, too low, too high and deleted offsets; transient errors never reset."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from pyclient import Admin, NewTopic, Producer, TopicPartition, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, consumers, poll_until, read

__all__ = ["consumers"]

FIRST, END = 4, 10  # of what is left of the log
HOUR_MS = 3_600_000

SITUATIONS = {"missing": None, "deleted": FIRST - 1, "too low": 0, "too high": END + 5}
POLICIES = {"earliest": FIRST, "latest": END, "by_duration:PT90M": 7, "by_duration:PT1M": END}


@pytest.fixture(scope="module")
def log(cluster: EmbeddedCluster, admin: Admin, producer: Producer) -> TopicPartition:
    """Return a partition: ten records, the first four deleted; up to offset 6 three hours old, from 7 on one hour."""
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import AdminClient

    topic = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic, partitions=1)])
    now = producer.send(topic, b"0").result(30).timestamp_ms
    for number in range(1, END):
        producer.send(topic, b"%d" % number, timestamp_ms=now - (3 if number < 7 else 1) * HOUR_MS)
    producer.flush()
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (done,) = client.delete_records([Place(topic, 0, FIRST)]).values()
    assert done.result(30).low_watermark == FIRST
    return TopicPartition(topic, 0)


def start(consumers: ConsumerFactory, log: TopicPartition, situation: str, policy: str) -> Any:
    """Create a consumer whose group has the situation's committed offset."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    offset = SITUATIONS[situation]
    consumer = consumers(group_id=group, auto_offset_reset=policy, enable_auto_commit=False, fetch_max_wait_ms=50)
    if offset is not None:
        consumer.assign([log])
        consumer.commit({log: offset})
    consumer.assign([])
    consumer.assign([log])
    return consumer


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("policy", POLICIES)
def test_position_out_of_the_log_applies_the_policy(
    consumers: ConsumerFactory, log: TopicPartition, policy: str, situation: str
) -> None:
    consumer, wanted = start(consumers, log, situation, policy), POLICIES[policy]
    if wanted < END:
        records = read(consumer, END - wanted)
        assert [record.offset for record in records] == list(range(wanted, END))
        return
    assert poll_until([consumer], lambda: consumer.position(log) == wanted) == []


@pytest.mark.parametrize("situation", SITUATIONS)
def test_position_without_a_policy_raises_and_the_user_decides(
    consumers: ConsumerFactory, log: TopicPartition, situation: str
) -> None:
    consumer = start(consumers, log, situation, "none")
    wanted = errors.NoOffsetForPartition if situation == "missing" else errors.OffsetOutOfRange
    for _ in range(2):
        with pytest.raises(wanted, match=f"{log}.*auto_offset_reset is 'none'"):
            poll_until([consumer], lambda: False)
    with pytest.raises(wanted):
        consumer.position(log)
    consumer.seek(log, FIRST)
    assert [record.offset for record in read(consumer, END - FIRST)] == list(range(FIRST, END))


PASSING: list[tuple[str, type[errors.BrokerError]]] = [
    ("Fetch", errors.NotLeaderOrFollower),
    ("Fetch", errors.UnknownTopicOrPartition),
    ("Fetch", errors.KafkaStorageError),
    ("Fetch", errors.FencedLeaderEpoch),
    ("Fetch", errors.UnknownLeaderEpoch),
    ("Fetch", errors.OffsetNotAvailable),
    ("Fetch", errors.UnknownServerError),
    ("OffsetFetch", errors.NotCoordinator),
    ("OffsetFetch", errors.CoordinatorLoadInProgress),
    ("OffsetFetch", errors.UnstableOffsetCommit),
]


@pytest.mark.parametrize(("api", "error"), PASSING, ids=[f"{api}-{error.__name__}" for api, error in PASSING])
def test_transient_error_never_resets(
    consumers: ConsumerFactory, cluster: EmbeddedCluster, log: TopicPartition, api: str, error: type[errors.BrokerError]
) -> None:
    consumer = start(consumers, log, "missing", "latest")
    consumer.commit({log: 6})
    consumer.assign([])
    fault = cluster.faults.fail(api, error, times=3)
    try:
        consumer.assign([log])
        assert [record.offset for record in read(consumer, END - 6)] == list(range(6, END))
    finally:
        fault.cancel()


def test_failed_list_offsets_is_retried_and_the_policy_is_kept(
    consumers: ConsumerFactory, cluster: EmbeddedCluster, log: TopicPartition
) -> None:
    fault = cluster.faults.fail("ListOffsets", errors.NotLeaderOrFollower, times=3)
    try:
        records = read(start(consumers, log, "missing", "earliest"), END - FIRST)
        assert [record.offset for record in records] == list(range(FIRST, END))
    finally:
        fault.cancel()
