"""Three brokers with our own clients: what was acknowledged survives the loss of leaders and of group coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyclient import Admin, Consumer, Producer, TopicPartition
from pyclient.admin import NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.waiting import until

TOPIC = "orders"


def create(cluster: EmbeddedCluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, partitions=1, replication_factor=3)])


def leader_of(cluster: EmbeddedCluster) -> int:
    leader = until(lambda: cluster.leader_of(TOPIC, 0), "the partition has no leader")
    assert leader is not None
    return leader


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Return the values of the next records, at least `count`."""
    found: list[bytes] = []

    def enough() -> bool:
        found.extend(record.value or b"" for record in consumer.poll(1.0))
        return len(found) >= count

    until(enough)
    return found


def values(cluster: EmbeddedCluster, count: int) -> list[bytes]:
    """Read the topic from its start."""
    with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        return read(consumer, count)


def batches(cluster: EmbeddedCluster) -> list[bytes]:
    """Return the bytes of each replica's log."""
    logs: dict[str, bytes] = {}
    for path in sorted(Path(cluster.data_dir).glob(f"**/{TOPIC}-0/*.log")):
        logs[str(path.parent)] = logs.get(str(path.parent), b"") + path.read_bytes()
    return list(logs.values())


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "processes"])
def test_leaders_are_killed_while_records_are_sent(processes: bool) -> None:
    with EmbeddedCluster(brokers=3, processes=processes) as cluster:
        create(cluster)
        sent: list[bytes] = []
        with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
            for turn in range(3):
                futures = []
                for number in range(200):
                    sent.append(b"%d-%d" % (turn, number))
                    futures.append(producer.send(TOPIC, sent[-1]))
                    if number == 100:
                        futures[50].result(60)
                        leader = leader_of(cluster)
                        cluster.kill(leader)
                for future in futures:
                    future.result(60)
                assert leader_of(cluster) != leader
                cluster.start(leader)
                assert sorted(cluster.wait_isr(TOPIC, 0, 3)) == [1, 2, 3]
        assert values(cluster, len(sent)) == sent
        until(lambda: len(set(batches(cluster))) == 1, "the logs of the replicas differ")
        assert len(batches(cluster)) == 3


def test_old_leader_drops_what_no_other_replica_has() -> None:
    config = {"replica.lag.time.max.ms": 60_000, "broker.session.timeout.ms": 6000}
    with EmbeddedCluster(brokers=3, config=config) as cluster:
        create(cluster)
        with Producer(cluster.bootstrap_servers, acks=1, enable_idempotence=False) as producer:
            producer.send(TOPIC, b"committed").result(60)  # it knows the leader from now on
            until(lambda: cluster.wait_topic(TOPIC)["partitions"][0]["high_watermark"] == 1)
            leader = leader_of(cluster)
            followers = [node for node in (1, 2, 3) if node != leader]
            for node in followers:
                cluster.kill(node)  # over a link that is cut, an answer on its way would arrive later
            producer.send(TOPIC, b"lost").result(60)
        cluster.kill(leader)
        for node in followers:
            cluster.start(node)
        until(lambda: cluster.leader_of(TOPIC, 0) in followers)
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send(TOPIC, b"new").result(60)
        cluster.start(leader)
        cluster.wait_isr(TOPIC, 0, 3)
        assert values(cluster, 2) == [b"committed", b"new"]
        until(lambda: len(set(batches(cluster))) == 1, "the logs of the replicas differ")


def test_group_goes_on_when_its_coordinator_is_killed() -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        create(cluster)
        with (
            Producer(cluster.bootstrap_servers) as producer,
            Consumer(
                TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
            ) as consumer,
        ):
            for turn in range(3):
                producer.send(TOPIC, b"%d" % turn).result(60)
                assert read(consumer, 1) == [b"%d" % turn]
                consumer.commit()
                with Admin(cluster.bootstrap_servers) as admin:
                    coordinator = admin.describe_groups(["g"])["g"].coordinator
                cluster.kill(coordinator)
                cluster.start(coordinator)
                cluster.wait_isr(TOPIC, 0, 3)


@pytest.mark.parametrize("epoch", [True, False], ids=["with-epoch", "without-epoch"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_starts_at_its_offset_although_a_replaced_leader_answers(protocol: str, epoch: bool) -> None:
    # On a busy machine, too, each node keeps its leaderships until it is cut off.
    config = {"offsets.topic.num.partitions": 1, "broker.session.timeout.ms": 6000}
    with EmbeddedCluster(brokers=3, config=config) as cluster:
        create(cluster)
        options = {"group_id": "g", "auto_offset_reset": "earliest", "group_protocol": protocol}
        with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap_servers, **options) as consumer:
            until(lambda: consumer.poll(0.1) or consumer.assignment())
            consumer.commit()
        with Admin(cluster.bootstrap_servers) as admin:
            coordinator = admin.describe_groups(["g"])["g"].coordinator
        old = next(node for node in (1, 2, 3) if node != coordinator)
        cluster.move_leader(TOPIC, 0, old, timeout=60)
        others = [node for node in (1, 2, 3) if node != old]
        for node in others:
            cluster.cut(old, node)
        reachable = ",".join(cluster.node(node).address for node in others)
        until(lambda: leader_in(reachable) != old)
        with Producer(reachable) as producer:
            for number in range(5):
                producer.send(TOPIC, b"%d" % number).result(60)
            with Consumer(TOPIC, bootstrap_servers=reachable, **options) as consumer:
                assert len(read(consumer, 5)) == 5
            if not epoch:  # as some clients commit
                with Admin(reachable) as admin:
                    admin.alter_group_offsets("g", {TopicPartition(TOPIC, 0): 5})
            producer.send(TOPIC, b"next").result(60)
        with Consumer(TOPIC, bootstrap_servers=cluster.node(old).address, **options) as consumer:
            assert read(consumer, 1) == [b"next"]


def leader_in(addresses: str) -> int:
    """Return the partition's leader in the metadata of the nodes at these addresses."""
    with Admin(addresses) as admin:
        return admin.describe_topics([TOPIC])[TOPIC].partitions[0].leader
