"""Throttle times in Produce responses: confirmed batches are complete, and later requests wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.producer.record_accumulator import ATOMIC_APPEND
from pyclient.protocol.messages.produce import ProduceResponse
from tests.producer.parts import fast_path_of
from tests.producer.producer_clients import SyncClient
from tests.producer.proxy import Proxy, through_a_proxy
from tests.producer.test_fast_path_in_a_producer import open_fast_path

FOR_LONG = 1_000_000  # ms
SHORTLY = 5


@pytest.fixture
def proxy(cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with through_a_proxy(cluster.bootstrap_servers, monkeypatch) as proxy:
        yield proxy


def throttle(proxy: Proxy, milliseconds: int) -> None:
    """Set this throttle time in all Produce responses from now on."""

    def change(answer: ProduceResponse) -> None:
        answer.throttle_time_ms = milliseconds

    proxy.change = change


def check_next_request_waits(client: Any, topic: str, log: Callable[[], Any], last: Any) -> None:
    """Assert that records after `last`, whose response has a long throttle time, wait."""
    place = client.result(last).offset
    later = client.send(topic, b"later", partition=0)
    with pytest.raises(errors.KafkaTimeout, match="1 batch was not confirmed"):
        client.flush(0.1)
    assert client.metrics()["requests"] == place + 1
    with pytest.raises(errors.DeliveryFailed):
        client.close(0)
    error = client.exception(later)
    assert isinstance(error, errors.ClosedError) and not error.maybe_persisted
    assert len(log()[0]) == place + 1


@pytest.mark.parametrize("linger_ms", [0, 2])
def test_requests_after_a_throttled_response_wait(
    proxy: Proxy, make: Any, topic: str, log: Callable[[], Any], linger_ms: int
) -> None:
    client = make(linger_ms=linger_ms)
    client.result(client.send(topic, b"first", partition=0))
    throttle(proxy, FOR_LONG)
    check_next_request_waits(client, topic, log, client.send(topic, b"throttled", partition=0))


@pytest.mark.compiled
@pytest.mark.skipif(not ATOMIC_APPEND, reason="the fast path is compiled")
def test_fast_path_after_a_throttled_response_waits(
    cluster: EmbeddedCluster, proxy: Proxy, topic: str, log: Callable[[], Any]
) -> None:
    with closing(SyncClient(cluster.bootstrap_servers, linger_ms=0)) as client:
        fast_path = fast_path_of(client.producer)
        while True:  # the sender may run just then, and the record goes the usual way
            open_fast_path(client.producer, topic)
            with cluster.faults.hold("Produce", topic=topic) as held:
                last = client.send(topic, b"throttled", partition=0)
                if fast_path.records:
                    throttle(proxy, FOR_LONG)
                    held.release()
                    break
            client.result(last)
        check_next_request_waits(client, topic, log, last)
        assert not fast_path.armed


@pytest.mark.parametrize("linger_ms", [0, 2])
def test_records_after_the_throttle_time_keep_their_order(
    proxy: Proxy, make: Any, topic: str, log: Callable[[], Any], linger_ms: int
) -> None:
    client = make(linger_ms=linger_ms, batch_size=200)
    throttle(proxy, SHORTLY)
    futures = [client.send(topic, b"%d" % number, partition=0) for number in range(60)]
    assert [client.result(future).offset for future in futures] == list(range(60))
    assert [record.value for record in log()[0]] == [b"%d" % number for number in range(60)]
    proxy.change = None
    if linger_ms == 0 and client.name == "sync" and ATOMIC_APPEND:
        open_fast_path(client.producer, topic)  # which is open again
