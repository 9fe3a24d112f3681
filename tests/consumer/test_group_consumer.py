"""A member in the consumer protocol (KIP-848) as transcripts. Time is written by hand; topic a has id 1, b id 2, ..."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient import errors
from pyclient.consumer.group import MemberOptions, State
from pyclient.consumer.group_consumer import ConsumerMember
from pyclient.consumer.group_events import (
    Action,
    Adopt,
    Adopted,
    ConsumerHeartbeatAnswered,
    CoordinatorFound,
    CoordinatorLost,
    Departing,
    Doubted,
    Event,
    FindCoordinator,
    IdPartitions,
    Lose,
    LossNoted,
    Polled,
    Refused,
    ResolveTopics,
    SendConsumerHeartbeat,
    SendLeave,
    Subscribed,
    Ticked,
    TopicsResolved,
)
from pyclient.types import TopicPartition
from tests.consumer.member_script import MemberScript, show_in_any_protocol

INTERVAL = 5.0


def topic_id(name: str) -> uuid.UUID:
    return uuid.UUID(int=ord(name) - ord("a") + 1)


def topic_name(topic: uuid.UUID) -> str:
    return chr(topic.int - 1 + ord("a"))


def ids(names: str) -> IdPartitions:
    """`ids("a0 b1")`: partition 0 of topic a, and 1 of b, by their topics' ids."""
    return tuple((topic_id(name[0]), int(name[1:])) for name in names.split())


def show_ids(partitions: IdPartitions) -> str:
    return " ".join(f"{topic_name(topic)}{number}" for topic, number in partitions) or "nothing"


def show(action: Action) -> str:
    match action:
        case SendConsumerHeartbeat():
            said = [f"node {action.node}", f"epoch {action.epoch}"]
            said += ["everything"] if action.complete else []
            said += [f"topics {','.join(action.topics)}"] if action.topics is not None else []
            said += [f"pattern {action.pattern!r}"] if action.pattern is not None else []
            said += [f"owning {show_ids(action.owned)}"] if action.owned is not None else []
            return f"heartbeat: {', '.join(said)}"
        case ResolveTopics():
            return f"resolve {' '.join(topic_name(topic) for topic in action.topic_ids)}"
        case SendLeave():
            return f"leave: {action.reason}"
        case _:
            return show_in_any_protocol(action)


JOIN = "heartbeat: node 1, epoch 0, everything, topics a, owning nothing"


class Script(MemberScript):
    """A member; answers refer to the last request of their kind."""

    def __init__(self, *, instance_id: str | None = None) -> None:
        super().__init__()
        options = MemberOptions("g", INTERVAL, 300.0, lambda failures: 0.1 * 2**failures, instance_id)
        self.member = ConsumerMember(options, "m")

    def show(self, action: Action) -> str:
        return show(action)

    def told(self, epoch: int, partitions: str | None = None) -> list[str]:
        """The coordinator answers the heartbeat; with `partitions` it assigns them."""
        assigned = None if partitions is None else ids(partitions)
        return self.step(ConsumerHeartbeatAnswered(self.last[SendConsumerHeartbeat].attempt, epoch, INTERVAL, assigned))

    def resolved(self, names: str) -> list[str]:
        found = {topic_id(name): name for name in names.split()}
        return self.step(TopicsResolved(self.last[ResolveTopics].attempt, found))

    def refused(self, error: type[errors.KafkaError], request: type = SendConsumerHeartbeat) -> list[str]:
        return self.step(Refused(self.last[request].attempt, error("refused")))

    def joining(self) -> Script:
        self.step(Subscribed(("a",)))
        self.step(CoordinatorFound(1))
        assert self.member.state is State.JOINING
        return self

    def stable(self, partitions: str = "a0 a1") -> Script:
        self.joining()
        self.told(1, partitions)
        self.resolved("a b")
        self.adopted()
        self.told(1)
        assert self.member.state is State.STABLE
        return self


# ---- joining


def test_joining_takes_a_heartbeat_with_epoch_0_and_the_assignment_is_acknowledged() -> None:
    script = Script()
    assert script.step(Subscribed(("a",))) == ["find coordinator"]
    assert script.step(CoordinatorFound(1)) == [JOIN]
    with pytest.raises(errors.CommitFailed):
        script.member.commit_identity()
    assert script.told(3, "a0 a1") == ["resolve a"]
    assert script.resolved("a") == ["ADOPT a0 a1, added a0 a1, revoked nothing"]
    assert script.member.state is State.RECONCILING
    assert script.adopted() == ["heartbeat: node 1, epoch 3, owning a0 a1"]
    assert script.member.state is State.ACKNOWLEDGING
    assert script.told(3) == []
    assert script.member.state is State.STABLE
    assert script.member.commit_identity() == (3, "m")


