"""Sender: splits of too large batches, and throttled or stalled brokers."""

from __future__ import annotations

from pyclient import errors
from pyclient.records import Compression, read_header
from tests.producer.sender_fixture import NOT_LEADER, OUT_OF_ORDER, SenderFixture

# -- splits


def test_too_large_batch_is_split_into_halves_with_the_same_sequences():
    fixture = SenderFixture()
    fixture.warm()
    futures = fixture.batch("a", *(b"%d" % number for number in range(5)))
    fixture.batch("b")
    fixture.drain()
    fixture.answer("a", errors.MessageTooLarge.code)
    fixture.answer("b", OUT_OF_ORDER)
    parts = []
    for _ in range(2):  # the first half alone; then the second one, before b
        work = fixture.sender.drain(1, fixture.now + 1.0)
        header = read_header(work.batches[0].seal(Compression.NONE, None))
        parts.append((header.base_sequence, header.count))
        fixture.works["half"] = work
        fixture.answer("half", base_offset=99 + header.base_sequence)
    assert parts == [(1, 2), (3, 3)]
    assert [future.result(0).offset for future in futures] == [100, 101, 102, 103, 104]
    assert fixture.drain(seconds=1.0) == [["b"]] and fixture.numbers("b") == (0, 6)


def test_memory_of_split_parts_survives_a_concurrent_failed_send():
    fixture = SenderFixture()
    fixture.warm()
    futures = fixture.batch("a", *(b"%d" % number for number in range(4)))
    fixture.drain()
    fixture.answer("a", errors.MessageTooLarge.code)
    pool = fixture.accumulator.pool
    available = pool.available
    pool.take_back()  # what a `send` does whose record is none, or that Ctrl-C ends
    assert pool.available == available
    for _ in range(2):
        ((name,),) = fixture.drain()
        fixture.answer(name)
    assert all(future.exception(0) is None for future in futures)
    assert pool.available == 100_000


def test_a_single_record_that_is_too_large_fails():
    fixture = SenderFixture()
    futures = fixture.batch("a", b"1", b"2")
    fixture.drain()
    fixture.answer("a", errors.MessageTooLarge.code)
    for _ in range(2):
        ((name,),) = fixture.drain()
        fixture.answer(name, errors.MessageTooLarge.code)
    assert [type(future.exception(0)) for future in futures] == [errors.MessageTooLarge] * 2
    assert fixture.accumulator.pool.available == 100_000 and not fixture.accumulator.incomplete


def test_the_parts_of_a_batch_that_may_be_in_the_log_are_not_written_again():
    fixture = SenderFixture()
    fixture.warm()
    futures = fixture.batch("a", b"1", b"2")
    fixture.drain()
    fixture.lose("a")  # it was written, and then the topic's limit was lowered
    fixture.drain(seconds=1.0)
    fixture.answer("a", errors.MessageTooLarge.code)
    for _ in range(2):
        ((name,),) = fixture.drain()
        fixture.answer(name, OUT_OF_ORDER)
    assert all(future.exception(0).maybe_persisted for future in futures)
    fixture.batch("b")
    assert fixture.drain() == [["b"]] and fixture.numbers("b") == (0, 3)


# -- throttled and stalled brokers


def test_throttled_broker_gets_no_request_during_its_throttle_time():
    fixture = SenderFixture(idempotent=False)
    fixture.batch("a")
    fixture.drain()
    fixture.answer("a", throttle_ms=5000)
    fixture.batch("b")
    assert fixture.drain() == [] and fixture.sender.next_round() == 105.0
    assert fixture.drain(seconds=5.0) == [["b"]]


def test_excessive_throttle_time_is_bounded():
    fixture = SenderFixture(idempotent=False)
    fixture.batch("a")
    fixture.drain()
    fixture.answer("a", throttle_ms=2**31 - 1)
    assert fixture.sender.nodes[1].throttled_until <= 100 + 3600
    fixture.drain(seconds=3600)
    fixture.batch("b")
    assert fixture.drain() == [["b"]]
    fixture.answer("b", throttle_ms=-5)
    fixture.batch("c")
    assert fixture.drain() == [["c"]]


def test_order_is_kept_over_a_move_with_one_request_in_flight():
    fixture = SenderFixture(idempotent=False, max_in_flight=1)
    fixture.batch("a")
    fixture.batch("b")
    assert fixture.drain() == [["a"]]
    fixture.lead(2)
    assert fixture.drain(2) == []
    fixture.answer("a", NOT_LEADER)
    assert fixture.drain(2, seconds=1.0) == [["a"]]
    fixture.answer("a")
    assert fixture.drain(2) == [["b"]]


def test_stalled_broker_is_detected():
    fixture = SenderFixture(leaders=(1, 2), availability_timeout=10.0)
    fixture.sender.stalled(1, fixture.now)
    fixture.drain(seconds=9.0)
    assert fixture.accumulator.stalled_nodes() == set()
    fixture.drain(seconds=2.0)
    assert fixture.accumulator.stalled_nodes() == {1}
    fixture.batch("a")
    fixture.drain()
    assert fixture.accumulator.stalled_nodes() == set()


def test_purge_leaves_batches_in_flight():
    fixture = SenderFixture()
    (sent,) = fixture.batch("a")
    (waiting,) = fixture.batch("b")
    fixture.drain()
    for result in fixture.sender.abort(errors.ClosedError("purged"), on_wire=False):
        result.notify()
    assert waiting.done() and not sent.done() and not waiting.exception(0).maybe_persisted
    fixture.answer("a")
    assert sent.result(0).offset == 0
    for result in fixture.sender.abort(errors.ClosedError("closed")):
        result.notify()
    assert fixture.accumulator.pool.available == 100_000
