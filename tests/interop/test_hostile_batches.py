"""confluent-kafka reads every hostile batch that our broker accepted, each record once."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.append.cases import CASES, TOPICS
from tests.broker_embedded.append.replay import replay

PATIENCE = 60.0


def test_librdkafka_reads_all_accepted_batches() -> None:
    with EmbeddedCluster(profile="kafka") as cluster:
        accepted = {name for name, answer in replay(cluster.bootstrap_servers, CASES) if answer.code == 0}
        assert accepted
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "fetch.queue.backoff.ms": 0}
        consumer = Consumer(settings)
        try:
            read_all(consumer)
        finally:
            consumer.close()


def read_all(consumer: Consumer) -> None:
    """Read all topics and check that every offset arrives once, in order, with its headers."""
    places = [TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in TOPICS]
    ends = {at.topic: consumer.get_watermark_offsets(at, timeout=PATIENCE)[1] for at in places}
    consumer.assign(places)
    offsets: dict[str, list[int]] = {topic: [] for topic in TOPICS}
    deadline = time.monotonic() + PATIENCE
    while any(len(offsets[topic]) < end for topic, end in ends.items()):
        assert time.monotonic() < deadline, f"{ends}, read {offsets}"
        for message in consumer.consume(1000, 0.1):
            if message.error() is not None:
                pytest.fail(f"{message.topic()} after {offsets[message.topic()][-1:]}: {message.error()}")
            message.headers()
            offsets[message.topic()].append(message.offset())
    assert offsets == {topic: list(range(end)) for topic, end in ends.items()}
