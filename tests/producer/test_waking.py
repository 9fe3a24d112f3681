"""`send` wakes the sender's loop for a batch, not for a record."""

from __future__ import annotations

from typing import Any

import pytest

from tests.producer.producer_clients import SyncClient
from tests.waiting import until

RECORDS = 1000


@pytest.fixture
def waking(cluster: Any, topic: str) -> Any:
    """Return a producer whose batches linger, and a count of its loop's wake-ups."""
    client = SyncClient(cluster.bootstrap_servers, linger_ms=60_000, batch_size=100_000)
    wakes: list[None] = []
    wake = client.producer_client.loop.wake
    try:
        client.send(topic, b"first", partition=0)
        client.flush()

        def counted() -> None:
            wakes.append(None)
            wake()

        client.producer_client.loop.wake = counted
        yield client, wakes
    finally:
        client.end()


def test_records_appended_to_a_batch_do_not_wake_the_loop(waking: Any, topic: str) -> None:
    client, wakes = waking
    client.send(topic, b"begins a batch, whose linger the loop is to know of", partition=0)
    begun = len(wakes)
    assert begun <= 1
    for _ in range(RECORDS):
        client.send(topic, b"x" * 50, partition=0)
    assert len(wakes) == begun
    client.flush()
    assert client.metrics()["records_delivered"] == RECORDS + 2


def test_full_batch_of_the_former_sticky_partition_is_sent_at_once(waking: Any, topic: str) -> None:
    client, _ = waking
    for partition in range(3):  # the loop knows when the linger of each is over
        client.send(topic, b"begins a batch", partition=partition)
    sent = [client.send(topic, bytes(10_000))]
    while sent[-1].partition == sent[0].partition:
        until(lambda: not client.producer_client.loop.scheduled)  # it has done what it was woken for
        sent.append(client.send(topic, bytes(10_000)))
    assert client.result(sent[-2], 20).offset >= 1
    client.flush()


def test_a_full_batch_wakes_the_loop_before_its_linger_is_over(waking: Any, topic: str) -> None:
    client, wakes = waking
    sent = [client.send(topic, b"x" * 1000, partition=0) for _ in range(150)]
    assert 1 <= len(wakes) <= 4  # two batches begun, one of them full
    assert client.result(sent[0]).offset == 1
    assert not sent[-1].done()
    client.flush()
