"""Doubtful batches that a restarted broker calls out of order: the table of `producer/idempotence.py`, row by row."""

from __future__ import annotations

import uuid

import pytest

from pyclient import errors
from pyclient.producer.idempotence import KNOWN_SECONDS
from tests.producer.sender_bench import OUT_OF_ORDER, Bench
from tests.producer.test_late_requests import begun
from tests.producer.test_state_machine import ProducerMachine

UNKNOWN = -1
REFUSALS = pytest.mark.parametrize("refusal", [OUT_OF_ORDER, errors.UnknownProducerId.code])


def lost_together(*names, **options):
    """A bench whose batches of these names were on their way when the connection broke; and their futures."""
    bench = Bench(**options)
    bench.warm()
    futures = [bench.batch(name)[0] for name in names]
    assert bench.drain() == [[name] for name in names]
    for name in names:
        bench.lose(name)
    return bench, futures


def refuse(bench, *names, code=OUT_OF_ORDER):
    """The broker calls these out of order, one after the other, each under the number it always had."""
    for name in names:
        assert bench.drain(seconds=1.0) == [[name]] and bench.numbers(name)[0] == 0
        bench.answer(name, code)


@REFUSALS
@pytest.mark.parametrize("decision", [0, errors.DuplicateSequenceNumber.code])
def test_batches_before_one_that_the_broker_has_are_written(refusal, decision):
    bench, (a, b, c) = lost_together("a", "b", "c")
    refuse(bench, "a", "b", code=refusal)
    assert not a.done() and not b.done()
    assert bench.drain() == [["c"]] and bench.numbers("c") == (0, 3)
    bench.answer("c", decision, base_offset=3)
    assert [a.result(0).offset, b.result(0).offset] == [UNKNOWN, UNKNOWN]
    assert c.result(0).offset == (UNKNOWN if decision else 3)
    bench.batch("next")
    assert bench.drain() == [["next"]] and bench.numbers("next") == (0, 4)
    assert bench.accumulator.pool.available == 99_000  # the buffers of all others went back


@REFUSALS
def test_batches_of_which_the_broker_has_none_are_sent_under_a_new_epoch(refusal):
    bench, futures = lost_together("a", "b")
    refuse(bench, "a", "b", code=refusal)
    assert bench.drain(seconds=1.0) == [["a"]] and bench.numbers("a") == (1, 0)
    bench.answer("a", base_offset=1)
    assert bench.drain() == [["b"]] and bench.numbers("b") == (1, 1)
    bench.answer("b", base_offset=2)
    assert [future.result(0).offset for future in futures] == [1, 2]


def test_a_clean_batch_that_follows_decides_nothing():
    """It was never written, so the last one before it that was would have been a duplicate."""
    bench, _ = lost_together("a", "b")
    bench.batch("clean")
    refuse(bench, "a", "b")
    assert bench.drain(seconds=1.0) == [["a"]] and bench.numbers("a") == (1, 0)
    bench.answer("a")
    assert bench.drain() == [["b"], ["clean"]] and bench.numbers("clean") == (1, 2)


def test_a_doubtful_batch_is_written_if_a_later_one_was_confirmed():
    bench = Bench()
    bench.warm()
    (a,), (b,) = bench.batch("a"), bench.batch("b")
    bench.drain()
    bench.answer("a", errors.NotEnoughReplicasAfterAppend.code)
    bench.answer("b", base_offset=2)
    assert bench.drain(seconds=1.0) == [["a"]] and not a.done()
    bench.answer("a", OUT_OF_ORDER)  # the broker was restarted, and remembers b alone
    assert (a.result(0).offset, b.result(0).offset) == (UNKNOWN, 2)


def test_an_undecided_batch_fails_in_doubt_if_an_earlier_one_was_given_up():
    bench = Bench()
    bench.warm()
    (old,) = bench.batch("old")
    bench.drain()
    bench.now += 30
    (a,) = bench.batch("a")
    bench.drain()
    bench.lose("old")
    bench.lose("a")
    assert bench.drain(seconds=31.0) == [["a"]] and isinstance(old.exception(0), errors.DeliveryTimeout)
    bench.answer("a", OUT_OF_ORDER)
    error = a.exception(0)
    assert isinstance(error, errors.OutOfOrderSequenceNumber) and error.maybe_persisted
    assert "could write it twice" in str(error)


def test_an_undecided_batch_that_expires_leaves_the_decision_to_the_next():
    bench = Bench()
    bench.warm()
    (a,) = bench.batch("a")
    bench.drain()
    bench.now += 30
    (b,), (c,) = bench.batch("b"), bench.batch("c")
    bench.drain()
    for name in "abc":
        bench.lose(name)
    refuse(bench, "a", "b")
    bench.drain(seconds=30.0)
    assert a.exception(0).maybe_persisted and not b.done() and not c.done()
    bench.answer("c", base_offset=3)
    assert (b.result(0).offset, c.result(0).offset) == (UNKNOWN, 3)


