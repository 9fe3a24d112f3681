"""Transactions of another client on a real Kafka, as readers of committed records and of all records see them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from pyclient import Consumer, NewTopic, TopicPartition
from tests.consumer.consumer_factory import ConsumerFactory, poll_until, read, values
from tests.kafka import topics
from tests.kafka.conftest import Cluster
from tests.kafka.topics import PATIENCE


def transaction(cluster: Cluster, name: str) -> Any:
    """Return a producer of confluent-kafka with a transaction that has begun."""
    confluent = pytest.importorskip("confluent_kafka")
    producer = confluent.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "linger.ms": 0}
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    return producer


def write(producer: Any, topic: str, *wanted: bytes) -> None:
    for value in wanted:
        producer.produce(topic, value, partition=0)
    assert producer.flush(PATIENCE) == 0


def wait_for_end(cluster: Cluster, partition: TopicPartition, offset: int) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        topics.wait_until(
            lambda: consumer.end_offsets([partition])[partition] == offset, f"{partition} does not end at {offset}"
        )


def test_aborted_records_are_never_read_undecided_ones_block_later_ones(kafka: Cluster, topic: str) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    topics.create(kafka.bootstrap_servers, NewTopic(topic, 1, 1))
    partition = TopicPartition(topic, 0)
    good, bad = transaction(kafka, f"{topic}-good"), transaction(kafka, f"{topic}-bad")
    write(good, topic, b"good 0", b"good 1")
    write(bad, topic, b"bad 0")
    write(good, topic, b"good 2")
    write(bad, topic, b"bad 1")
    good.commit_transaction(PATIENCE)
    bad.abort_transaction(PATIENCE)
    wait_for_end(kafka, partition, 7)  # the markers follow the answers
    undecided = transaction(kafka, f"{topic}-undecided")
    write(undecided, topic, b"undecided")
    write(confluent.Producer({"bootstrap.servers": kafka.bootstrap_servers}), topic, b"behind")
    everything = [b"good 0", b"good 1", b"bad 0", b"good 2", b"bad 1", b"undecided", b"behind"]
    committed = [b"good 0", b"good 1", b"good 2"]
    with ExitStack() as stack:
        readers = []
        for name in ("sync", "async"):
            make = stack.enter_context(ConsumerFactory(name, kafka.bootstrap_servers))
            reader, all_of_it = make(isolation_level="read_committed"), make(isolation_level="read_uncommitted")
            for consumer in (reader, all_of_it):
                consumer.assign([partition])
            assert values(read(all_of_it, 7, seconds=PATIENCE)) == everything
            assert values(read(reader, 3, seconds=PATIENCE)) == committed
            stable = reader.end_offsets([partition])[partition]
            assert stable == all_of_it.end_offsets([partition])[partition] - 2
            assert poll_until([reader], lambda reader=reader: reader.lag()[partition] == 0, seconds=PATIENCE) == []  # type: ignore[misc]
            assert (reader.position(partition), len(reader.poll(0.2))) == (stable, 0)
            readers.append(reader)
        undecided.abort_transaction(PATIENCE)
        for reader in readers:
            assert values(read(reader, 1, seconds=PATIENCE)) == [b"behind"]
