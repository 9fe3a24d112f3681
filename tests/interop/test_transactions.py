"""Transactions of other clients on our broker, as seen by readers of committed data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from pyclient.broker_embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiokafka"),
]

PATIENCE: Final = 30.0  # seconds
ROUNDS: Final = 6

Write = Callable[[str, str, str], None]
Read = Callable[[str, str, int], list[bytes]]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker that looks for timed-out transactions often."""
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


def is_committed(number: int) -> bool:
    """Return True for the rounds that writers commit; they abort the others."""
    return number % 3 != 1


def values_of(number: int) -> list[bytes]:
    return [b"%d-%d" % (number, each) for each in range(5)]


COMMITTED: Final = [value for number in range(ROUNDS) if is_committed(number) for value in values_of(number)]


def quiet(servers: str, transactional_id: str, **more: Any) -> dict[str, Any]:
    return {"log_level": 0, "bootstrap.servers": servers, "transactional.id": transactional_id, **more}


def write_with_confluent(servers: str, topic: str, transactional_id: str) -> None:
    from confluent_kafka import Producer

    producer = Producer(quiet(servers, transactional_id))
    producer.init_transactions(PATIENCE)
    for number in range(ROUNDS):
        producer.begin_transaction()
        for value in values_of(number):
            producer.produce(topic, value, partition=0)
        producer.flush(PATIENCE)
        if is_committed(number):
            producer.commit_transaction(PATIENCE)
        else:
            producer.abort_transaction(PATIENCE)


def write_with_kafka_python(servers: str, topic: str, transactional_id: str) -> None:
    from kafka import KafkaProducer

    with closing(KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)) as producer:
        producer.init_transactions()
        for number in range(ROUNDS):
            producer.begin_transaction()
            for value in values_of(number):
                producer.send(topic, value, partition=0)
            producer.flush(PATIENCE)
            if is_committed(number):
                producer.commit_transaction()
            else:
                producer.abort_transaction()


def write_with_aiokafka(servers: str, topic: str, transactional_id: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id) as producer:
            for number in range(ROUNDS):
                await producer.begin_transaction()
                for value in values_of(number):
                    await producer.send_and_wait(topic, value, partition=0)
                if is_committed(number):
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(asyncio.wait_for(write(), PATIENCE))


def read_with_pyclient(servers: str, topic: str, count: int) -> list[bytes]:
    from pyclient import Consumer, TopicPartition

    with Consumer(bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(topic, 0)])
        values: list[bytes] = []
        while len(values) < count:
            values += [record.value for record in reader.poll(timeout=PATIENCE)]
        return values


def read_with_confluent(servers: str, topic: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed"}
    with closing(Consumer(settings)) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in reader.consume(count, PATIENCE)]


def read_with_kafka_python(servers: str, topic: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer, TopicPartition

    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(bootstrap_servers=servers, **options)) as reader:
        reader.assign([TopicPartition(topic, 0)])
        values: list[bytes] = []
        while len(values) < count:
            for records in reader.poll(timeout_ms=1000 * PATIENCE).values():
                values += [record.value for record in records]
        return values


def read_with_aiokafka(servers: str, topic: str, count: int) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> list[bytes]:
        options: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        reader = AIOKafkaConsumer(bootstrap_servers=servers, **options)
        reader.assign([TopicPartition(topic, 0)])
        async with reader:
            return [(await asyncio.wait_for(reader.getone(), PATIENCE)).value for _ in range(count)]

    return asyncio.run(read())


READERS: Final[tuple[Read, ...]] = (
    read_with_pyclient,
    read_with_confluent,
    read_with_kafka_python,
    read_with_aiokafka,
)


@pytest.mark.parametrize("write", [write_with_confluent, write_with_kafka_python, write_with_aiokafka])
def test_every_client_reads_exactly_what_was_committed(servers: str, write: Write) -> None:
    topic = write.__name__
    write(servers, topic, topic)
    for read in READERS:
        assert read(servers, topic, len(COMMITTED)) == COMMITTED, read.__name__


