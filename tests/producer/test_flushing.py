"""`flush` returns after futures are complete and callbacks have run."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.producer.callbacks import CallbackThread
from tests.producer.parts import client_of, waiters_of
from tests.waiting import until

BATCHED, AT_ONCE = 5, 0


@pytest.mark.parametrize("linger_ms", [BATCHED, AT_ONCE])
def test_flush_waits_for_deliveries_not_yet_notified(
    cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch, linger_ms: int
) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=linger_ms) as producer:
        context, submit = client_of(producer).context, CallbackThread.submit
        for _ in range(3):  # with linger 0, the last one of these finds the producer idle
            producer.send(topic, b"first", partition=0).result(60)
        called: list[Any] = []
        seen: list[bool] = []
        go_on = threading.Event()

        def slow(self: CallbackThread, calls: list[Any]) -> None:
            go_on.wait(60)
            submit(self, calls)

        def flush() -> None:
            producer.flush(60)
            seen.append(called == [future])

        monkeypatch.setattr(CallbackThread, "submit", slow)
        future = producer.send(topic, b"x", partition=0, on_delivery=called.append)
        until(lambda: future.done())  # its waiters are not notified yet: the callback is not queued
        waiting = threading.Thread(target=flush)
        waiting.start()
        try:
            until(lambda: waiters_of(context) or not waiting.is_alive())
        finally:
            go_on.set()
            waiting.join(60)
        assert seen == [True] and not context.unnotified
