"""OffsetForLeaderEpoch (KIP-101, KIP-320) on replicas that led one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import Admin, NewTopic, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster import kafka_call
from pyclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.waiting import until

ALL = {1, 2, 3}
UNKNOWN = (-1, -1)


class Epochs:
    """A topic on three brokers: the leader, its epoch, and the ends of the epochs in which records were written."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.ends: dict[int, int] = {}
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
        cluster.wait_isr("t", 0, 3)

    @property
    def leader(self) -> int:
        leader = until(lambda: self.cluster.leader_of("t", 0), "the partition has no leader")
        assert leader is not None
        return leader

    @property
    def epoch(self) -> int:
        return int(self.cluster.wait_topic("t")["partitions"][0]["leader_epoch"])

    def send(self, count: int) -> None:
        with Producer(self.cluster.bootstrap_servers, delivery_timeout_ms=60_000, linger_ms=0) as producer:
            for _ in range(count):
                end = producer.send("t", b"x").result(60).offset + 1
        self.ends[self.epoch] = end

    def move(self) -> None:
        """Let another broker lead."""
        self.cluster.move_leader("t", 0, min(ALL - {self.leader}), 60)
        self.cluster.wait_isr("t", 0, 3)

    def replace(self) -> None:
        """Kill the leader, and start it when another one leads."""
        old = self.leader
        self.cluster.kill(old)
        until(lambda: self.cluster.leader_of("t", 0) not in (None, old), "no other broker leads")
        self.cluster.start(old)
        self.cluster.wait_isr("t", 0, 3)

    def ask(self, node: int, epoch: int, current: int = -1) -> EpochEndOffset:
        partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])])
        answer = kafka_call.call(self.cluster.node(node).config, request)
        return answer.topics[0].partitions[0]

    def check(self) -> None:
        """Ask the leader for all epochs: the answer is the newest one up to that in which something was written."""
        present = self.epoch
        for epoch in range(present + 1):
            answer = self.ask(self.leader, epoch, present)
            written = max(each for each in self.ends if each <= epoch)
            expected = (written, self.ends[written]) if epoch < present else (present, max(self.ends.values()))
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *expected), epoch
        answer = self.ask(self.leader, present + 1)
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *UNKNOWN)


@pytest.fixture
def epochs() -> Iterator[Epochs]:
    # On a busy machine, too, a leader changes by these tests only.
    with EmbeddedCluster(3, config={"broker.session.timeout.ms": 6000}) as cluster:
        yield Epochs(cluster)


def test_each_epoch_ends_where_the_next_with_records_begins(epochs: Epochs) -> None:
    epochs.send(2)
    epochs.check()
    epochs.move()
    epochs.send(3)
    epochs.check()
    epochs.move()  # in this epoch nothing is written: the next leader knows nothing of it
    epochs.check()
    epochs.replace()
    epochs.send(1)
    epochs.check()
    assert len(epochs.ends) == 3
    for node in sorted(ALL - {epochs.leader}):  # what the others have fetched, and the first of them led before
        epochs.cluster.move_leader("t", 0, node, 60)
        epochs.check()
    epochs.cluster.restart()
    epochs.cluster.wait_isr("t", 0, 3)
    epochs.check()


def test_leader_compares_its_epoch_with_that_of_the_request(epochs: Epochs) -> None:
    epochs.send(1)
    epochs.move()
    present = epochs.epoch
    for current, error in ((present - 1, errors.FencedLeaderEpoch), (present + 1, errors.UnknownLeaderEpoch)):
        answer = epochs.ask(epochs.leader, 0, current)
        assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (error.code, *UNKNOWN)
    follower = min(ALL - {epochs.leader})
    node = epochs.cluster.node(follower)  # it may learn of the epoch later than the leader
    until(lambda: node.call("GET", "/topics/t")["partitions"][0]["leader_epoch"] == present)
    assert epochs.ask(follower, 0, present).error_code == errors.NotLeaderOrFollower.code
