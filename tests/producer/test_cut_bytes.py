"""Connections that end within a Produce request or response: all records arrive once and in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.producer.fast_path import DEPTH
from pyclient.producer.record_accumulator import ATOMIC_APPEND
from tests.producer.parts import fast_path_of
from tests.producer.producer_clients import SyncClient
from tests.producer.proxy import ANSWER, REQUEST, Proxy, through_a_proxy
from tests.producer.test_fast_path_in_a_producer import open_fast_path

PLACES = (0, 1, 3, 4, 5, 13, 0.5, 0.9, -1, 1.0)
"""Before, in and after the length, in the header, in the middle, and one byte before the end; at last the whole."""


class Way(NamedTuple):
    """Return how records are sent: so many at a time, each of about so many bytes."""

    linger_ms: int
    records: int
    size: int


WAYS = {"at once": Way(0, 3, 10), "in batches": Way(2, 60, 30), "large": Way(2, 3, 300_000)}
OPTIONS = {"batch_size": 500, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}


@pytest.fixture
def proxy(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with through_a_proxy(cluster.bootstrap_servers, monkeypatch) as proxy:
        yield proxy


def send_while_cut(client: Any, proxy: Proxy, topic: str, side: str, where: int | float, values: list[bytes]) -> int:
    """Send these; return how many were on the fast path before the connection ended."""
    with proxy.cutting(side, where):
        futures = [client.send(topic, value, key=b"k", partition=0) for value in values]
        fast_path = fast_path_of(client.producer) if client.name == "sync" else None
        on_fast_path = 0 if fast_path is None else len(fast_path.records)
    offsets = [client.result(future).offset for future in futures]
    assert offsets == list(range(offsets[0], offsets[0] + len(values)))
    return on_fast_path


@pytest.mark.parametrize("side", [REQUEST, ANSWER])
@pytest.mark.parametrize("resets", [False, True], ids=["ends", "resets"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_records_cut_by_a_connection_arrive_once_and_in_order(
    proxy: Proxy, make: Any, topic: str, log: Callable[[], Any], side: str, way: Way, resets: bool
) -> None:
    proxy.resets = resets
    client = make(linger_ms=way.linger_ms, **OPTIONS)
    sent: list[bytes] = []
    for where in PLACES:
        client.result(client.send(topic, b"the connection is live", partition=0))
        values = [b"%d" % (len(sent) + number) * (way.size // 3) for number in range(way.records)]
        send_while_cut(client, proxy, topic, side, where, values)
        sent += values
    assert [record.value for record in log()[0] if record.key == b"k"] == sent


@pytest.mark.parametrize("side", [REQUEST, ANSWER])
@pytest.mark.parametrize("count", [1, DEPTH])
@pytest.mark.compiled
@pytest.mark.skipif(not ATOMIC_APPEND, reason="the fast path is compiled")
def test_records_cut_on_the_fast_path_arrive_once_and_in_order(
    cluster: EmbeddedCluster, proxy: Proxy, topic: str, log: Callable[[], Any], side: str, count: int
) -> None:
    sent: list[bytes] = []
    with closing(SyncClient(cluster.bootstrap_servers, linger_ms=0, **OPTIONS)) as client:
        for where in PLACES:
            on_fast_path = 0
            while on_fast_path < count:  # the sender may run just then, and the record goes the usual way
                open_fast_path(client.producer, topic)
                values = [b"%d" % (len(sent) + number) for number in range(count)]
                on_fast_path = send_while_cut(client, proxy, topic, side, where, values)
                sent += values
    assert [record.value for record in log()[0] if record.key == b"k"] == sent
