"""The decisions about a Produce with acks=all that waits for its replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.broker_embedded.replication.delayed_produce import (
    Answer,
    AwaitCommit,
    Changed,
    DelayedProduce,
    Effect,
    Refuse,
    Signal,
    WakeIn,
)
from pyclient.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
LAST_OFFSET = 9
WAITS, COMMITTED = LAST_OFFSET, LAST_OFFSET + 1
"""High watermarks before and after the commit."""


@dataclass
class Batch:
    """A batch of a partition with `min.insync.replicas` of 2."""

    high_watermark: int | None = WAITS
    is_led_here: bool = True
    failure: str | None = None
    in_sync: int = 3
    required: int = 2
    has_enough_replicas: bool = True
    leader: int = 1
    last_offset: int = LAST_OFFSET
    topic_partition: TopicPartition = ORDERS

    @property
    def may_be_acknowledged(self) -> bool:
        """Return True if the batch may be acknowledged in this state, as the protocol has it."""
        return (
            self.is_led_here
            and self.failure is None
            and self.high_watermark is not None
            and self.high_watermark > LAST_OFFSET
            and self.has_enough_replicas
        )


def errors_in(effects: Sequence[Effect]) -> dict[int, type[errors.BrokerError]]:
    """Return the types of the errors that are set, by the batch."""
    return {effect.number: type(effect.error) for effect in effects if isinstance(effect, Refuse)}


def test_committed_batches_are_answered_at_once() -> None:
    produce = DelayedProduce([Batch(COMMITTED), Batch(COMMITTED)], 30.0)
    assert produce.receive(Signal.BEGAN, 0.0) == [Answer()]


def test_response_waits_for_the_last_batch() -> None:
    batches = [Batch(), Batch(COMMITTED), Batch()]
    produce = DelayedProduce(batches, 30.0)
    assert produce.receive(Signal.BEGAN, 5.0) == [WakeIn(30.0), AwaitCommit(0), AwaitCommit(2)]
    batches[2].high_watermark = COMMITTED
    assert produce.receive(Changed(2), 6.0) == []
    batches[0].high_watermark = COMMITTED
    assert produce.receive(Changed(0), 7.0) == [Answer()]


def test_only_undecided_batches_time_out() -> None:
    batches = [Batch(), Batch()]
    produce = DelayedProduce(batches, 1.0)
    produce.receive(Signal.BEGAN, 5.0)
    batches[0].high_watermark = COMMITTED
    produce.receive(Changed(0), 5.5)
    batches[0].is_led_here = False
    effects = produce.receive(Signal.TIMED_OUT, 6.0)
    assert errors_in(effects) == {1: errors.RequestTimedOut}
    assert effects[-1] == Answer()
    assert "orders-0: the replicas in sync did not get the batch in time (1.000 s)" in str(effects)


def test_batch_without_time_to_wait_is_decided_at_once() -> None:
    effects = DelayedProduce([Batch()], 0.0).receive(Signal.BEGAN, 5.0)
    assert errors_in(effects) == {0: errors.RequestTimedOut}
    assert effects[-1] == Answer()


def test_refused_batch_has_the_error_of_its_reason() -> None:
    reasons = {
        errors.NotLeaderOrFollower: Batch(COMMITTED, is_led_here=False, leader=2),
        errors.KafkaStorageError: Batch(COMMITTED, failure="no space left"),
        errors.NotEnoughReplicasAfterAppend: Batch(COMMITTED, has_enough_replicas=False),
    }
    for error, batch in reasons.items():
        committed, batch.high_watermark = batch.high_watermark, WAITS
        was_led_here, batch.is_led_here = batch.is_led_here, True
        produce = DelayedProduce([batch], 30.0)
        assert AwaitCommit(0) in produce.receive(Signal.BEGAN, 0.0)
        batch.high_watermark, batch.is_led_here = committed, was_led_here
        effects = produce.receive(Changed(0), 1.0)
        assert errors_in(effects) == {0: error}
        assert effects[-1] == Answer()


def test_refusal_names_the_new_leader_if_there_is_one() -> None:
    for leader, text in ((2, "orders-0 is led by broker 2 now"), (-1, "orders-0 is no longer led by this broker")):
        assert text in str(DelayedProduce([Batch(is_led_here=False, leader=leader)], 30.0).receive(Signal.BEGAN, 0.0))


def test_change_after_the_decision_changes_nothing() -> None:
    batches = [Batch(COMMITTED), Batch()]
    produce = DelayedProduce(batches, 30.0)
    produce.receive(Signal.BEGAN, 0.0)
    batches[0].is_led_here = False
    assert produce.receive(Changed(0), 1.0) == []
    batches[1].high_watermark = COMMITTED
    assert produce.receive(Changed(1), 2.0) == [Answer()]
    assert produce.receive(Signal.TIMED_OUT, 30.0) == []
    assert produce.receive(Changed(1), 31.0) == []


STATES = st.builds(
    Batch,
    high_watermark=st.none() | st.integers(LAST_OFFSET - 1, LAST_OFFSET + 2),
    is_led_here=st.booleans(),
    failure=st.none() | st.just("no space left"),
    has_enough_replicas=st.booleans(),
)


@given(st.data(), st.integers(1, 4), st.sampled_from([0.0, 30.0]))
def test_each_batch_is_decided_once_by_the_state_of_that_moment(data: st.DataObject, size: int, limit: float) -> None:
    batches = [data.draw(STATES) for _ in range(size)]
    produce = DelayedProduce(batches, limit)
    effects = produce.receive(Signal.BEGAN, 0.0)
    waits = {effect.number for effect in effects if isinstance(effect, AwaitCommit)}
    refused, answers = set(errors_in(effects)), effects.count(Answer())
    expected = {number for number in range(size) if number not in waits and not batches[number].may_be_acknowledged}
    assert refused == expected
    for step in range(1, data.draw(st.integers(0, 8)) + 1):
        assert answers == (not waits)
        number, state = data.draw(st.integers(0, size - 1)), data.draw(STATES)
        vars(batches[number]).update(vars(state))
        effects = produce.receive(Changed(number), float(step))
        is_refused = number in waits and not state.may_be_acknowledged
        assert set(errors_in(effects)) == ({number} if is_refused else set())
        waits.discard(number)
        answers += effects.count(Answer())
        assert Answer() not in effects[:-1]
    effects = produce.receive(Signal.TIMED_OUT, 30.0)
    assert set(errors_in(effects)) == {number for number in waits if not batches[number].may_be_acknowledged}
    assert answers + effects.count(Answer()) == 1
