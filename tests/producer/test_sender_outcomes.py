"""Sender: refusals, lost responses and timeouts: sequence numbers, epochs and results."""

from __future__ import annotations

import pytest

from pyclient import errors
from tests.producer.sender_fixture import NOT_LEADER, OUT_OF_ORDER, SenderFixture

LOST_ITS_PLACE = pytest.mark.parametrize("lost", [OUT_OF_ORDER, errors.UnknownProducerId.code])


@LOST_ITS_PLACE
def test_out_of_order_batch_waits_for_the_refused_one_before_it(lost):
    fixture = SenderFixture()
    fixture.warm()
    fixture.batch("a")
    fixture.batch("b")
    fixture.drain()
    fixture.answer("a", errors.CorruptMessage.code)
    fixture.answer("b", lost)
    assert fixture.drain(seconds=1.0) == [["a"]]
    fixture.answer("a")
    assert fixture.drain() == [["b"]] and fixture.numbers("b") == (0, 2)


@LOST_ITS_PLACE
def test_out_of_order_first_batch_begins_a_new_epoch(lost):
    fixture = SenderFixture()
    fixture.warm()
    fixture.batch("a")
    fixture.batch("b")
    fixture.drain()
    fixture.answer("a", lost)  # the broker has lost what it knew
    assert fixture.drain(seconds=1.0) == []  # b is on the wire: its old number must not come in between
    fixture.answer("b", lost)
    assert fixture.drain() == [["a"]] and fixture.numbers("a") == (1, 0)
    fixture.answer("a")
    assert fixture.drain(seconds=1.0) == [["b"]] and fixture.numbers("b") == (1, 1)


def test_refused_record_leaves_no_sequence_gap():
    fixture = SenderFixture()
    fixture.warm()
    bad = fixture.batch("bad", b"1", b"2", b"3")
    fixture.batch("next")
    fixture.drain()
    fixture.answer("bad", errors.InvalidRecord.code, message="no key", record_errors={1: "a key is needed"})
    fixture.answer("next", OUT_OF_ORDER)
    assert fixture.drain(seconds=1.0) == [["next"]] and fixture.numbers("next") == (1, 0)
    texts = [str(future.exception(0)) for future in bad]
    assert "broker 1 refused this record: a key is needed" in texts[1]
    assert "no key; the batch's other records can be sent again" in texts[0] and texts[0] == texts[2]
    assert not bad[0].exception(0).maybe_persisted


def test_refused_batch_does_not_renumber_an_earlier_unknown_one():
    fixture = SenderFixture()
    fixture.warm()
    (first,) = fixture.batch("first")
    fixture.batch("bad")
    fixture.batch("last")
    fixture.drain()
    fixture.answer("first", errors.NotEnoughReplicasAfterAppend.code)
    fixture.answer("bad", errors.InvalidRecord.code)
    fixture.answer("last", OUT_OF_ORDER)
    assert fixture.drain(seconds=1.0) == [["first"]] and fixture.numbers("first") == (0, 1)
    fixture.answer("first", base_offset=1)
    assert first.result(0).offset == 1
    assert fixture.drain() == [["last"]] and fixture.numbers("last") == (1, 0)


def test_expired_batch_of_unknown_outcome_keeps_the_sequence():
    fixture = SenderFixture()
    fixture.warm()
    (lost,) = fixture.batch("lost")
    fixture.drain()
    fixture.lose("lost")
    fixture.now += 30
    (after,) = fixture.batch("after")
    assert fixture.drain(seconds=31.0) == [["after"]]  # it may well be written: its number stays its own
    assert isinstance(lost.exception(0), errors.DeliveryTimeout) and lost.exception(0).maybe_persisted
    assert fixture.numbers("after") == (0, 2)
    fixture.answer("after", OUT_OF_ORDER)  # so it was not
    assert fixture.drain(seconds=1.0) == [["after"]] and fixture.numbers("after") == (1, 0)
    fixture.answer("after")
    assert after.result(0).offset == 0


def test_batch_expired_in_flight_keeps_its_buffer_until_its_request_ends():
    fixture = SenderFixture()
    (future,) = fixture.batch("a")
    fixture.drain()
    assert fixture.drain(seconds=60.0) == []
    assert future.exception(0).maybe_persisted and "has not answered" in str(future.exception(0))
    assert fixture.accumulator.pool.available == 99_000 and not fixture.accumulator.incomplete
    fixture.answer("a", base_offset=7)
    assert fixture.accumulator.pool.available == 100_000
    assert isinstance(future.exception(0), errors.DeliveryTimeout)
    fixture.batch("b")
    assert fixture.drain() == [["b"]] and fixture.numbers("b") == (0, 1)


