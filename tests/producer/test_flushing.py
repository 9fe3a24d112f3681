"""When `flush` returns, everything is told: futures know their outcome, and callbacks have run."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.producer.test_direct import until

BATCHED, AT_ONCE = 5, 0


@pytest.mark.parametrize("linger_ms", [BATCHED, AT_ONCE])
def test_a_flush_waits_for_what_is_decided_and_not_yet_told(
    cluster: EmbeddedCluster, topic: str, linger_ms: int
) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=linger_ms) as producer:
        desk, incomplete = producer._core.desk, producer._core.accumulator.incomplete
        for _ in range(3):  # with linger 0, the last one of these finds everything at rest
            producer.send(topic, b"first", partition=0).result(60)
        called: list[Any] = []
        seen: list[bool] = []

        def flush() -> None:
            producer.flush(60)
            seen.append(future.done() and called == [future])

        future = producer.send(topic, b"x", partition=0, on_delivery=called.append)
        with desk.lock:  # as of somebody who begins to wait: nobody can be told
            until(lambda: not incomplete and bool(desk.untold))
            assert not future.done()
            waiting = threading.Thread(target=flush)
            waiting.start()
            waiting.join(0.1)  # long enough to return at once
            assert waiting.is_alive()
        waiting.join(60)
        assert seen == [True] and not desk.untold
