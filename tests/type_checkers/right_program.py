"""A user's program without mistakes: read by mypy and pyright, never run."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, assert_type

from pyclient import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    BatchFuture,
    Consumer,
    DeliveryFuture,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    Record,
    RecordMetadata,
    Records,
    TopicPartition,
    errors,
    serialization,
)
from pyclient.broker_embedded import EmbeddedCluster


class Order:
    def __init__(self, data: bytes) -> None:
        self.number = int(data)


class OrderCodec:
    def serialize(self, order: Order) -> bytes:
        return str(order.number).encode()

    def deserialize(self, data: bytes) -> Order:
        return Order(data)


def delivered(future: DeliveryFuture) -> None:
    if future.exception() is None:
        print(future.result().offset)


def produce(servers: list[str], config: Mapping[str, Any]) -> None:
    with Producer(servers, acks="all", linger_ms=5, compression_type="lz4") as producer:
        assert_type(producer, Producer)
        future = producer.send("orders", b"1", key=b"k", headers={"trace": b"1"}, on_delivery=delivered)
        assert_type(future, DeliveryFuture)
        assert_type(future.result(timeout=10), RecordMetadata)
        assert_type(producer.send_many("orders", [b"1", b"2"]), BatchFuture)
        producer.flush(timeout=10)
    Producer("h:1", acks=1, security_protocol="SSL", key_serializer=serialization.string)
    Producer("h:1", key_serializer=str.encode, value_serializer=serialization.json, config=config)
    Producer("h:1", value_serializer=serialization.json.serialize, config={"linger.ms": "5"})
    Producer("h:1", value_serializer=OrderCodec(), request_timeout_ms=5_000)
    try:
        Producer(config=config).close()
    except errors.ConfigError as error:
        print(error)


def consume() -> None:
    strings = Consumer("orders", bootstrap_servers="h:1", group_id="g", value_deserializer=serialization.string)
    assert_type(strings, Consumer[bytes, str])
    for text in strings:
        assert_type(text, Record[bytes | None, str | None])
        assert_type(text.value, str | None)
    plain = Consumer("a", "b", bootstrap_servers="h:1", auto_offset_reset="earliest", isolation_level="read_committed")
    assert_type(plain, Consumer[bytes, bytes])
    assert_type(plain.poll(1.0), Records[bytes | None, bytes | None])
    plain.commit({TopicPartition("orders", 0): 5, TopicPartition("orders", 1): OffsetAndMetadata(6)})
    assert_type(plain.committed(), dict[TopicPartition, OffsetAndMetadata | None])
    plain.seek(TopicPartition("orders", 0), 5)
    orders = Consumer(bootstrap_servers="h:1", value_deserializer=Order, auto_offset_reset=timedelta(hours=1))
    assert_type(orders, Consumer[bytes, Order])
    assert_type(Consumer(bootstrap_servers="h:1", key_deserializer=OrderCodec()), Consumer[Order, bytes])
    orders.subscribe(re.compile("orders.*"))


async def async_clients() -> None:
    async with AsyncProducer("h:1", acks=0) as producer:
        assert_type(producer, AsyncProducer)
        assert_type(await (await producer.send("orders", b"1")), RecordMetadata)
    async with AsyncConsumer("orders", bootstrap_servers="h:1", value_deserializer=Order) as consumer:
        assert_type((await consumer.poll())[0].value, Order | None)
        async for record in consumer:
            assert_type(record.value, Order | None)
    async with AsyncAdmin("h:1") as admin:
        await admin.create_topics([NewTopic("orders", 3)])


def administer() -> None:
    with EmbeddedCluster(brokers=3) as cluster, Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 3, configs={"retention.ms": "1000"})])
        assert_type(admin.list_group_offsets("g"), dict[TopicPartition, OffsetAndMetadata])