def test_a_group_reads_transforms_and_writes_exactly_once(servers: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    write_with_confluent(servers, "input", "feeder")
    settings = {
        "bootstrap.servers": servers,
        "group.id": "copiers",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }

    def copy(transactional_id: str, count: int, *, commit: bool) -> list[TopicPartition]:
        producer = Producer(quiet(servers, transactional_id))
        producer.init_transactions(PATIENCE)
        with closing(Consumer(settings)) as reader:
            reader.subscribe(["input"])
            producer.begin_transaction()
            for message in reader.consume(count, PATIENCE):
                producer.produce("output", message.value().upper(), partition=0)
            assigned = reader.assignment()
            producer.send_offsets_to_transaction(reader.position(assigned), reader.consumer_group_metadata(), PATIENCE)
            if commit:
                producer.commit_transaction(PATIENCE)
            else:
                producer.flush(PATIENCE)
                producer.abort_transaction(PATIENCE)
            return list(reader.committed(assigned, PATIENCE))

    assert copy("copier", 5, commit=True)[0].offset == 5
    assert copy("copier", 10, commit=False)[0].offset == 5
    copy("copier", 10, commit=True)
    assert read_with_confluent(servers, "output", 15) == COMMITTED[:15]


def test_aiokafka_and_kafka_python_commit_offsets_in_transactions(servers: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka import TopicPartition as AIOTopicPartition
    from confluent_kafka import Consumer, TopicPartition
    from kafka import KafkaProducer
    from kafka import TopicPartition as PythonTopicPartition
    from kafka.structs import OffsetAndMetadata

    write_with_confluent(servers, "positions", "positions")
    with closing(KafkaProducer(bootstrap_servers=servers, transactional_id="python")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        at = {PythonTopicPartition("positions", 0): OffsetAndMetadata(7, "", -1)}
        producer.send_offsets_to_transaction(at, "in-transactions")
        producer.commit_transaction()

    def committed() -> int:
        with closing(Consumer({"bootstrap.servers": servers, "group.id": "in-transactions"})) as reader:
            offset: int = reader.committed([TopicPartition("positions", 0)], PATIENCE)[0].offset
            return offset

    assert committed() == 7

    async def use() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aio") as producer:
            for offset, commit in ((8, False), (9, True), (10, False)):
                await producer.begin_transaction()
                await producer.send_offsets_to_transaction(
                    {AIOTopicPartition("positions", 0): offset}, "in-transactions"
                )
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(asyncio.wait_for(use(), PATIENCE))
    assert committed() == 9


def test_a_second_producer_of_an_id_fences_the_first(servers: str) -> None:
    from confluent_kafka import KafkaException, Producer

    zombie, successor = (Producer(quiet(servers, "contested")) for _ in range(2))
    zombie.init_transactions(PATIENCE)
    zombie.begin_transaction()
    zombie.produce("contested", b"of the zombie", partition=0)
    zombie.flush(PATIENCE)
    successor.init_transactions(PATIENCE)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(PATIENCE)
    assert caught.value.args[0].fatal()
    successor.begin_transaction()
    successor.produce("contested", b"of the successor", partition=0)
    successor.commit_transaction(PATIENCE)
    for read in READERS:
        assert read(servers, "contested", 1) == [b"of the successor"], read.__name__


def test_the_transaction_of_a_silent_producer_is_aborted(servers: str) -> None:
    from confluent_kafka import KafkaException, Producer

    silent = Producer(quiet(servers, "silent", **{"transaction.timeout.ms": 1000}))
    silent.init_transactions(PATIENCE)
    silent.begin_transaction()
    silent.produce("silent", b"of the silent producer", partition=0)
    silent.flush(PATIENCE)
    other = Producer({"bootstrap.servers": servers})
    other.produce("silent", b"behind it", partition=0)
    other.flush(PATIENCE)
    assert read_with_confluent(servers, "silent", 1) == [b"behind it"]  # waits until the transaction is aborted
    with pytest.raises(KafkaException):
        silent.commit_transaction(PATIENCE)


def test_administrators_see_transactions_and_abort_hanging_ones(servers: str) -> None:
    from confluent_kafka import Producer
    from kafka import KafkaAdminClient, TopicPartition
    from kafka.admin import AbortTransactionSpec

    producer = Producer(quiet(servers, "administered"))
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("administered", b"x", partition=0)
    producer.flush(PATIENCE)
    at = TopicPartition("administered", 0)
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        [listed] = admin.list_transactions(state_filters=["Ongoing"]).values()
        assert [each.transactional_id for each in listed] == ["administered"]
        described = admin.describe_transactions(["administered"])["administered"]
        assert (described.topic_partitions, described.producer_id) == ({at}, listed[0].producer_id)
        admin.abort_transaction(AbortTransactionSpec(at, described.producer_id, described.producer_epoch))
    other = Producer({"bootstrap.servers": servers})
    other.produce("administered", b"behind it", partition=0)
    other.flush(PATIENCE)
    assert read_with_confluent(servers, "administered", 1) == [b"behind it"]
