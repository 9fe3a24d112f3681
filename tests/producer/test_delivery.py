"""Futures that share a batch: outcomes, waiting, callbacks, splits, and unobserved failures."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import pickle
import threading

import pytest

from pyclient import errors
from pyclient.clock import SYSTEM_CLOCK
from pyclient.producer.delivery import Delivery, DeliveryContext, State
from pyclient.producer.futures import BatchFuture, DeliveryFuture, Span
from pyclient.types import RecordMetadata
from tests.producer.parts import waiters_of
from tests.waiting import until


class Immediately:
    """Runs callbacks where they are."""

    def submit(self, calls):
        for callback, argument in calls:
            callback(argument)


@pytest.fixture
def context():
    return DeliveryContext(Immediately(), None, SYSTEM_CLOCK)


def futures(delivery, count):
    return [DeliveryFuture(delivery, index, 1000 + index) for index in range(count)]


def test_a_delivered_batch_gives_each_future_its_own_place(context):
    delivery = Delivery(context, "t", 3)
    first, second = futures(delivery, 2)
    assert not first.done() and repr(first) == "<DeliveryFuture t-3 pending>"
    assert delivery.deliver(2, 40)
    assert second.result(0) == RecordMetadata("t", 3, 41, 1001) and second.exception(0) is None
    assert repr(second) == "<DeliveryFuture t-3 offset=41>"


def test_log_append_time_replaces_the_records_timestamp(context):
    delivery = Delivery(context, "t", 0)
    delivery.deliver(1, 5, 9999)
    assert futures(delivery, 1)[0].result(0).timestamp_ms == 9999


def test_an_unknown_offset_stays_unknown(context):
    delivery = Delivery(context, "t", 0)
    delivery.deliver(2, -1)
    assert futures(delivery, 2)[1].result(0).offset == -1


def test_a_batch_completes_once(context):
    delivery = Delivery(context, "t", 0)
    assert delivery.fail(1, errors.DeliveryTimeout("late"))
    assert not delivery.deliver(1, 5) and not delivery.fail(1, errors.ClosedError("again"))
    with pytest.raises(errors.DeliveryTimeout):
        futures(delivery, 1)[0].result(0)


def test_error_is_copied_each_time_with_its_attributes(context):
    delivery = Delivery(context, "t", 0)
    original = errors.NotLeaderOrFollower("moved")
    original.maybe_persisted = True
    original.__cause__ = ValueError("why")
    delivery.fail(1, original)
    (future,) = futures(delivery, 1)
    first, second = future.exception(0), future.exception(0)
    assert first is not second and str(first) == "moved" and first.maybe_persisted
    assert type(first) is errors.NotLeaderOrFollower and first.__cause__ is original.__cause__


def test_records_may_fail_each_for_its_own_reason(context):
    delivery = Delivery(context, "t", 0)
    delivery.fail(3, errors.InvalidRecord("the batch"), {1: errors.InvalidRecord("this one")})
    assert [str(future.exception(0)) for future in futures(delivery, 3)] == ["the batch", "this one", "the batch"]


@pytest.mark.parametrize("use", [pickle.dumps, copy.deepcopy])
def test_future_cannot_be_pickled(context, use):
    delivery = Delivery(context, "t", 0)
    for future in (DeliveryFuture(delivery, 0, 5), BatchFuture(context, 1, [Span(delivery, 0, [0], 5)])):
        with pytest.raises(TypeError, match=r"its future cannot be pickled: pass on what result\(\) returns"):
            use(future)


def test_wait_ends_after_its_timeout(context):
    (future,) = futures(Delivery(context, "t", 0), 1)
    for timeout, problem in ((0, "is not confirmed yet"), (0.01, "was not .* 0.01 s")):
        with pytest.raises(
            errors.KafkaTimeout, match=rf"t-0: the record {problem}; .* wait longer, or check .* health\(\)"
        ):
            future.result(timeout)
    assert not waiters_of(future.batch)


def test_many_threads_wait_for_one_batch(context):
    delivery = Delivery(context, "t", 0)
    results = []
    threads = [threading.Thread(target=lambda f=f: results.append(f.result(20))) for f in futures(delivery, 8)]
    for thread in threads:
        thread.start()
    delivery.deliver(8, 100)
    for thread in threads:
        thread.join()
    assert sorted(result.offset for result in results) == list(range(100, 108))


def test_future_can_be_awaited_on_any_loop(context):
    delivery = Delivery(context, "t", 0)

    async def main():
        waiting = [asyncio.ensure_future(_await(future)) for future in futures(delivery, 3)]
        await asyncio.sleep(0)
        threading.Thread(target=lambda: delivery.deliver(3, 7)).start()
        return [metadata.offset for metadata in await asyncio.gather(*waiting)]

    assert asyncio.run(main()) == [7, 8, 9]

    async def afterwards():
        return (await futures(delivery, 1)[0]).offset

    assert asyncio.run(afterwards()) == 7


async def _await(future):
    return await future


def test_cancelled_await_removes_its_waiter(context):
    delivery = Delivery(context, "t", 0)

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await futures(delivery, 1)[0]

    asyncio.run(main())
    assert not waiters_of(delivery)
    delivery.deliver(1, 0)


def test_blocking_the_loop_that_delivers_is_an_error_and_no_deadlock():
    async def main():
        context = DeliveryContext(Immediately(), asyncio.get_running_loop(), SYSTEM_CLOCK)
        with pytest.raises(RuntimeError, match="use `await future`"):
            futures(Delivery(context, "t", 0), 1)[0].result()

    asyncio.run(main())


def test_a_concurrent_future_has_the_same_outcome(context):
    good, bad = Delivery(context, "t", 0), Delivery(context, "t", 0)
    first = futures(good, 1)[0].to_concurrent()
    second = futures(bad, 1)[0].to_concurrent()
    good.deliver(1, 4)
    bad.fail(1, errors.ClosedError("closed"))
    assert first.result(0).offset == 4 and isinstance(second.exception(0), errors.ClosedError)
    assert futures(good, 1)[0].to_concurrent().result(0).offset == 4


def test_callbacks_get_their_future_before_and_after_the_outcome(context):
    delivery, seen = Delivery(context, "t", 0), []
    first, second = futures(delivery, 2)
    first.add_done_callback(seen.append)
    assert seen == []
    delivery.deliver(2, 0)
    second.add_done_callback(seen.append)
    assert seen == [first, second]


# -- splits


def test_split_batch_completes_with_its_parts(context):
    whole = Delivery(context, "t", 0)
    every, seen = futures(whole, 5), []
    for future in every:
        future.add_done_callback(lambda future: seen.append(future.index))
    left, right = Delivery(context, "t", 0, 2), Delivery(context, "t", 0, 3)
    whole.split([0, 2], [left, right])
    assert whole.state is State.SPLIT and whole.pending() is left
    right.deliver(3, 70)
    assert seen == [2, 3, 4] and whole.pending() is left
    a, b = Delivery(context, "t", 0, 1), Delivery(context, "t", 0, 1)
    left.split([0, 1], [a, b])
    a.deliver(1, 60)
    b.fail(1, errors.MessageTooLarge("too large"))
    assert seen == [2, 3, 4, 0, 1] and whole.pending() is None
    assert [(future.exception(0) and "x") or future.result(0).offset for future in every] == [60, "x", 70, 71, 72]


def test_waiter_of_a_split_batch_waits_for_its_part(context):
    whole, results = Delivery(context, "t", 0), []
    future = futures(whole, 4)[3]
    thread = threading.Thread(target=lambda: results.append(future.result(20)))
    thread.start()
    until(lambda: waiters_of(whole))
    left, right = Delivery(context, "t", 0, 2), Delivery(context, "t", 0, 2)
    whole.split([0, 2], [left, right])
    left.deliver(2, 0)
    assert not results
    right.deliver(2, 10)
    thread.join()
    assert results[0].offset == 11


# -- unobserved failures


def test_failures_count_until_they_are_observed(context):
    delivery = Delivery(context, "t", 0)
    every = futures(delivery, 5)
    delivery.fail(5, errors.DeliveryTimeout("late"))
    every[1].exception(0)
    with pytest.raises(errors.DeliveryTimeout):
        every[3].result(0)
    count, first = context.failures.take()
    assert count == 3 and isinstance(first, errors.DeliveryTimeout)
    assert context.failures.take() is None


def test_last_future_of_a_batch_logs_unobserved_failures(context, caplog):
    every = []
    for number in range(3):
        delivery = Delivery(context, "t", number)
        every.append(futures(delivery, 2))
        delivery.fail(2, errors.DeliveryTimeout(f"late {number}"))
    del delivery
    every[1][0].exception(0)
    for future in every[2]:
        future.exception(0)
    del future
    with caplog.at_level(logging.ERROR):
        every.clear()
        gc.collect()
    assert sorted(record.message.partition(" not")[0] for record in caplog.records) == [
        "1 record was",
        "2 records were",
    ]
    assert "t-0" in caplog.text and "late 0" in caplog.text
    count, first = context.failures.take()
    assert count == 3 and str(first) == "late 0"


def test_batches_failed_together_are_logged_in_one_line(context, caplog):
    with caplog.at_level(logging.ERROR), context.failures.in_one_line():
        for number in (2, 0, 1, 0):
            with context.failures.in_one_line():  # the outermost context logs
                every = futures(delivery := Delivery(context, "t", number), 2)
                delivery.fail(2, errors.DeliveryTimeout(f"late {number}"))
                del every, delivery
        gc.collect()
        assert not caplog.records
    (line,) = caplog.messages
    assert line.startswith("8 records were not delivered to t-2 and 2 other partitions, and the result was not checked")
    assert line.endswith("the first error: DeliveryTimeout('late 2')")
    count, first = context.failures.take()
    assert count == 8 and str(first) == "late 2"
    with caplog.at_level(logging.ERROR):
        delivery = Delivery(context, "t", 5)
        delivery.fail(1, errors.DeliveryTimeout("late again"))
        del delivery
        gc.collect()
    assert caplog.messages[1:] == [
        "1 record was not delivered to t-5, and the result was not checked: DeliveryTimeout('late again')"
    ]


def test_failures_raised_by_flush_are_not_logged_again(context, caplog):
    delivery = Delivery(context, "t", 0)
    every = futures(delivery, 1)
    delivery.fail(1, errors.DeliveryTimeout("late"))
    assert context.failures.take() is not None
    del every, delivery
    gc.collect()
    assert not caplog.records


# -- one future for many


def test_batch_future_is_indexed_by_position(context):
    first, second, third = (Delivery(context, "t", number) for number in range(3))
    outcome = BatchFuture(
        context,
        6,
        [Span(first, 10, [0, 2, 5], [0, 20, 50]), Span(second, 0, [1, 3], 7), Span(third, 0, [4], 8)],
    )
    assert repr(outcome) == "<BatchFuture 6 records: 0 delivered, 0 failed, 6 pending>" and not outcome.done()
    first.deliver(13, 100)
    second.deliver(2, 200)
    third.fail(1, errors.InvalidRecord("bad"))
    assert (len(outcome), outcome.delivered, outcome.failed, outcome.done()) == (6, 5, 1, True)
    assert outcome.offsets == [110, 200, 111, 201, -1, 112] and outcome.partitions == [0, 1, 0, 1, 2, 0]
    assert list(outcome.failures) == [4]
    assert outcome[2].result(0) == RecordMetadata("t", 0, 111, 20) and outcome[-1].result(0).timestamp_ms == 50
    with pytest.raises(errors.DeliveryFailed) as caught:
        outcome.result(0)
    assert caught.value.count == 1
    with pytest.raises(IndexError):
        outcome[6]


def test_a_batch_future_follows_splits(context):
    whole = Delivery(context, "t", 0)
    outcome = BatchFuture(context, 4, [Span(whole, 1, range(4), 0)])
    left, right = Delivery(context, "t", 0, 3), Delivery(context, "t", 0, 2)
    whole.split([0, 3], [left, right])
    right.deliver(2, 50)
    assert (outcome.delivered, outcome.done()) == (2, False)
    left.deliver(3, 40)
    assert outcome.offsets == [41, 42, 50, 51] and len(outcome.result(0)) == 4


def test_a_batch_future_waits_calls_back_and_is_awaited(context):
    first, second = Delivery(context, "t", 0), Delivery(context, "t", 1)
    outcome = BatchFuture(context, 4, [Span(first, 0, range(2), 0), Span(second, 0, range(2, 4), 0)])
    seen, concurrent = [], outcome.to_concurrent()
    outcome.add_done_callback(seen.append)
    with pytest.raises(errors.KafkaTimeout, match="2 delivered, 0 failed, 2 pending"):
        first.deliver(2, 0)
        outcome.result(0.01)
    assert seen == []

    async def main():
        threading.Timer(0.01, lambda: second.deliver(2, 5)).start()
        return await outcome

    assert [metadata.offset for metadata in asyncio.run(main())] == [0, 1, 5, 6]
    assert seen == [outcome] and concurrent.result(20)[3].offset == 6