def test_a_member_that_gets_nothing_at_first_is_told_so_and_waits() -> None:
    script = Script().joining()
    assert script.told(1, "") == ["ADOPT nothing, added nothing, revoked nothing"]
    assert script.adopted() == []
    assert script.member.state is State.STABLE
    assert script.tick() == ["heartbeat: node 1, epoch 1"]
    assert script.told(2, "a0") == ["resolve a"]


def test_an_answer_without_an_assignment_to_a_join_means_nothing_yet() -> None:
    script = Script().joining()
    assert script.told(1) == ["ADOPT nothing, added nothing, revoked nothing"]


def test_a_subscription_that_changes_while_joining_is_told_next() -> None:
    script = Script().joining()
    assert script.step(Subscribed(("a", "b"))) == []
    assert script.told(1, "") == [
        "ADOPT nothing, added nothing, revoked nothing",
        "heartbeat: node 1, epoch 1, topics a,b",
    ]


def test_a_coordinator_that_loads_is_asked_again_after_growing_pauses() -> None:
    script = Script().joining()
    pauses = []
    for _ in range(3):
        assert script.refused(errors.CoordinatorLoadInProgress) == []
        assert script.member.state is State.WAITING
        begun = script.now
        assert script.tick() == [JOIN]
        pauses.append(script.now - begun)
    assert pauses == pytest.approx([0.1, 0.2, 0.4])


@pytest.mark.parametrize("error", [errors.NotCoordinator, errors.CoordinatorNotAvailable, errors.ConnectionFailed])
def test_a_coordinator_that_moved_is_looked_up_again(error: type[errors.KafkaError]) -> None:
    script = Script().joining()
    assert script.refused(error) == []
    assert script.tick() == ["find coordinator"]
    assert script.step(CoordinatorFound(2)) == ["heartbeat: node 2, epoch 0, everything, topics a, owning nothing"]


@pytest.mark.parametrize(
    "error",
    [
        errors.UnreleasedInstanceId,
        errors.UnsupportedAssignor,
        errors.UnsupportedVersion,
        errors.GroupIdNotFound,
        errors.GroupMaxSizeReached,
        errors.InvalidRegularExpression,
        errors.GroupAuthorizationFailed,
    ],
)
def test_an_error_only_the_user_can_solve_is_raised_and_the_next_poll_tries_again(
    error: type[errors.KafkaError],
) -> None:
    script = Script().joining()
    assert script.refused(error) == [f"FAIL {error.__name__}"]
    assert script.member.state is State.FAILED
    assert script.member.deadline() is None
    assert script.step(Polled()) == []  # not before the backoff is over
    assert script.step(Polled(), after=1.0) == [JOIN]


def test_not_being_allowed_to_find_the_coordinator_is_raised() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    assert script.refused(errors.GroupAuthorizationFailed, FindCoordinator) == ["FAIL GroupAuthorizationFailed"]
    assert script.step(Polled(), after=1.0) == ["find coordinator"]


# ---- patterns


def test_a_pattern_is_told_to_the_coordinator_and_taken_back() -> None:
    script = Script()
    script.step(Subscribed((), "a|b"))
    assert script.step(CoordinatorFound(1)) == [
        "heartbeat: node 1, epoch 0, everything, topics , pattern 'a|b', owning nothing"
    ]
    script.told(1, "")
    script.adopted()
    assert script.step(Subscribed((), "c.*")) == ["heartbeat: node 1, epoch 1, pattern 'c.*'"]
    script.told(1)
    assert script.step(Subscribed(("a",))) == ["heartbeat: node 1, epoch 1, topics a, pattern ''"]


# ---- stable


def test_heartbeats_go_out_one_at_a_time_as_often_as_the_coordinator_wants() -> None:
    script = Script().stable()
    assert script.member.deadline() == INTERVAL
    assert script.tick() == ["heartbeat: node 1, epoch 1"]
    assert script.member.deadline() == 300.0  # none is due while one is on its way
    script.step(ConsumerHeartbeatAnswered(script.last[SendConsumerHeartbeat].attempt, 1, 2.0, None))
    assert script.member.deadline() == script.now + 2.0


def test_a_new_subscription_is_told_at_once() -> None:
    script = Script().stable()
    assert script.step(Subscribed(("a",))) == []
    assert script.step(Subscribed(("b", "a"))) == ["heartbeat: node 1, epoch 1, topics b,a"]


