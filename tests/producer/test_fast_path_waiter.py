"""Threads that read the fast path's socket themselves: one at a time, else the loop, and no response is lost."""

from __future__ import annotations

import queue
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyclient.producer.implementation import compiled_only
from pyclient.producer.record_accumulator import ATOMIC_APPEND
from tests.producer.fast_path_fixture import FastPathFixture, at_the_socket
from tests.producer.parts import waiters_of
from tests.readable import is_readable
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.compiled, pytest.mark.skipif(not ATOMIC_APPEND, reason="the fast path is compiled")]

NO_LIMIT = -1.0


def loop_is_notified(fixture: FastPathFixture, seconds: float = 0.0) -> bool:
    """Return True if the loop would see the socket as readable."""
    return is_readable(fixture.reader, seconds)


@contextmanager
def waiting(fixture: FastPathFixture, work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Wait at the socket in a thread during the block, and append its result at the end."""
    returned: list[Any] = []
    with at_the_socket(fixture, lambda: returned.append(work())):
        yield returned
    assert not fixture.fast_path.waiter.active


def callbacks_go_to(fixture: FastPathFixture) -> queue.SimpleQueue[Any]:
    """Queue the callbacks of the fast path's records here, as if the callback thread had started."""
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    fixture.context.callbacks.post = calls.put  # type: ignore[attr-defined]
    return calls


def outcome_of(fixture: FastPathFixture, future: Any, timeout: float = NO_LIMIT) -> Callable[[], Any]:
    return lambda: fixture.fast_path.waiter.for_outcome(future.batch, timeout)


def test_waiter_reads_its_response_and_returns_the_socket_to_the_loop(fixture: FastPathFixture) -> None:
    future = fixture.sender.send("topic", b"v")
    with waiting(fixture, outcome_of(fixture, future)) as returned:
        fixture.far.sendall(fixture.answer(base_offset=41))
        until(lambda: returned)
    assert returned == [True] and future.result(0).offset == 41
    assert not fixture.fast_path.records and not fixture.waiting and fixture.events == []
    assert not loop_is_notified(fixture)
    fixture.far.sendall(b"x")
    assert loop_is_notified(fixture, PATIENCE)


def test_waiter_handles_responses_of_earlier_records(fixture: FastPathFixture) -> None:
    futures = [fixture.sender.send("topic", b"v") for _ in range(3)]
    with waiting(fixture, outcome_of(fixture, futures[2])) as returned:
        for offset in range(3):
            assert not futures[2].done() and returned == []
            fixture.far.sendall(fixture.answer(base_offset=offset))
            until(futures[offset].done)
        until(lambda: returned)
    assert returned == [True] and [future.result(0).offset for future in futures] == [0, 1, 2]


def test_one_thread_at_a_time_waits_and_only_for_fast_path_records(fixture: FastPathFixture) -> None:
    future = fixture.sender.send("topic", b"v")
    with waiting(fixture, outcome_of(fixture, future)) as returned:
        assert outcome_of(fixture, future)() is None
        assert fixture.fast_path.waiter.for_calls(queue.SimpleQueue()) is None
    assert returned == [False] and not future.done()
    fixture.far.sendall(fixture.answer())
    fixture.reader()
    assert future.done() and outcome_of(fixture, future)() is None


def test_wait_with_a_timeout_changes_nothing(fixture: FastPathFixture) -> None:
    future = fixture.sender.send("topic", b"v")
    assert outcome_of(fixture, future, 0.02)() is False
    assert not waiters_of(future.batch) and fixture.fast_path.armed and fixture.fast_path.records
    fixture.far.sendall(fixture.answer())
    assert loop_is_notified(fixture, PATIENCE)
    fixture.reader()
    assert future.done()


def test_stopped_fast_path_leaves_the_response_to_the_loop(fixture: FastPathFixture) -> None:
    future = fixture.sender.send("topic", b"v")
    with waiting(fixture, outcome_of(fixture, future)) as returned:
        answer = fixture.answer()
        fixture.fast_path.stop()
        fixture.far.sendall(answer)
        assert loop_is_notified(fixture, PATIENCE)
        until(lambda: returned)
        fixture.reader()
    assert returned == [False] and fixture.events[-1] == "usual" and fixture.near.recv(1000) == answer


def test_fast_path_that_stops_and_continues_keeps_its_waiter(fixture: FastPathFixture) -> None:
    calls = callbacks_go_to(fixture)
    with waiting(fixture, lambda: fixture.fast_path.waiter.for_calls(calls)) as returned:
        fixture.fast_path.stop()
        assert not fixture.fast_path.waiter.active
        fixture.start()
        assert fixture.fast_path.waiter.active
        future = fixture.sender.send("topic", b"v", on_delivery=print)
        fixture.far.sendall(fixture.answer())
        until(lambda: returned)
    assert returned == [None] and calls.get_nowait() == [(print, future)]


def test_waiter_returns_if_the_fast_path_moves_or_the_stream_ends(fixture: FastPathFixture) -> None:
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with FastPathFixture() as other:
        other.reader = compiled_only("FastPathReader")(fixture.fast_path, print, print, other.near.fileno())
        with waiting(fixture, lambda: fixture.fast_path.waiter.for_calls(calls)) as returned:
            fixture.fast_path.start(
                fixture.queue, fixture.connection, other.stream, other.reader, object, fixture.template,
                until=1e18, next_round=0.0, bytes_left=1000,
            )  # fmt: skip
            until(lambda: returned)
    fixture.start()
    with waiting(fixture, lambda: fixture.fast_path.waiter.for_calls(calls)) as returned_then:
        fixture.reader.close()
        until(lambda: returned_then)
    assert returned == returned_then == [None]
    assert fixture.fast_path.waiter.for_calls(calls) is None


def test_other_responses_are_handed_over_before_more_is_received(fixture: FastPathFixture) -> None:
    future = fixture.sender.send("topic", b"v")
    with waiting(fixture, outcome_of(fixture, future)) as returned:
        answer = fixture.answer(error_code=6)
        fixture.far.sendall(answer)
        until(lambda: returned)
    assert returned == [False] and fixture.events == [answer] and not fixture.fast_path.armed
    fixture.far.sendall(b"more")
    assert not loop_is_notified(fixture)
    fixture.reader()
    assert fixture.events == [answer]
    fixture.reader.taken()
    assert loop_is_notified(fixture, PATIENCE)
    fixture.reader()
    assert fixture.events == [answer, "usual"]


def test_the_end_of_the_connection_is_left_to_the_loop(fixture: FastPathFixture) -> None:
    future = fixture.sender.send("topic", b"v")
    with waiting(fixture, outcome_of(fixture, future)) as returned:
        fixture.far.shutdown(socket.SHUT_WR)
        until(lambda: returned)
    assert returned == [False] and loop_is_notified(fixture, PATIENCE)
    fixture.reader()
    assert fixture.events == ["usual"] and fixture.near.recv(1) == b""


def test_callbacks_are_queued_and_the_reading_thread_runs_them(fixture: FastPathFixture) -> None:
    calls = callbacks_go_to(fixture)
    futures = [fixture.sender.send("topic", b"v", on_delivery=print) for _ in range(2)]
    with waiting(fixture, lambda: fixture.fast_path.waiter.for_calls(calls)) as returned:
        fixture.far.sendall(fixture.answer())
        until(lambda: returned)
    assert returned == [None] and calls.get_nowait() == [(print, futures[0])]
    calls.put(["earlier"])
    assert fixture.fast_path.waiter.for_calls(calls) is None and not futures[1].done()
    fixture.far.sendall(fixture.answer())
    fixture.reader()
    assert [calls.get_nowait(), calls.get_nowait()] == [["earlier"], [(print, futures[1])]]


BUSY = {
    "another thread registers": lambda fixture, other: fixture.context.lock.acquire(),
    "another thread waits": lambda fixture, other: other.batch.when_done(0, lambda: None),
    "a first callback": lambda fixture, other: other.add_done_callback(fixture.events.append),
}


@pytest.mark.parametrize("busy", BUSY.values(), ids=BUSY.keys())
def test_main_thread_leaves_python_code_to_the_loop(
    fixture: FastPathFixture, busy: Callable[[FastPathFixture, Any], object]
) -> None:
    other, future = (fixture.sender.send("topic", b"v") for _ in range(2))
    with waiting(fixture, outcome_of(fixture, future)) as returned:
        busy(fixture, other)
        fixture.far.sendall(fixture.answer())
        assert loop_is_notified(fixture, PATIENCE)
        if fixture.context.lock.locked():
            fixture.context.lock.release()
        until(lambda: returned)
    assert returned == [False] and not other.done()
    fixture.reader()
    assert other.done() and not future.done()


def test_waiter_that_leaves_while_the_loop_reads_keeps_the_loop_reading(fixture: FastPathFixture) -> None:
    """The loop was woken just before the thread came, and finds nothing to read."""
    future = fixture.sender.send("topic", b"v")
    with waiting(fixture, outcome_of(fixture, future)) as returned:
        records, fixture.fast_path.records = fixture.fast_path.records, []  # so that the loop's reader is used

        def usual() -> None:
            fixture.fast_path.waiter.wake()
            until(lambda: returned)

        fixture.usual = usual
        fixture.reader()
        fixture.fast_path.records = records
    assert returned == [False] and not fixture.fast_path.waiter.active
    fixture.far.sendall(fixture.answer())
    assert loop_is_notified(fixture, PATIENCE)
