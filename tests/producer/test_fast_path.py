"""FastPath, the compiled fast path of single records: the same bytes; all that is not plain is refused."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.producer.delivery import Delivery
from pyclient.producer.implementation import compiled_only
from pyclient.producer.producer_batch import NO_SEQUENCE
from pyclient.producer.record_accumulator import ATOMIC_APPEND
from pyclient.protocol.framing import decode_response, encode_response
from pyclient.protocol.messages.produce import ProduceRequest, ProduceResponse
from pyclient.records import BatchBuilder, partition_for_key
from tests.producer.fast_path_fixture import FAR, FastPathFixture, is_owned

pytestmark = [pytest.mark.compiled, pytest.mark.skipif(not ATOMIC_APPEND, reason="the fast path is compiled")]


@given(
    version=st.integers(ProduceRequest.versions[0], 11),
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=3000),
    timestamp_ms=st.integers(0, 2**62),
    idempotent=st.booleans(),
)
def test_fast_path_request_equals_that_of_a_batch(
    version: int, key: bytes | None, value: bytes | None, timestamp_ms: int, idempotent: bool
) -> None:
    with FastPathFixture(
        version, idempotent=idempotent, partition=partition_for_key(key, 5) if key is not None else 2
    ) as fixture:
        future = fixture.sender.send("topic", value, key=key, timestamp_ms=timestamp_ms)
        assert future.timestamp_ms == timestamp_ms and not future.done()
        builder = BatchBuilder(bytearray(4096), None)
        builder.append(timestamp_ms, key, value, None)
        numbers = (2**40 + 7, 3, 2**31 - 1) if idempotent else (-1, -1, NO_SEQUENCE)
        sealed = builder.seal(producer_id=numbers[0], producer_epoch=numbers[1], base_sequence=numbers[2])
        wanted = b"".join(bytes(part) for part in fixture.template.request(sealed, 0))  # type: ignore[arg-type]
        assert fixture.far.recv(8192) == wanted
        [waiting] = fixture.waiting
        assert (fixture.correlation_id, fixture.queue.records) == (0, 6)
        assert fixture.sequence.next == (0 if idempotent else 2**31 - 1)
        assert [waiting] == fixture.fast_path.records and (waiting.position, waiting.sequence) == (5, numbers[2])


def test_plain_response_completes_the_record_and_its_callback() -> None:
    with FastPathFixture() as fixture:
        seen: list[Any] = []
        reached = threading.Event()
        future = fixture.sender.send("topic", b"v", on_delivery=lambda done: (seen.append(done), reached.set()))
        answer = fixture.answer(base_offset=41, log_append_time_ms=-1, log_start_offset=3)
        fixture.far.sendall(answer)
        fixture.reader()
        assert reached.wait(30) and seen == [future]
        assert (future.result(0).offset, future.result(0).partition) == (41, 2)
        assert not fixture.waiting and not fixture.fast_path.records and fixture.fast_path.armed
        fixture.fast_path.stop()
        [(_, number, size, last, longest, buckets)] = fixture.events
        assert (number, size, sum(buckets)) == (1, 61 + 8, 1) and 0 <= longest < last
        fixture.context.callbacks.stop(30)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "fields",
    [{"error_code": 6}, {"index": 3}, {"error_message": "x"}],
    ids=["an error", "another partition", "a message"],
)
def test_other_responses_are_left_to_the_connection(fields: dict[str, Any]) -> None:
    with FastPathFixture() as fixture:
        future = fixture.sender.send("topic", b"v")
        answer = fixture.answer(**fields)
        fixture.far.sendall(answer)
        fixture.reader()
        assert fixture.events == [answer] and not future.done()


@pytest.mark.parametrize("version", range(ProduceRequest.versions[0], 12))
@pytest.mark.parametrize("throttle_ms", [1, 250, 2**24, 2**31 - 1])
def test_throttled_response_is_left_to_the_connection(version: int, throttle_ms: int) -> None:
    with FastPathFixture(version) as fixture:
        future = fixture.sender.send("topic", b"v")
        correlation_id, message = decode_response(ProduceResponse, version, fixture.answer()[4:])
        message.throttle_time_ms = throttle_ms
        parts: Any = encode_response(message, version, correlation_id)
        fixture.far.sendall(b"".join(parts))
        fixture.reader()
        assert fixture.events == [b"".join(parts)] and not future.done() and not fixture.fast_path.armed
        assert fixture.fast_path.records == list(fixture.waiting)


def test_cut_responses_and_trailing_bytes_are_left_to_the_connection() -> None:
    with FastPathFixture() as fixture:
        fixture.sender.send("topic", b"v")
        answer = fixture.answer()
        for end in range(1, len(answer)):
            fixture.far.sendall(answer[:end])
            fixture.reader()
            assert fixture.events.pop() == answer[:end] and not fixture.fast_path.armed
            fixture.start()
        fixture.far.sendall(answer + b"more")
        fixture.reader()
        assert fixture.events == [b"more"]
        fixture.far.shutdown(socket.SHUT_WR)
        fixture.reader()
        assert fixture.events[1:] == ["usual"]


def test_records_up_to_the_depth_are_in_flight_and_complete_in_order() -> None:
    with FastPathFixture() as fixture:
        futures = [fixture.sender.send("topic", b"%d" % number) for number in range(3)]
        assert fixture.sender.send("topic", b"one too many") is None
        assert [record.position for record in fixture.fast_path.records] == [5, 6, 7] and fixture.sequence.next == 2
        answers = []
        for offset in range(3):
            answers.append(fixture.answer(base_offset=offset))
            fixture.waiting.rotate(-1)
        fixture.far.sendall(answers[0])
        fixture.reader()
        assert [future.done() for future in futures] == [True, False, False]
        fixture.far.sendall(answers[1] + answers[2] + b"more")
        fixture.reader()
        assert [future.result(0).offset for future in futures] == [0, 1, 2]
        assert fixture.events == [b"more"] and not fixture.fast_path.records and not fixture.waiting


def test_stop_by_the_end_of_a_delivery_hands_further_responses_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The finalizer of a delivery without a future runs other threads, one of which may stop the fast path."""
    with FastPathFixture() as fixture:
        fixture.sender.send("topic", b"its future is dropped")
        future = fixture.sender.send("topic", b"v")
        answers = []
        for _ in range(2):
            answers.append(fixture.answer())
            fixture.waiting.rotate(-1)
        second = fixture.fast_path.records[1]
        monkeypatch.setattr(Delivery, "__del__", lambda _: fixture.fast_path.stop())
        fixture.far.sendall(b"".join(answers))
        fixture.reader()
        monkeypatch.undo()
        assert [fixture.events[0], fixture.events[-1]] == [("take_over", second), answers[1]]
        assert list(fixture.waiting) == [second] and not future.done()


