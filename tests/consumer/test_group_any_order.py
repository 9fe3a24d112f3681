"""Members of both group protocols keep their invariants in any order of events."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from pyclient import errors
from pyclient.consumer.classic_member import ClassicMember
from pyclient.consumer.consumer_member import ConsumerMember
from pyclient.consumer.member import AT_REST, Member, MemberOptions, State
from pyclient.consumer.member_events import (
    Action,
    ConsumerHeartbeatAnswered,
    CoordinatorFound,
    Fail,
    FindCoordinator,
    HeartbeatAnswered,
    IdPartitions,
    InstanceReleased,
    Joined,
    ReleaseInstance,
    ResolveTopics,
    SendConsumerHeartbeat,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Subscribed,
    Synced,
    TopicsResolved,
)
from pyclient.types import TopicPartition
from tests.consumer.any_order import AnyOrder
from tests.consumer.consumer_script import INTERVAL, ids, topic_name


class Classic(AnyOrder):
    """An eager member in the classic protocol."""

    refusals = (
        errors.NotCoordinator,
        errors.CoordinatorLoadInProgress,
        errors.RebalanceInProgress,
        errors.UnknownMemberId,
        errors.IllegalGeneration,
        errors.GroupAuthorizationFailed,
        errors.ConnectionFailed,
    )
    cooperative = False
    generation = 0

    def make(self) -> Member:
        return ClassicMember(MemberOptions("g", 3.0, 300.0, lambda failures: 0.1, None, self.cooperative))

    def begin(self, action: Action) -> None:
        if not isinstance(action, (SendLeave, Fail)):
            self.requests.append(action)

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

    def answer_as_wished(self, request: Any) -> None:
        self.answer(request, tuple(TopicPartition("a", number) for number in range(2)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data(), numbers=st.sets(st.integers(0, 3)))
    def a_request_is_answered(self, data: st.DataObject, numbers: set[int]) -> None:
        self.answer(self.take(data), tuple(TopicPartition("a", number) for number in sorted(numbers)))

    @rule(topics=st.sampled_from([("a",), ("a", "b")]))
    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.step(Subscribed(topics))


class Cooperative(Classic):
    """A cooperative one."""

    cooperative = True


class InTheConsumerProtocol(AnyOrder):
    """A member in the consumer protocol (KIP-848).

    The member never reports partitions as revoked that the thread still holds, and in the end it has the target
    assignment.
    """

    refusals = (
        errors.NotCoordinator,
        errors.CoordinatorLoadInProgress,
        errors.UnknownMemberId,
        errors.FencedMemberEpoch,
        errors.GroupAuthorizationFailed,
        errors.ConnectionFailed,
    )
    epoch = 0

    def __init__(self) -> None:
        self.outdated: set[int] = set()
        super().__init__()

    def make(self) -> Member:
        return ConsumerMember(MemberOptions("g", INTERVAL, 300.0, lambda failures: 0.1), "m")

    def begin(self, action: Action) -> None:
        match action:
            case SendConsumerHeartbeat():
                if action.owned is not None and not self.losing:
                    reported = {TopicPartition(topic_name(topic), number) for topic, number in action.owned}
                    assert reported == self.held
                self.requests.append(action)
            case FindCoordinator() | ResolveTopics() | ReleaseInstance():
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
            case ReleaseInstance():
                self.step(InstanceReleased(request.attempt))

    def answer_as_wished(self, request: Any) -> None:
        self.answer(request, ids("a0 c1"))

    def is_at_its_end(self) -> bool:
        return super().is_at_its_end() and self.held == {TopicPartition("a", 0), TopicPartition("c", 1)}

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

    @rule(event=st.sampled_from([Subscribed(("a",)), Subscribed(("a", "b")), Subscribed((), "a|b")]))
    def subscribe(self, event: Subscribed) -> None:
        self.step(event)

    @invariant()
    def one_heartbeat_at_a_time(self) -> None:
        """Check the heartbeats of the current membership: those from before a loss or a move do not count."""
        kinds = (SendConsumerHeartbeat, ReleaseInstance)
        sent = [request.attempt for request in self.requests if isinstance(request, kinds)]
        if self.member.coordinator is None or self.member.state in (State.WAITING, *AT_REST):
            self.outdated.update(sent)
        assert len({*sent} - self.outdated) <= 1


class Static(InTheConsumerProtocol):
    """A static one, which may be refused as the owner of its own instance id."""

    refusals = (*InTheConsumerProtocol.refusals, errors.UnreleasedInstanceId)

    def make(self) -> Member:
        return ConsumerMember(MemberOptions("g", INTERVAL, 300.0, lambda failures: 0.1, "i"), "m")


TestClassic = Classic.TestCase
TestCooperative = Cooperative.TestCase
TestInTheConsumerProtocol = InTheConsumerProtocol.TestCase
TestStatic = Static.TestCase
