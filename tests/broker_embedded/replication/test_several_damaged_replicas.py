"""Bits are flipped in two of five replicas at once: three have every record, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.replication.test_damaged_replicas import SENT, directory, flip, read, segments, send
from tests.waiting import PATIENCE, until

FIVE = [1, 2, 3, 4, 5]
MORE = [b"more %03d" % number for number in range(20)]


@pytest.fixture(scope="module")
def five() -> Iterator[EmbeddedCluster]:
    config = {
        "broker.session.timeout.ms": 60_000,
        "controller.quorum.fetch.timeout.ms": 4_000,
        "min.insync.replicas": 3,
        "default.replication.factor": 5,
    }
    with EmbeddedCluster(5, config=config, control_port=0) as cluster:
        yield cluster


def filled(cluster: EmbeddedCluster, name: str) -> str:
    """Return a topic with five replicas, that has records in many segments; broker 1 leads, then 2, 3, 4, 5."""
    with Admin(cluster.bootstrap_servers) as admin:
        options = {"internal.segment.bytes": "20000"}
        admin.create_topics([NewTopic(name, assignments={0: FIVE}, configs=options)])
    send(cluster, name, SENT)
    assert sorted(cluster.wait_isr(name, 0, 5, PATIENCE)) == FIVE
    until(lambda: are_equal(cluster, name), "the replicas differ")
    assert cluster.leader_of(name, 0) == 1
    return name


def are_equal(cluster: EmbeddedCluster, topic: str) -> bool:
    return len({b"".join(path.read_bytes() for path in segments(cluster, node, topic)) for node in FIVE}) == 1


def kept(cluster: EmbeddedCluster, topic: str) -> list[int]:
    """Return the nodes that keep damaged bytes aside."""
    return [node for node in FIVE if list(directory(cluster, node, topic).glob("*.damaged"))]


@pytest.mark.parametrize(
    ("follower", "of_leader", "of_follower"),
    [(4, 1, 1), (4, 0, 2), (2, 1, 1), (2, 2, 0)],
    ids=["same-segment", "different-segments", "next-leader-same-segment", "next-leader-different-segments"],
)
def test_damaged_leader_and_follower_are_both_repaired(
    five: EmbeddedCluster, follower: int, of_leader: int, of_follower: int
) -> None:
    topic = filled(five, f"damaged-{follower}-{of_leader}-{of_follower}")
    flip(segments(five, 1, topic)[of_leader], 3)
    flip(segments(five, follower, topic)[of_follower], 4)
    assert read(five, topic) == SENT
    for node in (1, follower):
        five.node(node).call("POST", "/verify", {"topic": topic})
    until(lambda: kept(five, topic) == [1, follower], lambda: f"kept on {kept(five, topic)}")
    assert sorted(five.wait_isr(topic, 0, 5, PATIENCE)) == FIVE
    until(lambda: are_equal(five, topic), "the replicas differ")
    with Producer(five.bootstrap_servers) as producer:
        for value in MORE:
            producer.send(topic, value).result(PATIENCE)
    assert read(five, topic, len(SENT) + len(MORE)) == [*SENT, *MORE]
    until(lambda: are_equal(five, topic), "the replicas differ")
    assert kept(five, topic) == [1, follower]
    five.move_leader(topic, 0, 1, PATIENCE)
    assert read(five, topic, len(SENT) + len(MORE)) == [*SENT, *MORE]
