"""One record by a producer of another client: `options` are the client's own, for how it logs in."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import confluent_kafka
import kafka


def send_by_confluent(topic: str, options: dict[str, Any]) -> None:
    """Raise `KafkaException` for a refused login, which librdkafka would repeat until the record's timeout."""
    seen: list[Any] = []
    producer = confluent_kafka.Producer({**options, "error_cb": seen.append, "message.timeout.ms": 60_000})
    producer.produce(topic, b"1")
    while producer.flush(0.05):
        refused = [error for error in seen if error.name() == "_AUTHENTICATION"]
        if refused:
            producer.purge()
            producer.flush()
            raise confluent_kafka.KafkaException(refused[0])


def send_by_kafka_python(topic: str, **options: Any) -> None:
    producer = kafka.KafkaProducer(max_block_ms=60_000, **options)
    try:
        producer.send(topic, b"1").get(60)
    finally:
        producer.close(1)


def send_by_aiokafka(topic: str, **options: Any) -> None:
    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(**options)
        try:
            await producer.start()
            await producer.send_and_wait(topic, b"1")
        finally:
            await producer.stop()

    asyncio.run(main())
