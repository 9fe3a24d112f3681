"""One measured piece of work by one client, in a process of its own so that its CPU time is its own.

`python -m benchmarks.work produce pyclient --servers ... --topic ... --size 100 --codec none --count 300000`
prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

LINGER_MS = 5
BATCH_BYTES = 131_072
PER_CALL = 500


def values(size: int) -> list[bytes]:
    """A thousand different values of about log-like compressibility."""
    stem = b"2026-11-21T12:00:00.000Z INFO service=billing request="
    return [(stem + b"%016x " % (n * 0x9E3779B97F4A7C15 % 2**64) + b"ok " * size)[:size] for n in range(1000)]


def produce_pyclient(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from pyclient import Producer

    producer = Producer(servers, compression_type=codec, linger_ms=LINGER_MS, batch_size=BATCH_BYTES)
    producer.send(topic, b"warm up").result(30)
    payload = values(size)

    def run() -> None:
        send = producer.send
        futures = [send(topic, payload[n % 1000]) for n in range(count)]
        producer.flush(120)
        for future in futures:
            if future.exception(0) is not None:
                raise RuntimeError("a record was not delivered")

    return run


def produce_confluent(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from confluent_kafka import Producer

    confirmed = 0

    def delivered(error: Any, _: Any) -> None:
        nonlocal confirmed
        if error is not None:
            raise RuntimeError(error)
        confirmed += 1

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": codec,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "acks": "all",
            "enable.idempotence": True,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.produce(topic, b"warm up", on_delivery=delivered)
    producer.flush(30)
    payload = values(size)

    def run() -> None:
        produce, poll = producer.produce, producer.poll
        for n in range(count):
            while True:
                try:
                    produce(topic, payload[n % 1000], on_delivery=delivered)
                    break
                except BufferError:
                    poll(0.01)
            if n % 1000 == 0:
                poll(0)
        if producer.flush(120) or confirmed != count + 1:
            raise RuntimeError(f"{confirmed - 1} of {count} records confirmed")

    return run


def produce_kafka_python(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
        acks="all",
        enable_idempotence=True,
    )
    producer.send(topic, b"warm up").get(30)
    payload = values(size)

    def run() -> None:
        futures = [producer.send(topic, payload[n % 1000]) for n in range(count)]
        producer.flush(120)
        for future in futures:
            future.get(1)

    return run


def produce_aiokafka(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from aiokafka import AIOKafkaProducer

    loop = asyncio.new_event_loop()

    async def start() -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
            acks="all",
            enable_idempotence=True,
        )
        await producer.start()
        await producer.send_and_wait(topic, b"warm up")
        return producer

    producer = loop.run_until_complete(start())
    payload = values(size)

    async def work() -> None:
        futures = [await producer.send(topic, payload[n % 1000]) for n in range(count)]
        await producer.flush()
        for future in futures:
            future.result()

    return lambda: loop.run_until_complete(work())


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


WORK = {
    ("produce", "pyclient"): produce_pyclient,
    ("produce", "confluent-kafka"): produce_confluent,
    ("produce", "kafka-python"): produce_kafka_python,
    ("produce", "aiokafka"): produce_aiokafka,
    ("consume", "pyclient"): consume_pyclient,
    ("consume", "confluent-kafka"): consume_confluent,
    ("consume", "kafka-python"): consume_kafka_python,
    ("consume", "aiokafka"): consume_aiokafka,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("work")
    parser.add_argument("client")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--codec", required=True)
    parser.add_argument("--count", type=int, required=True)
    a = parser.parse_args()
    run = WORK[a.work, a.client](a.servers, a.topic, a.size, a.codec, a.count)
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    run()
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"seconds": seconds, "cpu": cpu, "max_rss_kb": after.ru_maxrss}), flush=True)
    sys.stdout.flush()
    import os

    os._exit(0)  # what was to be measured is over; clients differ in how long they take to close


if __name__ == "__main__":
    main()
