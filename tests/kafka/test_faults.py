"""Our producer and consumer while the nodes of a real Kafka die, hang and come back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyclient import Consumer, Producer, TopicPartition
from pyclient.admin import Admin, NewTopic
from tests.kafka.runner import RealKafka

PARTITIONS = 3
COUNT = 6_000


def leader_of(kafka: RealKafka, topic: str, partition: int = 0) -> int:
    with Admin(kafka.bootstrap_servers) as admin:
        return admin.describe_topics([topic])[topic].partitions[partition].leader


def produce_through(kafka: RealKafka, topic: str, disturb: Callable[[], None]) -> None:
    """Send numbered records while `disturb` does its work; every one is confirmed, once and in order."""
    with Admin(kafka.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])
    with ThreadPoolExecutor(1) as pool, Producer(kafka.bootstrap_servers, linger_ms=5, batch_size=2048) as producer:
        futures = []
        disturbance = None
        for n in range(COUNT):
            futures.append(producer.send(topic, b"%d" % n, partition=n % PARTITIONS))
            if n == COUNT // 4:
                futures[0].result(30)
                disturbance = pool.submit(disturb)
            if n % 50 == 0:
                futures[max(0, n - 1500)].result(90)
        assert disturbance is not None
        disturbance.result(120)
        offsets = [future.result(90).offset for future in futures]
    for partition in range(PARTITIONS):
        mine = offsets[partition::PARTITIONS]
        assert mine == sorted(set(mine)), f"partition {partition}: confirmed out of order or twice"
    check(kafka, topic)


def check(kafka: RealKafka, topic: str) -> None:
    """Each partition holds its numbers, each once, in order."""
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
        read: dict[int, list[int]] = {n: [] for n in range(PARTITIONS)}
        while sum(map(len, read.values())) < COUNT:
            records = consumer.poll(30)
            assert records, f"only {sum(map(len, read.values()))} of {COUNT} records are there"
            for record in records:
                read[record.partition].append(int(record.value))
        assert not consumer.poll(1), "there are more records than were sent"
    for partition, numbers in read.items():
        assert numbers == list(range(partition, COUNT, PARTITIONS))


def test_a_leader_that_dies_costs_no_record_and_doubles_none(three_nodes: RealKafka, topic: str) -> None:
    def kill_the_leader() -> None:
        victim = leader_of(three_nodes, topic)
        three_nodes.kill(victim)
        three_nodes.restart(victim)

    produce_through(three_nodes, topic, kill_the_leader)


def test_a_leader_that_hangs_costs_no_record_and_doubles_none(three_nodes: RealKafka, topic: str) -> None:
    def pause_the_leader() -> None:
        victim = leader_of(three_nodes, topic)
        three_nodes.pause(victim)
        try:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(_wait_for_another_leader, three_nodes, topic, victim).result(60)
        finally:
            three_nodes.resume(victim)

    produce_through(three_nodes, topic, pause_the_leader)


def _wait_for_another_leader(kafka: RealKafka, topic: str, old: int) -> None:
    for _ in range(600):
        if leader_of(kafka, topic) not in (old, -1):
            return
    raise AssertionError(f"node {old} still leads {topic}-0")


def test_a_group_goes_on_when_its_coordinator_dies(three_nodes: RealKafka, topic: str, group: str) -> None:
    servers = three_nodes.bootstrap_servers
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 3)])
    with Producer(servers) as producer:
        for n in range(200):
            producer.send(topic, b"%d" % n)
    options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(topic, bootstrap_servers=servers, **options) as consumer:
        first = consumer.poll(60, max_records=100)
        consumer.commit()
        victim = leader_of(three_nodes, "__consumer_offsets", _partition_of(group))
        three_nodes.kill(victim)
        try:
            rest = list(first)
            while len(rest) < 200:
                records = consumer.poll(60)
                assert records, f"{len(rest)} of 200 records came"
                rest += records
            consumer.commit()
        finally:
            three_nodes.restart(victim)
    assert [int(record.value) for record in rest] == list(range(200))
    with Consumer(bootstrap_servers=servers, group_id=group) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 200


def _partition_of(group: str) -> int:
    from pyclient.broker_embedded.groups.partitioning import partition_for_id

    return partition_for_id(group, 5)