def test_undecided_parts_of_a_doubtful_batch_fail_in_doubt():
    """The broker may have the whole batch: under its numbers, not under those of its parts."""
    bench = Bench()
    bench.warm()
    futures = bench.batch("a", b"1", b"2")
    bench.drain()
    bench.lose("a")
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a", errors.MessageTooLarge.code)
    for _ in futures:
        assert bench.drain(seconds=1.0) == [["part"]]
        bench.answer("part", OUT_OF_ORDER)
    assert [future.exception(0).maybe_persisted for future in futures] == [True, True]


def test_a_batch_after_the_parts_of_a_doubtful_one_proves_them_written():
    bench = Bench()
    bench.warm()
    futures = bench.batch("a", b"1", b"2")
    (b,) = bench.batch("b")
    bench.drain()
    bench.lose("a")
    bench.lose("b")
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a", errors.MessageTooLarge.code)
    for _ in futures:
        assert bench.drain(seconds=1.0) == [["part"]]
        bench.answer("part", OUT_OF_ORDER)
    assert bench.drain(seconds=1.0) == [["b"]] and bench.numbers("b") == (0, 3)
    bench.answer("b", base_offset=3)
    assert [future.result(0).offset for future in [*futures, b]] == [UNKNOWN, UNKNOWN, 3]


def test_a_refused_epoch_gives_no_new_numbers_to_what_may_be_written():
    bench, (a, b) = lost_together("a", "b")
    clean = bench.batch("clean")[0]
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a", errors.InvalidProducerEpoch.code)
    assert a.exception(0).maybe_persisted and b.exception(0).maybe_persisted and not clean.done()
    assert bench.drain() == [] and bench.sender.identity.wanted
    bench.sender.identity.obtained(8, 0)
    assert bench.drain() == [["clean"]] and bench.numbers("clean") == (0, 0)


def test_undecided_batches_are_sent_again_to_a_topic_that_was_created_again():
    bench, (a, b) = lost_together("a", "b")
    refuse(bench, "a")
    bench.topic = bench.accumulator.update_topic("t", uuid.uuid4(), [1], bench.now)
    for number, (name, future) in enumerate([("a", a), ("b", b)]):
        assert bench.drain(seconds=1.0) == [[name]] and bench.numbers(name)[0] == 0
        bench.answer(name, base_offset=number)
        assert future.result(0).offset == number
    bench.batch("next")
    assert bench.drain() == [["next"]] and bench.numbers("next") == (1, 0)


def test_being_out_of_order_because_of_an_earlier_batch_is_no_attempt():
    bench = Bench(retries=1)
    bench.warm()
    bench.batch("a")
    (b,) = bench.batch("b")
    bench.drain()
    bench.answer("a", errors.CorruptMessage.code)
    bench.answer("b", OUT_OF_ORDER)
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a")
    assert bench.drain() == [["b"]]
    bench.answer("b", errors.CorruptMessage.code)
    assert not b.done() and bench.drain(seconds=1.0) == [["b"]]


def test_parts_of_a_split_batch_have_all_their_attempts_and_do_not_pause():
    bench = Bench(retries=0, max_in_flight=1)
    bench.warm()
    futures = bench.batch("a", *[b"%d" % number for number in range(8)])
    bench.drain()
    bench.answer("a", errors.MessageTooLarge.code)
    while bench.drain():  # at the same instant
        small = bench.works["part"].batches[0].count <= 2
        bench.answer("part", 0 if small else errors.MessageTooLarge.code)
    assert all(future.exception(0) is None for future in futures)


def test_the_first_batch_after_a_long_pause_goes_alone_until_it_is_confirmed():
    """The broker may have forgotten the producer, and would then take a second batch whose first it refused."""
    bench = Bench()
    bench.warm()
    bench.now += KNOWN_SECONDS
    bench.batch("a")
    bench.batch("b")
    assert bench.drain() == [["a"], ["b"]]
    for name in "ab":
        bench.answer(name)
    bench.now += KNOWN_SECONDS + 1
    bench.batch("c")
    bench.batch("d")
    assert bench.drain() == [["c"]]
    bench.answer("c", errors.NotEnoughReplicas.code)
    assert bench.drain(seconds=1.0) == [["c"]]
    bench.answer("c")
    assert bench.drain() == [["d"]]


# -- with the model of a broker


def in_flight(count):
    """A machine with a confirmed record, and so many batches on their way."""
    machine = begun(ProducerMachine)
    for _ in range(count):
        machine.send_alone(0)
    assert len(machine.wire[0, 0]) == count
    return machine


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("written", [0, 1, 2, 3, 4, 5])
def test_written_batches_are_not_doubled_after_answers_are_lost_and_the_broker_restarts(count, written):
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


def test_an_idle_producer_that_the_broker_forgot_goes_on_in_order():
    machine = begun(ProducerMachine)
    machine.wait(KNOWN_SECONDS + 1)
    machine.replicas[0].expire_producers()
    machine.send_alone(0)
    machine.send_alone(0)
    assert len(machine.wire[0, 0]) == 1
    machine.teardown()
    assert machine.replicas[0].log == [b"0", b"1", b"2"]
