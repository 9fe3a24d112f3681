"""What the sender makes of refusals, lost answers and times that run out: numbers, epochs, and what a future says."""

from __future__ import annotations

import pytest

from pyclient import errors
from tests.producer.sender_bench import NOT_LEADER, OUT_OF_ORDER, Bench

LOST_ITS_PLACE = pytest.mark.parametrize("lost", [OUT_OF_ORDER, errors.UnknownProducerId.code])


@LOST_ITS_PLACE
def test_out_of_order_behind_a_refused_batch_waits_for_it(lost):
    bench = Bench()
    bench.warm()
    bench.batch("a")
    bench.batch("b")
    bench.drain()
    bench.answer("a", errors.CorruptMessage.code)
    bench.answer("b", lost)
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a")
    assert bench.drain() == [["b"]] and bench.numbers("b") == (0, 2)


@LOST_ITS_PLACE
def test_a_batch_that_is_out_of_order_with_nothing_before_it_begins_a_new_epoch(lost):
    bench = Bench()
    bench.warm()
    bench.batch("a")
    bench.batch("b")
    bench.drain()
    bench.answer("a", lost)  # the broker has lost what it knew
    assert bench.drain(seconds=1.0) == []  # b is on the wire: its old number must not come in between
    bench.answer("b", lost)
    assert bench.drain() == [["a"]] and bench.numbers("a") == (1, 0)
    bench.answer("a")
    assert bench.drain(seconds=1.0) == [["b"]] and bench.numbers("b") == (1, 1)


def test_a_refused_record_leaves_no_hole_behind():
    bench = Bench()
    bench.warm()
    bad = bench.batch("bad", b"1", b"2", b"3")
    bench.batch("next")
    bench.drain()
    bench.answer("bad", errors.InvalidRecord.code, message="no key", record_errors={1: "a key is needed"})
    bench.answer("next", OUT_OF_ORDER)
    assert bench.drain(seconds=1.0) == [["next"]] and bench.numbers("next") == (1, 0)
    texts = [str(future.exception(0)) for future in bad]
    assert "broker 1 refused this record: a key is needed" in texts[1]
    assert "no key; the batch's other records can be sent again" in texts[0] and texts[0] == texts[2]
    assert not bad[0].exception(0).maybe_persisted


def test_a_refused_batch_does_not_renumber_an_earlier_one_that_may_be_written():
    bench = Bench()
    bench.warm()
    (first,) = bench.batch("first")
    bench.batch("bad")
    bench.batch("last")
    bench.drain()
    bench.answer("first", errors.NotEnoughReplicasAfterAppend.code)
    bench.answer("bad", errors.InvalidRecord.code)
    bench.answer("last", OUT_OF_ORDER)
    assert bench.drain(seconds=1.0) == [["first"]] and bench.numbers("first") == (0, 1)
    bench.answer("first", base_offset=1)
    assert first.result(0).offset == 1
    assert bench.drain() == [["last"]] and bench.numbers("last") == (1, 0)


def test_an_expired_batch_of_unknown_outcome_keeps_the_numbers_going():
    bench = Bench()
    bench.warm()
    (lost,) = bench.batch("lost")
    bench.drain()
    bench.lose("lost")
    bench.now += 30
    (after,) = bench.batch("after")
    assert bench.drain(seconds=31.0) == [["after"]]  # it may well be written: its number stays its own
    assert isinstance(lost.exception(0), errors.DeliveryTimeout) and lost.exception(0).maybe_persisted
    assert bench.numbers("after") == (0, 2)
    bench.answer("after", OUT_OF_ORDER)  # so it was not
    assert bench.drain(seconds=1.0) == [["after"]] and bench.numbers("after") == (1, 0)
    bench.answer("after")
    assert after.result(0).offset == 0


def test_a_batch_that_expires_on_the_wire_keeps_its_buffer_until_its_request_ends():
    bench = Bench()
    (future,) = bench.batch("a")
    bench.drain()
    assert bench.drain(seconds=60.0) == []
    assert future.exception(0).maybe_persisted and "has not answered" in str(future.exception(0))
    assert bench.accumulator.pool.available == 99_000 and not bench.accumulator.incomplete
    bench.answer("a", base_offset=7)
    assert bench.accumulator.pool.available == 100_000
    assert isinstance(future.exception(0), errors.DeliveryTimeout)
    bench.batch("b")
    assert bench.drain() == [["b"]] and bench.numbers("b") == (0, 1)


