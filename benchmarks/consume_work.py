"""One client consumes, in a process of its own so that its CPU time is its own.

`python -m benchmarks.consume_work pyclient --servers ... --topic ... --size 100 --codec none --count 300000`
prints JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.timed_work import run_one

PER_CALL = 500


def consume_pyclient(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from pyclient import Consumer, TopicPartition

    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")

    def run() -> None:
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])
        seen = octets = 0
        while seen < count:
            for record in consumer.poll(timeout=10, max_records=PER_CALL):
                octets += len(record.value)
                seen += 1

    return run


def consume_confluent(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )

    def run() -> None:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        seen = octets = 0
        while seen < count:
            for message in consumer.consume(min(PER_CALL, count - seen), timeout=10):  # it waits for as many as it may
                octets += len(message.value())
                seen += 1

    return run


def consume_kafka_python(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")

    def run() -> None:
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)])
        seen = octets = 0
        while seen < count:
            for records in consumer.poll(timeout_ms=10_000, max_records=PER_CALL).values():
                for record in records:
                    octets += len(record.value)
                    seen += 1

    return run


def consume_aiokafka(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    loop = asyncio.new_event_loop()

    async def start() -> Any:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        return consumer

    consumer = loop.run_until_complete(start())

    async def work() -> None:
        await consumer._client.force_metadata_update()
        partitions = consumer._client.cluster.partitions_for_topic(topic)
        if partitions is None:
            consumer._client.set_topics([topic])
            await consumer._client.force_metadata_update()
            partitions = consumer._client.cluster.partitions_for_topic(topic)
        consumer.assign([TopicPartition(topic, number) for number in partitions])
        seen = octets = 0
        while seen < count:
            found = await consumer.getmany(timeout_ms=10_000, max_records=PER_CALL)
            for records in found.values():
                for record in records:
                    octets += len(record.value)
                    seen += 1

    return lambda: loop.run_until_complete(work())


CLIENTS = {
    "pyclient": consume_pyclient,
    "confluent-kafka": consume_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}

if __name__ == "__main__":
    run_one(CLIENTS)
