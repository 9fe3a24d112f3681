"""Groups in the consumer protocol (KIP-848) on a real Kafka: how they behave on any broker, and what Java adds."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, SubscriptionPattern, TopicPartition, errors
from pyclient.net.connection import Connection
from pyclient.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.consumer.conftest import produce
from tests.consumer.consumer_factory import ConsumerFactory, poll_until, shares
from tests.consumer.consumer_protocol import ConsumerProtocol, group
from tests.kafka import tools
from tests.kafka.conftest import GIVEN, Cluster
from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka
from tests.kafka.topics import PATIENCE, create

__all__ = ["group", "produce"]

QUICK = {
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.regex.refresh.interval.ms": "10000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A Kafka whose groups have a short heartbeat interval, so that rebalances are fast."""
    if GIVEN:
        yield Cluster(GIVEN, VERSIONS[0])
        return
    skip_without_kafka()
    with RealKafka(heap="512M", settings=QUICK) as kafka:
        yield Cluster(kafka.bootstrap_servers, kafka.version)


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(scope="module")
def producer(cluster: Cluster) -> Iterator[Producer]:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        yield producer


@pytest.fixture
def new_topic(cluster: Cluster) -> Callable[..., str]:
    def make(partitions: int = 1) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        create(cluster.bootstrap_servers, NewTopic(name, partitions=partitions))
        return name

    return make


@pytest.fixture(params=["sync", "async"])
def consumers(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[ConsumerFactory]:
    factory = ConsumerFactory(request.param, cluster.bootstrap_servers, "consumer")
    try:
        yield factory
    finally:
        factory.close()


class TestOnKafka(ConsumerProtocol):
    """Behaviour of every broker with the protocol."""


def test_group_changes_protocol_one_member_at_a_time(
    consumers: ConsumerFactory, new_topic: Callable[..., str], group: str
) -> None:
    topic = new_topic(4)
    old = [consumers(topic, group_id=group, group_protocol="classic") for _ in range(2)]
    poll_until(old, lambda: sorted(map(len, shares(old))) == [2, 2])
    new = consumers(topic, group_id=group)
    poll_until([*old, new], lambda: sorted(map(len, shares([*old, new]))) == [1, 1, 2])
    for member in old:
        member.close()
    poll_until([new], lambda: shares([new]) == [[0, 1, 2, 3]])


def test_static_member_whose_join_answer_is_lost_joins_again(
    consumers: ConsumerFactory, new_topic: Callable[..., str], group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka refuses its next join, because it owns its instance id; it releases the id and joins again."""
    topic = new_topic()
    request_of = Connection.request
    epochs: list[tuple[int, int]] = []

    async def lose_the_first(self: Connection, request: Any, **options: Any) -> Any:
        response = await request_of(self, request, **options)
        if isinstance(request, ConsumerGroupHeartbeatRequest):
            epochs.append((request.member_epoch, response.error_code))
            if len(epochs) == 1:
                raise errors.ConnectionFailed("the answer is lost")
        return response

    monkeypatch.setattr(Connection, "request", lose_the_first)
    static = consumers(topic, group_id=group, group_instance_id="one")
    poll_until([static], lambda: shares([static]) == [[0]])
    assert epochs[:4] == [(0, 0), (0, errors.UnreleasedInstanceId.code), (-2, 0), (0, 0)]
    static.commit()


def test_broker_pattern_matches_topics_created_later(consumers: ConsumerFactory, admin: Admin, group: str) -> None:
    stem = f"p-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(f"{stem}-a", 1)])
    consumer = consumers(group_id=group)
    consumer.subscribe(SubscriptionPattern(f"{stem}-.*"))
    poll_until([consumer], lambda: len(consumer.assignment()) == 1)
    admin.create_topics([NewTopic(f"{stem}-b", 2)])
    deadline = time.monotonic() + PATIENCE  # the broker evaluates patterns every 10 s at most
    while len(consumer.assignment()) < 3:
        assert time.monotonic() < deadline, consumer.health()
        consumer.poll(0.5)
    assert consumer.assignment() == {TopicPartition(f"{stem}-{rest}", n) for rest, n in (("a", 0), ("b", 0), ("b", 1))}


def test_groups_tool_shows_our_assignment_and_commits(
    cluster: Cluster, new_topic: Callable[..., str], produce: Callable[..., None], group: str
) -> None:
    topic = new_topic(2)
    produce(topic, b"x", b"y")
    options = {"group_id": group, "group_protocol": "consumer", "auto_offset_reset": "earliest", "client_id": "ours"}
    with Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
        poll_until([consumer], lambda: consumer.lag().get(TopicPartition(topic, 0)) == 0)
        consumer.commit()
        arguments = ("--bootstrap-server", cluster.bootstrap_servers, "--describe", "--group", group)
        described = tools.run("groups", *arguments, "--offsets", version=cluster.version)
        state = tools.run("groups", *arguments, "--state", version=cluster.version)
    rows = [line.split() for line in described.out.splitlines() if line.startswith(group)]
    assert sorted((row[2], row[3], row[4], row[8]) for row in rows) == [
        ("0", "2", "2", "ours"),
        ("1", "0", "0", "ours"),
    ]
    assert "Stable" in state.out


def test_broker_without_the_protocol_raises_a_clear_error(started: Callable[[str], Cluster], topic: str) -> None:
    old = started("3.9.2")
    options = {"bootstrap_servers": old.bootstrap_servers, "group_id": "g", "group_protocol": "consumer"}
    expected = pytest.raises(errors.UnsupportedVersion, match=r"group_protocol='classic'.*group\.version=1")
    with Consumer(topic, **options) as consumer, expected:
        poll_until([consumer], lambda: False)
