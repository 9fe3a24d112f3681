"""Guarantees of a producer while nodes of three, Kafka's or ours, hang, die, come back and are restarted in turn."""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyclient import errors
from pyclient.admin import NewTopic
from pyclient.cluster import connection_pool
from tests.kafka import topics
from tests.kafka.loads import BURST, PARTITIONS, PATIENCE, create, loads, read
from tests.kafka.three import KINDS, Three, three_nodes_of
from tests.kafka.topics import wait_until
from tests.producer.lost_answers import ONE_BATCH_A_RECORD, check_written_once
from tests.producer.network import FaultyNetwork
from tests.producer.producer_clients import CLIENTS

SESSION = 4.0  # seconds without a heartbeat after which the controller considers a node dead


@pytest.fixture(scope="module", params=KINDS)
def kafka(request: pytest.FixtureRequest) -> Iterator[Three]:
    """Three brokers that are also controllers; a test leaves them all running."""
    settings = {
        "min.insync.replicas": "2",
        "broker.session.timeout.ms": str(int(SESSION * 1000)),
        "broker.heartbeat.interval.ms": "500",
        "replica.lag.time.max.ms": "3000",
        "controlled.shutdown.retry.backoff.ms": "500",
    }
    with three_nodes_of(request.param, settings) as kafka:
        yield kafka


def leaders_of(kafka: Three, topic: str) -> list[int]:
    return topics.leaders_of(kafka.bootstrap_servers, topic)


@contextmanager
def frozen(kafka: Three, *nodes: int) -> Iterator[None]:
    """Freeze these nodes, with their connections open."""
    for node in nodes:
        kafka.pause(node)
    try:
        yield
    finally:
        for node in nodes:
            kafka.resume(node)


@pytest.mark.parametrize(("freeze", "thaw"), [(1.5 * SESSION, 0.5 * SESSION), (45.0, 20.0)], ids=["short", "long"])
def test_two_of_three_nodes_freezing_repeatedly_cause_no_gap_or_duplicate(
    kafka: Three, topic: str, freeze: float, thaw: float
) -> None:
    """Guarantee 4: no duplicate and no gap while 2 of 3 nodes freeze for longer than the request timeout and the
    session, thaw, and freeze again."""
    with loads(kafka, topic, request_timeout_ms=2000, delivery_timeout_ms=240_000) as running:
        for first in (1, 2, 3):
            with frozen(kafka, first, first % 3 + 1):
                time.sleep(freeze)  # the length of the fault
            time.sleep(thaw)  # and of the pause between two
    for load in running:
        load.check_all_delivered(kafka)


def test_leader_frozen_for_less_than_its_session_gets_every_batch_once(kafka: Three, topic: str) -> None:
    """Guarantee 4: the same leader thaws with the requests of given-up connections still in its sockets."""
    with loads(kafka, topic, request_timeout_ms=1000, delivery_timeout_ms=120_000) as running:
        for round_ in range(4):
            with frozen(kafka, leaders_of(kafka, running[0].topic)[round_ % PARTITIONS]):
                time.sleep(0.5 * SESSION)  # the length of the fault
            for load in running:
                load.wait_for(BURST)
    for load in running:
        load.check_all_delivered(kafka)


def test_batches_that_expire_while_leaders_freeze_are_never_duplicated(kafka: Three, topic: str) -> None:
    """Guarantees 3, 4 and 6: some records fail, and their futures still agree with the log."""
    failed = 0
    options: dict[str, Any] = {"request_timeout_ms": 600, "delivery_timeout_ms": 1500, "max_block_ms": 60_000}
    with loads(kafka, topic, may_fail=True, **options) as running:
        for round_ in range(4):
            with frozen(kafka, leaders_of(kafka, running[0].topic)[round_ % PARTITIONS]):
                time.sleep(0.6 * SESSION)  # the length of the fault
            for load in running:
                load.wait_for(BURST)
    for load in running:
        failed += load.check_outcomes_are_true(kafka)
    assert failed, "no record expired: the test tested nothing"


