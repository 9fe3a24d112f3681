"""The states of a batch: which may follow which, and what holds in each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.producer.producer_batch import TRANSITIONS, BatchState, ProducerBatch
from tests.producer.sender_fixture import SenderFixture

IN_FLIGHT = (BatchState.IN_FLIGHT, BatchState.EXPIRED_IN_FLIGHT)


def new_batch() -> ProducerBatch:
    fixture = SenderFixture()
    queue = fixture.topic.queues[0]
    return fixture.accumulator.new_batch(queue, fixture.accumulator.pool.force_acquire(1000), now=100.0)


def reached_from(state: BatchState) -> set[BatchState]:
    reached, left = set(), [state]
    while left:
        for following in TRANSITIONS[left.pop()]:
            if following not in reached:
                reached.add(following)
                left.append(following)
    return reached


@given(st.lists(st.sampled_from(BatchState), max_size=20))
def test_batch_changes_its_state_as_the_table_allows(states):
    batch = new_batch()
    for state in states:
        before, was_closed = batch.state, batch.closed
        if state in TRANSITIONS[before]:
            batch.become(state)
            assert batch.state is state
        else:
            with pytest.raises(RuntimeError, match=f"cannot become {state.name}"):
                batch.become(state)
            assert batch.state is before
        assert batch.closed or not was_closed  # a closed batch never takes records again
        assert batch.on_wire == (batch.state in IN_FLIGHT)


def test_every_batch_state_is_reached_and_leads_to_released():
    assert {BatchState.OPEN} | reached_from(BatchState.OPEN) == set(BatchState) == set(TRANSITIONS)
    assert all(BatchState.RELEASED in reached_from(state) for state in set(BatchState) - {BatchState.RELEASED})
    assert not TRANSITIONS[BatchState.RELEASED]


@pytest.mark.parametrize("state", IN_FLIGHT)
def test_batch_is_not_released_while_a_request_holds_it(state):
    assert BatchState.RELEASED not in TRANSITIONS[state]
