"""Batches with an unknown outcome, refused by a restarted broker as out of order: the table of `idempotence.py`."""

from __future__ import annotations

import uuid

import pytest

from pyclient import errors
from pyclient.producer.idempotence import KNOWN_SECONDS
from tests.producer.sender_fixture import OUT_OF_ORDER, SenderFixture
from tests.producer.test_late_requests import begun
from tests.producer.test_state_machine import ProducerMachine

UNKNOWN = -1
REFUSALS = pytest.mark.parametrize("refusal", [OUT_OF_ORDER, errors.UnknownProducerId.code])


def lost_together(*names, **options):
    """Return a fixture whose batches of these names were on their way when the connection broke; and their futures."""
    fixture = SenderFixture(**options)
    fixture.warm()
    futures = [fixture.batch(name)[0] for name in names]
    assert fixture.drain() == [[name] for name in names]
    for name in names:
        fixture.lose(name)
    return fixture, futures


def refuse(fixture, *names, code=OUT_OF_ORDER):
    """Refuse these as out of order, one after the other, each under the number it always had."""
    for name in names:
        assert fixture.drain(seconds=1.0) == [[name]] and fixture.numbers(name)[0] == 0
        fixture.answer(name, code)


@REFUSALS
@pytest.mark.parametrize("decision", [0, errors.DuplicateSequenceNumber.code])
def test_batches_before_one_that_the_broker_has_are_written(refusal, decision):
    fixture, (a, b, c) = lost_together("a", "b", "c")
    refuse(fixture, "a", "b", code=refusal)
    assert not a.done() and not b.done()
    assert fixture.drain() == [["c"]] and fixture.numbers("c") == (0, 3)
    fixture.answer("c", decision, base_offset=3)
    assert [a.result(0).offset, b.result(0).offset] == [UNKNOWN, UNKNOWN]
    assert c.result(0).offset == (UNKNOWN if decision else 3)
    fixture.batch("next")
    assert fixture.drain() == [["next"]] and fixture.numbers("next") == (0, 4)
    assert fixture.accumulator.pool.available == 99_000  # the buffers of all others went back


@REFUSALS
def test_batches_missing_at_the_broker_are_sent_under_a_new_epoch(refusal):
    fixture, futures = lost_together("a", "b")
    refuse(fixture, "a", "b", code=refusal)
    assert fixture.drain(seconds=1.0) == [["a"]] and fixture.numbers("a") == (1, 0)
    fixture.answer("a", base_offset=1)
    assert fixture.drain() == [["b"]] and fixture.numbers("b") == (1, 1)
    fixture.answer("b", base_offset=2)
    assert [future.result(0).offset for future in futures] == [1, 2]


def test_a_clean_batch_that_follows_decides_nothing():
    """It was never written, so the last one before it that was would have been a duplicate."""
    fixture, _ = lost_together("a", "b")
    fixture.batch("clean")
    refuse(fixture, "a", "b")
    assert fixture.drain(seconds=1.0) == [["a"]] and fixture.numbers("a") == (1, 0)
    fixture.answer("a")
    assert fixture.drain() == [["b"], ["clean"]] and fixture.numbers("clean") == (1, 2)


def test_batch_of_unknown_outcome_is_written_if_a_later_one_was_confirmed():
    fixture = SenderFixture()
    fixture.warm()
    (a,), (b,) = fixture.batch("a"), fixture.batch("b")
    fixture.drain()
    fixture.answer("a", errors.NotEnoughReplicasAfterAppend.code)
    fixture.answer("b", base_offset=2)
    assert fixture.drain(seconds=1.0) == [["a"]] and not a.done()
    fixture.answer("a", OUT_OF_ORDER)  # the broker was restarted, and remembers b alone
    assert (a.result(0).offset, b.result(0).offset) == (UNKNOWN, 2)


