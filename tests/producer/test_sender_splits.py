"""Batches that are too large go on in parts, and brokers that want less get less."""

from __future__ import annotations

from pyclient import errors
from pyclient.records import Compression, read_header
from tests.producer.sender_bench import NOT_LEADER, OUT_OF_ORDER, Bench

# -- splits


def test_a_batch_that_is_too_large_goes_on_in_halves_with_the_same_numbers():
    bench = Bench()
    bench.warm()
    futures = bench.batch("a", *(b"%d" % number for number in range(5)))
    bench.batch("b")
    bench.drain()
    bench.answer("a", errors.MessageTooLarge.code)
    bench.answer("b", OUT_OF_ORDER)
    parts = []
    for _ in range(2):  # the first half alone; then the second one, before b
        work = bench.sender.drain(1, bench.now + 1.0)
        header = read_header(work.batches[0].seal(Compression.NONE, None))
        parts.append((header.base_sequence, header.count))
        bench.works["half"] = work
        bench.answer("half", base_offset=99 + header.base_sequence)
    assert parts == [(1, 2), (3, 3)]
    assert [future.result(0).offset for future in futures] == [100, 101, 102, 103, 104]
    assert bench.drain(seconds=1.0) == [["b"]] and bench.numbers("b") == (0, 6)


def test_the_memory_of_halves_is_theirs_when_a_send_fails_just_then():
    bench = Bench()
    bench.warm()
    futures = bench.batch("a", *(b"%d" % number for number in range(4)))
    bench.drain()
    bench.answer("a", errors.MessageTooLarge.code)
    pool = bench.accumulator.pool
    available = pool.available
    pool.take_back()  # what a `send` does whose record is none, or that Ctrl-C ends
    assert pool.available == available
    for _ in range(2):
        ((name,),) = bench.drain()
        bench.answer(name)
    assert all(future.exception(0) is None for future in futures)
    assert pool.available == 100_000


def test_a_single_record_that_is_too_large_fails():
    bench = Bench()
    futures = bench.batch("a", b"1", b"2")
    bench.drain()
    bench.answer("a", errors.MessageTooLarge.code)
    for _ in range(2):
        ((name,),) = bench.drain()
        bench.answer(name, errors.MessageTooLarge.code)
    assert [type(future.exception(0)) for future in futures] == [errors.MessageTooLarge] * 2
    assert bench.accumulator.pool.available == 100_000 and not bench.accumulator.incomplete


def test_the_parts_of_a_batch_that_may_be_in_the_log_are_not_written_again():
    bench = Bench()
    bench.warm()
    futures = bench.batch("a", b"1", b"2")
    bench.drain()
    bench.lose("a")  # it was written, and then the topic's limit was lowered
    bench.drain(seconds=1.0)
    bench.answer("a", errors.MessageTooLarge.code)
    for _ in range(2):
        ((name,),) = bench.drain()
        bench.answer(name, OUT_OF_ORDER)
    assert all(future.exception(0).maybe_persisted for future in futures)
    bench.batch("b")
    assert bench.drain() == [["b"]] and bench.numbers("b") == (0, 3)


# -- brokers that want less


def test_a_throttled_broker_is_left_alone_as_long_as_it_asks():
    bench = Bench(idempotent=False)
    bench.batch("a")
    bench.drain()
    bench.answer("a", throttle_ms=5000)
    bench.batch("b")
    assert bench.drain() == [] and bench.sender.next_look() == 105.0
    assert bench.drain(seconds=5.0) == [["b"]]


def test_a_throttle_time_that_nobody_can_mean_is_bounded():
    bench = Bench(idempotent=False)
    bench.batch("a")
    bench.drain()
    bench.answer("a", throttle_ms=2**31 - 1)
    assert bench.sender.nodes[1].throttled_until <= 100 + 3600
    bench.drain(seconds=3600)
    bench.batch("b")
    assert bench.drain() == [["b"]]
    bench.answer("b", throttle_ms=-5)
    bench.batch("c")
    assert bench.drain() == [["c"]]


def test_without_idempotence_and_one_in_flight_the_order_is_kept_over_a_move():
    bench = Bench(idempotent=False, max_in_flight=1)
    bench.batch("a")
    bench.batch("b")
    assert bench.drain() == [["a"]]
    bench.lead(2)
    assert bench.drain(2) == []
    bench.answer("a", NOT_LEADER)
    assert bench.drain(2, seconds=1.0) == [["a"]]
    bench.answer("a")
    assert bench.drain(2) == [["b"]]


def test_a_broker_that_takes_nothing_is_found_out():
    bench = Bench(leaders=(1, 2), availability_timeout=10.0)
    bench.sender.stalled(1, bench.now)
    bench.drain(seconds=9.0)
    assert bench.accumulator.stalled_nodes() == set()
    bench.drain(seconds=2.0)
    assert bench.accumulator.stalled_nodes() == {1}
    bench.batch("a")
    bench.drain()
    assert bench.accumulator.stalled_nodes() == set()


def test_purging_leaves_what_is_on_the_wire():
    bench = Bench()
    (sent,) = bench.batch("a")
    (waiting,) = bench.batch("b")
    bench.drain()
    for settlement in bench.sender.abort(errors.ClosedError("purged"), on_wire=False):
        settlement.tell()
    assert waiting.done() and not sent.done() and not waiting.exception(0).maybe_persisted
    bench.answer("a")
    assert sent.result(0).offset == 0
    for settlement in bench.sender.abort(errors.ClosedError("closed")):
        settlement.tell()
    assert bench.accumulator.pool.available == 100_000
