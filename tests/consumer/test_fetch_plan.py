"""Fetch plans: which partitions to fetch from which node, and in which order; no I/O."""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import errors
from pyclient.consumer.fetch_buffer import FetchOutcome
from pyclient.consumer.fetch_plan import FetchPlan
from pyclient.consumer.subscription import AssignedPartition, Phase
from pyclient.errors import KafkaError
from pyclient.types import TopicPartition
from tests.consumer.consumer_samples import T0, T1, batch_of
from tests.consumer.fetch_fixture import FetchFixture


def test_every_partition_that_wants_data_is_requested() -> None:
    fixture = FetchFixture()
    assert fixture.requested() == [T0, T1]
    fixture.leaders[T1] = 2
    assert fixture.requested() == [T0]
    assert list(fixture.plan(2).targets) == [T1]


def test_partition_that_returned_data_last_is_requested_last() -> None:
    fixture = FetchFixture()
    assert fixture.requested() == [T0, T1]
    fixture.answer(fixture.states[0], records=batch_of(0, 1))
    assert fixture.requested() == [T1, T0]


@pytest.mark.parametrize("phase", [Phase.COMMITTED, Phase.RESET, Phase.VALIDATE, Phase.STOPPED])
def test_partition_without_a_settled_position_is_left_out(phase: Phase) -> None:
    fixture = FetchFixture()
    fixture.states[0].touch()
    fixture.states[0].phase = phase
    assert fixture.requested() == [T1]


def test_paused_and_already_requested_partitions_are_left_out() -> None:
    fixture = FetchFixture()
    fixture.subscription.pause([T0])
    assert fixture.requested() == [T1]
    assert fixture.requested_second() == []
    fixture.states[1].start_at(7)  # a seek: the response in flight will be dropped
    assert fixture.requested_second() == [T1]
    fixture.subscription.resume([T0])
    assert fixture.requested_second() == [T1, T0]
    assert fixture.plan(other_in_flight=True).targets == {}
    fixture.planner.hand_over(1)
    assert set(fixture.requested()) == {T0, T1}


def test_unanswered_fetch_at_the_old_leader_does_not_block_the_new_one() -> None:
    fixture = FetchFixture(T0)
    (state,) = fixture.states
    old_target = fixture.plan(1).targets[T0]
    fixture.leaders[T0] = 2
    at_new = fixture.plan(2)
    assert list(at_new.targets) == [T0]
    fixture.take(at_new.targets[T0], 0.0, FetchOutcome(), records=batch_of(0, 2))
    fixture.take(old_target, 0.0, FetchOutcome(), records=batch_of(0, 2))
    assert sum(piece.count for piece in fixture.buffer.take(10)) == 2
    assert state.position == 2
    assert fixture.plan(1).targets == {}


def test_partition_with_three_shares_buffered_is_not_requested() -> None:
    fixture = FetchFixture(fetch_max_bytes=9_000)
    fixture.add_buffered(fixture.states[0], 2_999)
    assert fixture.requested() == [T0, T1]
    fixture.add_buffered(fixture.states[0], 1)
    assert fixture.requested() == [T1]


def test_fetch_is_due_below_two_shares_and_then_as_large_as_possible() -> None:
    fixture = FetchFixture(fetch_max_bytes=9_000)
    fixture.add_buffered(fixture.states[0], 2_000)
    fixture.add_buffered(fixture.states[1], 2_000)
    assert fixture.requested() == []
    fixture.buffer.take(1)
    assert fixture.buffer.wants_more
    assert set(fixture.requested()) == {T0, T1}


def test_fetch_is_in_flight_while_one_response_is_read_and_one_ready() -> None:
    fixture = FetchFixture(T0, fetch_max_bytes=9_000)
    for _ in range(2):
        assert fixture.requested() == [T0]
        fixture.add_buffered(fixture.states[0], 1_000)
    assert fixture.requested() == []
    fixture.buffer.take(1)
    assert fixture.requested() == [T0]


@pytest.mark.parametrize(("least", "most"), [(1, 8), (20, 20), (60, 50)])
def test_max_bytes_of_many_partitions_is_limited_unless_min_bytes_is_more(least: int, most: int) -> None:
    mebibyte = 1024 * 1024
    partitions = [TopicPartition("t", number) for number in range(100)]
    sizes = {"fetch_max_bytes": 50 * mebibyte, "max_partition_fetch_bytes": mebibyte}
    plan = FetchFixture(*partitions, fetch_min_bytes=least * mebibyte if least > 1 else 1, **sizes).plan()
    assert (len(plan.targets), plan.max_bytes) == (100, most * mebibyte)


