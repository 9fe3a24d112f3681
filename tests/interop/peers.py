"""Four clients with one interface, so that every test can use each of them in either role."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Message(NamedTuple):
    """The fields of a record that every client must preserve."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


class Peer(Protocol):
    """One client library."""

    name: str

    def produce(self, servers: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        """Write to partition 0, in order, confirmed."""

    def consume(self, servers: str, topic: str, count: int) -> list[Message]:
        """Read partition 0 from its beginning without a group."""

    def read_in_group(self, servers: str, topic: str, group: str, count: int) -> list[Message]:
        """Join the group, read `count` records, commit, leave."""

    def committed(self, servers: str, topic: str, group: str) -> int | None:
        """Return the group's committed offset of partition 0."""


class Pyclient:
    name = "pyclient"

    def produce(self, servers: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        from pyclient import Producer

        with Producer(servers, compression_type=codec, linger_ms=20) as producer:
            for m in messages:
                producer.send(topic, m.value, key=m.key, headers=m.headers, timestamp_ms=m.timestamp_ms, partition=0)
            producer.flush()

    def consume(self, servers: str, topic: str, count: int) -> list[Message]:
        from pyclient import Consumer, TopicPartition

        with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            return self._take(consumer, count)

    def read_in_group(self, servers: str, topic: str, group: str, count: int) -> list[Message]:
        from pyclient import Consumer

        options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        with Consumer(topic, bootstrap_servers=servers, group_id=group, **options) as consumer:
            messages = self._take(consumer, count)
            consumer.commit()
        return messages

    def committed(self, servers: str, topic: str, group: str) -> int | None:
        from pyclient import Consumer, TopicPartition

        with Consumer(bootstrap_servers=servers, group_id=group) as consumer:
            found = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        return None if found is None else found.offset

    @staticmethod
    def _take(consumer: Any, count: int) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < count:
            records = consumer.poll(timeout=60, max_records=count - len(messages))
            assert records, f"only {len(messages)} of {count} records came"
            messages += [Message(r.key, r.value, r.headers, r.timestamp_ms) for r in records]
        return messages


class Confluent:
    name = "confluent-kafka"

    def produce(self, servers: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        from confluent_kafka import Producer

        failed: list[Any] = []
        producer = Producer(
            {"bootstrap.servers": servers, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20}
        )
        for m in messages:
            producer.produce(
                topic,
                value=m.value,
                key=m.key,
                headers=list(m.headers),
                timestamp=m.timestamp_ms,
                partition=0,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(60) == 0
        assert not failed

    def consume(self, servers: str, topic: str, count: int) -> list[Message]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        try:
            return self._take(consumer, count)
        finally:
            consumer.close()

    def read_in_group(self, servers: str, topic: str, group: str, count: int) -> list[Message]:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        try:
            messages = self._take(consumer, count)
            consumer.commit(asynchronous=False)
            return messages
        finally:
            consumer.close()

    def committed(self, servers: str, topic: str, group: str) -> int | None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
        try:
            offset = consumer.committed([TopicPartition(topic, 0)], timeout=60)[0].offset
        finally:
            consumer.close()
        return None if offset < 0 else offset

    @staticmethod
    def _take(consumer: Any, count: int) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < count:
            found = consumer.consume(count - len(messages), timeout=60)
            assert found, f"only {len(messages)} of {count} records came"
            for m in found:
                assert m.error() is None, m.error()
                messages.append(Message(m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]))
        return messages


class KafkaPython:
    name = "kafka-python"

    def produce(self, servers: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        from kafka import KafkaProducer

        compression = None if codec == "none" else codec
        producer = KafkaProducer(bootstrap_servers=servers, compression_type=compression, linger_ms=20)
        try:
            futures = [producer.send(topic, m.value, m.key, list(m.headers), 0, m.timestamp_ms) for m in messages]
            for future in futures:
                future.get(60)
        finally:
            producer.close(5)

    def consume(self, servers: str, topic: str, count: int) -> list[Message]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        try:
            consumer.assign([TopicPartition(topic, 0)])
            return self._take(consumer, count)
        finally:
            consumer.close()

    def read_in_group(self, servers: str, topic: str, group: str, count: int) -> list[Message]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        try:
            messages = self._take(consumer, count)
            consumer.commit()
            return messages
        finally:
            consumer.close()

    def committed(self, servers: str, topic: str, group: str) -> int | None:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group)
        try:
            offset: int | None = consumer.committed(TopicPartition(topic, 0))
            return offset
        finally:
            consumer.close()

    @staticmethod
    def _take(consumer: Any, count: int) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < count:
            found = consumer.poll(timeout_ms=60_000, max_records=count - len(messages))
            assert found, f"only {len(messages)} of {count} records came"
            for records in found.values():
                messages += [Message(r.key, r.value, tuple(map(tuple, r.headers)), r.timestamp) for r in records]
        return messages


class Aiokafka:
    name = "aiokafka"

    def produce(self, servers: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        from aiokafka import AIOKafkaProducer

        async def run() -> None:
            compression = None if codec == "none" else codec
            async with AIOKafkaProducer(
                bootstrap_servers=servers, compression_type=compression, linger_ms=20, enable_idempotence=True
            ) as producer:
                futures = [
                    await producer.send(topic, m.value, m.key, 0, m.timestamp_ms, list(m.headers)) for m in messages
                ]
                await asyncio.gather(*futures)

        asyncio.run(run())

    def consume(self, servers: str, topic: str, count: int) -> list[Message]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def run() -> list[Message]:
            consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
            consumer.assign([TopicPartition(topic, 0)])
            async with consumer:
                return await self._take(consumer, count)

        return asyncio.run(run())

    def read_in_group(self, servers: str, topic: str, group: str, count: int) -> list[Message]:
        from aiokafka import AIOKafkaConsumer

        async def run() -> list[Message]:
            async with AIOKafkaConsumer(
                topic,
                bootstrap_servers=servers,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer:
                messages = await self._take(consumer, count)
                await consumer.commit()
                return messages

        return asyncio.run(run())

    def committed(self, servers: str, topic: str, group: str) -> int | None:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async def run() -> int | None:
            async with AIOKafkaConsumer(
                bootstrap_servers=servers, group_id=group, enable_auto_commit=False
            ) as consumer:
                offset: int | None = await consumer.committed(TopicPartition(topic, 0))
                return offset

        return asyncio.run(run())

    @staticmethod
    async def _take(consumer: Any, count: int) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < count:
            found = await consumer.getmany(timeout_ms=60_000, max_records=count - len(messages))
            if not found:
                raise AssertionError(f"only {len(messages)} of {count} records came; {await _state(consumer)}")
            for records in found.values():
                messages += [Message(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        return messages


async def _state(consumer: Any) -> str:
    """Return what a consumer of aiokafka knows of its partitions: whether ListOffsets and Fetch were answered."""
    found = []
    for partition in sorted(consumer.assignment()):
        try:
            position = await asyncio.wait_for(consumer.position(partition), 1)
        except TimeoutError:
            position = None
        found.append(f"{partition}: position {position}, high watermark {consumer.highwater(partition)}")
    return "; ".join(found) or "no partition is assigned"


@contextmanager
def _sockets_collected() -> Iterator[None]:
    """Collect the sockets that another client leaves open, so that their warnings fail no other test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


class LeavesSockets:
    """A client that does not close all of its sockets; nothing in the tests depends on that."""

    def __init__(self, peer: Peer) -> None:
        self.name = peer.name
        self._peer = peer

    def produce(self, servers: str, topic: str, codec: str, messages: Sequence[Message]) -> None:
        with _sockets_collected():
            self._peer.produce(servers, topic, codec, messages)

    def consume(self, servers: str, topic: str, count: int) -> list[Message]:
        with _sockets_collected():
            return self._peer.consume(servers, topic, count)

    def read_in_group(self, servers: str, topic: str, group: str, count: int) -> list[Message]:
        with _sockets_collected():
            return self._peer.read_in_group(servers, topic, group, count)

    def committed(self, servers: str, topic: str, group: str) -> int | None:
        with _sockets_collected():
            return self._peer.committed(servers, topic, group)


PEERS: tuple[Peer, ...] = (Pyclient(), Confluent(), LeavesSockets(KafkaPython()), LeavesSockets(Aiokafka()))
