"""DirectSend: with nothing else in flight, the calling thread writes the record."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.waiting import until


def at_rest(producer: Producer) -> bool:
    """Return True if the sender's loop is idle, so that a record may be sent directly."""
    core = producer._core
    with core.lock:
        return not core.loop.scheduled and not core.sender.total_in_flight


@contextmanager
def busy_sender(producer: Producer) -> Iterator[None]:
    """Block the idle sender's thread until the end of the block."""
    until(lambda: at_rest(producer))
    busy, go_on = threading.Event(), threading.Event()
    producer._engine.thread.call_soon(lambda: (busy.set(), go_on.wait(60)))
    try:
        assert busy.wait(60)
        yield
    finally:
        go_on.set()


@pytest.mark.parametrize("options", [{}, {"compression_type": "lz4"}, {"batch_size": 0}, {"enable_idempotence": False}])
def test_direct_send_reaches_the_log_while_the_senders_thread_is_busy(
    cluster: EmbeddedCluster, topic: str, log: Callable[[], dict[int, list[Any]]], options: dict[str, Any]
) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0, **options) as producer:
        producer.send(topic, b"first", partition=0).result(60)
        with busy_sender(producer):
            second = producer.send(topic, b"second", key=b"k", headers={"h": b"v"}, partition=0)
            third = producer.send(topic, b"third", partition=0)  # another is in flight: the sender takes it
            until(lambda: len(log()[0]) == 2)
            assert not second.done() and not third.done()
        assert [second.result(60).offset, third.result(60).offset] == [1, 2]
        metrics = producer.metrics()
        assert (metrics["records_delivered"], metrics["requests"], metrics["buffer_bytes_used"]) == (3, 3, 0)
    assert [(record.key, record.value) for record in log()[0]] == [
        (None, b"first"),
        (b"k", b"second"),
        (None, b"third"),
    ]


@pytest.mark.parametrize("options", [{"linger_ms": 5}, {"linger_ms": 0, "acks": 0}])
def test_records_with_linger_or_acks_0_are_not_sent_directly(
    cluster: EmbeddedCluster, topic: str, options: dict[str, Any]
) -> None:
    with Producer(cluster.bootstrap_servers, **options) as producer:
        producer.send(topic, b"first", partition=0).result(60)
        with busy_sender(producer):
            second = producer.send(topic, b"second", partition=0)
            assert producer.metrics()["requests"] == 1
        second.result(60)


def test_records_one_by_one_move_on_from_partition_to_partition(
    cluster: EmbeddedCluster, topic: str, log: Callable[[], dict[int, list[Any]]]
) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=1000) as producer:
        for number in range(60):
            producer.send(topic, b"%2d" % number * 50).result(60)
    found = log()
    assert sum(map(len, found.values())) == 60
    assert sum(bool(records) for records in found.values()) > 1
    for records in found.values():
        values = [record.value for record in records]
        assert values == sorted(values)


def test_direct_send_is_not_used_after_the_brokers_version_changed(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        producer.send(topic, b"first", partition=0).result(60)
        queue = producer._core.topics[topic].queues[0]
        lone = queue.lone
        assert lone is not None
        with busy_sender(producer):
            lone.version -= 1  # as if the connection was a new one, to a broker that was upgraded
            second = producer.send(topic, b"second", headers={"not": b"on the lane"}, partition=0)
            assert producer.metrics()["requests"] == 1
        assert second.result(60).offset == 1
        assert queue.lone is not lone
