"""The fast path with other threads and the garbage collector running between its steps."""

from __future__ import annotations

import gc
import os
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.producer.implementation import compiled_only
from pyclient.producer.record_accumulator import ATOMIC_APPEND
from tests.forks import fork
from tests.producer.fast_path_fixture import FastPathFixture, at_the_socket, is_owned
from tests.producer.parts import client_of, fast_path_of
from tests.producer.test_fast_path_in_a_producer import open_fast_path
from tests.readable import is_readable
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.compiled, pytest.mark.skipif(not ATOMIC_APPEND, reason="the fast path is compiled")]


@contextmanager
def collected_all_the_time() -> Iterator[None]:
    """Collect garbage before each object that can be part of a cycle is made."""
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def watching(fixture: FastPathFixture, calls: queue.SimpleQueue[Any]) -> Iterator[threading.Thread]:
    """Run a thread that waits at the socket like the callback thread, with `calls` as its queue."""
    fixture.context.callbacks.post = calls.put  # type: ignore[attr-defined]
    with at_the_socket(fixture, lambda: fixture.fast_path.waiter.for_calls(calls)) as thread:
        yield thread


def test_no_garbage_is_collected_between_the_check_and_the_record(fixture: FastPathFixture) -> None:
    """A finalizer may send as well, or let another thread run: both would take the same sequence number."""
    collected: list[bool] = []

    def note(phase: str, _: object) -> None:
        collected.append(is_owned(fixture.stream.gate))

    with collected_all_the_time():
        gc.callbacks.append(note)
        try:
            for _ in range(50):
                assert fixture.sender.send("topic", b"v", on_delivery=print) is not None
                fixture.fast_path.records = []
                fixture.waiting.clear()
        finally:
            gc.callbacks.remove(note)
    assert collected and not any(collected)
    assert gc.isenabled()


def test_finalizers_that_send_take_numbers_of_their_own(cluster: EmbeddedCluster, topic: str, log: Any) -> None:
    sent: list[tuple[bytes, Any]] = []

    class Farewell:
        """Garbage in a cycle, which sends a record when it is collected: a handler of log lines, say."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            if len(sent) < 2_000 and not client_of(producer).lock.locked():
                value = b"farewell %d" % len(sent)
                sent.append((value, producer.send(topic, value, partition=0)))

    with Producer(cluster.bootstrap_servers, linger_ms=0) as producer:
        open_fast_path(producer, topic)
        with collected_all_the_time():
            for number in range(300):
                Farewell()
                value = b"%d" % number
                sent.append((value, producer.send(topic, value, partition=0)))
                if number % 3 == 2:
                    sent[-1][1].result(60)
        producer.flush(60)
        where = {value: future.result(60).offset for value, future in list(sent)}
    found = {record.value: record.offset for record in log()[0]}
    assert {value: found.get(value) for value in where} == where
    assert any(value.startswith(b"farewell") for value in where)


def test_callback_thread_leaves_the_loops_work_to_the_loop(fixture: FastPathFixture) -> None:
    """The loop is handling a response of another request, after which the fast path is started again."""
    took: list[tuple[str, bool]] = []

    def hand_over(reader: Any, data: bytes, on_loop: bool) -> None:
        took.append((threading.current_thread().name, on_loop))

    fixture.reader = compiled_only("FastPathReader")(
        fixture.fast_path, lambda: fixture.usual(), hand_over, fixture.near.fileno()
    )
    fixture.start()
    with watching(fixture, queue.SimpleQueue()) as thread:
        fixture.fast_path.stop()
        fixture.usual = fixture.start
        fixture.reader()
        assert fixture.fast_path.armed and fixture.fast_path.waiter.active
        fixture.sender.send("topic", b"v")
        fixture.far.sendall(fixture.answer(error_code=6))
        thread.join(PATIENCE)
    assert took == [("watcher", False)]


def test_response_waits_until_earlier_ones_are_handled(fixture: FastPathFixture) -> None:
    """Two responses come together; the first one's waiter stops the fast path, and the third response comes."""
    answers = []
    futures = [fixture.sender.send("topic", b"v") for _ in range(3)]
    for offset in range(3):
        answers.append(fixture.answer(base_offset=offset))
        fixture.waiting.rotate(-1)

    def stop_fast_path_after_the_first() -> None:
        fixture.fast_path.stop()
        fixture.far.sendall(answers[2])
        assert not is_readable(fixture.reader, 0.05)
        fixture.reader()  # also if the loop was woken before

    fixture.usual = lambda: fixture.events.append(fixture.near.recv(1000))
    futures[0].batch.when_done(0, stop_fast_path_after_the_first)
    with watching(fixture, queue.SimpleQueue()) as thread:
        fixture.far.sendall(answers[0] + answers[1])
        thread.join(PATIENCE)
    assert [each for each in fixture.events if isinstance(each, bytes)] == [answers[1]]
    fixture.reader.taken()
    assert is_readable(fixture.reader, PATIENCE)
    fixture.reader()
    assert [each for each in fixture.events if isinstance(each, bytes)] == [answers[1], answers[2]]


