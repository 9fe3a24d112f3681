"""Closing consumers, with brokers that respond, are silent, or cannot be reached."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import ConsumerFactory, close_in_time, partitions, poll_until
from tests.garbage import Cycle, loop_threads_first
from tests.patience import retry_until_error

NewTopic = Callable[..., str]


def test_close_is_idempotent_and_later_calls_raise(consumers: ConsumerFactory, new_topic: NewTopic) -> None:
    consumer = consumers(new_topic(), group_id="g")
    consumer.close()
    consumer.close()
    assert "closed" in repr(consumer)
    assert consumer.health()["state"] == "closed"
    for call in (consumer.poll, consumer.commit, consumer.unsubscribe, lambda: consumer.subscribe("t")):
        with pytest.raises(errors.ClosedError, match="closed"):
            call()


def test_consumer_in_a_cycle_is_closed_whatever_is_collected_first(
    cluster: EmbeddedCluster, new_topic: NewTopic
) -> None:
    with loop_threads_first("pyclient.consumer.runners"):
        before = set(threading.enumerate())
        cycle = Cycle(Consumer(new_topic(), bootstrap_servers=cluster.bootstrap_servers, group_id="g"))
        cycle.held.poll(0.01)
        inner = next(each for each in set(threading.enumerate()) - before if each.name == "pyclient-consumer-io")
        with pytest.warns(ResourceWarning, match="was not closed"):
            del cycle
            gc.collect()
        inner.join(30)
        assert not inner.is_alive()
        gc.collect()  # its connections are closed: else their sockets would warn now


def test_consumer_dropped_without_closing_warns(cluster: EmbeddedCluster, new_topic: NewTopic) -> None:
    topic = new_topic()
    for seconds in (0.0, 0.01):  # nothing is connected, or something
        before = set(threading.enumerate())
        consumer = Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id="g")
        consumer.poll(seconds)
        inner = next(each for each in set(threading.enumerate()) - before if each.name == "pyclient-consumer-io")
        with pytest.warns(ResourceWarning, match="was not closed"):
            del consumer
            gc.collect()
        inner.join(30)
        assert not inner.is_alive()
        gc.collect()  # its connections are closed: else their sockets would warn now

    async def main() -> None:
        consumer: Any = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers)
        consumer.assign(partitions(topic, 0))
        await consumer.poll(0.01)
        await asyncio.sleep(0)  # the event loop itself holds the poll that timed out a moment longer
        with pytest.warns(ResourceWarning, match="was not closed"):
            del consumer
            gc.collect()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(rest, timeout=30)  # its connections are still closed
        assert all(task.done() for task in rest)

    asyncio.run(main())


PATIENT: dict[str, Any] = {  # a wait for a broker takes longer than the test
    "request_timeout_ms": 600_000,
    "default_api_timeout_ms": 600_000,
    "socket_connection_setup_timeout_ms": 600_000,
}


@pytest.fixture
def silent_address() -> Iterator[str]:
    """Yield an address that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def polls_until_refused(consumer: Any) -> None:
    """Poll until an error reports that no broker can be reached; refused connections take an unknown time."""
    poll_until([consumer], lambda: False)


def test_unused_consumer_closes_at_once(consumers: ConsumerFactory, silent_address: str) -> None:
    close_in_time(consumers(bootstrap_servers=silent_address, group_id="g", **PATIENT), 600)


def test_close_does_not_wait_for_a_silent_broker(consumers: ConsumerFactory, silent_address: str) -> None:
    consumer = consumers("t", bootstrap_servers=silent_address, group_id="g", **PATIENT)
    assert not consumer.poll(0.2)
    close_in_time(consumer, 600)


def test_close_without_a_cluster_is_quick(consumers: ConsumerFactory) -> None:
    consumer = consumers("t", bootstrap_servers="127.0.0.1:1", group_id="g", **PATIENT)
    with pytest.raises(errors.KafkaTimeout):
        polls_until_refused(consumer)
    close_in_time(consumer, 600)


def test_unreachable_address_is_named_in_the_error(consumers: ConsumerFactory) -> None:
    consumer = consumers("t", bootstrap_servers="127.0.0.1:1", group_id="g")
    retry_until_error(lambda: polls_until_refused(consumer), r"127\.0\.0\.1:1")
    assert len(consumer.poll(0)) == 0  # nothing was waited for, so nothing is missed
    with pytest.raises(errors.KafkaTimeout, match=r"127\.0\.0\.1:1"):
        consumer.end_offsets([("t", 0)], timeout=0.2)
    with pytest.raises(errors.KafkaTimeout, match=r"127\.0\.0\.1:1"):
        consumer.committed([("t", 0)], timeout=0.2)
    assert "127.0.0.1:1" in consumer.health()["last_failures"]


def test_iteration_over_an_unreachable_cluster_raises_the_reason(consumers: ConsumerFactory) -> None:
    consumer = consumers("t", bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=500)
    retry_until_error(lambda: next(iter(consumer)), r"127\.0\.0\.1:1")


def test_http_port_is_reported_as_such(consumers: ConsumerFactory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def serve() -> None:
            server.settimeout(0.05)
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    peer, _ = server.accept()
                    with peer:
                        peer.recv(1024)
                        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            consumer = consumers("t", bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}")
            with pytest.raises(errors.ClusterUnreachable, match="HTTP"):  # waiting would not help
                polls_until_refused(consumer)
        finally:
            stop.set()
            thread.join()
