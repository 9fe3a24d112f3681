"""Our producer and consumer while the nodes of a real Kafka, and of ours, die, hang and come back."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyclient import Consumer, Producer, TopicPartition
from pyclient.admin import NewTopic
from pyclient.broker_embedded.groups.partitioning import partition_for_id
from tests.kafka.three import Three, some_seconds_on_ours
from tests.kafka.topics import PATIENCE, create, leaders_of, wait_until

PARTITIONS = 3
BURST = 30
ENOUGH = 600  # records, so that some are sent after the disturbance, however short it was


def leader_of(kafka: Three, topic: str, partition: int = 0) -> int:
    return leaders_of(kafka.bootstrap_servers, topic)[partition]


def produce_through(kafka: Three, topic: str, disturb: Callable[[], None]) -> None:
    """Send numbered records until `disturb` has done its work; every one is confirmed, once and in order."""
    create(kafka.bootstrap_servers, NewTopic(topic, PARTITIONS, 3))
    with ThreadPoolExecutor(1) as pool, Producer(kafka.bootstrap_servers, linger_ms=1, batch_size=1024) as producer:
        futures = [producer.send(topic, b"0", partition=0)]
        futures[0].result(PATIENCE)
        disturbance = pool.submit(disturb)
        while not disturbance.done() or len(futures) < ENOUGH:
            for _ in range(BURST):
                n = len(futures)
                futures.append(producer.send(topic, b"%d" % n, partition=n % PARTITIONS))
            futures[-2 * BURST if len(futures) > 2 * BURST else 0].result(150)
        disturbance.result()
        offsets = [future.result(150).offset for future in futures]
    for partition in range(PARTITIONS):
        mine = offsets[partition::PARTITIONS]
        assert mine == list(range(len(mine))), f"partition {partition}: confirmed out of order, twice, or with gaps"
    check(kafka, topic, len(offsets))


def check(kafka: Three, topic: str, count: int) -> None:
    """Assert that each partition holds its numbers, each once, in order."""
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
        read: dict[int, list[int]] = {n: [] for n in range(PARTITIONS)}
        while sum(map(len, read.values())) < count:
            records = consumer.poll(PATIENCE)
            assert records, f"only {sum(map(len, read.values()))} of {count} records are there"
            for record in records:
                read[record.partition].append(int(record.value))
        assert not consumer.poll(1), "there are more records than were sent"
    for partition, numbers in read.items():
        assert numbers == list(range(partition, count, PARTITIONS))


@some_seconds_on_ours
def test_records_are_neither_lost_nor_duplicated_when_a_leader_is_killed(three_nodes: Three, topic: str) -> None:
    def kill_the_leader() -> None:
        victim = leader_of(three_nodes, topic)
        three_nodes.kill(victim)
        _wait_for_another_leader(three_nodes, topic, victim)
        three_nodes.restart(victim)

    produce_through(three_nodes, topic, kill_the_leader)


def test_records_are_neither_lost_nor_duplicated_when_a_leader_hangs(three_nodes: Three, topic: str) -> None:
    def pause_the_leader() -> None:
        victim = leader_of(three_nodes, topic)
        three_nodes.pause(victim)
        try:
            _wait_for_another_leader(three_nodes, topic, victim)
        finally:
            three_nodes.resume(victim)

    produce_through(three_nodes, topic, pause_the_leader)


def _wait_for_another_leader(kafka: Three, topic: str, old: int) -> None:
    wait_until(lambda: leader_of(kafka, topic) not in (old, -1), f"node {old} still leads {topic}-0")


@some_seconds_on_ours
def test_group_continues_when_its_coordinator_is_killed(three_nodes: Three, topic: str, group: str) -> None:
    servers = three_nodes.bootstrap_servers
    create(servers, NewTopic(topic, 1, 3))
    with Producer(servers) as producer:
        for n in range(200):
            producer.send(topic, b"%d" % n)
    options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with Consumer(topic, bootstrap_servers=servers, **options) as consumer:
        first = consumer.poll(PATIENCE, max_records=100)
        consumer.commit()
        coordinators = leaders_of(servers, "__consumer_offsets")
        victim = coordinators[partition_for_id(group, len(coordinators))]
        three_nodes.kill(victim)
        try:
            rest = list(first)
            while len(rest) < 200:
                records = consumer.poll(PATIENCE)
                assert records, f"{len(rest)} of 200 records came"
                rest += records
            consumer.commit()
        finally:
            three_nodes.restart(victim)
    assert [int(record.value) for record in rest] == list(range(200))
    with Consumer(bootstrap_servers=servers, group_id=group) as consumer:
        assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 200
