"""Two of three controllers are killed: what clients do with the leaders and coordinators that there are goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import KafkaError
from tests.waiting import until

TOPIC = "t"
ALL = {TopicPartition(TOPIC, index) for index in range(4)}
ONE_PARTITION = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
"""Everything of a kind has one coordinator, which has its first producer ids before the controllers are killed."""


class Clients:
    """Clients of a topic with four partitions on three brokers, in a cluster with separate controllers."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 4)])
        for index in range(4):
            cluster.wait_isr(TOPIC, index, 3)

    def producer(self, **options: str) -> Producer:
        return Producer(self.cluster.bootstrap_servers, request_timeout_ms=5_000, **options)

    def member(self, protocol: str) -> Consumer:
        return Consumer(
            TOPIC,
            bootstrap_servers=self.cluster.bootstrap_servers,
            group_id=f"group-{protocol}",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            enable_auto_commit=False,
        )

    def lose_majority(self) -> None:
        first, second, third = (node.id for node in self.cluster.nodes[3:])
        self.cluster.kill(first)
        self.cluster.kill(second)
        until(lambda: self.cluster.controller_id is None, "the controller that is left has no majority")
        assert self.cluster.node(third).alive
        with Admin(self.cluster.bootstrap_servers) as admin, pytest.raises(KafkaError):
            admin.create_topics([NewTopic("new")], timeout=1.0)


@pytest.fixture
def clients() -> Iterator[Clients]:
    config = {"broker.session.timeout.ms": 60_000, **ONE_PARTITION}
    with EmbeddedCluster(3, controllers=3, config=config) as cluster:
        yield Clients(cluster)


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    until(lambda: found.extend(record.value for record in consumer.poll(0.1)) or len(found) >= count)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_commit_and_rebalance_without_a_majority(clients: Clients, protocol: str) -> None:
    """One producer sends all: the node that a new one asks for its id may have to ask the controller for more ids."""
    with clients.producer() as producer:
        with clients.member(protocol) as first:
            producer.send(TOPIC, b"before", partition=0).result(60)
            assert read(first, 1) == [b"before"]
            first.commit()
            clients.lose_majority()
            producer.send(TOPIC, b"meanwhile", partition=1).result(60)
            assert read(first, 1) == [b"meanwhile"]
            first.commit()
            with clients.member(protocol) as second:
                until(lambda: (first.poll(0.05), second.poll(0.05)) and first.assignment() and second.assignment())
                until(lambda: (first.poll(0.05), second.poll(0.05)) and first.assignment() | second.assignment() == ALL)
                assert not first.assignment() & second.assignment()
            until(lambda: first.poll(0.05) is not None and first.assignment() == ALL)
            first.commit()
        with clients.member(protocol) as again:  # the commits without a majority are what a new member begins with
            until(lambda: again.poll(0.05) is not None and again.assignment() == ALL)
            assert again.committed(list(ALL))[TopicPartition(TOPIC, 1)].offset == 1
            producer.send(TOPIC, b"last", partition=1).result(60)
            assert read(again, 1) == [b"last"]


def test_transactions_commit_and_abort_without_a_majority(clients: Clients) -> None:
    with clients.producer(transactional_id="x") as producer, clients.member("classic") as consumer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(TOPIC, b"before", partition=0)
        assert read(consumer, 1) == [b"before"]
        clients.lose_majority()
        with producer.transaction():
            for partition in ALL:
                producer.send(TOPIC, b"meanwhile", partition=partition.partition)
            producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 1}, consumer.group_metadata())
        assert read(consumer, 4) == [b"meanwhile"] * 4
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(TOPIC, b"aborted", partition=0)
            raise ZeroDivisionError
        with clients.producer(transactional_id="new") as other:  # an id that is left of the coordinator's block
            other.init_transactions()
            with other.transaction():
                other.send(TOPIC, b"new", partition=0)
        assert read(consumer, 1) == [b"new"]
        assert consumer.committed([TopicPartition(TOPIC, 0)])[TopicPartition(TOPIC, 0)].offset == 1
        clients.cluster.start()
        with Admin(clients.cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("later")])


def test_no_broker_is_fenced_while_the_controller_cannot_commit(caplog: pytest.LogCaptureFixture) -> None:
    """The active controller stays, and holds the answers to heartbeats for more than two timeouts of a session."""
    session, without_majority = 3.0, 7.0
    config = {"broker.session.timeout.ms": int(session * 1000), "controller.quorum.fetch.timeout.ms": 60_000}
    with EmbeddedCluster(3, controllers=3, config=config) as cluster, Admin(cluster.bootstrap_servers) as admin:
        active = cluster.controller_id
        others = [node.id for node in cluster.nodes[3:] if node.id != active]
        caplog.clear()
        for other in others:
            cluster.kill(other)
        with pytest.raises(KafkaError):
            admin.create_topics([NewTopic("meanwhile")], timeout=without_majority)
        cluster.start()
        admin.create_topics([NewTopic("later")])
        assert cluster.controller_id == active
        assert "is fenced" not in caplog.text
