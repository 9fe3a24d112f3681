"""What the sender decides, answer by answer, with a clock that is a number."""

from __future__ import annotations

import random
import uuid

import pytest

from pyclient import errors
from pyclient.backoff import Backoff
from pyclient.clock import SYSTEM_CLOCK
from pyclient.producer.accumulator import RecordAccumulator
from pyclient.producer.delivery import DeliveryDesk
from pyclient.producer.outcome import PartitionAnswer
from pyclient.producer.sender import Sender
from pyclient.records import Compression, read_header

NOT_LEADER = errors.NotLeaderOrFollower.code
OUT_OF_ORDER = errors.OutOfOrderSequenceNumber.code


class Bench:
    """A sender with one topic; `b0` is a batch of partition 0 and so on. Requests go out as lists of batch names."""

    def __init__(self, leaders=(1,), **options):
        self.now = 100.0
        desk = DeliveryDesk(None, None, SYSTEM_CLOCK)
        self.accumulator = RecordAccumulator(
            desk, random.Random(1), batch_size=1000, buffer_memory=100_000, linger=0.0, delivery_timeout=60.0
        )
        given = {
            "idempotent": True, "max_in_flight": 5, "max_request_size": 10_000, "retries": 1000,
            "backoff": Backoff(1.0, 1.0, jitter=0.0), "delivery_timeout_ms": 60_000,
        } | options  # fmt: skip
        self.sender = Sender(self.accumulator, random.Random(1), **given)
        self.sender.identity.obtained(7, 0)
        self.lead(*leaders)
        self.works = {}
        self.names = {}

    def lead(self, *leaders):
        self.topic = self.accumulator.update_topic("t", uuid.UUID(int=1), leaders, self.now)

    def batch(self, name, *values, partition=0):
        """A closed batch of these values; its futures."""
        queue = self.topic.queues[partition]
        batch = self.accumulator.open_batch(queue, self.accumulator.pool.try_acquire(1000), self.now)
        futures = [queue.append(5, None, value, None) for value in values or (b"v",)]
        self.accumulator.close_open(queue)
        self.names[batch] = name
        return futures

    def drain(self, node=1, seconds=0.0):
        """The requests that go out now."""
        self.now += seconds
        for settlement in self.sender.begin(self.now):
            settlement.tell()
        sent = []
        while (work := self.sender.drain(node, self.now)) is not None:
            names = [self.names.get(batch, "part") for batch in work.batches]
            self.works[names[0]] = work
            sent.append(names)
        return sent

    def answer(self, name, code=0, base_offset=0, throttle_ms=0, **more):
        work = self.works.pop(name)
        answers = {
            ("t", batch.queue.partition): PartitionAnswer(code, base_offset if not code else -1, **more)
            for batch in work.batches
        }
        for settlement in self.sender.answered(work, answers, throttle_ms, self.now):
            settlement.tell()

    def lose(self, name, written=True):
        error = errors.ConnectionFailed("the connection broke")
        for settlement in self.sender.lost(self.works.pop(name), error, written=written, now=self.now):
            settlement.tell()

    def numbers(self, name):
        batch = next(batch for batch in self.names if self.names[batch] == name)
        return batch.producer_epoch, batch.base_sequence

    def warm(self):
        """One batch confirmed, so that more than one may be on the wire."""
        self.batch("warm")
        assert self.drain() == [["warm"]]
        self.answer("warm")


def test_the_first_batch_of_a_partition_goes_alone_and_then_up_to_five():
    bench = Bench()
    for number in range(8):
        bench.batch(f"b{number}")
    assert bench.drain() == [["b0"]]
    bench.answer("b0")
    assert bench.drain() == [["b1"], ["b2"], ["b3"], ["b4"], ["b5"]]
    assert [bench.numbers(f"b{number}") for number in range(6)] == [(0, number) for number in range(6)]


def test_a_broker_without_state_cannot_take_the_second_batch_before_the_first():
    """It takes any first sequence: were both on their way and the first refused, they would change places."""
    bench = Bench()
    bench.batch("a")
    bench.batch("b")
    assert bench.drain() == [["a"]]
    bench.answer("a", errors.NotEnoughReplicas.code)
    assert bench.drain() == [] and bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a")
    assert bench.drain() == [["b"]]


def test_each_partition_has_one_batch_in_a_request_and_requests_are_bounded():
    bench = Bench(leaders=(1, 1, 1), max_request_size=2100)
    for partition in range(3):
        bench.batch(f"p{partition}", b"x" * 900, partition=partition)
    assert bench.drain() == [["p0", "p1"], ["p2"]]


def test_partitions_take_turns():
    bench = Bench(leaders=(1, 1), max_in_flight=1, idempotent=False, max_request_size=1000)
    for number in range(2):
        for partition in range(2):
            bench.batch(f"p{partition}{number}", b"x" * 900, partition=partition)
    order = []
    for _ in range(4):
        ((name,),) = bench.drain()
        order.append(name)
        bench.answer(name)
    assert order == ["p00", "p10", "p01", "p11"]


def test_a_moved_leader_is_followed_in_order_and_without_new_numbers():
    bench = Bench()
    bench.warm()
    for name in "abc":
        bench.batch(name)
    assert bench.drain() == [["a"], ["b"], ["c"]]
    bench.answer("a", NOT_LEADER)
    assert bench.sender.refresh_wanted
    bench.lead(2)
    assert bench.drain(2, seconds=1.0) == []  # two are still at the old leader
    bench.answer("b", NOT_LEADER)
    bench.answer("c", NOT_LEADER)
    assert bench.drain(2) == [["a"]]  # b and c back off, and a goes alone
    bench.answer("a")
    assert bench.drain(2, seconds=1.0) == [["b"], ["c"]]
    assert [bench.numbers(name) for name in "abc"] == [(0, 1), (0, 2), (0, 3)]


def test_a_lost_connection_is_retried_one_by_one_and_then_in_a_row():
    bench = Bench()
    bench.warm()
    for name in "abcd":
        bench.batch(name)
    bench.drain()
    for name in "abcd":
        bench.lose(name)
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a")
    assert bench.drain() == [["b"], ["c"], ["d"]]


def test_out_of_order_behind_a_refused_batch_waits_for_it():
    bench = Bench()
    bench.warm()
    bench.batch("a")
    bench.batch("b")
    bench.drain()
    bench.answer("a", errors.CorruptMessage.code)
    bench.answer("b", OUT_OF_ORDER)
    assert bench.drain(seconds=1.0) == [["a"]]
    bench.answer("a")
    assert bench.drain() == [["b"]] and bench.numbers("b") == (0, 2)


def test_a_batch_that_is_out_of_order_with_nothing_before_it_begins_a_new_epoch():
    bench = Bench()
    bench.warm()
    bench.batch("a")
    bench.batch("b")
    bench.drain()
    bench.answer("a", OUT_OF_ORDER)  # the broker has lost what it knew
    assert bench.drain(seconds=1.0) == []  # b is on the wire: its old number must not come in between
    bench.answer("b", OUT_OF_ORDER)
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
    assert "a key is needed" in texts[1] and "no key" in texts[0] and texts[0] == texts[2]
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
    assert bench.sender._nodes[1].throttled_until <= 100 + 3600
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