def test_a_new_epoch_is_taken_without_anything_else() -> None:
    script = Script().stable()
    script.tick()
    assert script.told(7) == []
    assert script.member.commit_identity() == (7, "m")


def test_after_a_heartbeat_that_got_lost_the_next_one_says_everything() -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.refused(errors.ConnectionFailed) == ["find coordinator"]
    assert script.step(CoordinatorFound(2)) == ["heartbeat: node 2, epoch 1, everything, topics a, owning a0"]
    assert script.member.state is State.STABLE
    assert script.told(1, "a0") == []
    assert script.tick() == ["heartbeat: node 2, epoch 1"]


def test_a_commit_may_learn_of_a_move_first() -> None:
    script = Script().stable()
    assert script.step(CoordinatorLost()) == ["find coordinator"]
    assert script.step(CoordinatorLost()) == []
    assert script.step(CoordinatorFound(2))[0].startswith("heartbeat: node 2, epoch 1")


def test_a_node_that_does_not_want_to_be_the_coordinator_is_not_asked_without_pause() -> None:
    script = Script().stable()
    script.tick()
    script.refused(errors.NotCoordinator)
    assert len(script.step(CoordinatorFound(1))) == 1
    script.refused(errors.NotCoordinator)
    assert script.step(CoordinatorFound(1)) == []
    begun = script.now
    assert script.tick()[0].startswith("heartbeat: node 1, epoch 1, everything")
    assert script.now - begun == pytest.approx(0.1)


def test_a_coordinator_that_loads_keeps_its_members_waiting() -> None:
    script = Script().stable()
    script.tick()
    assert script.refused(errors.CoordinatorLoadInProgress) == []
    begun = script.now
    assert script.tick()[0].startswith("heartbeat: node 1, epoch 1, everything")
    assert script.now - begun == pytest.approx(0.1)
    assert script.member.state is State.STABLE


def test_a_commit_that_is_refused_has_the_member_ask_how_things_stand() -> None:
    script = Script().stable()
    assert script.step(Doubted()) == ["heartbeat: node 1, epoch 1"]
    assert script.step(Doubted()) == []


# ---- reconciling


def test_what_the_coordinator_wants_back_is_given_up_acknowledged_and_only_then_is_there_more() -> None:
    script = Script().stable("a0 a1 a2")
    script.tick()
    assert script.told(1, "a0") == ["ADOPT a0, added nothing, revoked a1 a2"]
    assert script.member.state is State.RECONCILING
    assert script.tick() == ["heartbeat: node 1, epoch 1"]  # while the user's code works
    script.told(1)
    assert script.member.commit_identity() == (1, "m")  # the callback may commit
    assert script.adopted() == ["heartbeat: node 1, epoch 1, owning a0"]
    assert script.told(2, "a0 a3") == ["ADOPT a0 a3, added a3, revoked nothing"]
    assert script.adopted() == ["heartbeat: node 1, epoch 2, owning a0 a3"]


def test_an_assignment_that_changes_while_the_thread_reconciles_waits_for_it() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.told(1, "a0")
    script.tick()
    assert script.told(2, "") == []
    assert script.adopted() == [
        "heartbeat: node 1, epoch 2, owning a0",
        "ADOPT nothing, added nothing, revoked a0",
    ]
    assert script.told(2) == []
    assert script.member.state is State.RECONCILING
    assert script.adopted() == ["heartbeat: node 1, epoch 2, owning nothing"]


def test_an_acknowledgement_waits_for_the_heartbeat_that_is_on_its_way() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.told(1, "a0")
    script.tick()
    assert script.adopted() == []
    assert script.member.state is State.ACKNOWLEDGING
    assert script.told(1) == ["heartbeat: node 1, epoch 1, owning a0"]
    assert script.member.state is State.ACKNOWLEDGING
    assert script.told(2) == []
    assert script.member.state is State.STABLE


def test_the_same_assignment_again_changes_nothing() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    assert script.told(2, "a1 a0") == []
    assert script.member.state is State.STABLE


def test_a_topic_without_a_name_yet_does_not_hold_up_the_others_and_is_asked_for_again() -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.told(2, "a0 a1 c0") == ["resolve c"]
    assert script.resolved("") == ["ADOPT a0 a1, added a1, revoked nothing"]
    assert script.adopted() == ["heartbeat: node 1, epoch 2, owning a0 a1"]
    script.told(2)
    assert script.tick() == ["resolve c"]
    assert script.refused(errors.ConnectionFailed, ResolveTopics) == []
    assert script.tick() == ["resolve c"]
    assert script.resolved("c") == ["ADOPT a0 a1 c0, added c0, revoked nothing"]