STATES = {
    "a request on its way": lambda fixture: fixture.waiting.append(object()),
    "requests held back": lambda fixture: fixture.change("requests", held=[[]]),
    "a login on the way": lambda fixture: fixture.change("requests", on_hold=True),
    "an ended connection": lambda fixture: fixture.change("requests", ended=True),
    "no timer": lambda fixture: fixture.change("requests", timer_at=None),
    "a timer that is too late": lambda fixture: fixture.change("requests", timer_at=FAR),
    "a throttled connection": lambda fixture: fixture.change("requests", throttled_until=FAR),
    "bytes that wait": lambda fixture: fixture.change("stream", queue=[b"x"]),
    "a writer that waits": lambda fixture: fixture.change("stream", is_writing=True),
    "a cork": lambda fixture: fixture.change("stream", is_corked=True),
    "a closed stream": lambda fixture: fixture.change("stream", closed=True),
    "its own gate": lambda fixture: fixture.stream.gate.acquire(),
    "a check that is due": lambda fixture: fixture.start(until=0.0),
    "a check that is too late": lambda fixture: fixture.start(next_round=FAR),
    "a share that is used up": lambda fixture: fixture.start(bytes_left=68),
    "another holder of the lock": lambda fixture: fixture.fast_path.stop(),
}


@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
def test_fast_path_is_not_used_unless_idle(state: Any) -> None:
    with FastPathFixture() as fixture:
        state(fixture)
        before = list(fixture.waiting)
        assert fixture.sender.send("topic", b"v") is None
        assert not fixture.fast_path.records and list(fixture.waiting) == before
        assert (fixture.queue.records, fixture.sequence.next, fixture.events) == (5, 2**31 - 1, [])
        fixture.near.close()
        assert fixture.far.recv(1) == b""


@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "another"}, {"partition": 1}, {"partition": True}, {"partition": 2.0}, {"partition": 2**70},
        {"value": bytearray(b"v")}, {"key": memoryview(b"k")}, {"headers": [("h", b"")]}, {"value": bytes(5000)},
        {"key": b"of another partition"}, {"value": "text"},
    ],
    ids=lambda arguments: next(iter(arguments)),
)  # fmt: skip
def test_records_not_for_the_fast_path_are_refused_by_it(arguments: dict[str, Any]) -> None:
    assert partition_for_key(b"of another partition", 5) != 2
    with FastPathFixture() as fixture:
        given: dict[str, Any] = {"topic": "topic", "value": b"v"} | arguments
        assert fixture.sender.send(given.pop("topic"), given.pop("value"), **given) is None
        assert not fixture.fast_path.records
        assert fixture.sender.send("topic", b"v", partition=2) is not None


def test_acquiring_the_lock_takes_over_records_in_flight() -> None:
    with FastPathFixture() as fixture:
        lock = compiled_only("FastPathLock")(threading.Lock())
        lock.fast_path = fixture.fast_path
        fixture.sender.send("topic", b"v")
        [record] = fixture.fast_path.records
        with lock:
            assert lock.locked() and not fixture.fast_path.armed
        assert fixture.events == [("take_over", record)] and not lock.locked()
        assert fixture.sender.send("topic", b"w") is None


def test_lock_is_released_if_taking_over_fails_and_retries_it() -> None:
    with FastPathFixture() as fixture:
        lock = compiled_only("FastPathLock")(threading.Lock())
        lock.fast_path = fixture.fast_path
        fixture.sender.send("topic", b"v")
        fixture.take_over = lambda record: 1 / 0  # type: ignore[assignment]
        with pytest.raises(ZeroDivisionError), lock:
            pass
        assert not lock.locked() and fixture.fast_path.records
        del fixture.take_over
        with lock:
            assert not fixture.fast_path.records


def test_bytes_not_taken_by_the_kernel_are_passed_to_the_stream() -> None:
    with FastPathFixture() as fixture:
        fixture.near.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                fixture.near.send(bytes(65_536))
        gate = fixture.stream.gate

        def aim_elsewhere(rest: bytes) -> None:
            fixture.events.append(rest)
            fixture.fast_path.records = []  # the answer came
            fixture.replace_gate()
            fixture.start()

        fixture.stream.left_here = aim_elsewhere
        assert fixture.sender.send("topic", b"v") is not None
        [rest] = fixture.events
        assert rest.startswith(len(rest[4:]).to_bytes(4, "big"))
        assert not is_owned(gate)
