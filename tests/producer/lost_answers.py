"""Batches that a broker writes and whose answers are lost, before every replica is restarted cleanly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.producer.network import CUT, DROP, PASS, PRODUCE, FaultyNetwork
from tests.producer.producer_clients import PATIENCE
from tests.waiting import until

ONE_BATCH_A_RECORD = {"batch_size": 0, "linger_ms": 0, "retry_backoff_ms": 20, "reconnect_backoff_ms": 10}
UNKNOWN = -1


def check_written_once(
    client: Any, network: FaultyNetwork, topic: str, values: Callable[[], list[bytes]], restart: Callable[[], object],
    *, count: int,
) -> None:  # fmt: skip
    """Send `count` batches to partition 0 whose answers are lost; `restart` all its replicas, then let it go on.

    `values` reads the partition's log. The snapshot of a clean stop has only the last batch, whose offset is returned.
    """
    client.result(client.send(topic, b"first", partition=0))
    network.response = lambda api: DROP if api == PRODUCE else PASS
    futures = [client.send(topic, b"%d" % number, partition=0) for number in range(count)]
    until(lambda: len(values()) > count, values)
    network.request = lambda api: CUT if api == PRODUCE else PASS
    restart()
    network.request = network.response = lambda api: PASS
    offsets = [client.result(future, 2 * PATIENCE).offset for future in futures]
    assert offsets == [UNKNOWN] * (count - 1) + [count]
    assert client.result(client.send(topic, b"last", partition=0)).offset == count + 1
    assert values() == [b"first", *[b"%d" % number for number in range(count)], b"last"]
