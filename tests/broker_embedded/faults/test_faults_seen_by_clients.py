"""Each fault as whole clients see it: ours, confluent-kafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster

Send = Callable[..., Any]
PATIENT, IMPATIENT = 30_000, 3_000
"""Milliseconds that a client waits for an answer: aiokafka waits no longer to find the cluster either."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def no_faults(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[None]:
    for name in ("kafka", "aiokafka"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    yield
    cluster.faults.clear()


def send_by_pyclient(bootstrap: str, topic: str, timeout_ms: int = PATIENT) -> int:
    options: dict[str, Any] = {"request_timeout_ms": timeout_ms, "retry_backoff_ms": 10, "delivery_timeout_ms": 60_000}
    with Producer(bootstrap, **options) as producer:
        return int(producer.send(topic, b"value", key=b"key").result(60).offset)


def send_by_confluent(bootstrap: str, topic: str, timeout_ms: int = PATIENT) -> int:
    from confluent_kafka import Producer as ConfluentProducer

    seen: list[Any] = []
    timeouts = {"socket.timeout.ms": timeout_ms, "request.timeout.ms": timeout_ms}
    options = {"retry.backoff.ms": 10, **timeouts, "log_level": 0}
    producer = ConfluentProducer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **options})
    producer.produce(topic, b"value", key=b"key", on_delivery=lambda error, message: seen.append((error, message)))
    producer.flush(60)
    [(error, message)] = seen
    assert error is None
    return int(message.offset())


def send_by_kafka_python(bootstrap: str, topic: str, timeout_ms: int = PATIENT) -> int:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        retries=10,
        retry_backoff_ms=10,
        request_timeout_ms=timeout_ms,
        delivery_timeout_ms=60_000,
        enable_idempotence=True,
    )
    try:
        return int(producer.send(topic, b"value", key=b"key").get(60).offset)
    finally:
        producer.close()


def send_by_aiokafka(bootstrap: str, topic: str, timeout_ms: int = PATIENT) -> int:
    from aiokafka import AIOKafkaProducer

    async def send() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, request_timeout_ms=timeout_ms, retry_backoff_ms=10, enable_idempotence=True
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait(topic, b"value", key=b"key")).offset)
        finally:
            await producer.stop()

    return asyncio.run(send())


CLIENTS = pytest.mark.parametrize(
    "send",
    [send_by_pyclient, send_by_confluent, send_by_kafka_python, send_by_aiokafka],
    ids=["pyclient", "confluent", "kafka-python", "aiokafka"],
)


@CLIENTS
@pytest.mark.parametrize(
    "break_it",
    [
        lambda faults, topic: faults.fail("Produce", errors.NotLeaderOrFollower, topic=topic, times=2),
        lambda faults, topic: faults.fail("Produce", errors.RequestTimedOut, topic=topic, when="after"),
        lambda faults, topic: faults.disconnect("Produce", topic=topic),
        lambda faults, topic: faults.disconnect("Produce", topic=topic, when="after"),
        lambda faults, topic: faults.delay("Produce", 0.05, topic=topic, when="after"),
    ],
    ids=["fail", "fail-after", "disconnect", "disconnect-after", "delay"],
)
def test_a_record_is_written_once_whatever_happens_to_its_request(
    cluster: EmbeddedCluster, send: Send, break_it: Any, request: pytest.FixtureRequest
) -> None:
    topic = f"t{abs(hash(request.node.nodeid))}"
    fault = break_it(cluster.faults, topic)
    assert send(cluster.bootstrap_servers, topic) == 0
    assert fault.over
    found = cluster.wait_topic(topic, records=1)["partitions"]
    assert sum(each["end_offset"] for each in found) == 1


@CLIENTS
def test_a_request_that_is_dropped_is_sent_again_on_another_connection(
    cluster: EmbeddedCluster, send: Send, request: pytest.FixtureRequest
) -> None:
    topic = f"t{abs(hash(request.node.nodeid))}"
    fault = cluster.faults.drop("Produce", topic=topic, when="after")
    with cluster.requests.start() as requests:
        assert send(cluster.bootstrap_servers, topic, IMPATIENT) == 0
        assert fault.hits() == 1
        assert len(requests.query("Produce", topic=topic)) >= 2
    assert cluster.wait_topic(topic, records=1)["partitions"][0]["end_offset"] == 1


@pytest.mark.parametrize("api", ["FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch", "ListOffsets", "Fetch"])
@pytest.mark.parametrize("kind", ["fail", "disconnect"])
def test_a_consumer_of_ours_gets_over_it(cluster: EmbeddedCluster, api: str, kind: str) -> None:
    topic, group = f"read-{api}-{kind}", f"g-{api}-{kind}"
    send_by_pyclient(cluster.bootstrap_servers, topic)
    code = errors.NotLeaderOrFollower if api in ("Fetch", "ListOffsets") else errors.NotCoordinator
    limit: Any = {"topic": topic} if api in ("Fetch", "ListOffsets") else {"group": group}
    fault = cluster.faults.fail(api, code, **limit) if kind == "fail" else cluster.faults.disconnect(api, **limit)
    with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        retry_backoff_ms=10,
    ) as consumer:
        records: list[Any] = []
        while not records:
            records = list(consumer.poll(timeout=30))
    assert [record.value for record in records] == [b"value"]
    assert fault.hits() == 1


def test_commit_that_fails_for_one_partition_raises(cluster: EmbeddedCluster) -> None:
    send_by_pyclient(cluster.bootstrap_servers, "committed")
    with Consumer(
        "committed",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="committing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        while not list(consumer.poll(timeout=30)):
            pass
        with cluster.faults.fail("OffsetCommit", errors.OffsetMetadataTooLarge, group="committing", partition=0):
            with pytest.raises(errors.OffsetMetadataTooLarge):
                consumer.commit()
            consumer.commit()
