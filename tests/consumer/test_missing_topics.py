"""Missing, unauthorized and mistyped topics: logged once, kept in `health()`, and waited for."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import pytest

from pyclient import Admin, NewTopic, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.cluster.metadata import ClusterMetadata, PartitionInfo, TopicInfo
from pyclient.consumer.consumer_metadata import TopicWatch
from pyclient.types import TopicPartition
from tests.consumer.consumer_factory import ConsumerFactory, poll_until, read, values

Produce = Callable[..., None]


def picture(**topics: int) -> ClusterMetadata:
    """Return metadata of topics with so many partitions, or with an error code below 0."""
    infos = {
        name: TopicInfo(
            name,
            uuid.UUID(int=1),
            tuple(PartitionInfo(number, 1) for number in range(max(0, what))),
            error_code=max(0, -what),
        )
        for name, what in topics.items()
    }
    return ClusterMetadata("c", 1, MappingProxyType({}), MappingProxyType(infos), 0.0)


UNKNOWN, DENIED, NO_LEADER = -errors.UnknownTopicOrPartition.code, -errors.TopicAuthorizationFailed.code, -5


def test_missing_topic_is_logged_once_and_again_after_it_existed() -> None:
    watch = TopicWatch(may_be_created=False)
    warned = [
        watch.check(picture(t=what), ["t"], [], now)
        for now, what in enumerate([UNKNOWN, UNKNOWN, NO_LEADER, UNKNOWN, 1, UNKNOWN, UNKNOWN])
    ]
    assert [len(news) for news in warned] == [1, 0, 0, 0, 0, 1, 0]
    assert "'t' does not exist" in warned[0][0]
    assert "check its name, or create it" in watch.problems["t"]
    assert watch.check(picture(t=1), ["t"], [], 10) == []
    assert watch.problems == {}


def test_auto_created_topic_has_a_second_to_appear() -> None:
    watch = TopicWatch(may_be_created=True)
    times = [10.0, 10.1, 10.9, 11.0, 11.5]
    assert [len(watch.check(picture(t=UNKNOWN), ["t"], [], now)) for now in times] == [0, 0, 0, 1, 0]


def test_unwanted_and_pending_topics_are_no_problem() -> None:
    watch = TopicWatch(may_be_created=False)
    assert watch.check(picture(t=NO_LEADER, other=UNKNOWN), ["t", "not-asked-yet"], [], 0) == []
    assert watch.problems == {}


def test_missing_partition_is_logged() -> None:
    watch = TopicWatch(may_be_created=False)
    (text,) = watch.check(picture(t=2), ["t"], [TopicPartition("t", 1), TopicPartition("t", 2)], 0)
    assert "has 2 partitions and no number 2" in text
    assert list(watch.problems) == ["t-2"]
    assert watch.check(picture(t=2), ["t"], [TopicPartition("t", 2)], 1) == []
    assert watch.check(picture(t=3), ["t"], [TopicPartition("t", 2)], 2) == []
    assert watch.problems == {}


def test_unauthorized_topic_is_in_health_and_not_logged() -> None:
    watch = TopicWatch(may_be_created=False)
    assert watch.check(picture(t=DENIED), ["t"], [], 0) == []
    assert "grant" in watch.problems["t"]


def test_pattern_without_matches_is_logged_once() -> None:
    watch = TopicWatch(may_be_created=True)
    warned = [watch.check(picture(a=1, b=1), [], [], now, pattern="x.*") for now in range(3)]
    assert [len(news) for news in warned] == [1, 0, 0]
    assert "'x.*'" in warned[0][0]
    assert "shows 2 topics" in warned[0][0]
    assert watch.check(picture(a=1, b=1), ["a"], [], 3, pattern="a") == []
    assert watch.problems == {}


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.name == "pyclient.consumer"]
    return [record.getMessage() for record in records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("how", ["group", "alone", "assigned"])
def test_missing_topic_is_logged_and_read_once_it_exists(
    how: str, consumers: ConsumerFactory, admin: Admin, produce: Produce, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"later-{uuid.uuid4().hex[:8]}"
    group: dict[str, Any] = {"group_id": f"g-{topic}"} if how == "group" else {}
    consumer = consumers(allow_auto_create_topics=False, metadata_max_age_ms=50, **group)
    if how == "assigned":
        consumer.assign([(topic, 0)])
    else:
        consumer.subscribe(topic)
    assert poll_until([consumer], lambda: consumer.health()["topic_errors"]) == []
    assert len(consumer.poll(0.3)) == 0  # goes on
    assert list(consumer.health()["topic_errors"]) == [topic]
    with pytest.raises((errors.KafkaTimeout, errors.NotAssigned)) as caught:
        consumer.position((topic, 0), timeout=0.1)
    assert how != "assigned" or f"topic '{topic}' does not exist" in str(caught.value)
    admin.create_topics([NewTopic(topic)])
    produce(topic, b"x")
    assert values(read(consumer, 1)) == [b"x"]
    assert consumer.health()["topic_errors"] == {}
    said = [text for text in warnings_of(caplog) if topic in text]
    assert [text.partition(":")[0] for text in said] == [f"topic '{topic}' does not exist in the cluster"]


def test_unauthorized_topic_is_raised_by_poll(
    consumers: ConsumerFactory, cluster: EmbeddedCluster, produce: Produce, admin: Admin
) -> None:
    topic = f"denied-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(topic)])
    with cluster.faults.fail("Metadata", errors.TopicAuthorizationFailed, times=None, topic=topic):
        consumer = consumers(topic)
        with pytest.raises(errors.TopicAuthorizationFailed, match=rf"'{topic}' may not be read: grant"):
            poll_until([consumer], lambda: False)
        assert "grant" in consumer.health()["topic_errors"][topic]


def test_calls_wait_for_a_missing_topic(consumers: ConsumerFactory, produce: Produce, admin: Admin) -> None:
    topic = f"later-{uuid.uuid4().hex[:8]}"
    consumer = consumers(
        topic, group_id=f"g-{uuid.uuid4().hex[:8]}", allow_auto_create_topics=False, metadata_max_age_ms=50
    )
    assert len(consumer.poll(0.2)) == 0
    assert consumer.assignment() == set()
    admin.create_topics([NewTopic(topic, 1)])
    produce(topic, b"x")
    assert values(read(consumer, 1)) == [b"x"]
