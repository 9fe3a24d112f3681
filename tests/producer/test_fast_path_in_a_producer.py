"""The fast path in a producer: no record is lost, duplicated or reordered when it cannot be used any more."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from pyclient import Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.producer.fast_path import DEPTH
from pyclient.producer.record_accumulator import ATOMIC_APPEND
from tests.producer.parts import client_of, fast_path_of, runner_of
from tests.producer.test_interrupts import interrupted
from tests.waiting import until

pytestmark = [pytest.mark.compiled, pytest.mark.skipif(not ATOMIC_APPEND, reason="the fast path is compiled")]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a record on the fast path while its broker is silent: after a second, another part would take it over."""
    monkeypatch.setattr("pyclient.producer.silent_brokers.PATIENCE", 600.0)


def is_on_it(producer: Producer) -> bool:
    return bool(fast_path_of(producer).records)


@contextmanager
def busy_fast_path(producer: Producer, topic: str) -> Iterator[None]:
    """Open the fast path and block the sender's thread until the end of the block."""
    while True:
        open_fast_path(producer, topic)
        busy, go_on = threading.Event(), threading.Event()
        runner_of(producer).thread.call_soon(lambda busy=busy, go_on=go_on: (busy.set(), go_on.wait(60)))
        assert busy.wait(60)
        if fast_path_of(producer).armed:
            break
        go_on.set()
    try:
        yield
    finally:
        go_on.set()


def open_fast_path(producer: Producer, topic: str, partition: int = 0) -> None:
    """Send until the next record finds the producer idle."""

    def is_open() -> bool:
        if fast_path_of(producer).armed and not fast_path_of(producer).records:
            return True
        producer.send(topic, b"first", partition=partition).result(60)
        return False

    until(is_open, "the fast path is not opened")


def test_single_records_take_the_fast_path_and_are_counted(cluster: EmbeddedCluster, topic: str, log: Any) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        open_fast_path(producer, topic)
        before = producer.metrics()
        sent, seen = 0, []
        for number in range(300):
            open_fast_path(producer, topic)
            first = producer.send(topic, b"%d" % number, key=b"k", partition=0, on_delivery=seen.append)
            sent += 1
            assert first.result(60).topic == topic
        producer.flush(60)
        assert len(seen) == sent
        after = producer.metrics()
    values = [record.value for record in log()[0] if record.key == b"k"]
    assert values == [b"%d" % number for number in range(300)]
    total = sum(map(len, log().values()))
    assert after["records_delivered"] == after["requests"] == total
    assert after["records_delivered"] - before["records_delivered"] >= 300
    assert sum(after["latency_ms"]["buckets"].values()) == after["batches_delivered"]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["fail", "disconnect"])
@pytest.mark.parametrize("more", [0, DEPTH - 1])
def test_failed_fast_path_records_are_retried_once_and_in_order(
    cluster: EmbeddedCluster, topic: str, log: Any, kind: str, when: Any, more: int
) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0, retry_backoff_ms=1) as producer:
        for number in range(5):
            open_fast_path(producer, topic)
            if kind == "fail":
                fault = cluster.faults.fail("Produce", errors.NotLeaderOrFollower, topic=topic, when=when)
            else:
                fault = cluster.faults.disconnect("Produce", topic=topic, when=when)
            future = producer.send(topic, b"%d" % number, key=b"k", partition=0)
            rest = [producer.send(topic, b"%d+%d" % (number, n), key=b"k", partition=0) for n in range(more)]
            assert future.result(60).partition == 0 and fault.hits() == 1
            for each in rest:
                assert each.result(60).partition == 0
    wanted = [value for each in range(5) for value in (b"%d" % each, *(b"%d+%d" % (each, n) for n in range(more)))]
    assert [record.value for record in log()[0] if record.key == b"k"] == wanted