def test_callbacks_are_queued_before_their_record_counts_as_delivered(fixture: FastPathFixture) -> None:
    """A caller in `flush` then waits for those callbacks, too, because its own is queued after them."""
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with watching(fixture, calls) as thread:
        future = fixture.sender.send("topic", b"v", on_delivery=print)
        future.batch.when_done(0, lambda: calls.put("after them"))
        fixture.far.sendall(fixture.answer())
        thread.join(PATIENCE)
    assert [calls.get_nowait(), calls.get_nowait()] == [[(print, future)], "after them"]


def test_timeout_check_finds_no_response_completed_meanwhile(fixture: FastPathFixture) -> None:
    future = fixture.sender.send("topic", b"v")
    answer = fixture.answer()
    with watching(fixture, queue.SimpleQueue()) as thread:
        fixture.change("requests", timer_at=None)
        fixture.far.sendall(answer)
        thread.join(PATIENCE)
    assert not future.done() and fixture.fast_path.records
    fixture.usual = lambda: fixture.events.append(fixture.near.recv(1000))
    fixture.reader()
    assert fixture.events == [answer] and not future.done()


def test_wakeup_by_a_forked_child_is_received_once(fixture: FastPathFixture) -> None:
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with watching(fixture, calls) as thread:
        child = fork()
        if not child:
            fixture.fast_path.waiter.wake()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join(PATIENCE)
        assert not thread.is_alive()
    for _ in range(3):
        with watching(fixture, calls):
            future = fixture.sender.send("topic", b"v", on_delivery=print)
            fixture.far.sendall(fixture.answer())
            assert calls.get(timeout=PATIENCE) == [(print, future)]


def test_records_taken_over_count_for_the_sticky_partition(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=1_000_000) as producer:
        producer.send(topic, b"v").result(60)
        partitioner, taken_over, sent = client_of(producer).topics[topic].partitioner, 0, 1
        with client_of(producer).lock:
            start, each = partitioner.bytes_left, 1_000_000 - 1 - partitioner.bytes_left

        def twenty_were_taken_over() -> bool:
            nonlocal taken_over, sent
            producer.send(topic, b"v").result(60)
            sent += 1
            if fast_path_of(producer).armed and not fast_path_of(producer).records:
                producer.send(topic, b"v")
                sent += 1
                record = (fast_path_of(producer).records or [None])[0]
                with client_of(producer).lock:
                    taken_over += record is not None and record.work is not None
                producer.flush(60)
            return taken_over == 20

        until(twenty_were_taken_over, "a fast path is not opened again")
        with client_of(producer).lock:
            assert start - partitioner.bytes_left == (sent - 1) * each
