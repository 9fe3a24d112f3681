"""Clients of a node that is cut off, and that goes on naming replaced leaders, find the new ones by other nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import Admin, Consumer, Producer, TopicPartition
from pyclient.admin import NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.waiting import until

TOPIC = "orders"
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    """Yield three brokers with one coordinator for all groups, and one for all transactions."""
    config = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "broker.session.timeout.ms": 60_000,  # no leader changes by itself
    }
    with EmbeddedCluster(brokers=3, config=config) as cluster:
        yield cluster
        cluster.heal()  # a node that is cut off could not leave the cluster in order


class Roles:
    """The leader of a topic, the node that will replace it, and the node that is cut off from both before."""

    def __init__(self, cluster: EmbeddedCluster, topic: str) -> None:
        self._cluster = cluster
        assert sorted(cluster.wait_isr(topic, 0, 3)) == [1, 2, 3]
        leader = cluster.leader_of(topic, 0)
        assert leader is not None
        self.old, (self.new, self.isolated) = leader, (node for node in (1, 2, 3) if node != leader)
        self.address = cluster.node(self.isolated).address

    def create_topic(self) -> None:
        """Create the topic so that the isolated node is right about its leaders."""
        with Admin(self._cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, assignments={0: [self.old, self.new], 1: [self.new, self.old]})])

    def replace(self, topic: str) -> None:
        """Cut the isolated node off, and replace the leader of this topic's first partition."""
        for node in (self.old, self.new):
            self._cluster.cut(self.isolated, node)
        until(lambda: self.new in self._cluster.wait_topic(topic)["partitions"][0]["isr"])
        self._cluster.move_leader(topic, 0, self.new, timeout=60)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_goes_to_a_coordinator_that_an_isolated_node_does_not_know(
    cluster: EmbeddedCluster, protocol: str
) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("other", partitions=1)])
        admin.alter_group_offsets("first", {TopicPartition("other", 0): 0})
    roles = Roles(cluster, GROUPS)
    roles.create_topic()
    options = {"group_id": "g", "auto_offset_reset": "earliest", "group_protocol": protocol}
    with (
        Producer(roles.address) as producer,
        Admin(roles.address) as admin,
        Consumer(TOPIC, bootstrap_servers=roles.address, **options) as consumer,
    ):
        producer.send(TOPIC, b"1", partition=0).result(60)
        until(lambda: consumer.poll(0.1))
        consumer.commit()
        assert admin.describe_groups(["g"])["g"].coordinator == roles.old
        roles.replace(GROUPS)
        producer.send(TOPIC, b"2", partition=1).result(60)
        until(lambda: consumer.poll(0.1))
        consumer.commit()
        assert sorted(offset.offset for offset in consumer.committed().values() if offset is not None) == [1, 1]
        assert admin.describe_groups(["g"])["g"].coordinator == roles.new


def test_clients_go_to_a_leader_that_an_isolated_node_does_not_know(cluster: EmbeddedCluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("three", partitions=1, replication_factor=3)])
    roles = Roles(cluster, "three")
    roles.create_topic()
    with (
        Producer(roles.address) as producer,
        Consumer(TOPIC, bootstrap_servers=roles.address, auto_offset_reset="earliest") as consumer,
    ):
        for partition in (0, 1):
            producer.send(TOPIC, b"1", partition=partition).result(60)
            until(lambda: consumer.poll(0.1))
        roles.replace(TOPIC)
        for partition in (0, 1):
            producer.send(TOPIC, b"2", partition=partition).result(60)
            until(lambda: consumer.poll(0.1))


def test_transactions_go_to_a_coordinator_an_isolated_node_does_not_know(cluster: EmbeddedCluster) -> None:
    with Producer(cluster.bootstrap_servers, transactional_id="first") as producer:
        producer.init_transactions()
    roles = Roles(cluster, TRANSACTIONS)
    roles.create_topic()
    with Producer(roles.address, transactional_id="t") as producer, Admin(roles.address) as admin:
        producer.init_transactions()
        for turn in range(4):
            if turn == 1:
                assert admin.describe_transactions(["t"])["t"].coordinator == roles.old
                roles.replace(TRANSACTIONS)
            producer.begin_transaction()
            for partition in (0, 1):
                producer.send(TOPIC, b"%d" % turn, partition=partition)
            producer.commit_transaction()
        assert admin.describe_transactions(["t"])["t"].coordinator == roles.new