def test_a_refused_record_fails_and_the_next_one_arrives(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        open_fast_path(producer, topic)
        with cluster.faults.fail("Produce", errors.TopicAuthorizationFailed, topic=topic):
            future = producer.send(topic, b"x", partition=0)
            with pytest.raises(errors.TopicAuthorizationFailed) as failed:
                future.result(60)
        assert failed.value.maybe_persisted is False
        assert producer.send(topic, b"y", partition=0).result(60).partition == 0


def test_flush_close_and_purge_include_fast_path_records(cluster: EmbeddedCluster, topic: str, log: Any) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        open_fast_path(producer, topic)
        with cluster.faults.hold("Produce", topic=topic) as fault:
            future = producer.send(topic, b"flushed", partition=0)
            assert is_on_it(producer)
            fault.wait()
            with pytest.raises(errors.KafkaTimeout, match="1 batch was not confirmed"):
                producer.flush(0.05)
            assert not is_on_it(producer)
            producer.purge()
            assert producer.health()["batches_unconfirmed"] == 1 and not future.done()
            fault.release()
            assert future.result(60).partition == 0
        with busy_fast_path(producer, topic):
            last = producer.send(topic, b"last", partition=0)
            assert is_on_it(producer)
    assert last.result(0).partition == 0
    assert [record.value for record in log()[0]][-1] == b"last"


def test_fast_path_record_without_response_fails_in_time(topic: str) -> None:
    options = {"request_timeout_ms": 3000, "delivery_timeout_ms": 6000, "retry_backoff_ms": 1}  # for the first one, too
    with (
        EmbeddedCluster(config={"num.partitions": 1}) as cluster,
        Producer(cluster.bootstrap_servers, linger_ms=0, **options) as producer,  # type: ignore[arg-type]
    ):
        open_fast_path(producer, topic)
        with cluster.faults.drop("Produce", topic=topic, times=None):
            future = producer.send(topic, b"x", partition=0)
            assert is_on_it(producer)
            with pytest.raises(errors.DeliveryTimeout) as failed:
                future.result(60)
        assert failed.value.maybe_persisted


def test_interrupt_while_taking_over_neither_loses_nor_repeats_a_record(
    cluster: EmbeddedCluster, topic: str, log: Any
) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        for number in count():
            with busy_fast_path(producer, topic):
                for each in range(DEPTH):
                    producer.send(topic, b"%d" % (number * DEPTH + each), key=b"k", partition=0)
                assert len(fast_path_of(producer).records) == DEPTH
                went_on = interrupted(number, producer.metrics)
                assert len(fast_path_of(producer).records) + len(client_of(producer).accumulator.incomplete) == DEPTH
            producer.flush(60)
            health = producer.health()
            assert (health["buffer_bytes_used"], health["batches_unconfirmed"]) == (0, 0), f"moment {number}"
            if not went_on:
                break
        assert number > 5
    values = [record.value for record in log()[0] if record.key == b"k"]
    assert values == [b"%d" % each for each in range((number + 1) * DEPTH)]


def test_concurrent_threads_on_the_fast_path_keep_their_order(cluster: EmbeddedCluster, topic: str, log: Any) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        open_fast_path(producer, topic)

        def send(name: int) -> None:
            for number in range(400):
                future = producer.send(topic, b"%d" % number, key=b"%d" % name, partition=0)
                if number % (name + 2) == 0:
                    future.result(60)
                if number % 50 == name:
                    producer.metrics()

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(60)
        until(lambda: producer.health()["batches_unconfirmed"] == 0)
    for name in range(4):
        values = [record.value for record in log()[0] if record.key == b"%d" % name]
        assert values == [b"%d" % number for number in range(400)]


@pytest.mark.slow
def test_records_share_no_offset_while_others_take_the_lock(cluster: EmbeddedCluster, topic: str) -> None:
    end, offsets = time.monotonic() + 20, list[int]()
    interval = sys.getswitchinterval()
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:

        def send(headers: list[tuple[str, bytes]] | None) -> None:
            while time.monotonic() < end:
                offsets.append(producer.send(topic, b"v", headers=headers, partition=0).result(60).offset)

        def lock() -> None:
            while time.monotonic() < end:
                with client_of(producer).lock:
                    pass

        work: list[Callable[[], None]] = [lambda: send(None), lambda: send([("not on the fast path", b"")]), lock]
        threads = [threading.Thread(target=each) for each in work]
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
    assert len(offsets) > 1000 and len(set(offsets)) == len(offsets)


def test_slow_callback_delays_no_other_fast_path_record(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        open_fast_path(producer, topic)
        go_on, begun, seen = threading.Event(), threading.Event(), []
        for number in range(20):
            open_fast_path(producer, topic)
            producer.send(topic, b"%d" % number, partition=0, on_delivery=seen.append)
        until(lambda: len(seen) == 20 and (fast_path_of(producer).waiter.active or not fast_path_of(producer).armed))
        slow = producer.send(topic, b"slow", partition=0, on_delivery=lambda _: (begun.set(), go_on.wait(60)))
        assert begun.wait(60) and slow.done()
        for number in range(20):
            assert producer.send(topic, b"%d" % number, partition=0).result(60).topic == topic
            unwatched = producer.send(topic, b"%d" % number, partition=0)
            until(unwatched.done)
        go_on.set()


def test_ctrl_c_reaches_a_thread_that_waits_at_the_socket(cluster: EmbeddedCluster, topic: str, log: Any) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        open_fast_path(producer, topic)
        with cluster.faults.hold("Produce", topic=topic) as fault:
            future = producer.send(topic, b"x", partition=0)
            assert is_on_it(producer)

            def interrupt() -> None:
                until(lambda: fast_path_of(producer).waiter.active)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                future.result(60)
            thread.join()
            assert not future.done()
            with pytest.raises(errors.KafkaTimeout, match=r"within 0\.05 s; it is still being sent"):
                future.result(0.05)
            fault.release()
            until(future.done)
    assert [record.value for record in log()[0]][-1] == b"x"


@pytest.mark.parametrize("at_rest", [False, True], ids=["at once", "when the fast path is open again"])
def test_a_signals_handler_may_wait_for_a_record_of_its_own(
    cluster: EmbeddedCluster, topic: str, at_rest: bool
) -> None:
    """In the thread that waits at the socket, which meanwhile does not read from it."""
    seen: list[int] = []
    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        open_fast_path(producer, topic)
        with cluster.faults.hold("Produce", topic=topic) as fault:

            def handle(number: int, frame: Any) -> None:
                if at_rest:
                    fault.release()
                    until(lambda: future.done() and fast_path_of(producer).armed)
                second = producer.send(topic, b"from the handler", partition=0)
                fault.release()
                seen.append(second.result(20).offset)

            def interrupt() -> None:
                until(lambda: fast_path_of(producer).waiter.active)
                signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

            before = signal.signal(signal.SIGUSR1, handle)
            try:
                future = producer.send(topic, b"x", partition=0)
                assert is_on_it(producer)
                thread = threading.Thread(target=interrupt)
                thread.start()
                seen.append(future.result(60).offset)
                thread.join()
            finally:
                signal.signal(signal.SIGUSR1, before)
    assert seen == [seen[1] + 1, seen[1]]


def test_interrupt_while_waiting_for_a_record_loses_no_response(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0, request_timeout_ms=60_000) as producer:
        for number in count():
            open_fast_path(producer, topic)
            if number % 2:
                cluster.faults.fail("Produce", errors.NotLeaderOrFollower, topic=topic)
            future = producer.send(topic, b"%d" % number, partition=0)
            before = interrupted(number // 2, lambda future=future: future.result(30))
            until(future.done)
            if not before and number % 2:
                break
        assert number > 4


def test_connection_that_ends_under_the_callback_thread_loses_no_record(
    cluster: EmbeddedCluster, topic: str, log: Any
) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0, retry_backoff_ms=1) as producer:
        seen: list[Any] = []
        for number in range(5):
            open_fast_path(producer, topic)
            producer.send(topic, b"on", partition=0, on_delivery=seen.append)
            until(lambda: fast_path_of(producer).waiter.active or not fast_path_of(producer).armed)
            fault = cluster.faults.disconnect("Produce", topic=topic)
            future = producer.send(topic, b"%d" % number, key=b"k", partition=0, on_delivery=seen.append)
            until(lambda future=future: future in seen)
            assert fault.hits() == 1
        producer.flush(60)
    assert len(seen) == 10
    assert [record.value for record in log()[0] if record.key == b"k"] == [b"%d" % number for number in range(5)]
