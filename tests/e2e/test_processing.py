"""process_transactionally: every record takes effect once, poison records go to the dead-letter topic."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import (
    Consumer,
    NewTopic,
    Producer,
    ProducerRecord,
    TopicPartition,
    errors,
    process_transactionally,
)
from pyclient.admin import Admin
from pyclient.broker_embedded import EmbeddedCluster

VALUES = [b"%d" % number for number in range(300)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def names(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> dict[str, str]:
    """The topics of a test, of two partitions but for the dead-letter topic; the input is filled."""
    made = {each: f"{request.node.name}.{each}" for each in ("in", "out", "dead")}
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1 if each == "dead" else 2, 1) for each, name in made.items()])
    with Producer(cluster.bootstrap_servers) as producer:
        for number, value in enumerate(VALUES):
            producer.send(made["in"], value, partition=number % 2)
    return made


def reader(cluster: EmbeddedCluster, names: dict[str, str], **options: Any) -> Consumer[Any, Any]:
    given = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "max_poll_records": 20}
    return Consumer(
        names["in"], bootstrap_servers=cluster.bootstrap_servers, group_id=names["in"], enable_auto_commit=False,
        config=given, **options,
    )  # fmt: skip


def committed(cluster: EmbeddedCluster, topic: str, count: int) -> list[bytes]:
    """Return the committed values, once there are as many; more would be found."""
    found: list[bytes] = []
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(places)
        while len(found) < count:
            found += [record.value for record in consumer.poll(30.0) if record.value is not None]
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < ends[place] for place in places):
            found += [record.value for record in consumer.poll(1.0) if record.value is not None]
    return found


def copying(names: dict[str, str], stop: threading.Event, refuse: bytes | None = None) -> Any:
    """Return a function that copies records, and sets `stop` after the last value."""
    left = set(VALUES)

    def process(record: Any) -> ProducerRecord:
        left.discard(record.value)
        if not left:
            stop.set()
        if record.value == refuse:
            raise ValueError(f"{record.value!r} is not wanted")
        return ProducerRecord(names["out"], record.value, key=record.key)

    return process


def test_copy_has_each_record_once(cluster: EmbeddedCluster, names: dict[str, str]) -> None:
    stop = threading.Event()
    with (
        reader(cluster, names) as consumer,
        Producer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
    ):
        assert process_transactionally(consumer, producer, copying(names, stop), stop=stop) == len(VALUES)
    assert sorted(committed(cluster, names["out"], len(VALUES))) == sorted(VALUES)


def test_transaction_that_fails_is_processed_again(cluster: EmbeddedCluster, names: dict[str, str]) -> None:
    """The offsets of two transactions are refused, as for a member that lost its partitions."""
    stop = threading.Event()
    with (
        reader(cluster, names) as consumer,
        Producer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
        cluster.faults.fail("TxnOffsetCommit", "ILLEGAL_GENERATION", skip=2, times=2),
    ):
        process_transactionally(consumer, producer, copying(names, stop), stop=stop)
    assert sorted(committed(cluster, names["out"], len(VALUES))) == sorted(VALUES)


def test_record_that_cannot_be_processed_is_kept_with_its_reason(
    cluster: EmbeddedCluster, names: dict[str, str]
) -> None:
    stop = threading.Event()
    with (
        reader(cluster, names) as consumer,
        Producer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
    ):
        process = copying(names, stop, refuse=b"7")
        process_transactionally(consumer, producer, process, stop=stop, dead_letter_topic=names["dead"])
    assert sorted(committed(cluster, names["out"], len(VALUES) - 1)) == sorted(set(VALUES) - {b"7"})
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(names["dead"], 0)])
        [dead] = consumer.poll(30.0)
    assert (dead.value, dict(dead.headers)) == (
        b"7",
        {
            "error": b"ValueError(\"b'7' is not wanted\")",
            "topic": names["in"].encode(),
            "partition": b"1",
            "offset": b"3",
        },
    )


def test_record_that_cannot_be_deserialized_is_kept_as_it_is(cluster: EmbeddedCluster, names: dict[str, str]) -> None:
    def odd(data: bytes) -> bytes:
        if data == b"8":
            raise ValueError("no 8")
        return data

    stop = threading.Event()
    with (
        reader(cluster, names, value_deserializer=odd) as consumer,
        Producer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
    ):
        seen: set[bytes] = set()

        def process(record: Any) -> ProducerRecord:
            seen.add(record.value)
            if len(seen) == len(VALUES) - 1:
                stop.set()
            return ProducerRecord(names["out"], record.value)

        process_transactionally(consumer, producer, process, stop=stop, dead_letter_topic=names["dead"])
    assert sorted(committed(cluster, names["out"], len(VALUES) - 1)) == sorted(set(VALUES) - {b"8"})
    assert committed(cluster, names["dead"], 1) == [b"8"]


def test_error_of_the_function_aborts_and_is_raised(cluster: EmbeddedCluster, names: dict[str, str]) -> None:
    with (
        reader(cluster, names) as consumer,
        Producer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
    ):
        process = copying(names, threading.Event(), refuse=b"0")
        with pytest.raises(ValueError, match="is not wanted"):
            process_transactionally(consumer, producer, process)
        assert producer.health()["transaction_state"] == "without a transaction"
        assert set(consumer.committed().values()) == {None}


def test_consumer_that_commits_by_itself_is_refused(cluster: EmbeddedCluster, names: dict[str, str]) -> None:
    with (
        Consumer(names["in"], bootstrap_servers=cluster.bootstrap_servers, group_id=names["in"]) as consumer,
        pytest.raises(errors.ConfigError, match="enable_auto_commit=False"),
    ):
        consumer.group_metadata()


def test_sigterm_ends_it_after_the_transaction(cluster: EmbeddedCluster, names: dict[str, str]) -> None:
    def process(record: Any) -> ProducerRecord:
        os.kill(os.getpid(), signal.SIGTERM)
        return ProducerRecord(names["out"], record.value)

    with (
        reader(cluster, names) as consumer,
        Producer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
    ):
        done = process_transactionally(consumer, producer, process)
        assert 0 < done <= 20
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert len(committed(cluster, names["out"], done)) == done
