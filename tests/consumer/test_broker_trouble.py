"""Killed and restarted brokers, and damaged logs: errors and positions of a consumer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, partitions, read, values
from tests.waiting import until


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[EmbeddedCluster]:
    """Yield a broker in its own process, to be killed and restarted."""
    with EmbeddedCluster(processes=True) as cluster:
        yield cluster


@pytest.fixture(params=["sync", "async"])
def consumers(request: pytest.FixtureRequest, own_cluster: EmbeddedCluster) -> Iterator[ConsumerFactory]:
    with ConsumerFactory(request.param, own_cluster.bootstrap_servers) as factory:
        yield factory


def make_topic(cluster: EmbeddedCluster, *batches: list[bytes]) -> str:
    """Create a topic of one partition; each list of values is a batch."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    produce(cluster, name, *batches)
    return name


def produce(cluster: EmbeddedCluster, topic: str, *batches: list[bytes]) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=1_000) as producer:
        for batch in batches:
            producer.send_many(topic, batch)
            producer.flush()


def numbers(*range_: int) -> list[bytes]:
    return [b"%d" % number for number in range(*range_)]


def restart(cluster: EmbeddedCluster) -> None:
    cluster.kill()
    cluster.start()


def test_reading_continues_at_its_position_after_a_broker_was_killed(
    consumers: ConsumerFactory, own_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(own_cluster, numbers(5))
    consumer = consumers(auto_offset_reset="earliest")
    consumer.assign(partitions(topic, 0))
    assert values(read(consumer, 5)) == numbers(5)
    restart(own_cluster)
    produce(own_cluster, topic, numbers(5, 8))
    assert values(read(consumer, 3)) == numbers(5, 8)  # not reset to the earliest, nothing skipped


def test_poll_while_the_broker_is_down_returns_nothing(
    consumers: ConsumerFactory, own_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(own_cluster, numbers(3))
    consumer = consumers()
    consumer.assign(partitions(topic, 0))
    read(consumer, 3)
    own_cluster.kill()
    try:
        for _ in range(3):
            assert len(consumer.poll(0.1)) == 0
        assert consumer.position((topic, 0)) == 3
        until(lambda: own_cluster.bootstrap_servers in consumer.health()["last_failures"], consumer.health)
    finally:
        own_cluster.start()
    produce(own_cluster, topic, [b"back"])
    assert values(read(consumer, 1)) == [b"back"]


def test_group_continues_after_its_coordinator_was_killed(
    consumers: ConsumerFactory, own_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(own_cluster, numbers(4))
    group = f"g-{uuid.uuid4().hex[:8]}"
    consumer = consumers(topic, group_id=group, enable_auto_commit=False)
    read(consumer, 2)
    consumer.commit()
    restart(own_cluster)
    consumer.commit(consumer.committed())  # retried until the coordinator is found again
    assert consumer.committed()[(topic, 0)].offset == 2
    assert len(read(consumer, 2)) == 2
    consumer.commit()
    assert consumer.committed()[(topic, 0)].offset == 4


def damage(cluster: EmbeddedCluster, topic: str, value: bytes, to: bytes) -> None:
    """Change a value in the log file, unnoticed by the broker."""
    (log,) = Path(cluster.data_dir).glob(f"{topic}-0/*.log")
    content = log.read_bytes()
    assert content.count(value) == 1
    log.write_bytes(content.replace(value, to))


def test_damaged_values_are_returned_without_check_crcs(
    consumers: ConsumerFactory, own_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(own_cluster, [b"fine-0", b"fine-1"])
    damage(own_cluster, topic, b"fine-1", b"fire-1")
    consumer = consumers(check_crcs=False)
    consumer.assign(partitions(topic, 0))
    assert values(read(consumer, 2)) == [b"fine-0", b"fire-1"]