def test_unsent_batch_is_certainly_not_written():
    fixture = SenderFixture(leaders=(-1,))
    (future,) = fixture.batch("a")
    assert fixture.drain(seconds=60.0) == []
    error = future.exception(0)
    assert not error.maybe_persisted and "the partition has no leader" in str(error)
    assert fixture.accumulator.pool.available == 100_000


@pytest.mark.parametrize(
    ("code", "maybe_persisted"),
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
def test_maybe_persisted_of_an_error_is_true_if_the_record_may_be_written(code, maybe_persisted):
    fixture = SenderFixture(idempotent=False, retries=0)
    (future,) = fixture.batch("a")
    fixture.drain()
    fixture.answer("a", code)
    error = future.exception(0)
    assert error.code in (code, -1) and error.maybe_persisted is maybe_persisted and "t-0: broker 1" in str(error)


def test_retries_are_counted():
    fixture = SenderFixture(idempotent=False, retries=2)
    (future,) = fixture.batch("a")
    for _ in range(3):
        assert fixture.drain(seconds=1.0) == [["a"]] and not future.done()
        fixture.answer("a", errors.LeaderNotAvailable.code)
    assert isinstance(future.exception(0), errors.LeaderNotAvailable)


def test_duplicate_is_a_success_with_unknown_offset():
    fixture = SenderFixture()
    (future,) = fixture.batch("a")
    fixture.drain()
    fixture.answer("a", errors.DuplicateSequenceNumber.code)
    assert future.result(0).offset == -1


def test_a_batch_left_out_of_the_answer_is_sent_again():
    fixture = SenderFixture()
    (future,) = fixture.batch("a")
    fixture.drain()
    work = fixture.works.pop("a")
    assert fixture.sender.answered(work, {}, 0, fixture.now) == []
    assert fixture.drain(seconds=1.0) == [["a"]]
    fixture.answer("a", base_offset=3)
    assert future.result(0).offset == 3


def test_a_refused_epoch_is_answered_with_a_new_producer_id():
    fixture = SenderFixture()
    fixture.warm()
    (future,) = fixture.batch("a")
    fixture.drain()
    fixture.answer("a", errors.InvalidProducerEpoch.code)
    assert fixture.drain(seconds=1.0) == [] and fixture.sender.producer_ids.wanted
    fixture.sender.producer_ids.obtained(8, 0)
    assert fixture.drain() == [["a"]] and fixture.numbers("a") == (0, 0)
    fixture.answer("a")
    assert future.done()


def test_a_refused_epoch_after_a_lost_answer_is_not_written_twice():
    fixture = SenderFixture()
    fixture.warm()
    (future,) = fixture.batch("a")
    fixture.drain()
    fixture.lose("a")
    fixture.drain(seconds=1.0)
    fixture.answer("a", errors.InvalidProducerEpoch.code)
    assert isinstance(future.exception(0), errors.InvalidProducerEpoch) and future.exception(0).maybe_persisted


def test_refused_producer_id_fails_only_batches_that_need_one():
    fixture = SenderFixture(leaders=(1, 1))
    fixture.warm()  # partition 0 has its numbers
    (a,), (b,) = fixture.batch("a"), fixture.batch("b", partition=1)
    fixture.sender.producer_ids.used_up(7)
    for result in fixture.sender.no_producer_id(errors.ClusterAuthorizationFailed("no")):
        result.notify()
    assert isinstance(b.exception(0), errors.ClusterAuthorizationFailed) and not a.done()
    assert fixture.drain() == [["a"]]
    fixture.answer("a", base_offset=1)
    assert a.result(0).offset == 1


def test_refused_producer_id_fails_only_batches_after_a_missing_number():
    fixture = SenderFixture()
    fixture.sender.producer_ids.obtained(7, 32_767)
    fixture.warm()
    (unknown,) = fixture.batch("unknown")
    fixture.batch("bad")
    (after,) = fixture.batch("after")
    fixture.drain()
    fixture.answer("unknown", errors.NotEnoughReplicasAfterAppend.code)
    fixture.answer("bad", errors.InvalidRecord.code)
    fixture.answer("after", OUT_OF_ORDER)
    for result in fixture.sender.no_producer_id(errors.ClusterAuthorizationFailed("no")):
        result.notify()
    assert after.done() and not unknown.done()
    assert fixture.drain(seconds=1.0) == [["unknown"]]
