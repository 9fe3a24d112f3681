"""Transactions while brokers are killed and come back, among them coordinators and leaders: all of each, or nothing."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from typing import Any, Final

import pytest

from pyclient.broker_embedded import EmbeddedCluster

PATIENCE: Final = 60.0
PARTITIONS: Final = 3
WORK: Final = 20  # transactions before and after each kill

TOPIC, END = "t", b"end"
SETTINGS: Final = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}


def producer_of(servers: str) -> Any:
    from confluent_kafka import Producer

    settings = {"log_level": 0, "bootstrap.servers": servers, "transactional.id": "x"}
    made = Producer(settings)
    made.init_transactions(PATIENCE)
    return made


def transact(producer: Any, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
    if commit:
        producer.commit_transaction(PATIENCE)
    else:
        producer.flush(PATIENCE)
        producer.abort_transaction(PATIENCE)


def read_all(servers: str) -> list[bytes]:
    """Read what is committed, up to `END` in every partition."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed"}
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE
    with closing(Consumer({"log_level": 0, **settings})) as reader:
        reader.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        while found.count(END) < PARTITIONS:
            assert time.monotonic() < deadline, "readers of committed data wait for ever"
            found += [message.value() for message in reader.consume(500, 1.0) if not message.error()]
    return [value for value in found if value != END]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_transaction_is_read_whole_or_not_at_all() -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    with EmbeddedCluster(brokers=3, config=SETTINGS) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient({"log_level": 0, "bootstrap.servers": servers})
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(PATIENCE)
        producer = producer_of(servers)
        transact(producer, [b"0-0"], commit=True)
        committed, undecided = {b"0-0"}, set[bytes]()
        number = 0

        def work() -> None:
            nonlocal producer, number
            for _ in range(WORK):
                number += 1
                values = [b"%d-%d" % (number, each) for each in range(3 * PARTITIONS)]
                commit = number % 4 != 0
                try:
                    transact(producer, values, commit=commit)
                except KafkaException:  # its outcome is not known
                    undecided.update(values if commit else ())
                    producer = producer_of(servers)
                else:
                    committed.update(values if commit else ())

        for node in (1, 2, 3):
            work()
            cluster.kill(node)
            work()
            cluster.start(node)
            for partition in range(PARTITIONS):
                cluster.wait_isr(TOPIC, partition, 3, PATIENCE)
        work()
        transact(producer, [END] * PARTITIONS, commit=True)
        found = Counter(read_all(servers))
    assert set(found.values()) == {1}, "a record is there twice"
    assert committed <= found.keys() <= committed | undecided
    sizes = Counter(value.split(b"-")[0] for value in found)
    assert {size for name, size in sizes.items() if name != b"0"} == {3 * PARTITIONS}