def test_a_topic_made_anew_has_another_id_which_is_acknowledged_without_a_callback() -> None:
    script = Script().stable("a0")
    script.tick()
    script.told(2, "c0")
    assert script.step(TopicsResolved(script.last[ResolveTopics].attempt, {topic_id("c"): "a"})) == [
        "heartbeat: node 1, epoch 2, owning c0"
    ]


# ---- lost


@pytest.mark.parametrize("error", [errors.FencedMemberEpoch, errors.UnknownMemberId])
def test_a_member_given_up_by_its_coordinator_loses_everything_and_joins_again_under_its_id(
    error: type[errors.KafkaError],
) -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.refused(error) == ["LOSE a0"]
    assert script.tick() == [JOIN]
    script.told(9, "a1")
    with pytest.raises(errors.CommitFailed, match="member epoch 9"):
        script.member.commit_identity()  # the user may still be at work on what is lost
    script.step(LossNoted())
    assert script.member.commit_identity() == (9, "m")


def test_what_was_lost_before_it_was_taken_over_is_not_taken_over() -> None:
    script = Script().joining()
    script.told(1, "a0")
    script.resolved("a")
    stale = script.last[Adopt].number
    script.tick()
    assert script.refused(errors.FencedMemberEpoch) == ["LOSE nothing"]
    assert script.step(Adopted(stale)) == []
    assert script.member.owned == ()


def test_a_member_that_polls_too_late_leaves_says_so_and_joins_at_the_next_poll() -> None:
    script = Script().stable("a0")
    script.now = 300.0
    assert script.step(Ticked()) == [
        "leave: max_poll_interval_ms passed without a poll",
        "LOSE a0",
        "FAIL PollIntervalExceeded",
    ]
    with pytest.raises(errors.CommitFailed, match="poll overdue"):
        script.member.commit_identity()
    assert script.member.deadline() is None
    script.step(LossNoted())
    assert script.step(Polled(), after=5.0) == [JOIN]


def test_a_join_that_is_answered_too_late_for_the_polling_thread_is_left_again() -> None:
    script = Script().joining()
    script.now = 300.0
    assert script.told(1, "a0") == [
        "leave: max_poll_interval_ms passed without a poll",
        "FAIL PollIntervalExceeded",
    ]


def test_a_poll_that_is_overdue_while_giving_up_partitions_leaves_too() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.told(1, "a0")
    script.now = 300.0
    assert script.step(Ticked())[1:] == ["LOSE a0 a1", "FAIL PollIntervalExceeded"]
    assert script.adopted() == []


# ---- fenced


def test_a_second_consumer_of_the_same_instance_id_fences_this_one_for_good() -> None:
    script = Script(instance_id="i").stable("a0")
    script.tick()
    assert script.refused(errors.FencedInstanceId) == ["LOSE a0", "FAIL FencedInstanceId"]
    assert script.member.state is State.FENCED
    assert script.step(Polled(), after=1000.0) == []
    assert script.step(Subscribed(("b",))) == []
    assert script.member.deadline() is None


# ---- leaving


def test_leaving_says_goodbye_and_another_subscription_joins_again() -> None:
    script = Script().stable("a0")
    assert script.step(Departing("the consumer was closed")) == ["leave: the consumer was closed"]
    assert script.member.state is State.IDLE
    assert script.member.deadline() is None
    assert script.step(Subscribed(("a",))) == [JOIN]


def test_leaving_while_joining_says_goodbye_because_the_join_may_arrive() -> None:
    script = Script().joining()
    attempt = script.last[SendConsumerHeartbeat].attempt
    assert script.step(Departing("closed")) == ["leave: closed"]
    assert script.step(ConsumerHeartbeatAnswered(attempt, 1, INTERVAL, ids("a0"))) == []
    assert script.member.state is State.IDLE


def test_a_member_that_never_got_anywhere_leaves_without_a_word() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    assert script.step(Departing("closed")) == []


def test_answers_to_earlier_requests_are_ignored() -> None:
    script = Script().stable("a0")
    stale = script.last[SendConsumerHeartbeat].attempt
    script.tick()
    assert script.step(ConsumerHeartbeatAnswered(stale, 9, INTERVAL, ids("a5"))) == []
    assert script.step(Refused(stale, errors.FencedMemberEpoch("late"))) == []
    assert script.step(TopicsResolved(stale, {})) == []
    assert script.member.generation == 1