def test_undecided_batch_fails_if_an_earlier_outcome_is_unknown():
    fixture = SenderFixture()
    fixture.warm()
    (old,) = fixture.batch("old")
    fixture.drain()
    fixture.now += 30
    (a,) = fixture.batch("a")
    fixture.drain()
    fixture.lose("old")
    fixture.lose("a")
    assert fixture.drain(seconds=31.0) == [["a"]] and isinstance(old.exception(0), errors.DeliveryTimeout)
    fixture.answer("a", OUT_OF_ORDER)
    error = a.exception(0)
    assert isinstance(error, errors.OutOfOrderSequenceNumber) and error.maybe_persisted
    assert "could duplicate records" in str(error)


def test_an_undecided_batch_that_expires_leaves_the_decision_to_the_next():
    fixture = SenderFixture()
    fixture.warm()
    (a,) = fixture.batch("a")
    fixture.drain()
    fixture.now += 30
    (b,), (c,) = fixture.batch("b"), fixture.batch("c")
    fixture.drain()
    for name in "abc":
        fixture.lose(name)
    refuse(fixture, "a", "b")
    fixture.drain(seconds=30.0)
    assert a.exception(0).maybe_persisted and not b.done() and not c.done()
    fixture.answer("c", base_offset=3)
    assert (b.result(0).offset, c.result(0).offset) == (UNKNOWN, 3)


def test_undecided_parts_of_an_unknown_batch_fail_as_maybe_persisted():
    """The broker may have the whole batch: under its numbers, not under those of its parts."""
    fixture = SenderFixture()
    fixture.warm()
    futures = fixture.batch("a", b"1", b"2")
    fixture.drain()
    fixture.lose("a")
    assert fixture.drain(seconds=1.0) == [["a"]]
    fixture.answer("a", errors.MessageTooLarge.code)
    for _ in futures:
        assert fixture.drain(seconds=1.0) == [["part"]]
        fixture.answer("part", OUT_OF_ORDER)
    assert [future.exception(0).maybe_persisted for future in futures] == [True, True]


def test_batch_after_the_parts_of_an_unknown_one_proves_them_written():
    fixture = SenderFixture()
    fixture.warm()
    futures = fixture.batch("a", b"1", b"2")
    (b,) = fixture.batch("b")
    fixture.drain()
    fixture.lose("a")
    fixture.lose("b")
    assert fixture.drain(seconds=1.0) == [["a"]]
    fixture.answer("a", errors.MessageTooLarge.code)
    for _ in futures:
        assert fixture.drain(seconds=1.0) == [["part"]]
        fixture.answer("part", OUT_OF_ORDER)
    assert fixture.drain(seconds=1.0) == [["b"]] and fixture.numbers("b") == (0, 3)
    fixture.answer("b", base_offset=3)
    assert [future.result(0).offset for future in [*futures, b]] == [UNKNOWN, UNKNOWN, 3]


def test_refused_epoch_gives_no_new_numbers_to_batches_of_unknown_outcome():
    fixture, (a, b) = lost_together("a", "b")
    clean = fixture.batch("clean")[0]
    assert fixture.drain(seconds=1.0) == [["a"]]
    fixture.answer("a", errors.InvalidProducerEpoch.code)
    assert a.exception(0).maybe_persisted and b.exception(0).maybe_persisted and not clean.done()
    assert fixture.drain() == [] and fixture.sender.producer_ids.wanted
    fixture.sender.producer_ids.obtained(8, 0)
    assert fixture.drain() == [["clean"]] and fixture.numbers("clean") == (0, 0)


def test_undecided_batches_are_sent_again_to_a_recreated_topic():
    fixture, (a, b) = lost_together("a", "b")
    refuse(fixture, "a")
    fixture.topic = fixture.accumulator.update_topic("t", uuid.uuid4(), [1], fixture.now)
    for number, (name, future) in enumerate([("a", a), ("b", b)]):
        assert fixture.drain(seconds=1.0) == [[name]] and fixture.numbers(name)[0] == 0
        fixture.answer(name, base_offset=number)
        assert future.result(0).offset == number
    fixture.batch("next")
    assert fixture.drain() == [["next"]] and fixture.numbers("next") == (1, 0)


