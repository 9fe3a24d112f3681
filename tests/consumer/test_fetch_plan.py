"""What to fetch from which node, and in which order: pure decisions."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from consumer_samples import T0, T1, batch_of
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.consumer.fetch_plan import FetchOutcome, FetchPlan
from pyclient.consumer.subscription import AssignedPartition, Phase
from pyclient.errors import KafkaError
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
    assert desk.asked() == [T0, T1]
    desk.answer(desk.states[0], records=batch_of(0, 1))
    assert desk.asked() == [T1, T0]


@pytest.mark.parametrize("phase", [Phase.COMMITTED, Phase.RESET, Phase.VALIDATE, Phase.STOPPED])
def test_a_partition_without_a_settled_position_is_left_out(phase: Phase) -> None:
    desk = Desk()
    desk.states[0].touch()
    desk.states[0].phase = phase
    assert desk.asked() == [T1]


def test_paused_partitions_and_those_already_asked_for_are_left_out() -> None:
    desk = Desk()
    desk.subscription.pause([T0])
    assert desk.asked() == [T1]
    assert desk.beside() == []
    desk.states[1].start_at(7)  # a seek: the answer on its way is void
    assert desk.beside() == [T1]
    desk.subscription.resume([T0])
    assert desk.beside() == [T1, T0]
    assert desk.plan(other_in_flight=True).targets == {}
    desk.planner.hand_over(1)
    assert set(desk.asked()) == {T0, T1}


def test_a_fetch_that_an_old_leader_never_answers_does_not_keep_the_new_one_from_being_asked() -> None:
    desk = Desk(T0)
    (state,) = desk.states
    old_target = desk.plan(1).targets[T0]
    desk.leaders[T0] = 2
    at_new = desk.plan(2)
    assert list(at_new.targets) == [T0]
    desk.take(at_new.targets[T0], 0.0, FetchOutcome(), records=batch_of(0, 2))
    desk.take(old_target, 0.0, FetchOutcome(), records=batch_of(0, 2))
    assert sum(piece.count for piece in desk.buffer.take(10)) == 2
    assert state.position == 2
    assert desk.plan(1).targets == {}


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
    assert set(desk.asked()) == {T0, T1}


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
    desk.states[0].touch()
    desk.states[0].retry_at = 5.0
    plan = desk.plan(now=4.0)
    assert (list(plan.targets), plan.wake_at) == ([T1], 5.0)
    assert desk.asked(now=5.0) == [T1, T0]


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
    desk.states[0].touch()
    desk.states[0].topic_id = uuid.UUID(int=1)
    assert not desk.plan().by_id
    desk.states[1].touch()
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


class Model:
    """What a plan of every partition from scratch would ask for."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def source(self, state: AssignedPartition, now: float) -> int:
        preferred = state.preferred_replica >= 0 and state.preferred_until > now
        return state.preferred_replica if preferred else self.desk.leaders[state.topic_partition]

    def targets(self, node: int, now: float, *others: FetchPlan) -> dict[TopicPartition, tuple[int, int]]:
        found = {}
        for state in self.desk.subscription:
            wanted = state.phase is Phase.FETCH and not state.paused and self.source(state, now) == node
            if (
                wanted
                and state.retry_at <= now
                and state.buffered < 3_000
                and not any(p.asks_for(state) for p in others)
            ):
                found[state.topic_partition] = (state.version, state.fetch_offset)
        short = any(self.desk.subscription.find(p).buffered < 2_000 for p in found)  # type: ignore[union-attr]
        return found if short else {}


def shape(plan: FetchPlan) -> dict[TopicPartition, tuple[int, int]]:
    return {partition: (target.version, target.offset) for partition, target in plan.targets.items()}


STEPS = [
    "pause", "resume", "seek", "reset", "stop", "answer", "fail", "prefer", "stock", "poll", "lead", "assign", "wait",
    "beside", "over",
]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3), st.integers(1, 2)), max_size=40))
def test_whatever_changes_the_plans_are_those_made_from_scratch(steps: list[tuple[str, int, int]]) -> None:
    partitions = [TopicPartition("t", number) for number in range(4)]
    desk = Desk(*partitions, fetch_max_bytes=900_000, max_partition_fetch_bytes=1_000)
    desk.leaders |= dict.fromkeys(partitions, 1)
    model, now, flying = Model(desk), 0.0, False
    for step, number, node in steps:
        partition = partitions[number]
        state = desk.subscription.find(partition)
        if state is None and step != "assign":
            continue
        match step:
            case "pause":
                desk.subscription.pause([partition])
            case "resume":
                desk.subscription.resume([partition])
            case "seek" if state:
                state.start_at(number)
            case "reset" if state:
                state.reset(None)
            case "stop" if state:
                state.stop(errors.OffsetOutOfRange("gone"))
            case "answer" if state and state.phase is Phase.FETCH:
                desk.answer(state, now, records=batch_of(state.fetch_offset, 1))
            case "fail" if state and state.phase is Phase.FETCH:
                desk.answer(state, now, error_code=errors.NotLeaderOrFollower.code)
            case "prefer" if state and state.phase is Phase.FETCH:
                desk.answer(state, now, preferred_read_replica=node)
            case "stock" if state and state.phase is Phase.FETCH:
                desk.stock(state, 1_500)
            case "poll":
                with suppress(KafkaError):
                    desk.buffer.take(3)
            case "lead":
                desk.leaders[partition] = node
            case "assign":
                held = set(desk.subscription.assignment()) ^ {partition}
                desk.subscription.assign([each for each in partitions if each in held])
                for each in desk.subscription:
                    if each.phase is Phase.RESET and each.version == 0:
                        each.start_at(0)
            case "wait":
                now += 0.06
            case "beside":
                flying = True
            case "over":
                flying = False
                desk.planner.hand_over(1)
        for where in (1, 2):
            second = desk.plan(where, now, number=1, other_in_flight=False)
            assert second.targets == {}
            first = desk.plan(where, now)
            assert shape(first) == model.targets(where, now)
        if flying:  # the first plan of node 1 is in flight: the second asks for what changes meanwhile
            first = desk.plan(1, now)
            moved = desk.subscription.find(partition)
            if moved is not None and moved.phase is Phase.FETCH:
                moved.start_at(moved.position)
            second = desk.plan(1, now, number=1, other_in_flight=True)
            assert shape(second) == model.targets(1, now, first) or not first.targets
            assert second.positions.keys() == second.targets.keys()
            desk.planner.hand_over(1)
    desk.plan()
    assert desk.planner.sources() >= {model.source(state, now) for state in desk.subscription}


def test_an_idle_partition_is_looked_at_once() -> None:
    desk = Desk(*(TopicPartition("t", number) for number in range(1000)))
    picture, looked = object(), []

    def leader_of(partition: TopicPartition) -> int:
        looked.append(partition)
        return 1

    desk.planner.update(picture, leader_of)
    plan = desk.planner.plan(1, 0, 0.0, other_in_flight=False)
    assert len(plan.targets) == len(plan.changed) == 1000
    looked.clear()
    plan.changed = {}
    state = desk.states[500]
    desk.answer(state, records=batch_of(0, 1))
    desk.planner.update(picture, leader_of)
    assert desk.planner.plan(1, 0, 0.0, other_in_flight=False) is plan
    assert len(plan.targets) == 1000
    assert looked == list(plan.changed) == [state.topic_partition]