def test_partition_in_backoff_sets_wake_at() -> None:
    fixture = FetchFixture()
    fixture.states[0].touch()
    fixture.states[0].retry_at = 5.0
    plan = fixture.plan(now=4.0)
    assert (list(plan.targets), plan.wake_at) == ([T1], 5.0)
    assert fixture.requested(now=5.0) == [T1, T0]


def test_held_requested_and_reserved_stay_below_fetch_max_bytes() -> None:
    fixture = FetchFixture(fetch_max_bytes=4_500)
    assert fixture.plan().max_bytes == 2_000  # two partitions, a share each
    fixture.add_buffered(fixture.states[0], 3_000)
    assert fixture.plan().max_bytes == 1_000
    assert fixture.plan(reserved=400).max_bytes == 1_000
    assert fixture.plan(reserved=600).targets == {}  # the user has something to poll meanwhile
    fixture.buffer.take(10)
    plan = fixture.plan(reserved=4_400)
    assert (set(plan.targets), plan.max_bytes) == ({T0, T1}, 1_000)


def test_fetch_without_room_is_due_when_the_user_has_taken_the_data() -> None:
    fixture = FetchFixture(T0, fetch_max_bytes=4_000)
    fixture.add_buffered(fixture.states[0], 1_500)
    stale = 3_000  # the request before a seek, which waits at the broker and whose response will be dropped
    assert fixture.plan(reserved=stale).targets == {}
    fixture.buffer.wants_more = False
    fixture.buffer.take(10)
    assert fixture.buffer.wants_more
    assert fixture.plan(reserved=stale).max_bytes == 1_000


def test_topic_ids_are_used_only_if_all_are_known() -> None:
    fixture = FetchFixture()
    assert not fixture.plan().by_id
    fixture.states[0].touch()
    fixture.states[0].topic_id = uuid.UUID(int=1)
    assert not fixture.plan().by_id
    fixture.states[1].touch()
    fixture.states[1].topic_id = uuid.UUID(int=1)
    plan = fixture.plan()
    assert plan.by_id
    assert plan.topic_names() == {uuid.UUID(int=1): "t"}


def test_preferred_replica_is_used_until_it_expires() -> None:
    fixture = FetchFixture()
    fixture.answer(fixture.states[0], preferred_read_replica=3)
    assert (fixture.requested(), list(fixture.plan(3).targets)) == ([T1], [T0])
    assert fixture.plan(3).targets[T0].from_replica
    assert T0 in fixture.plan(1, now=301.0).targets


def test_new_node_wakes_and_the_leader_when_the_preference_expires() -> None:
    fixture = FetchFixture(T0)
    assert fixture.answer(fixture.states[0], now=1.0, preferred_read_replica=3).moved
    assert not fixture.answer(fixture.states[0], now=1.0, from_replica=True, preferred_read_replica=3).moved
    assert fixture.plan(1, now=2.0).wake_at == fixture.states[0].preferred_until == 301.0
    assert fixture.plan(2, now=2.0).wake_at is None  # it has nothing to do with it


class Model:
    """The expected plan, computed from scratch for every partition."""

    def __init__(self, fixture: FetchFixture) -> None:
        self.fixture = fixture

    def source(self, state: AssignedPartition, now: float) -> int:
        preferred = state.preferred_replica >= 0 and state.preferred_until > now
        return state.preferred_replica if preferred else self.fixture.leaders[state.topic_partition]

    def targets(self, node: int, now: float, *others: FetchPlan) -> dict[TopicPartition, tuple[int, int]]:
        found = {}
        for state in self.fixture.subscription:
            wanted = state.phase is Phase.FETCH and not state.paused and self.source(state, now) == node
            if (
                wanted
                and state.retry_at <= now
                and state.buffered < 3_000
                and not any(p.asks_for(state) for p in others)
            ):
                found[state.topic_partition] = (state.version, state.fetch_offset)
        short = any(self.fixture.subscription.find(p).buffered < 2_000 for p in found)  # type: ignore[union-attr]
        return found if short else {}


def shape(plan: FetchPlan) -> dict[TopicPartition, tuple[int, int]]:
    return {partition: (target.version, target.offset) for partition, target in plan.targets.items()}


STEPS = [
    "pause", "resume", "seek", "reset", "stop", "answer", "fail", "prefer", "buffer", "poll", "lead", "assign", "wait",
    "leave in flight", "hand over",
]  # fmt: skip