def test_out_of_order_error_of_a_later_batch_counts_no_attempt():
    fixture = SenderFixture(retries=1)
    fixture.warm()
    fixture.batch("a")
    (b,) = fixture.batch("b")
    fixture.drain()
    fixture.answer("a", errors.CorruptMessage.code)
    fixture.answer("b", OUT_OF_ORDER)
    assert fixture.drain(seconds=1.0) == [["a"]]
    fixture.answer("a")
    assert fixture.drain() == [["b"]]
    fixture.answer("b", errors.CorruptMessage.code)
    assert not b.done() and fixture.drain(seconds=1.0) == [["b"]]


def test_parts_of_a_split_batch_have_all_their_attempts_and_do_not_pause():
    fixture = SenderFixture(retries=0, max_in_flight=1)
    fixture.warm()
    futures = fixture.batch("a", *[b"%d" % number for number in range(8)])
    fixture.drain()
    fixture.answer("a", errors.MessageTooLarge.code)
    while fixture.drain():  # at the same instant
        small = fixture.works["part"].batches[0].count <= 2
        fixture.answer("part", 0 if small else errors.MessageTooLarge.code)
    assert all(future.exception(0) is None for future in futures)


def test_first_batch_after_a_long_pause_is_sent_alone_until_confirmed():
    """The broker may have forgotten the producer, and would then take a second batch whose first it refused."""
    fixture = SenderFixture()
    fixture.warm()
    fixture.now += KNOWN_SECONDS
    fixture.batch("a")
    fixture.batch("b")
    assert fixture.drain() == [["a"], ["b"]]
    for name in "ab":
        fixture.answer(name)
    fixture.now += KNOWN_SECONDS + 1
    fixture.batch("c")
    fixture.batch("d")
    assert fixture.drain() == [["c"]]
    fixture.answer("c", errors.NotEnoughReplicas.code)
    assert fixture.drain(seconds=1.0) == [["c"]]
    fixture.answer("c")
    assert fixture.drain() == [["d"]]


# -- with the model of a broker


def in_flight(count):
    """Return a machine with a confirmed record, and so many batches on their way."""
    machine = begun(ProducerMachine)
    for _ in range(count):
        machine.send_alone(0)
    assert len(machine.wire[0, 0]) == count
    return machine


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("written", [0, 1, 2, 3, 4, 5])
def test_written_batches_are_not_duplicated_after_a_restart(count, written):
    machine = in_flight(count)
    machine.break_connection(0, min(written, count))
    machine.late.clear()
    machine.replicas[0].restart()
    machine.wait(1.0)
    machine.teardown()
    assert machine.replicas[0].log == [b"%d" % number for number in range(count + 1)]
    offsets = [future.result(0).offset for _, future, _ in machine.sent[0]]
    forgotten = max(0, min(written, count) - 1)
    assert offsets == [0, *[UNKNOWN] * forgotten, *range(1 + forgotten, count + 1)]


def test_batches_that_an_unclean_election_lost_are_sent_again():
    machine = in_flight(3)
    machine.break_connection(0, 3)
    machine.replicas[0].truncate(4)
    machine.replicas[0].recent[7] = [(100, 100, 0)]  # what is left is not what this producer sent last
    machine.wait(1.0)
    for _ in range(10):
        for _ in list(machine.wire[0, 0]):
            machine.answer(0)
        machine.wait(1.0)
    assert machine.replicas[0].log == [b"1", b"2", b"3"]
    assert [future.result(0).offset for _, future, _ in machine.sent[0][1:]] == [0, 1, 2]


def test_idle_producer_forgotten_by_the_broker_continues_in_order():
    machine = begun(ProducerMachine)
    machine.wait(KNOWN_SECONDS + 1)
    machine.replicas[0].expire_producers()
    machine.send_alone(0)
    machine.send_alone(0)
    assert len(machine.wire[0, 0]) == 1
    machine.teardown()
    assert machine.replicas[0].log == [b"0", b"1", b"2"]
