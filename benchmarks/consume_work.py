"""One client consumes, in a process of its own so that its CPU time is its own.

`python -m benchmarks.consume_work pyclient --servers ... --topic ... --size 100 --codec none --count 300000`
prints JSON.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.bare_fetch import MEBIBYTE, fetch_bare, fetch_warm
from benchmarks.timed_work import Figures, run_one

PER_CALL = 500
WARM_UP = 4  # as much less is read before the clock runs
ROWS = 100_000  # in a table at most
STALLED_BYTES = 16 * MEBIBYTE


def _reader(servers: str, **options: Any) -> Any:
    """Return a consumer of ours that has met the cluster."""
    from pyclient import Consumer

    return Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **options)


def _warmed(read: Callable[[int], None], count: int) -> Callable[[], None]:
    """Do a part of the work once, for connections, imports and memory. Return the work."""
    read(max(1, count // WARM_UP))
    return lambda: read(count)


def _begin(consumer: Any, topic: str) -> None:
    from pyclient import TopicPartition

    consumer.assign([])
    consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for(topic)])


def consume_pyclient(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    consumer = _reader(servers)

    def read(count: int) -> None:
        _begin(consumer, topic)
        seen = octets = 0
        while seen < count:
            for record in consumer.poll(timeout=10, max_records=PER_CALL):
                octets += len(record.value)
                seen += 1

    return _warmed(read, count)


def iterate_pyclient(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    consumer = _reader(servers)

    def read(count: int) -> None:
        _begin(consumer, topic)
        octets = 0
        for record in islice(consumer, count):
            octets += len(record.value)

    return _warmed(read, count)


def columns_pyclient(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    import pyclient.records.arrow

    consumer = _reader(servers, max_poll_records=ROWS)
    pyclient.records.arrow.schema()  # imports pyarrow, as the others import what they need before the clock runs

    def read(count: int) -> None:
        _begin(consumer, topic)
        seen = octets = 0
        while seen < count:
            table = consumer.poll(timeout=10).to_arrow()
            octets += table.nbytes
            seen += table.num_rows

    return _warmed(read, count)


def stall_pyclient(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], Figures]:
    """Return a run of a user that stops polling: how far the process grows while the consumer fetches ahead."""
    consumer = _reader(servers, fetch_max_bytes=STALLED_BYTES)

    def run() -> Figures:
        before = _resident()
        _begin(consumer, topic)
        consumer.poll(timeout=10, max_records=1)
        peak = buffered = 0
        quiet = 0
        while quiet < 10:
            time.sleep(0.1)
            held = consumer.health()["buffered_bytes"]
            quiet = quiet + 1 if held == buffered else 0
            peak, buffered = max(peak, _resident()), held
        return {"grown": peak - before, "bound": STALLED_BYTES + 32 * MEBIBYTE, "buffered": buffered}

    return run


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


NO_REST = {"fetch.queue.backoff.ms": 10}
"""For confluent-kafka, which otherwise pauses fetching for a second when 100,000 records are buffered."""
NO_WAIT = {"fetch.wait.max.ms": 10}
"""For confluent-kafka: a fetch that waits at a log's end delays newly assigned partitions by half a second."""


def confluent(servers: str, more: Mapping[str, Any] | None = None) -> Any:
    """Return confluent-kafka's consumer, with `more` settings."""
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            **(more or {}),
        }
    )


def begin_confluent(consumer: Any, topic: str) -> None:
    """Assign all partitions to the consumer, from the beginning."""
    from confluent_kafka import TopicPartition

    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])


def consume_confluent(
    servers: str, topic: str, size: int, codec: str, count: int, *, more: Mapping[str, Any] | None = None
) -> Callable[[], None]:
    consumer = confluent(servers, more)

    def read(count: int) -> None:
        begin_confluent(consumer, topic)
        seen = octets = 0
        while seen < count:
            for message in consumer.consume(min(PER_CALL, count - seen), timeout=10):  # it waits for as many as it may
                octets += len(message.value())
                seen += 1

    return _warmed(read, count)


def poll_confluent(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    consumer = confluent(servers)

    def read(count: int) -> None:
        begin_confluent(consumer, topic)
        seen = octets = 0
        while seen < count:
            message = consumer.poll(10)
            octets += len(message.value())
            seen += 1

    return _warmed(read, count)


def consume_kafka_python(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")

    def read(count: int) -> None:
        consumer.assign([TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)])
        consumer.seek_to_beginning()
        seen = octets = 0
        while seen < count:
            for records in consumer.poll(timeout_ms=10_000, max_records=PER_CALL).values():
                for record in records:
                    octets += len(record.value)
                    seen += 1

    return _warmed(read, count)


def consume_aiokafka(servers: str, topic: str, size: int, codec: str, count: int) -> Callable[[], None]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    loop = asyncio.new_event_loop()

    async def start() -> Any:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        await consumer.start()
        return consumer

    consumer = loop.run_until_complete(start())

    async def read(count: int) -> None:
        await consumer._client.force_metadata_update()
        partitions = consumer._client.cluster.partitions_for_topic(topic)
        if partitions is None:
            consumer._client.set_topics([topic])
            await consumer._client.force_metadata_update()
            partitions = consumer._client.cluster.partitions_for_topic(topic)
        consumer.assign([TopicPartition(topic, number) for number in partitions])
        await consumer.seek_to_beginning()
        seen = octets = 0
        while seen < count:
            found = await consumer.getmany(timeout_ms=10_000, max_records=PER_CALL)
            for records in found.values():
                for record in records:
                    octets += len(record.value)
                    seen += 1

    return _warmed(lambda count: loop.run_until_complete(read(count)), count)


CLIENTS = {
    "pyclient": consume_pyclient,
    "pyclient, iterated": iterate_pyclient,
    "pyclient, to_arrow": columns_pyclient,
    "pyclient, stalled": stall_pyclient,
    "bare socket": fetch_bare,
    "bare socket, warm": fetch_warm,
    "confluent-kafka": consume_confluent,
    "confluent-kafka, no rests": partial(consume_confluent, more=NO_REST | NO_WAIT),
    "confluent-kafka, poll": poll_confluent,
    "kafka-python": consume_kafka_python,
    "aiokafka": consume_aiokafka,
}

if __name__ == "__main__":
    run_one(CLIENTS)
