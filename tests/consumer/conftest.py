"""One broker for this folder, and consumers of both APIs, sync and async.

It is an embedded one, or with PYCLIENT_TEST_BOOTSTRAP=host:port the one that listens there: the tests of reading,
groups and commits are then run against a real Kafka as they are.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import consumers

__all__ = ["consumers"]

settings.register_profile("consumer", max_examples=50)
settings.load_profile("consumer")

Produce = Callable[..., None]


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    address = os.environ.get("PYCLIENT_TEST_BOOTSTRAP")
    if address:
        yield SimpleNamespace(bootstrap_servers=address)
        return
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def admin(cluster: EmbeddedCluster) -> Iterator[Admin]:
    with Admin(cluster.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(scope="package")
def producer(cluster: EmbeddedCluster) -> Iterator[Producer]:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        yield producer


@pytest.fixture
def new_topic(admin: Admin) -> Callable[..., str]:
    """Return `new_topic(partitions)`, which creates a topic and returns its name."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(name, partitions=partitions, configs=configs)])
        return name

    return make


@pytest.fixture
def produce(producer: Producer) -> Produce:
    """Return `produce(topic, *values, partition=0)`, which returns when the values are delivered."""

    def send(topic: str, *values: bytes, partition: int = 0, timestamp_ms: int | None = None) -> None:
        for value in values:
            producer.send(topic, value, partition=partition, timestamp_ms=timestamp_ms)
        producer.flush()

    return send