def test_killed_and_restarted_leader_leaves_no_gap_and_no_duplicate(kafka: Three, topic: str) -> None:
    """Guarantee 4: kill -9, another leader, the old one back, without an error to the caller."""
    with loads(kafka, topic, request_timeout_ms=2000, delivery_timeout_ms=120_000) as running:
        victim = leaders_of(kafka, running[0].topic)[0]
        kafka.kill(victim)
        wait_until(lambda: victim not in leaders_of(kafka, running[0].topic), f"node {victim} still leads")
        for load in running:
            load.wait_for()
        kafka.restart(victim)
        for load in running:
            load.wait_for()
    for load in running:
        load.check_all_delivered(kafka)


def test_a_rolling_restart_surfaces_no_error(
    kafka: Three, topic: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Guarantee 15: every node is stopped and started in turn under load; `send` and `flush` raise nothing and no
    future fails. The pauses between two confirmations are reported."""
    with loads(kafka, topic) as running:
        for node in (1, 2, 3):
            kafka.stop(node)
            for load in running:
                load.wait_for()
            kafka.restart(node)
            for load in running:
                load.wait_for()
    for load in running:
        load.check_all_delivered(kafka)
        stalls = f"{load.stalls}, among {len(load.sent)} records"
        record_testsuite_property(f"stalls of a producer over a rolling restart, {load.name}", stalls)


@pytest.mark.parametrize("make", CLIENTS, ids=lambda client: client.name)
@pytest.mark.parametrize("replicas", [1, 3])
def test_batches_with_lost_answers_are_written_once_over_a_rolling_restart(
    kafka: Three, topic: str, monkeypatch: pytest.MonkeyPatch, make: Any, replicas: int
) -> None:
    """Guarantee 4: a clean stop keeps one batch of a producer, and every possible leader was stopped cleanly."""
    topics.create(kafka.bootstrap_servers, NewTopic(topic, 1, replicas, configs={"min.insync.replicas": "1"}))
    nodes = leaders_of(kafka, topic) if replicas == 1 else [1, 2, 3]

    def restart() -> None:
        for node in nodes:
            kafka.stop(node)
            kafka.restart(node)
            wait_until(lambda: leaders_of(kafka, topic)[0] >= 0, f"{topic} has no leader")

    with monkeypatch.context() as patched:
        network = FaultyNetwork()
        patched.setattr(connection_pool, "TcpConnector", network.connector)
        options = ONE_BATCH_A_RECORD | {"delivery_timeout_ms": 400_000}  # three nodes restart on a busy machine
        client = make(kafka.bootstrap_servers, **options)
        try:
            check_written_once(client, network, topic, lambda: read(kafka, topic, 1)[0], restart, count=5)
        finally:
            client.end()


def checked(name: str, number: int) -> bytes:
    """Return a value of 600 bytes that names its topic and carries the CRC of the rest."""
    body = f"{name} {number} ".encode().ljust(590, b"%d" % (number % 10))
    return body + b" %08x" % zlib.crc32(body)


def is_whole(value: bytes, name: str) -> bool:
    body, _, crc = value.rpartition(b" ")
    return body.startswith(name.encode() + b" ") and int(crc, 16) == zlib.crc32(body)


@pytest.mark.parametrize("make", CLIENTS, ids=lambda client: client.name)
def test_pooled_buffer_is_not_reused_while_its_request_is_in_flight(kafka: Three, topic: str, make: Any) -> None:
    """Guarantee 1: the leader of A freezes past the delivery timeout while B takes records through a tiny pool; then it
    goes on, and every value of A and B carries its own topic's CRC, and the pool is full again."""
    a, b = f"{topic}-a", f"{topic}-b"
    create(kafka, a)
    create(kafka, b)
    frozen_node = leaders_of(kafka, a)[0]
    others = [number for number, leader in enumerate(leaders_of(kafka, b)) if leader != frozen_node]
    client = make(
        kafka.bootstrap_servers, batch_size=700, buffer_memory=8 * 700, linger_ms=0,
        request_timeout_ms=1000, delivery_timeout_ms=1000, max_block_ms=120_000, send_buffer_bytes=4096,
    )  # fmt: skip
    numbers = itertools.count()

    def send(name: str, partition: int) -> Any:
        return client.send(name, checked(name, next(numbers)), partition=partition)

    def wait_until_taken(name: str, partition: int) -> None:
        """Retry: the delivery timeout is short on purpose, and may be too short for a busy Kafka."""
        wait_until(
            lambda: not client.exception(send(name, partition), PATIENCE), f"{name}-{partition} accepts no record"
        )

    try:
        for name, partition in ((a, 0), *((b, other) for other in others)):
            wait_until_taken(name, partition)
        with frozen(kafka, frozen_node):
            stalled = [send(a, 0) for _ in range(4)]
            written = [send(b, others[number % len(others)]) for number in range(200)]
            timeouts = [client.exception(future, PATIENCE) for future in stalled]
            written += [send(b, others[0]) for _ in range(100)]
            assert all(isinstance(error, errors.DeliveryTimeout) for error in timeouts)
        for future in written:
            client.exception(future, PATIENCE)  # some wait for the frozen replica, and may run out of time
        wait_until(lambda: not client.health()["buffer_bytes_used"], "memory did not come back")
        wait_until_taken(a, 0)
    finally:
        client.end()
    for name in (a, b):
        for values in read(kafka, name).values():
            assert all(is_whole(value, name) for value in values)
            assert len(values) == len(set(values))


@pytest.mark.parametrize("make", CLIENTS, ids=lambda client: client.name)
def test_sequences_and_epochs_wrap_as_the_broker_expects(kafka: Three, topic: str, make: Any) -> None:
    """Guarantee 8: from sequence 2^31-3 and epoch 32766 on, over both ends, to a new producer id."""
    create(kafka, topic, 1)
    client = make(kafka.bootstrap_servers, linger_ms=0, batch_size=0)
    try:
        client.partitions_for(topic)
        wait_until(lambda: client.health()["producer_id"] >= 0, "no producer id")
        first_id = client.health()["producer_id"]
        client.producer_client.sender.producer_ids.epoch = 32_766
        sequence = client.producer_client.topics[topic].queues[0].sequence
        assert sequence.prepare(0, client.producer_client.sender.producer_ids, [])
        sequence.next = 2**31 - 3
        values = []
        for number in range(30):
            if number in (10, 20):  # as if the broker missed a number, so that a new epoch is needed
                with client.producer_client.lock:
                    sequence.mark_broken()
            values.append(b"%d" % number)
            assert client.result(client.send(topic, values[-1], partition=0)).offset == number
        assert sequence.producer_id != first_id and sequence.epoch < 100 and sequence.next == 10
    finally:
        client.end()
    assert read(kafka, topic, 1)[0] == values


@pytest.mark.parametrize("make", CLIENTS, ids=lambda client: client.name)
def test_recreated_topic_starts_with_new_sequences(kafka: Three, topic: str, make: Any) -> None:
    """Guarantee 17: no error, no stale sequence, and every offset is one of the new topic."""
    create(kafka, topic)
    client = make(kafka.bootstrap_servers, linger_ms=0, request_timeout_ms=5000)
    try:
        for number in range(5):
            client.result(client.send(topic, b"old %d" % number, partition=0))
        topics.delete(kafka.bootstrap_servers, topic)
        create(kafka, topic)
        futures = [client.send(topic, b"new %d" % number, partition=0) for number in range(50)]
        assert [client.result(future, PATIENCE).offset for future in futures] == list(range(50))
    finally:
        client.end()
    assert read(kafka, topic)[0] == [b"new %d" % number for number in range(50)]