class Comparison:
    """The planner and the model, after the same steps. With `in_flight` node 1 has not answered its first plan."""

    def __init__(self) -> None:
        self.partitions = [TopicPartition("t", number) for number in range(4)]
        self.fixture = FetchFixture(*self.partitions, fetch_max_bytes=900_000, max_partition_fetch_bytes=1_000)
        self.fixture.leaders |= dict.fromkeys(self.partitions, 1)
        self.model = Model(self.fixture)
        self.now = 0.0
        self.in_flight = False

    def take(self, step: str, number: int, node: int) -> None:
        fixture, partition = self.fixture, self.partitions[number]
        state = fixture.subscription.find(partition)
        fetches = state is not None and state.phase is Phase.FETCH
        match step:
            case "pause":
                fixture.subscription.pause([partition])
            case "resume":
                fixture.subscription.resume([partition])
            case "seek" if state:
                state.start_at(number)
            case "reset" if state:
                state.reset(None)
            case "stop" if state:
                state.stop(errors.OffsetOutOfRange("gone"))
            case "answer" if state and fetches:
                fixture.answer(state, self.now, records=batch_of(state.fetch_offset, 1))
            case "fail" if state and fetches:
                fixture.answer(state, self.now, error_code=errors.NotLeaderOrFollower.code)
            case "prefer" if state and fetches:
                fixture.answer(state, self.now, preferred_read_replica=node)
            case "buffer" if state and fetches:
                fixture.add_buffered(state, 1_500)
            case "poll":
                with suppress(KafkaError):
                    fixture.buffer.take(3)
            case "lead":
                fixture.leaders[partition] = node
            case "assign":
                self.change_assignment(partition)
            case "wait":
                self.now += 0.06
            case "leave in flight":
                self.in_flight = True
            case "hand over":
                self.in_flight = False
                fixture.planner.hand_over(1)

    def change_assignment(self, partition: TopicPartition) -> None:
        """Assign the partition, or take it away."""
        held = set(self.fixture.subscription.assignment()) ^ {partition}
        self.fixture.subscription.assign([each for each in self.partitions if each in held])
        for each in self.fixture.subscription:
            if each.phase is Phase.RESET and each.version == 0:
                each.start_at(0)

    def check_plans(self) -> None:
        for node in (1, 2):
            second = self.fixture.plan(node, self.now, number=1, other_in_flight=False)
            assert second.targets == {}
            first = self.fixture.plan(node, self.now)
            assert shape(first) == self.model.targets(node, self.now)

    def check_second_plan(self, partition: TopicPartition) -> None:
        """Check that the second plan of node 1 asks for what changes while the first one is in flight."""
        first = self.fixture.plan(1, self.now)
        moved = self.fixture.subscription.find(partition)
        if moved is not None and moved.phase is Phase.FETCH:
            moved.start_at(moved.position)
        second = self.fixture.plan(1, self.now, number=1, other_in_flight=True)
        assert shape(second) == self.model.targets(1, self.now, first) or not first.targets
        assert second.positions.keys() == second.targets.keys()
        self.fixture.planner.hand_over(1)


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 3), st.integers(1, 2)), max_size=40))
def test_incremental_plans_equal_plans_from_scratch(steps: list[tuple[str, int, int]]) -> None:
    made = Comparison()
    for step, number, node in steps:
        partition = made.partitions[number]
        if made.fixture.subscription.find(partition) is None and step != "assign":
            continue
        made.take(step, number, node)
        made.check_plans()
        if made.in_flight:
            made.check_second_plan(partition)
    made.fixture.plan()
    sources = {made.model.source(state, made.now) for state in made.fixture.subscription}
    assert made.fixture.planner.sources() >= sources


def test_idle_partition_is_visited_once() -> None:
    fixture = FetchFixture(*(TopicPartition("t", number) for number in range(1000)))
    picture, looked = object(), []

    def leader_of(partition: TopicPartition) -> int:
        looked.append(partition)
        return 1

    fixture.planner.update(picture, leader_of)
    plan = fixture.planner.plan(1, 0, 0.0, other_in_flight=False)
    assert len(plan.targets) == len(plan.changed) == 1000
    looked.clear()
    plan.changed = {}
    state = fixture.states[500]
    fixture.answer(state, records=batch_of(0, 1))
    fixture.planner.update(picture, leader_of)
    assert fixture.planner.plan(1, 0, 0.0, other_in_flight=False) is plan
    assert len(plan.targets) == 1000
    assert looked == list(plan.changed) == [state.topic_partition]
