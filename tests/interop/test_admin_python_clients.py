"""The admin clients of kafka-python and aiokafka work with our broker as with Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiokafka"),
]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[Any]:
    from kafka import KafkaAdminClient

    client = KafkaAdminClient(bootstrap_servers=servers)
    yield client
    client.close()


def produce(servers: str, topic: str, count: int) -> None:
    with Producer(servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def test_kafka_python_detects_newest_kafka_version(admin: Any) -> None:
    assert admin.get_broker_version_data(1).broker_version == (4, 3)


def test_kafka_python_creates_and_describes_topics(admin: Any, servers: str) -> None:
    from kafka.admin import NewTopic

    admin.create_topics([NewTopic("kp", 2, 1, topic_configs={"retention.ms": "5000"})])
    assert "kp" in admin.list_topics()
    [topic] = admin.describe_topics(["kp"])
    assert len(topic["partitions"]) == 2
    admin.create_partitions({"kp": 3})
    assert len(admin.describe_topics(["kp"])[0]["partitions"]) == 3
    produce(servers, "kp", 3)
    assert admin.describe_cluster()["controller_id"] == 1
    admin.delete_topics(["kp"])
    assert "kp" not in admin.list_topics()


def test_kafka_python_alters_and_describes_options(admin: Any) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

    admin.create_topics([NewTopic("kp-options", 1, 1)])
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "kp-options", {"retention.ms": "7000"})])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "kp-options")])
    assert "7000" in repr(described)
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, "kp-options", {"retention.ms": None})])
    described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "kp-options")])
    assert "7000" not in repr(described)
    assert "kp-options" in repr(admin.list_config_resources())


def test_kafka_python_describes_broker(admin: Any, servers: str) -> None:
    from kafka import TopicPartition
    from kafka.admin import NewTopic

    admin.create_topics([NewTopic("kp-looked-at", 1, 1)])
    at = TopicPartition("kp-looked-at", 0)
    produce(servers, "kp-looked-at", 3)
    assert "kp-looked-at" in repr(admin.describe_log_dirs())
    assert "leader_id" in repr(admin.describe_metadata_quorum())
    assert "producer_id" in repr(admin.describe_producers([at]))
    assert "kp-looked-at" in repr(admin.describe_topic_partitions(["kp-looked-at"]))
    assert "group.version" in repr(admin.describe_features())
    assert not admin.list_partition_reassignments()
    assert "2" in repr(admin.delete_records({at: 2}))


def test_aiokafka_admin_supports_its_calls(servers: str) -> None:
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    async def use() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic("aio", 1, 1, topic_configs={"retention.ms": "5000"})])
            await admin.create_partitions({"aio": NewPartitions(3)})
            [topic] = await admin.describe_topics(["aio"])
            assert len(topic["partitions"]) == 3
            resource = ConfigResource(ConfigResourceType.TOPIC, "aio", configs={"segment.ms": "7000"})
            await admin.alter_configs([resource])
            [answer] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "aio")])
            values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
            assert (values["segment.ms"], values["retention.ms"]) == ("7000", "604800000")
            await asyncio.to_thread(produce, servers, "aio", 4)
            deleted = await admin.delete_records({TopicPartition("aio", 0): RecordsToDelete(before_offset=2)})
            assert deleted == {TopicPartition("aio", 0): 2}
            assert (await admin.describe_cluster())["controller_id"] == 1
            assert await admin.list_consumer_groups() == []
            await admin.delete_topics(["aio"])
            assert "aio" not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(use())
