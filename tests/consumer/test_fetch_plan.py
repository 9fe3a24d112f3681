"""What to fetch from which node, and in which order: pure decisions."""

from __future__ import annotations

import uuid

import pytest
from consumer_samples import T0, T1, batch_of

from pyclient.consumer.fetch_plan import FetchOutcome
from pyclient.consumer.subscription import Phase
from pyclient.types import TopicPartition
from tests.consumer.fetch_desk import Desk


def test_every_partition_of_the_node_that_wants_data_is_asked_for() -> None:
    desk = Desk()
    assert desk.asked() == [T0, T1]
    desk.leaders[T1] = 2
    assert desk.asked() == [T0]
    assert list(desk.plan(2).targets) == [T1]


def test_who_brought_data_last_is_asked_last() -> None:
    desk = Desk()
    desk.answer(desk.states[0], records=batch_of(0, 1))
    assert desk.asked() == [T1, T0]


@pytest.mark.parametrize("phase", [Phase.COMMITTED, Phase.RESET, Phase.VALIDATE, Phase.STOPPED])
def test_a_partition_without_a_settled_position_is_left_out(phase: Phase) -> None:
    desk = Desk()
    desk.states[0].phase = phase
    assert desk.asked() == [T1]


def test_paused_partitions_and_those_already_asked_for_are_left_out() -> None:
    desk = Desk()
    desk.subscription.pause([T0])
    plan = desk.plan()
    plan.begin()
    assert desk.asked() == []
    desk.states[1].start_at(7)  # a seek: the answer on its way is void
    assert desk.asked() == [T1]
    plan.end()
    desk.subscription.resume([T0])
    assert desk.asked() == [T0, T1]


def test_a_fetch_that_an_old_leader_never_answers_does_not_keep_the_new_one_from_being_asked() -> None:
    desk = Desk(T0)
    (state,) = desk.states
    at_old = desk.plan(1)
    at_old.begin()
    desk.leaders[T0] = 2
    at_new = desk.plan(2)
    assert list(at_new.targets) == [T0]
    at_new.begin()
    desk.take(at_new.targets[T0], 0.0, FetchOutcome(), records=batch_of(0, 2))
    at_new.end()
    desk.take(at_old.targets[T0], 0.0, FetchOutcome(), records=batch_of(0, 2))
    at_old.end()
    assert sum(piece.count for piece in desk.buffer.take(10)) == 2
    assert state.position == 2


def test_a_partition_with_three_shares_in_stock_is_not_asked_for() -> None:
    desk = Desk(fetch_max_bytes=9_000)
    desk.stock(desk.states[0], 2_999)
    assert desk.asked() == [T0, T1]
    desk.stock(desk.states[0], 1)
    assert desk.asked() == [T1]


def test_nothing_is_asked_for_until_some_partition_has_less_than_two_shares_left_and_then_as_much_as_possible() -> None:
    desk = Desk(fetch_max_bytes=9_000)
    desk.stock(desk.states[0], 2_000)
    desk.stock(desk.states[1], 2_000)
    assert desk.asked() == []
    desk.buffer.take(1)
    assert desk.buffer.wants_more
    assert desk.asked() == [T0, T1]


def test_while_the_user_works_on_one_answer_and_the_next_lies_ready_another_is_under_way() -> None:
    desk = Desk(T0, fetch_max_bytes=9_000)
    for _ in range(2):
        assert desk.asked() == [T0]
        desk.stock(desk.states[0], 1_000)
    assert desk.asked() == []
    desk.buffer.take(1)
    assert desk.asked() == [T0]


@pytest.mark.parametrize(("least", "most"), [(1, 8), (20, 20), (60, 50)])
def test_of_many_partitions_a_few_megabytes_are_asked_for_at_once_unless_an_answer_has_to_be_larger(
    least: int, most: int
) -> None:
    mebibyte = 1024 * 1024
    partitions = [TopicPartition("t", number) for number in range(100)]
    sizes = {"fetch_max_bytes": 50 * mebibyte, "max_partition_fetch_bytes": mebibyte}
    plan = Desk(*partitions, fetch_min_bytes=least * mebibyte if least > 1 else 1, **sizes).plan()
    assert (len(plan.targets), plan.max_bytes) == (100, most * mebibyte)


def test_a_partition_in_backoff_says_when_to_look_again() -> None:
    desk = Desk()
    desk.states[0].retry_at = 5.0
    plan = desk.plan(now=4.0)
    assert (list(plan.targets), plan.wake_at) == ([T1], 5.0)
    assert desk.asked(now=5.0) == [T0, T1]


def test_what_is_held_asked_and_reserved_stays_below_fetch_max_bytes() -> None:
    desk = Desk(fetch_max_bytes=4_500)
    assert desk.plan().max_bytes == 2_000  # two partitions, a share each
    desk.stock(desk.states[0], 3_000)
    assert desk.plan().max_bytes == 1_000
    assert desk.plan(reserved=400).max_bytes == 1_000
    assert desk.plan(reserved=600).targets == {}  # the user has something to poll meanwhile
    desk.buffer.take(10)
    plan = desk.plan(reserved=4_400)
    assert (set(plan.targets), plan.max_bytes) == ({T0, T1}, 1_000)


def test_topics_go_by_id_only_if_every_id_is_known() -> None:
    desk = Desk()
    assert not desk.plan().by_id
    desk.states[0].topic_id = uuid.UUID(int=1)
    assert not desk.plan().by_id
    desk.states[1].topic_id = uuid.UUID(int=1)
    plan = desk.plan()
    assert plan.by_id
    assert plan.topic_names() == {uuid.UUID(int=1): "t"}


def test_a_preferred_replica_is_asked_until_it_expires() -> None:
    desk = Desk()
    desk.answer(desk.states[0], preferred_read_replica=3)
    assert (desk.asked(), list(desk.plan(3).targets)) == ([T1], [T0])
    assert desk.plan(3).targets[T0].from_replica
    assert T0 in desk.plan(1, now=301.0).targets


def test_the_node_a_partition_moves_to_is_woken_and_its_leader_when_the_preference_ends() -> None:
    desk = Desk(T0)
    assert desk.answer(desk.states[0], now=1.0, preferred_read_replica=3).moved
    assert not desk.answer(desk.states[0], now=1.0, from_replica=True, preferred_read_replica=3).moved
    assert desk.plan(1, now=2.0).wake_at == desk.states[0].preferred_until == 301.0
    assert desk.plan(2, now=2.0).wake_at is None  # it has nothing to do with it