REFUSALS = (
    errors.NotCoordinator,
    errors.CoordinatorLoadInProgress,
    errors.UnknownMemberId,
    errors.FencedMemberEpoch,
    errors.GroupAuthorizationFailed,
    errors.ConnectionFailed,
)


class AnyOrder(RuleBasedStateMachine):
    """Any order of answers, refusals, polls and time, by a polling thread that may lag behind.

    Whatever happens, the thread never owns what the member has lost without knowing it, commits are refused exactly
    then, every state but the resting ones has something to wait for, the coordinator never hears of partitions given
    up that the thread still holds, and in the end the member has what the coordinator wants.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.member = ConsumerMember(MemberOptions("g", INTERVAL, 300.0, lambda failures: 0.1), "m")
        self.requests: list[Any] = []
        self.thread: list[Any] = []
        self.held: set[TopicPartition] = set()
        self.epoch = 0
        self.step(Subscribed(("a",)))

    def step(self, event: Event) -> None:
        for action in self.member.step(event, self.now):
            match action:
                case Adopt() | Lose():
                    if isinstance(action, Lose):
                        self.thread = [task for task in self.thread if isinstance(task, Lose)]
                    self.thread.append(action)
                case SendConsumerHeartbeat():
                    losing = any(isinstance(task, Lose) for task in self.thread)
                    if action.owned is not None and not losing:
                        told = {TopicPartition(topic_name(topic), number) for topic, number in action.owned}
                        assert told == self.held
                    self.requests.append(action)
                case FindCoordinator() | ResolveTopics():
                    self.requests.append(action)

    def answer(self, request: Any, wanted: IdPartitions | None) -> None:
        match request:
            case FindCoordinator():
                self.step(CoordinatorFound(1))
            case SendConsumerHeartbeat():
                self.epoch += 1
                self.step(ConsumerHeartbeatAnswered(request.attempt, self.epoch, INTERVAL, wanted))
            case ResolveTopics():
                self.step(TopicsResolved(request.attempt, {topic: topic_name(topic) for topic in request.topic_ids}))

    def take(self, data: st.DataObject) -> Any:
        return self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), wanted=st.none() | st.sets(st.sampled_from(["a0", "a1", "b0", "c0"])))
    def a_request_is_answered(self, data: st.DataObject, wanted: set[str] | None) -> None:
        self.answer(self.take(data), None if wanted is None else ids(" ".join(sorted(wanted))))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def no_topic_has_a_name(self, data: st.DataObject) -> None:
        request = self.take(data)
        if isinstance(request, ResolveTopics):
            self.step(TopicsResolved(request.attempt, {}))
        else:
            self.requests.append(request)

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), error=st.sampled_from(REFUSALS))
    def a_request_is_refused(self, data: st.DataObject, error: type[errors.KafkaError]) -> None:
        request = self.take(data)
        if isinstance(request, FindCoordinator) and error is not errors.GroupAuthorizationFailed:
            self.requests.append(request)  # its driver tries on
        else:
            self.step(Refused(request.attempt, error("no")))

    @precondition(lambda self: self.thread)
    @rule()
    def the_thread_does_its_next_task(self) -> None:
        match self.thread.pop(0):
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

    @rule(seconds=st.sampled_from([0.05, 0.2, INTERVAL, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        due = self.member.deadline()
        if due is not None and due <= self.now:
            self.step(Ticked())

    @rule(event=st.sampled_from([Subscribed(("a",)), Subscribed(("a", "b")), Subscribed((), "a|b")]))
    def subscribe(self, event: Subscribed) -> None:
        self.step(event)

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
    def one_heartbeat_at_a_time(self) -> None:
        """Of the member as it is now: those from before a loss or a move are of no concern."""
        current = [request for request in self.requests if request.attempt == self.member._heartbeat_sent]
        assert len(current) <= 1

    @invariant()
    def there_is_always_something_to_wait_for(self) -> None:
        if self.member.state not in (State.FAILED, State.OVERDUE):
            assert self.member.deadline() is not None or self.requests

    def teardown(self) -> None:
        wanted, expected = ids("a0 c1"), {TopicPartition("a", 0), TopicPartition("c", 1)}
        for _ in range(200):
            self.now += 0.5
            self.step(Polled())
            while self.thread:
                self.the_thread_does_its_next_task()
            for request in list(self.requests):
                self.requests.remove(request)
                self.answer(request, wanted)
            if (due := self.member.deadline()) is not None and due <= self.now:
                self.step(Ticked())
            if self.member.state is State.STABLE and self.held == expected:
                break
        assert self.member.state is State.STABLE
        assert self.held == expected


TestAnyOrder = AnyOrder.TestCase
