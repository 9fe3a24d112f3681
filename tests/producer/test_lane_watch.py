"""Threads that wait at the lane's socket themselves: one at a time, else the loop, and no answer is lost between."""

from __future__ import annotations

import queue
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pyclient.producer.partition_queue import ATOMIC_APPEND
from pyclient.records import compiled_only
from tests.producer.lane_bench import Bench, at_the_socket
from tests.waiting import PATIENCE, until

pytestmark = [pytest.mark.compiled, pytest.mark.skipif(not ATOMIC_APPEND, reason="the lane is compiled")]

NO_LIMIT = -1.0


def loop_is_told(bench: Bench, seconds: float = 0.0) -> bool:
    """Whether the loop sees something to read."""
    return bool(select.select([bench.reader.fileno()], [], [], seconds)[0])


@contextmanager
def waiting(bench: Bench, work: Callable[[], Any]) -> Iterator[list[Any]]:
    """A thread is at the socket in the block, and behind it has put there what it returned."""
    returned: list[Any] = []
    with at_the_socket(bench, lambda: returned.append(work())):
        yield returned
    assert not bench.lane.watch.active


def callbacks_go_to(bench: Bench) -> queue.SimpleQueue[Any]:
    """Where those of its records get in line, as when the thread that runs them has begun."""
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    bench.desk.callbacks.post = calls.put  # type: ignore[attr-defined]
    return calls


def outcome_of(bench: Bench, future: Any, timeout: float = NO_LIMIT) -> Callable[[], Any]:
    return lambda: bench.lane.watch.for_outcome(future.batch, timeout)


def test_who_waits_for_a_record_takes_its_answer_and_leaves_the_socket_to_the_loop(bench: Bench) -> None:
    future = bench.sender.send("topic", b"v")
    with waiting(bench, outcome_of(bench, future)) as returned:
        bench.far.sendall(bench.answer(base_offset=41))
        until(lambda: returned)
    assert returned == [True] and future.result(0).offset == 41
    assert not bench.lane.records and not bench.connection._waiting and bench.told == []
    assert not loop_is_told(bench)
    bench.far.sendall(b"x")
    assert loop_is_told(bench, PATIENCE)


def test_answers_to_records_before_it_are_taken_on_the_way(bench: Bench) -> None:
    futures = [bench.sender.send("topic", b"v") for _ in range(3)]
    with waiting(bench, outcome_of(bench, futures[2])) as returned:
        for offset in range(3):
            assert not futures[2].done() and returned == []
            bench.far.sendall(bench.answer(base_offset=offset))
            until(futures[offset].done)
        until(lambda: returned)
    assert returned == [True] and [future.result(0).offset for future in futures] == [0, 1, 2]


def test_one_thread_waits_there_at_a_time_and_only_for_what_is_on_the_lane(bench: Bench) -> None:
    future = bench.sender.send("topic", b"v")
    with waiting(bench, outcome_of(bench, future)) as returned:
        assert outcome_of(bench, future)() is None
        assert bench.lane.watch.for_calls(queue.SimpleQueue()) is None
    assert returned == [False] and not future.done()
    bench.far.sendall(bench.answer())
    bench.reader()
    assert future.done() and outcome_of(bench, future)() is None


def test_a_time_limit_leaves_all_as_it_was(bench: Bench) -> None:
    future = bench.sender.send("topic", b"v")
    assert outcome_of(bench, future, 0.02)() is False
    assert not future.batch._waiters and bench.lane.armed and bench.lane.records
    bench.far.sendall(bench.answer())
    assert loop_is_told(bench, PATIENCE)
    bench.reader()
    assert future.done()


def test_a_lane_that_stops_gives_the_answer_to_the_loop(bench: Bench) -> None:
    future = bench.sender.send("topic", b"v")
    with waiting(bench, outcome_of(bench, future)) as returned:
        answer = bench.answer()
        bench.lane.stop()
        bench.far.sendall(answer)
        assert loop_is_told(bench, PATIENCE)
        until(lambda: returned)
        bench.reader()
    assert returned == [False] and bench.told[-1] == "usual" and bench.near.recv(1000) == answer


def test_a_lane_that_stops_and_goes_on_keeps_who_waits(bench: Bench) -> None:
    calls = callbacks_go_to(bench)
    with waiting(bench, lambda: bench.lane.watch.for_calls(calls)) as returned:
        bench.lane.stop()
        assert not bench.lane.watch.active
        bench.aim()
        assert bench.lane.watch.active
        future = bench.sender.send("topic", b"v", on_delivery=print)
        bench.far.sendall(bench.answer())
        until(lambda: returned)
    assert returned == [None] and calls.get_nowait() == [(print, future)]


