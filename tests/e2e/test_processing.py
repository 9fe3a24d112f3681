"""process_transactionally: every record takes effect once, poison records go to the dead-letter topic."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from pyclient import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    NewTopic,
    Producer,
    ProducerRecord,
    TopicPartition,
    async_process_transactionally,
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
    """Return the topics of a test, of two partitions but for the dead-letter topic; the input is filled."""
    name = request.node.name.replace("[", ".").replace("]", "")
    made = {each: f"{name}.{each}" for each in ("in", "out", "dead")}
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, 1 if each == "dead" else 2, 1) for each, name in made.items()])
    with Producer(cluster.bootstrap_servers) as producer:
        for number, value in enumerate(VALUES):
            producer.send(made["in"], value, partition=number % 2)
    return made


def reader(
    cluster: EmbeddedCluster, names: dict[str, str], kind: Any = Consumer, **options: Any
) -> Consumer[Any, Any] | Any:
    given = {"auto_offset_reset": "earliest", "isolation_level": "read_committed", "max_poll_records": 20}
    return kind(
        names["in"], bootstrap_servers=cluster.bootstrap_servers, group_id=names["in"], enable_auto_commit=False,
        config=given, **options,
    )  # fmt: skip


class SyncClient:
    name = "sync"
    event = threading.Event

    @staticmethod
    def run(cluster: EmbeddedCluster, names: dict[str, str], process: Any, odd: Any = None, **options: Any) -> int:
        """Process with a consumer and a producer of its own; `odd` deserializes."""
        with (
            reader(cluster, names, value_deserializer=odd) as consumer,
            Producer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
        ):
            return process_transactionally(consumer, producer, process, **options)


class AsyncClient:
    name = "async"
    event = asyncio.Event

    @staticmethod
    def run(cluster: EmbeddedCluster, names: dict[str, str], process: Any, odd: Any = None, **options: Any) -> int:
        """Process with a consumer and a producer of its own; `odd` deserializes."""

        async def run() -> int:
            async with (
                reader(cluster, names, AsyncConsumer, value_deserializer=odd) as consumer,
                AsyncProducer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
            ):
                return await async_process_transactionally(consumer, producer, process, **options)

        return asyncio.run(run())


@pytest.fixture(params=[SyncClient, AsyncClient], ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Any:
    return request.param


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


def copying(names: dict[str, str], stop: Any, refuse: bytes | None = None) -> Any:
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


def test_copy_has_each_record_once(cluster: EmbeddedCluster, names: dict[str, str], client: Any) -> None:
    stop = client.event()
    assert client.run(cluster, names, copying(names, stop), stop=stop) == len(VALUES)
    assert sorted(committed(cluster, names["out"], len(VALUES))) == sorted(VALUES)


def test_transaction_that_fails_is_processed_again(
    cluster: EmbeddedCluster, names: dict[str, str], client: Any
) -> None:
    """The offsets of two transactions are refused, as for a member that lost its partitions."""
    stop = client.event()
    with cluster.faults.fail("TxnOffsetCommit", "ILLEGAL_GENERATION", skip=2, times=2):
        client.run(cluster, names, copying(names, stop), stop=stop)
    assert sorted(committed(cluster, names["out"], len(VALUES))) == sorted(VALUES)


def test_record_that_cannot_be_processed_is_kept_with_its_reason(
    cluster: EmbeddedCluster, names: dict[str, str], client: Any
) -> None:
    stop = client.event()
    process = copying(names, stop, refuse=b"7")
    client.run(cluster, names, process, stop=stop, dead_letter_topic=names["dead"])
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


def test_record_that_cannot_be_deserialized_is_kept_as_it_is(
    cluster: EmbeddedCluster, names: dict[str, str], client: Any
) -> None:
    def odd(data: bytes) -> bytes:
        if data == b"8":
            raise ValueError("no 8")
        return data

    stop = client.event()
    seen: set[bytes] = set()

    def process(record: Any) -> ProducerRecord:
        seen.add(record.value)
        if len(seen) == len(VALUES) - 1:
            stop.set()
        return ProducerRecord(names["out"], record.value)

    client.run(cluster, names, process, odd, stop=stop, dead_letter_topic=names["dead"])
    assert sorted(committed(cluster, names["out"], len(VALUES) - 1)) == sorted(set(VALUES) - {b"8"})
    assert committed(cluster, names["dead"], 1) == [b"8"]


@pytest.mark.parametrize("kind", ["coroutine", "generator"])
def test_asynchronous_function_is_awaited(cluster: EmbeddedCluster, names: dict[str, str], kind: str) -> None:
    stop = asyncio.Event()
    copy = copying(names, stop)

    async def coroutine(record: Any) -> ProducerRecord:
        await asyncio.sleep(0)
        return copy(record)

    async def generator(record: Any) -> AsyncIterator[ProducerRecord]:
        await asyncio.sleep(0)
        yield copy(record)

    AsyncClient.run(cluster, names, coroutine if kind == "coroutine" else generator, stop=stop)
    assert sorted(committed(cluster, names["out"], len(VALUES))) == sorted(VALUES)


def test_cancelled_task_aborts_its_transaction(cluster: EmbeddedCluster, names: dict[str, str]) -> None:
    """Its transaction stays invisible, and the next instance processes the same records."""

    async def run() -> None:
        begun = asyncio.Event()

        async def process(record: Any) -> ProducerRecord:
            if record.value == b"9":
                begun.set()
                await asyncio.Event().wait()
            return ProducerRecord(names["out"], record.value)

        async with (
            reader(cluster, names, AsyncConsumer) as consumer,
            AsyncProducer(cluster.bootstrap_servers, transactional_id=names["in"]) as producer,
        ):
            task = asyncio.ensure_future(async_process_transactionally(consumer, producer, process))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert producer.health()["transaction_state"] == "without a transaction"

    asyncio.run(run())
    stop, last = asyncio.Event(), set(VALUES[-2:])  # of the two partitions

    def process(record: Any) -> ProducerRecord:
        last.discard(record.value)
        if not last:
            stop.set()
        return ProducerRecord(names["out"], record.value)

    AsyncClient.run(cluster, names, process, stop=stop)
    assert sorted(committed(cluster, names["out"], len(VALUES))) == sorted(VALUES)


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


def test_sigterm_ends_it_after_the_transaction(cluster: EmbeddedCluster, names: dict[str, str], client: Any) -> None:
    def process(record: Any) -> ProducerRecord:
        os.kill(os.getpid(), signal.SIGTERM)
        return ProducerRecord(names["out"], record.value)

    done = client.run(cluster, names, process)
    assert 0 < done <= 20
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert len(committed(cluster, names["out"], done)) == done
