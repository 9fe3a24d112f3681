"""Further calls of other clients' consumers and producers: positions, timestamps, patterns, and refused calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiokafka"),
]

PATIENCE: Final = 30  # seconds
NOON: Final = 1_700_000_000_000  # epoch ms of the first record; the others follow at intervals of 1 ms
TOPIC, PATTERN = "looked-at", "^looked-.*"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A broker with topic `looked-at`: one partition, four records."""
    with EmbeddedCluster() as cluster:
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(4):
                producer.send(TOPIC, b"%d" % number, partition=0, timestamp_ms=NOON + number)
        yield cluster.bootstrap_servers


def test_confluent_consumer_queries_offsets_and_seeks(servers: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "confluent", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.auto.offset.store": False})
    at = TopicPartition(TOPIC, 0)
    with closing(consumer):
        assert consumer.get_watermark_offsets(at, timeout=PATIENCE) == (0, 4)
        [found] = consumer.offsets_for_times([TopicPartition(TOPIC, 0, NOON + 2)], timeout=PATIENCE)
        assert found.offset == 2
        assert len(consumer.cluster_id()) == 22
        assert len(consumer.list_topics(TOPIC, timeout=PATIENCE).topics[TOPIC].partitions) == 1
        consumer.subscribe([PATTERN])
        messages = consumer.consume(4, PATIENCE)
        assert [message.offset() for message in messages] == [0, 1, 2, 3]
        assert consumer.memberid()
        consumer.store_offsets(messages[1])
        [committed] = consumer.commit(asynchronous=False)
        assert (committed.offset, committed.error) == (2, None)
        assert [each.offset for each in consumer.committed([at], timeout=PATIENCE)] == [2]
        consumer.pause([at])
        consumer.resume([at])
        consumer.seek(TopicPartition(TOPIC, 0, 3))
        assert [message.offset() for message in consumer.consume(1, PATIENCE)] == [3]
        assert [each.offset for each in consumer.position([at])] == [4]


def test_kafka_python_consumer_queries_offsets_and_seeks(servers: str) -> None:
    from kafka import KafkaConsumer, TopicPartition

    at, settings = TopicPartition(TOPIC, 0), {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(bootstrap_servers=servers, group_id="kafka-python", **settings)) as consumer:
        assert consumer.beginning_offsets([at]) == {at: 0}
        assert consumer.end_offsets([at]) == {at: 4}
        found = consumer.offsets_for_times({at: NOON + 2})[at]
        assert (found.offset, found.timestamp) == (2, NOON + 2)
        assert consumer.partitions_for_topic(TOPIC) == {0}
        assert TOPIC in consumer.topics()
        consumer.subscribe(pattern=PATTERN)
        deadline, read = time.monotonic() + PATIENCE, 0
        while read < 4:
            assert time.monotonic() < deadline, f"only {read} of 4 records came"
            read += sum(map(len, consumer.poll(1000).values()))
        assert consumer.assignment() == {at}
        assert (consumer.position(at), consumer.highwater(at)) == (4, 4)
        assert consumer.group_metadata().generation_id >= 1
        consumer.seek(at, 2)
        consumer.commit()
        assert consumer.committed(at) == 2
        consumer.seek_to_beginning(at)
        assert consumer.position(at) == 0
        consumer.seek_to_end(at)
        assert consumer.position(at) == 4
        consumer.unsubscribe()


def test_aiokafka_consumer_queries_offsets_and_seeks(servers: str) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    at = TopicPartition(TOPIC, 0)

    async def use() -> None:
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with AIOKafkaConsumer(bootstrap_servers=servers, group_id="aiokafka", **options) as consumer:
            assert await consumer.topics() >= {TOPIC}
            consumer.subscribe(pattern=PATTERN)
            assert [(await asyncio.wait_for(consumer.getone(), PATIENCE)).offset for _ in range(4)] == [0, 1, 2, 3]
            assert await consumer.beginning_offsets([at]) == {at: 0}
            assert await consumer.end_offsets([at]) == {at: 4}
            found = (await consumer.offsets_for_times({at: NOON + 2}))[at]
            assert (found.offset, found.timestamp) == (2, NOON + 2)
            assert consumer.partitions_for_topic(TOPIC) == {0}
            assert (consumer.highwater(at), consumer.last_stable_offset(at)) == (4, 4)
            await consumer.commit({at: 1})
            assert await consumer.committed(at) == 1
            await consumer.seek_to_committed(at)
            assert await consumer.position(at) == 1
            await consumer.seek_to_beginning(at)
            assert await consumer.position(at) == 0
            await consumer.seek_to_end(at)
            assert await consumer.position(at) == 4

    asyncio.run(use())


def test_aiokafka_producer_sends_its_own_batches(servers: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def use() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            assert await producer.partitions_for(TOPIC) == {0}
            batch = producer.create_batch()
            for number in range(3):
                assert batch.append(key=b"key", value=b"%d" % number, timestamp=NOON)
            batch.close()
            sent = await (await producer.send_batch(batch, "batches", partition=0))
            assert sent.offset == 0
            assert (await producer.send_and_wait("batches", b"3", partition=0)).offset == 3
            await producer.flush()

    asyncio.run(use())