def test_a_lane_that_goes_elsewhere_and_a_stream_that_ends_send_who_waits_away(bench: Bench) -> None:
    calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with Bench() as other:
        other.reader = compiled_only("LaneReader")(bench.lane, print, print, other.near.fileno())
        with waiting(bench, lambda: bench.lane.watch.for_calls(calls)) as returned:
            bench.lane.aim(
                bench.queue, bench.connection, other.stream, other.reader, object, bench.lone,
                until=1e18, next_look=0.0, bytes_left=1000,
            )  # fmt: skip
            until(lambda: returned)
    bench.aim()
    with waiting(bench, lambda: bench.lane.watch.for_calls(calls)) as returned_then:
        bench.reader.close()
        until(lambda: returned_then)
    assert returned == returned_then == [None]
    assert bench.lane.watch.for_calls(calls) is None


def test_what_is_not_plain_is_handed_over_and_until_it_was_taken_nothing_is_received(bench: Bench) -> None:
    future = bench.sender.send("topic", b"v")
    with waiting(bench, outcome_of(bench, future)) as returned:
        answer = bench.answer(error_code=6)
        bench.far.sendall(answer)
        until(lambda: returned)
    assert returned == [False] and bench.told == [answer] and not bench.lane.armed
    bench.far.sendall(b"more")
    assert not loop_is_told(bench)
    bench.reader()
    assert bench.told == [answer]
    bench.reader.taken()
    assert loop_is_told(bench, PATIENCE)
    bench.reader()
    assert bench.told == [answer, "usual"]


def test_the_end_of_the_connection_is_left_to_the_loop(bench: Bench) -> None:
    future = bench.sender.send("topic", b"v")
    with waiting(bench, outcome_of(bench, future)) as returned:
        bench.far.shutdown(socket.SHUT_WR)
        until(lambda: returned)
    assert returned == [False] and loop_is_told(bench, PATIENCE)
    bench.reader()
    assert bench.told == ["usual"] and bench.near.recv(1) == b""


def test_callbacks_get_in_line_and_who_took_their_answer_looks_there(bench: Bench) -> None:
    calls = callbacks_go_to(bench)
    futures = [bench.sender.send("topic", b"v", on_delivery=print) for _ in range(2)]
    with waiting(bench, lambda: bench.lane.watch.for_calls(calls)) as returned:
        bench.far.sendall(bench.answer())
        until(lambda: returned)
    assert returned == [None] and calls.get_nowait() == [(print, futures[0])]
    calls.put(["earlier"])
    assert bench.lane.watch.for_calls(calls) is None and not futures[1].done()
    bench.far.sendall(bench.answer())
    bench.reader()
    assert [calls.get_nowait(), calls.get_nowait()] == [["earlier"], [(print, futures[1])]]


BUSY = {
    "somebody registers": lambda bench, other: bench.desk.lock.acquire(),
    "another thread waits": lambda bench, other: other.batch.when_done(0, lambda: None),
    "a first callback": lambda bench, other: other.add_done_callback(bench.told.append),
}


@pytest.mark.parametrize("busy", BUSY.values(), ids=BUSY.keys())
def test_what_would_run_code_in_python_is_left_to_the_loop_by_a_thread_in_which_ctrl_c_may_come(
    bench: Bench, busy: Callable[[Bench, Any], object]
) -> None:
    other, future = (bench.sender.send("topic", b"v") for _ in range(2))
    with waiting(bench, outcome_of(bench, future)) as returned:
        busy(bench, other)
        bench.far.sendall(bench.answer())
        assert loop_is_told(bench, PATIENCE)
        if bench.desk.lock.locked():
            bench.desk.lock.release()
        until(lambda: returned)
    assert returned == [False] and not other.done()
    bench.reader()
    assert other.done() and not future.done()


def test_who_leaves_while_the_loop_receives_leaves_the_socket_to_it(bench: Bench) -> None:
    """The loop was told of something just before the thread came, and finds nothing any more."""
    future = bench.sender.send("topic", b"v")
    with waiting(bench, outcome_of(bench, future)) as returned:
        records, bench.lane.records = bench.lane.records, []  # so that the loop takes the usual way

        def usual() -> None:
            bench.lane.watch.wake()
            until(lambda: returned)

        bench.usual = usual
        bench.reader()
        bench.lane.records = records
    assert returned == [False] and not bench.lane.watch.active
    bench.far.sendall(bench.answer())
    assert loop_is_told(bench, PATIENCE)
