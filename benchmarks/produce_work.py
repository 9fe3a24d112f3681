"""One client produces, in a process of its own so that its CPU time is its own.

`python -m benchmarks.produce_work pyclient --servers ... --topic ... --size 100 --codec none --count 300000`
prints JSON.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.producers import confirmations, confluent, ours
from benchmarks.timed_work import BATCH_BYTES, LINGER_MS, Figures, arguments, report, timed, values

Produce = Callable[[int], Figures | None]
"""Sends a number of records and confirms each; may return further figures."""
PrepareProduce = Callable[[str, str, int, str], Produce]
"""Takes servers, topic, size and codec, connects, and returns the work to measure."""
_LARGE_BUFFER = 256 * 1024 * 1024


def run_produce(clients: Mapping[str, PrepareProduce]) -> None:
    """Do the work that the command line names, and print its figures as JSON.

    `--warm N` sends N records first: memory is touched, code is specialised, connections have their buffers.
    """
    parser = arguments(clients)
    parser.add_argument("--warm", type=int, default=0)
    given = parser.parse_args()
    produce = clients[given.client](given.servers, given.topic, given.size, given.codec)
    if given.warm:
        produce(given.warm)
    report(timed(lambda: produce(given.count)))


def produce_pyclient(servers: str, topic: str, size: int, codec: str, **options: Any) -> Produce:
    producer = ours(servers, topic, codec, **options)
    payload = values(size)

    def run(count: int) -> None:
        send = producer.send
        futures = [send(topic, payload[n % 1000]) for n in range(count)]
        producer.flush(120)
        for future in futures:
            if future.exception(0) is not None:
                raise RuntimeError("a record was not delivered")

    return run


def produce_confluent(servers: str, topic: str, size: int, codec: str, **options: Any) -> Produce:
    delivered, confirmed = confirmations()
    more = {"queue.buffering.max.messages": 1_000_000, **options}
    producer = confluent(servers, topic, codec, on_delivery=delivered, more=more)
    payload = values(size)

    def run(count: int) -> None:
        before = confirmed()
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
        if producer.flush(120) or confirmed() - before != count:
            raise RuntimeError(f"{confirmed() - before} of {count} records confirmed")

    return run


def produce_kafka_python(servers: str, topic: str, size: int, codec: str) -> Produce:
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

    def run(count: int) -> None:
        futures = [producer.send(topic, payload[n % 1000]) for n in range(count)]
        producer.flush(120)
        for future in futures:
            future.get(1)

    return run


def produce_aiokafka(servers: str, topic: str, size: int, codec: str) -> Produce:
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

    async def work(count: int) -> None:
        futures = [await producer.send(topic, payload[n % 1000]) for n in range(count)]
        await producer.flush()
        for future in futures:
            future.result()

    return lambda count: loop.run_until_complete(work(count))


def produce_pyclient_async(servers: str, topic: str, size: int, codec: str) -> Produce:
    from pyclient import AsyncProducer

    loop = asyncio.new_event_loop()
    payload = values(size)

    async def start() -> AsyncProducer:
        producer = AsyncProducer(servers, compression_type=codec, linger_ms=LINGER_MS, batch_size=BATCH_BYTES)
        await (await producer.send(topic, b"warm up"))
        return producer

    producer = loop.run_until_complete(start())

    async def work(count: int) -> None:
        futures = [await producer.send(topic, payload[n % 1000]) for n in range(count)]
        await producer.flush()
        for future in futures:
            future.result(0)

    return lambda count: loop.run_until_complete(work(count))


CLIENTS = {
    "pyclient": produce_pyclient,
    "pyclient async": produce_pyclient_async,
    "confluent-kafka": produce_confluent,
    "kafka-python": produce_kafka_python,
    "aiokafka": produce_aiokafka,
    "pyclient, 256 MB": partial(produce_pyclient, buffer_memory=_LARGE_BUFFER),
    "confluent-kafka, 256 MB": partial(produce_confluent, **{"queue.buffering.max.kbytes": _LARGE_BUFFER // 1024}),
}

if __name__ == "__main__":
    run_produce(CLIENTS)
