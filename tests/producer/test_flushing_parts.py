"""A batch that is split while `flush` waits for it: `flush` waits for the parts, too."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pyclient import Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.producer.parts import client_of, runner_of, waiters_of
from tests.waiting import PATIENCE, until


def test_late_flush_waits_for_the_callbacks_of_the_last_part(
    cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send(topic, b"first", partition=0)
        producer.flush(PATIENCE)
        client, callbacks = client_of(producer), runner_of(producer).callbacks
        begin, submit = client.begin_flush, callbacks.submit
        called: list[Any] = []
        seen: list[list[Any]] = []
        go_on = threading.Event()
        futures = [producer.send(topic, b"x", partition=0, on_delivery=called.append) for _ in range(2)]

        def all_known() -> bool:
            return all(future.done() for future in futures)

        def begin_and_sleep() -> Any:
            """Block the flushing thread until every part has its outcome."""
            deliveries = begin()
            until(all_known)
            return deliveries

        def late(calls: Any) -> None:
            """Block the loop's thread between the last part's outcome and its callbacks."""
            if all_known():
                go_on.wait(PATIENCE)
            submit(calls)

        def flush() -> None:
            producer.flush(PATIENCE)
            seen.append(list(called))

        monkeypatch.setattr(client, "begin_flush", begin_and_sleep)
        monkeypatch.setattr(callbacks, "submit", late)
        flushing = threading.Thread(target=flush)
        with cluster.faults.fail("Produce", errors.MessageTooLarge, topic=topic, times=1):
            flushing.start()
            try:
                until(lambda: waiters_of(client.context) or not flushing.is_alive())
            finally:
                go_on.set()
                flushing.join(PATIENCE)
        assert seen == [futures] and producer.metrics()["batches_split"] == 1
        monkeypatch.undo()


def test_callbacks_of_all_parts_have_run_when_flush_returns(make: Any, cluster: EmbeddedCluster, topic: str) -> None:
    client = make(linger_ms=60_000)
    client.send(topic, b"first", partition=0)
    client.flush()
    called: list[Any] = []
    futures = [client.send(topic, b"x", partition=0, on_delivery=called.append) for _ in range(8)]
    with cluster.faults.fail("Produce", errors.MessageTooLarge, topic=topic, times=3):
        client.flush()
        assert called == futures
    assert client.metrics()["batches_split"] == 3
