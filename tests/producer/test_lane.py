"""The compiled lane of single records: the same bytes, and whatever is not plain is left to others."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.producer.batch import NO_SEQUENCE
from pyclient.producer.partition_queue import ATOMIC_APPEND
from pyclient.protocol.framing import decode_response, encode_response
from pyclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pyclient.records import BatchBuilder, compiled_only, partition_for_key
from tests.producer.lane_bench import FAR, Bench

pytestmark = [pytest.mark.compiled, pytest.mark.skipif(not ATOMIC_APPEND, reason="the lane is compiled")]


@given(
    version=st.integers(ProduceRequest.versions[0], 11),
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=3000),
    timestamp_ms=st.integers(0, 2**62),
    idempotent=st.booleans(),
)
def test_its_request_is_byte_for_byte_that_of_a_batch(
    version: int, key: bytes | None, value: bytes | None, timestamp_ms: int, idempotent: bool
) -> None:
    with Bench(version, idempotent=idempotent, partition=partition_for_key(key, 5) if key is not None else 2) as bench:
        future = bench.sender.send("topic", value, key=key, timestamp_ms=timestamp_ms)
        assert future.timestamp_ms == timestamp_ms and not future.done()
        builder = BatchBuilder(bytearray(4096), None)
        builder.append(timestamp_ms, key, value, None)
        numbers = (2**40 + 7, 3, 2**31 - 1) if idempotent else (-1, -1, NO_SEQUENCE)
        sealed = builder.seal(producer_id=numbers[0], producer_epoch=numbers[1], base_sequence=numbers[2])
        wanted = b"".join(bytes(part) for part in bench.lone.request(sealed, 0))  # type: ignore[arg-type]
        assert bench.far.recv(8192) == wanted
        assert (bench.connection._correlation_id, bench.queue.records) == (0, 6)
        assert bench.sequence.next == (0 if idempotent else 2**31 - 1)
        [waiting] = bench.connection._waiting
        assert [waiting] == bench.lane.records and (waiting.position, waiting.sequence) == (5, numbers[2])


def test_a_plain_answer_completes_the_record_and_its_callback() -> None:
    with Bench() as bench:
        seen: list[Any] = []
        reached = threading.Event()
        future = bench.sender.send("topic", b"v", on_delivery=lambda done: (seen.append(done), reached.set()))
        answer = bench.answer(base_offset=41, log_append_time_ms=-1, log_start_offset=3)
        bench.far.sendall(answer)
        bench.reader()
        assert reached.wait(30) and seen == [future]
        assert (future.result(0).offset, future.result(0).partition) == (41, 2)
        assert not bench.connection._waiting and not bench.lane.records and bench.lane.armed
        bench.lane.stop()
        [(_, number, size, last, longest, buckets)] = bench.told
        assert (number, size, sum(buckets)) == (1, 61 + 8, 1) and 0 <= longest < last
        bench.desk.callbacks.stop(30)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "fields",
    [{"error_code": 6}, {"index": 3}, {"error_message": "x"}],
    ids=["an error", "another partition", "a message"],
)
def test_any_other_answer_is_left_to_the_connection(fields: dict[str, Any]) -> None:
    with Bench() as bench:
        future = bench.sender.send("topic", b"v")
        answer = bench.answer(**fields)
        bench.far.sendall(answer)
        bench.reader()
        assert bench.told == [answer] and not future.done()


@pytest.mark.parametrize("version", range(ProduceRequest.versions[0], 12))
@pytest.mark.parametrize("throttle_ms", [1, 250, 2**24, 2**31 - 1])
def test_a_broker_that_wants_silence_is_left_to_the_connection(version: int, throttle_ms: int) -> None:
    with Bench(version) as bench:
        future = bench.sender.send("topic", b"v")
        correlation_id, message = decode_response(ProduceResponse, version, bench.answer()[4:])
        message.throttle_time_ms = throttle_ms
        parts: Any = encode_response(message, version, correlation_id)
        bench.far.sendall(b"".join(parts))
        bench.reader()
        assert bench.told == [b"".join(parts)] and not future.done() and not bench.lane.armed
        assert bench.lane.records == list(bench.connection._waiting)


def test_every_cut_answer_and_what_is_behind_a_whole_one_is_left_to_the_connection() -> None:
    with Bench() as bench:
        bench.sender.send("topic", b"v")
        answer = bench.answer()
        for end in range(1, len(answer)):
            bench.far.sendall(answer[:end])
            bench.reader()
            assert bench.told.pop() == answer[:end] and not bench.lane.armed
            bench.aim()
        bench.far.sendall(answer + b"more")
        bench.reader()
        assert bench.told == [b"more"]
        bench.far.shutdown(socket.SHUT_WR)
        bench.reader()
        assert bench.told[1:] == ["usual"]


def test_as_many_as_its_depth_are_on_their_way_and_answers_that_come_together_complete_them_in_order() -> None:
    with Bench() as bench:
        futures = [bench.sender.send("topic", b"%d" % number) for number in range(3)]
        assert bench.sender.send("topic", b"one too many") is None
        assert [record.position for record in bench.lane.records] == [5, 6, 7] and bench.sequence.next == 2
        answers = []
        for offset in range(3):
            answers.append(bench.answer(base_offset=offset))
            bench.connection._waiting.rotate(-1)
        bench.far.sendall(answers[0])
        bench.reader()
        assert [future.done() for future in futures] == [True, False, False]
        bench.far.sendall(answers[1] + answers[2] + b"more")
        bench.reader()
        assert [future.result(0).offset for future in futures] == [0, 1, 2]
        assert bench.told == [b"more"] and not bench.lane.records and not bench.connection._waiting


STATES = {
    "a request on its way": lambda bench: bench.connection._waiting.append(object()),
    "requests held back": lambda bench: bench.connection._held.append([]),
    "an ended connection": lambda bench: setattr(bench.connection, "_cause", OSError()),
    "no timer": lambda bench: setattr(bench.connection, "_timer", None),
    "a timer that is too late": lambda bench: setattr(bench.connection, "_timer_at", FAR),
    "a broker that wants silence": lambda bench: setattr(bench.connection, "_throttled_until", FAR),
    "bytes that wait": lambda bench: bench.stream._queue.append(b"x"),
    "a writer that waits": lambda bench: setattr(bench.stream, "_writing", True),
    "a cork": lambda bench: setattr(bench.stream, "_corked", True),
    "a closed stream": lambda bench: setattr(bench.stream, "closed", True),
    "its own gate": lambda bench: bench.stream.gate.acquire(),
    "a look that is due": lambda bench: bench.aim(until=0.0),
    "a look that is too late": lambda bench: bench.aim(next_look=FAR),
    "a share that is used up": lambda bench: bench.aim(bytes_left=68),
    "another holder of the lock": lambda bench: bench.lane.stop(),
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
def test_nothing_happens_where_it_is_not_at_rest(state: Any) -> None:
    with Bench() as bench:
        state(bench)
        before = list(bench.connection._waiting)
        assert bench.sender.send("topic", b"v") is None
        assert not bench.lane.records and list(bench.connection._waiting) == before
        assert (bench.queue.records, bench.sequence.next, bench.told) == (5, 2**31 - 1, [])
        bench.near.close()
        assert bench.far.recv(1) == b""


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "another"}, {"partition": 1}, {"partition": True}, {"partition": 2.0}, {"partition": 2**70},
        {"value": bytearray(b"v")}, {"key": memoryview(b"k")}, {"headers": [("h", b"")]}, {"value": bytes(5000)},
        {"key": b"of another partition"}, {"value": "text"},
    ],
    ids=lambda arguments: next(iter(arguments)),
)  # fmt: skip
def test_what_is_not_for_it_goes_the_usual_way(arguments: dict[str, Any]) -> None:
    assert partition_for_key(b"of another partition", 5) != 2
    with Bench() as bench:
        given: dict[str, Any] = {"topic": "topic", "value": b"v"} | arguments
        assert bench.sender.send(given.pop("topic"), given.pop("value"), **given) is None
        assert not bench.lane.records
        assert bench.sender.send("topic", b"v", partition=2) is not None


def test_what_is_on_its_way_is_adopted_by_whoever_takes_the_lock() -> None:
    with Bench() as bench:
        lock = compiled_only("LaneLock")(threading.Lock())
        lock.lane = bench.lane
        bench.sender.send("topic", b"v")
        [record] = bench.lane.records
        with lock:
            assert lock.locked() and not bench.lane.armed
        assert bench.told == [("adopt", record)] and not lock.locked()
        assert bench.sender.send("topic", b"w") is None


def test_a_lock_whose_adoption_fails_is_free_again_and_tries_it_anew() -> None:
    with Bench() as bench:
        lock = compiled_only("LaneLock")(threading.Lock())
        lock.lane = bench.lane
        bench.sender.send("topic", b"v")
        bench.adopt = lambda record: 1 / 0  # type: ignore[assignment]
        with pytest.raises(ZeroDivisionError), lock:
            pass
        assert not lock.locked() and bench.lane.records
        del bench.adopt
        with lock:
            assert not bench.lane.records


def test_what_the_kernel_does_not_take_is_the_streams_and_its_gate_is_free_whatever_the_lane_does_meanwhile() -> None:
    with Bench() as bench:
        bench.near.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                bench.near.send(bytes(65_536))
        gate = bench.stream.gate

        def aim_elsewhere(rest: bytes) -> None:
            bench.told.append(rest)
            bench.lane.records = []  # the answer came
            bench.stream.gate = threading.RLock()
            bench.aim()

        bench.stream.left_here = aim_elsewhere
        assert bench.sender.send("topic", b"v") is not None
        [rest] = bench.told
        assert rest.startswith(len(rest[4:]).to_bytes(4, "big"))
        assert not gate._is_owned()  # type: ignore[attr-defined]
