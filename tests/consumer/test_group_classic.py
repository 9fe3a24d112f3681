"""The group member as transcripts: what happened, what it wants done, where it stands. Time is written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient import errors
from pyclient.assignment import MemberSubscription
from pyclient.consumer.group import MemberOptions, State
from pyclient.consumer.group_classic import ClassicMember
from pyclient.consumer.group_events import (
    Action,
    Adopt,
    Adopted,
    CoordinatorFound,
    CoordinatorLost,
    Departing,
    Doubted,
    Event,
    Fail,
    FindCoordinator,
    HeartbeatAnswered,
    Joined,
    Lose,
    LossNoted,
    PlanAssignment,
    Planned,
    Polled,
    Refused,
    RejoinWanted,
    Released,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Subscribed,
    Synced,
    Ticked,
)
from pyclient.types import TopicPartition
from tests.consumer.member_script import MemberScript, names, show_in_any_protocol


def tp(names: str) -> tuple[TopicPartition, ...]:
    """`tp("a0 b1")`: partition 0 of topic a, and 1 of b."""
    return tuple(TopicPartition(name[:-1], int(name[-1])) for name in names.split())


def show(action: Action) -> str:
    match action:
        case SendJoin():
            return (
                f"join node {action.node} as {action.member_id or '?'}, topics {','.join(action.topics)}, owning "
                f"{names(action.owned)} of generation {action.generation}: {action.reason}"
            )
        case PlanAssignment():
            return f"plan {action.protocol} for {','.join(action.members)}"
        case SendSync():
            shares = {member: names(partitions) for member, partitions in action.assignments.items()}
            return f"sync generation {action.generation} as {action.member_id} {shares or ''}".rstrip()
        case SendHeartbeat():
            return f"heartbeat to node {action.node} as {action.member_id}, generation {action.generation}"
        case SendLeave():
            return f"leave as {action.member_id}: {action.reason}"
        case Revoke():
            return f"REVOKE {names(action.partitions)}"
        case _:
            return show_in_any_protocol(action)


class Script(MemberScript):
    """A member; answers refer to the last request unless told otherwise."""

    def __init__(self, *, cooperative: bool = False, instance_id: str | None = None) -> None:
        super().__init__()
        self.member = ClassicMember(
            MemberOptions("g", 3.0, 300.0, lambda failures: 0.1 * 2**failures, instance_id, cooperative)
        )

    def show(self, action: Action) -> str:
        return show(action)

    def joined(self, generation: int = 1, *, member_id: str = "m1", leader: bool = False, **members: str) -> list[str]:
        group = {name: MemberSubscription(tuple(topics.split())) for name, topics in members.items()}
        return self.step(Joined(self.last[SendJoin].attempt, member_id, generation, "range", leader, group))

    def synced(self, partitions: str) -> list[str]:
        return self.step(Synced(self.last[SendSync].attempt, tp(partitions)))

    def refused(self, request: type, error: type[errors.KafkaError], member_id: str = "") -> list[str]:
        return self.step(Refused(self.last[request].attempt, error("refused"), member_id))

    def stable(self, partitions: str = "a0 a1") -> Script:
        self.step(Subscribed(("a",)))
        self.step(CoordinatorFound(1))
        self.joined()
        self.synced(partitions)
        self.adopted()
        assert self.member.state is State.STABLE
        return self


# ---- joining


def test_joining_a_group_for_the_first_time() -> None:
    script = Script()
    assert script.step(Subscribed(("a", "b"))) == ["find coordinator"]
    assert script.step(CoordinatorFound(1)) == [
        "join node 1 as ?, topics a,b, owning nothing of generation -1: subscribed"
    ]
    assert script.refused(SendJoin, errors.MemberIdRequired, "m1") == [
        "join node 1 as m1, topics a,b, owning nothing of generation -1: subscribed"
    ]
    assert script.joined() == ["sync generation 1 as m1"]
    assert script.synced("a0 b1") == ["ADOPT a0 b1, added a0 b1, revoked nothing"]
    assert script.member.state is State.STABLE
    assert script.adopted() == []
    assert script.member.commit_identity() == (1, "m1")


def test_the_leader_plans_for_everybody() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    assert script.joined(leader=True, m1="a", m2="a b") == ["plan range for m1,m2"]
    plan = Planned(script.last[PlanAssignment].attempt, {"m1": tp("a0"), "m2": tp("a1")})
    assert script.step(plan) == ["sync generation 1 as m1 {'m1': 'a0', 'm2': 'a1'}"]
    assert script.member.leader


def test_a_leader_told_to_keep_the_assignment_plans_nothing() -> None:
    script = Script(instance_id="i")
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    attempt = script.last[SendJoin].attempt
    joined = Joined(attempt, "m1", 1, "range", True, {}, keeps_assignment=True)
    assert [show(action) for action in script.member.step(joined, 0.0)] == ["sync generation 1 as m1"]


def test_a_coordinator_that_loads_is_asked_again_after_growing_pauses() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    pauses = []
    for _ in range(3):
        assert script.refused(SendJoin, errors.CoordinatorLoadInProgress) == []
        assert script.member.state is State.WAITING
        begun = script.now
        assert script.tick() == ["join node 1 as ?, topics a, owning nothing of generation -1: subscribed"]
        pauses.append(script.now - begun)
    assert pauses == pytest.approx([0.1, 0.2, 0.4])


@pytest.mark.parametrize("error", [errors.NotCoordinator, errors.CoordinatorNotAvailable, errors.ConnectionFailed])
def test_a_coordinator_that_moved_is_looked_up_again(error: type[errors.KafkaError]) -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    assert script.refused(SendJoin, error) == []
    assert script.tick() == ["find coordinator"]
    assert script.step(CoordinatorFound(2))[0].startswith("join node 2")


@pytest.mark.parametrize("request_type", [SendJoin, SendSync])
def test_an_unknown_member_joins_without_its_old_id(request_type: type) -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.refused(SendJoin, errors.MemberIdRequired, "m1")
    if request_type is SendSync:
        script.joined()
    assert script.refused(request_type, errors.UnknownMemberId) == []
    assert script.tick() == ["join node 1 as ?, topics a, owning nothing of generation -1: subscribed"]


def test_a_rebalance_during_sync_joins_again_with_the_same_id() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.joined()
    assert script.refused(SendSync, errors.RebalanceInProgress) == []
    assert script.tick() == ["join node 1 as m1, topics a, owning nothing of generation -1: subscribed"]


@pytest.mark.parametrize(
    "error",
    [
        errors.InconsistentGroupProtocol,
        errors.InvalidSessionTimeout,
        errors.GroupAuthorizationFailed,
        errors.GroupMaxSizeReached,
    ],
)
def test_an_error_only_the_user_can_solve_is_raised_and_the_next_poll_tries_again(
    error: type[errors.KafkaError],
) -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    assert script.refused(SendJoin, error) == [f"FAIL {error.__name__}"]
    assert script.member.state is State.FAILED
    assert script.member.deadline() is None
    assert script.step(Polled()) == []  # not before the backoff is over
    assert script.step(Polled(), after=1.0) == [
        "join node 1 as ?, topics a, owning nothing of generation -1: poll was called again"
    ]


def test_not_being_allowed_to_find_the_coordinator_is_raised() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    assert script.refused(FindCoordinator, errors.GroupAuthorizationFailed) == ["FAIL GroupAuthorizationFailed"]
    assert script.step(Polled(), after=1.0) == ["find coordinator"]


def test_answers_to_earlier_requests_are_ignored() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    stale = script.last[SendJoin].attempt
    script.refused(SendJoin, errors.MemberIdRequired, "m1")
    assert script.step(Joined(stale, "m0", 9, "range", False, {})) == []
    assert script.step(Refused(stale, errors.FencedInstanceId("late"))) == []
    assert script.member.state is State.JOINING


# ---- stable


def test_heartbeats_go_out_one_at_a_time() -> None:
    script = Script().stable()
    assert script.tick() == ["heartbeat to node 1 as m1, generation 1"]
    assert script.member.deadline() == 300.0  # none is due while one is on its way
    assert script.step(HeartbeatAnswered(script.last[SendHeartbeat].attempt)) == []
    assert script.tick() == ["heartbeat to node 1 as m1, generation 1"]


def test_heartbeats_of_a_new_generation_begin_quickly_and_grow_to_their_interval() -> None:
    script = Script().stable()
    pauses = []
    for _ in range(10):
        begun = script.now
        script.tick()
        script.step(HeartbeatAnswered(script.last[SendHeartbeat].attempt))
        pauses.append(script.now - begun)
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0])


def test_membership_survives_a_move_of_the_coordinator() -> None:
    script = Script().stable()
    script.tick()
    assert script.refused(SendHeartbeat, errors.NotCoordinator) == ["find coordinator"]
    assert script.member.state is State.STABLE
    assert script.step(CoordinatorFound(2)) == ["heartbeat to node 2 as m1, generation 1"]
    assert script.member.commit_identity() == (1, "m1")


def test_a_commit_may_learn_of_the_move_first() -> None:
    script = Script().stable()
    assert script.step(CoordinatorLost()) == ["find coordinator"]
    assert script.step(CoordinatorLost()) == []
    assert script.step(CoordinatorFound(2)) == ["heartbeat to node 2 as m1, generation 1"]


def test_a_commit_that_is_refused_has_the_member_ask_how_things_stand() -> None:
    script = Script().stable()
    assert script.step(Doubted()) == ["heartbeat to node 1 as m1, generation 1"]
    assert script.step(Doubted()) == []


# ---- rebalancing, eager


def test_an_eager_rebalance_gives_everything_up_before_it_joins() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    assert script.refused(SendHeartbeat, errors.RebalanceInProgress) == ["REVOKE a0 a1"]
    assert script.member.state is State.REVOKING
    assert script.tick() == ["heartbeat to node 1 as m1, generation 1"]  # while the user's code works
    assert script.refused(SendHeartbeat, errors.RebalanceInProgress) == []
    assert script.member.commit_identity() == (1, "m1")  # the callback may commit
    assert script.step(Released()) == [
        "join node 1 as m1, topics a, owning nothing of generation -1: the group is rebalancing"
    ]
    script.joined(2)
    assert script.synced("a1") == ["ADOPT a1, added a1, revoked nothing"]


def test_a_rebalance_that_begins_before_the_last_one_was_taken_over_waits_for_it() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.joined()
    script.synced("a0")
    script.tick()
    assert script.refused(SendHeartbeat, errors.RebalanceInProgress) == []
    assert script.adopted() == ["REVOKE a0"]


def test_a_new_subscription_rebalances() -> None:
    script = Script().stable("a0")
    assert script.step(Subscribed(("a",))) == []
    assert script.step(Subscribed(("b",))) == ["REVOKE a0"]
    assert script.step(Released())[0].startswith("join node 1 as m1, topics b, owning nothing")


def test_a_subscription_that_changes_while_joining_joins_once_more() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    assert script.step(Subscribed(("b",))) == []
    script.joined()
    script.synced("")
    assert script.adopted() == [
        "join node 1 as m1, topics b, owning nothing of generation -1: the subscription changed"
    ]


def test_the_leader_rebalances_when_partitions_appear() -> None:
    script = Script().stable("a0")
    assert script.step(RejoinWanted("topic a has 2 partitions now")) == ["REVOKE a0"]
    assert script.step(Released())[0].endswith("topic a has 2 partitions now")


def test_a_join_tells_what_was_assigned_last_even_when_that_is_given_up() -> None:
    script = Script().stable("a0 a1")
    script.step(RejoinWanted("why not"))
    script.step(Released())
    join = script.last[SendJoin]
    assert (join.owned, join.last, join.last_generation) == ((), tp("a0 a1"), 1)


# ---- rebalancing, cooperative


def test_a_cooperative_rebalance_keeps_what_stays_and_joins_again_after_giving_up_the_rest() -> None:
    script = Script(cooperative=True).stable("a0 a1")
    script.tick()
    assert script.refused(SendHeartbeat, errors.RebalanceInProgress) == [
        "join node 1 as m1, topics a, owning a0 a1 of generation 1: the group is rebalancing"
    ]
    script.joined(2)
    assert script.synced("a0") == ["ADOPT a0, added nothing, revoked a1"]
    assert script.adopted() == [
        "join node 1 as m1, topics a, owning a0 of generation 2: partitions were given up for others"
    ]
    script.joined(3)
    assert script.synced("a0") == ["ADOPT a0, added nothing, revoked nothing"]
    assert script.adopted() == []


def test_a_cooperative_member_gives_up_at_once_what_it_is_not_subscribed_to_any_more() -> None:
    script = Script(cooperative=True)
    script.step(Subscribed(("a", "b")))
    script.step(CoordinatorFound(1))
    script.joined()
    script.synced("a0 b0")
    script.adopted()
    assert script.step(Subscribed(("a",))) == ["REVOKE b0"]
    assert script.step(Released()) == [
        "join node 1 as m1, topics a, owning a0 of generation 1: the subscription changed"
    ]


# ---- lost


@pytest.mark.parametrize(("error", "member_id"), [(errors.UnknownMemberId, "?"), (errors.IllegalGeneration, "m1")])
def test_a_member_given_up_by_its_coordinator_loses_everything_and_joins_again(
    error: type[errors.KafkaError], member_id: str
) -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.refused(SendHeartbeat, error) == ["LOSE a0"]
    assert script.tick() == [
        f"join node 1 as {member_id}, topics a, owning nothing of generation -1: "
        "the coordinator had given this member up"
    ]
    script.joined(7, member_id="m2")
    script.synced("a1")
    with pytest.raises(errors.CommitFailed, match="m2, generation 7"):
        script.member.commit_identity()  # the user may still be at work on what is lost
    script.step(LossNoted())
    assert script.member.commit_identity() == (7, "m2")


def test_partitions_that_were_lost_before_they_were_taken_over_are_not_taken_over() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.joined()
    script.synced("a0")
    stale = script.last[Adopt].number
    script.tick()
    assert script.refused(SendHeartbeat, errors.UnknownMemberId) == ["LOSE nothing"]
    assert script.step(Adopted(stale)) == []
    assert script.member.owned == ()


def test_a_member_that_polls_too_late_leaves_says_so_and_joins_at_the_next_poll() -> None:
    script = Script().stable("a0")
    script.now = 300.0
    assert script.step(Ticked()) == [
        "leave as m1: max_poll_interval_ms passed without a poll",
        "LOSE a0",
        "FAIL PollIntervalExceeded",
    ]
    assert "300.0 s passed without a poll" in str(script.last[Fail].error)
    with pytest.raises(errors.CommitFailed, match="poll overdue"):
        script.member.commit_identity()
    assert script.member.deadline() is None
    script.step(LossNoted())
    assert script.step(Polled(), after=5.0) == [
        "join node 1 as ?, topics a, owning nothing of generation -1: poll was called again"
    ]


def test_polling_in_time_keeps_the_member() -> None:
    script = Script().stable("a0")
    script.now = 299.0
    script.step(Polled())
    script.now = 300.0
    assert script.step(Ticked()) == ["heartbeat to node 1 as m1, generation 1"]


def test_a_poll_that_is_overdue_while_giving_up_partitions_leaves_too() -> None:
    script = Script().stable("a0")
    script.step(RejoinWanted("why not"))
    assert script.member.state is State.REVOKING
    script.now = 300.0
    assert script.step(Ticked())[1:] == ["LOSE a0", "FAIL PollIntervalExceeded"]
    assert script.step(Released()) == []


# ---- fenced


def test_a_second_consumer_of_the_same_instance_id_fences_this_one_for_good() -> None:
    script = Script(instance_id="i").stable("a0")
    script.tick()
    assert script.refused(SendHeartbeat, errors.FencedInstanceId) == ["LOSE a0", "FAIL FencedInstanceId"]
    assert script.member.state is State.FENCED
    assert script.step(Polled(), after=1000.0) == []
    assert script.step(Subscribed(("b",))) == []
    assert script.member.deadline() is None
    with pytest.raises(errors.CommitFailed):
        script.member.commit_identity()


# ---- leaving


def test_leaving_says_goodbye() -> None:
    script = Script().stable("a0")
    assert script.step(Departing("the consumer was closed")) == ["leave as m1: the consumer was closed"]
    assert script.member.state is State.IDLE
    assert script.member.deadline() is None
    assert script.step(Subscribed(("a",))) == [
        "join node 1 as ?, topics a, owning nothing of generation -1: subscribed"
    ]


def test_a_static_member_leaves_without_a_word_so_that_it_may_come_back() -> None:
    script = Script(instance_id="i").stable("a0")
    assert script.step(Departing("the consumer was closed")) == []


def test_leaving_while_joining_ignores_the_answer() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.refused(SendJoin, errors.MemberIdRequired, "m1")
    attempt = script.last[SendJoin].attempt
    assert script.step(Departing("closed")) == ["leave as m1: closed"]
    assert script.step(Joined(attempt, "m1", 1, "range", False, {})) == []
    assert script.member.state is State.IDLE


REFUSALS = (
    errors.NotCoordinator,
    errors.CoordinatorLoadInProgress,
    errors.RebalanceInProgress,
    errors.UnknownMemberId,
    errors.IllegalGeneration,
    errors.GroupAuthorizationFailed,
    errors.ConnectionFailed,
)


class AnyOrder(RuleBasedStateMachine):
    """Any order of answers, refusals, polls and time, by a polling thread that may lag behind.

    Whatever happens, the thread never owns what the member has lost without knowing it, commits are refused exactly
    then, every state but the resting ones has something to wait for, and in the end the member is stable again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.member = ClassicMember(MemberOptions("g", 3.0, 300.0, lambda failures: 0.1, None, self.cooperative))
        self.requests: list[Any] = []
        self.thread: list[Any] = []
        self.held: set[TopicPartition] = set()
        self.generation = 0
        self.step(Subscribed(("a",)))

    cooperative = False

    def step(self, event: Event) -> None:
        for action in self.member.step(event, self.now):
            if isinstance(action, (Revoke, Adopt, Lose)):
                if isinstance(action, Lose):
                    self.thread = [task for task in self.thread if isinstance(task, Lose)]
                self.thread.append(action)
            elif not isinstance(action, (SendLeave, Fail)):
                self.requests.append(action)

    def take(self, data: st.DataObject) -> Any:
        return self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))

    def answer(self, request: Any, partitions: tuple[TopicPartition, ...]) -> None:
        match request:
            case FindCoordinator():
                self.step(CoordinatorFound(1))
            case SendJoin():
                self.generation += 1
                self.step(Joined(request.attempt, request.member_id or "m", self.generation, "range", False, {}))
            case SendSync():
                self.step(Synced(request.attempt, partitions))
            case SendHeartbeat():
                self.step(HeartbeatAnswered(request.attempt))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), numbers=st.sets(st.integers(0, 3)))
    def a_request_is_answered(self, data: st.DataObject, numbers: set[int]) -> None:
        self.answer(self.take(data), tuple(TopicPartition("a", n) for n in sorted(numbers)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), error=st.sampled_from(REFUSALS))
    def a_request_is_refused(self, data: st.DataObject, error: type[errors.KafkaError]) -> None:
        request = self.take(data)
        final = issubclass(error, errors.GroupAuthorizationFailed)
        if isinstance(request, FindCoordinator) and not final:
            self.requests.append(request)  # its driver tries on
        else:
            self.step(Refused(request.attempt, error("no")))

    @precondition(lambda self: self.thread)
    @rule()
    def the_thread_does_its_next_task(self) -> None:
        match self.thread.pop(0):
            case Revoke(partitions):
                self.held -= set(partitions)
                self.step(Released())
            case Adopt(number, assigned, added, revoked):
                assert not set(added) & self.held
                assert set(revoked) <= self.held
                self.held = set(assigned)
                self.step(Adopted(number))
            case Lose():
                self.held = set()
                self.step(LossNoted())

    @rule()
    def poll(self) -> None:
        self.step(Polled())

    @rule(seconds=st.sampled_from([0.05, 0.2, 3.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = self.member.deadline()
        if due is not None and due <= self.now:
            self.step(Ticked())

    @rule(topics=st.sampled_from([("a",), ("a", "b")]))
    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.step(Subscribed(topics))

    @rule()
    def the_coordinator_moves(self) -> None:
        self.step(CoordinatorLost())

    @invariant()
    def commits_are_refused_exactly_while_the_thread_holds_what_is_lost(self) -> None:
        losing = any(isinstance(task, Lose) for task in self.thread)
        if losing:
            with pytest.raises(errors.CommitFailed):
                self.member.commit_identity()
        elif not self.thread:
            assert self.held == set(self.member.owned)

    @invariant()
    def there_is_always_something_to_wait_for(self) -> None:
        if self.member.state not in (State.FAILED, State.OVERDUE):
            assert self.member.deadline() is not None or self.requests

    def teardown(self) -> None:
        for _ in range(100):
            if self.member.state is State.STABLE and not self.thread and not self.requests:
                break
            self.now += 0.5
            self.step(Polled())
            while self.thread:
                self.the_thread_does_its_next_task()
            for request in list(self.requests):
                self.requests.remove(request)
                self.answer(request, tuple(TopicPartition("a", n) for n in range(2)))
            if (due := self.member.deadline()) is not None and due <= self.now:
                self.step(Ticked())
        assert self.member.state is State.STABLE


class AnyOrderCooperative(AnyOrder):
    """The same for a cooperative member."""

    cooperative = True


TestAnyOrder = AnyOrder.TestCase
TestAnyOrderCooperative = AnyOrderCooperative.TestCase
