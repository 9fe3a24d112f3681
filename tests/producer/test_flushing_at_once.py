"""`flush` with little time or none: it needs no time if all is complete, and else raises `KafkaTimeout`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pyclient import Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.producer import thread_runner
from tests.producer.network import HOLD, PASS, PRODUCE, FaultyNetwork
from tests.producer.parts import client_of
from tests.waiting import PATIENCE, until

LATER = {"linger_ms": 60_000, "delivery_timeout_ms": 200_000}


@pytest.mark.parametrize("timeout", [0, 0.0])
def test_flush_with_timeout_0_returns_if_nothing_is_pending(make: Any, topic: str, timeout: float) -> None:
    client = make(**LATER)
    client.flush(timeout)
    future = client.send(topic, b"x", partition=0)
    client.flush()
    client.flush(timeout)
    assert client.result(future).partition == 0


def test_flush_with_timeout_0_returns_if_all_callbacks_have_run(
    make: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_runner, "GRACE_SECONDS", PATIENCE)  # a busy machine may be slow to run an idle thread
    client = make(**LATER)
    called: list[Any] = []
    future = client.send(topic, b"x", partition=0, on_delivery=called.append)
    client.flush()
    for _ in range(10):
        client.flush(0)
    assert called == [future]


def test_flush_with_timeout_0_raises_while_a_callback_runs(cluster: EmbeddedCluster, topic: str) -> None:
    entered, go_on = threading.Event(), threading.Event()
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        future = producer.send(topic, b"x", partition=0, on_delivery=lambda _: (entered.set(), go_on.wait(PATIENCE)))
        try:
            assert entered.wait(PATIENCE)
            until(lambda: not client_of(producer).context.unnotified)
            with pytest.raises(errors.KafkaTimeout, match="callbacks took longer than 0 s"):
                producer.flush(0)
        finally:
            go_on.set()
        producer.flush(PATIENCE)
        assert future.done()


def test_flush_with_timeout_0_raises_and_still_sends_pending_records(
    make: Any, topic: str, network: FaultyNetwork
) -> None:
    client = make(**LATER)
    client.send(topic, b"first", partition=0)
    client.flush()
    network.response = lambda api: HOLD if api == PRODUCE else PASS
    future = client.send(topic, b"x", partition=0)
    with pytest.raises(errors.KafkaTimeout, match="1 batch was not confirmed within 0 s"):
        client.flush(0)
    network.release()
    assert client.result(future).offset == 1


def test_flush_with_timeout_0_raises_unobserved_failures(make: Any, topic: str) -> None:
    client = make(**LATER)
    future = client.send(topic, b"x", partition=0)
    client.purge()
    with pytest.raises(errors.DeliveryFailed, match="1 record"):
        client.flush(0)
    assert isinstance(client.exception(future), errors.ClosedError)
