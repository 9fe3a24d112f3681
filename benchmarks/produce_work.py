"""One client produces, in a process of its own so that its CPU time is its own.

`python -m benchmarks.produce_work pyclient --servers ... --topic ... --size 100 --codec none --count 300000`
prints JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.timed_work import BATCH_BYTES, LINGER_MS, run_one, values


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


CLIENTS = {
    "pyclient": produce_pyclient,
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
}

if __name__ == "__main__":
    run_one(CLIENTS)