def test_a_batch_that_never_went_out_is_certainly_not_written():
    bench = Bench(leaders=(-1,))
    (future,) = bench.batch("a")
    assert bench.drain(seconds=60.0) == []
    error = future.exception(0)
    assert not error.maybe_persisted and "the partition has no leader" in str(error)
    assert bench.accumulator.pool.available == 100_000


@pytest.mark.parametrize(
    ("code", "doubtful"),
    [
        (errors.NotEnoughReplicas.code, False),
        (errors.NotEnoughReplicasAfterAppend.code, True),
        (errors.RequestTimedOut.code, True),
        (NOT_LEADER, True),
        (errors.TopicAuthorizationFailed.code, False),
        (errors.UnknownServerError.code, True),
        (9999, True),
    ],
)
def test_an_error_tells_whether_the_record_may_be_in_the_log(code, doubtful):
    bench = Bench(idempotent=False, retries=0)
    (future,) = bench.batch("a")
    bench.drain()
    bench.answer("a", code)
    error = future.exception(0)
    assert error.code in (code, -1) and error.maybe_persisted is doubtful and "t-0: broker 1" in str(error)


def test_retries_are_counted():
    bench = Bench(idempotent=False, retries=2)
    (future,) = bench.batch("a")
    for _ in range(3):
        assert bench.drain(seconds=1.0) == [["a"]] and not future.done()
        bench.answer("a", errors.LeaderNotAvailable.code)
    assert isinstance(future.exception(0), errors.LeaderNotAvailable)


def test_a_duplicate_is_a_success_whose_offset_is_unknown():
    bench = Bench()
    (future,) = bench.batch("a")
    bench.drain()
    bench.answer("a", errors.DuplicateSequenceNumber.code)
    assert future.result(0).offset == -1


def test_a_batch_left_out_of_the_answer_is_sent_again():
    bench = Bench()
    (future,) = bench.batch("a")
    bench.drain()
    work = bench.works.pop("a")
    assert bench.sender.answered(work, {}, 0, bench.now) == []
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a", base_offset=3)
    assert future.result(0).offset == 3


def test_a_refused_epoch_is_answered_with_a_new_producer_id():
    bench = Bench()
    bench.warm()
    (future,) = bench.batch("a")
    bench.drain()
    bench.answer("a", errors.InvalidProducerEpoch.code)
    assert bench.drain(seconds=1.0) == [] and bench.sender.identity.wanted
    bench.sender.identity.obtained(8, 0)
    assert bench.drain() == [["a"]] and bench.numbers("a") == (0, 0)
    bench.answer("a")
    assert future.done()


def test_a_refused_epoch_after_a_lost_answer_is_not_written_twice():
    bench = Bench()
    bench.warm()
    (future,) = bench.batch("a")
    bench.drain()
    bench.lose("a")
    bench.drain(seconds=1.0)
    bench.answer("a", errors.InvalidProducerEpoch.code)
    assert isinstance(future.exception(0), errors.InvalidProducerEpoch) and future.exception(0).maybe_persisted


def test_a_refused_producer_id_fails_only_what_needs_one():
    bench = Bench(leaders=(1, 1))
    bench.warm()  # partition 0 has its numbers
    (a,), (b,) = bench.batch("a"), bench.batch("b", partition=1)
    bench.sender.identity.used_up(7)
    for settlement in bench.sender.no_producer_id(errors.ClusterAuthorizationFailed("no")):
        settlement.tell()
    assert isinstance(b.exception(0), errors.ClusterAuthorizationFailed) and not a.done()
    assert bench.drain() == [["a"]]
    bench.answer("a", base_offset=1)
    assert a.result(0).offset == 1


def test_a_refused_producer_id_fails_what_follows_a_missing_number_and_nothing_before_it():
    bench = Bench()
    bench.sender.identity.obtained(7, 32_767)
    bench.warm()
    (doubtful,) = bench.batch("doubtful")
    bench.batch("bad")
    (after,) = bench.batch("after")
    bench.drain()
    bench.answer("doubtful", errors.NotEnoughReplicasAfterAppend.code)
    bench.answer("bad", errors.InvalidRecord.code)
    bench.answer("after", OUT_OF_ORDER)
    for settlement in bench.sender.no_producer_id(errors.ClusterAuthorizationFailed("no")):
        settlement.tell()
    assert after.done() and not doubtful.done()
    assert bench.drain(seconds=1.0) == [["doubtful"]]
