"""Property tests of a group member: any order of responses, errors, polls and time, for both protocols."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient import errors
from pyclient.consumer.member import Member, State
from pyclient.consumer.member_events import (
    Action,
    ApplyAssignment,
    AssignmentApplied,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    FindCoordinator,
    LossAcknowledged,
    PartitionsLost,
    Polled,
    Refused,
    Released,
    Revoke,
    Subscribed,
    Ticked,
)
from pyclient.types import TopicPartition


class AnyOrder(RuleBasedStateMachine):
    """A member, its requests in flight, and a polling thread that may lag.

    Invariants: the thread never owns partitions that the member has lost without knowing it, commits are refused
    exactly then, every state but the idle ones waits for something, and in the end the member is stable again.
    """

    refusals: ClassVar[tuple[type[errors.KafkaError], ...]]

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.member = self.make()
        self.requests: list[Any] = []
        self.thread: list[Any] = []
        self.held: set[TopicPartition] = set()
        self.step(Subscribed(("a",)))

    def make(self) -> Member:
        raise NotImplementedError

    def answer_as_wished(self, request: Any) -> None:
        """Respond so that the member becomes stable."""
        raise NotImplementedError

    def is_at_its_end(self) -> bool:
        """Return True if the final state is reached."""
        return self.member.state is State.STABLE

    def begin(self, action: Action) -> None:
        """Start a request."""
        self.requests.append(action)

    @property
    def losing(self) -> bool:
        """Return True if the thread has not yet processed a loss."""
        return any(isinstance(task, PartitionsLost) for task in self.thread)

    def step(self, event: Event) -> None:
        for action in self.member.step(event, self.now):
            if isinstance(action, (Revoke, ApplyAssignment, PartitionsLost)):
                if isinstance(action, PartitionsLost):
                    self.thread = [task for task in self.thread if isinstance(task, PartitionsLost)]
                self.thread.append(action)
            else:
                self.begin(action)

    def take(self, data: st.DataObject) -> Any:
        return self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def a_request_is_refused(self, data: st.DataObject) -> None:
        request, error = self.take(data), data.draw(st.sampled_from(self.refusals))
        if isinstance(request, FindCoordinator) and error is not errors.GroupAuthorizationFailed:
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
            case ApplyAssignment(number, assigned, added, revoked):
                assert not set(added) & self.held
                assert set(revoked) <= self.held
                self.held = set(assigned)
                self.step(AssignmentApplied(number))
            case PartitionsLost():
                self.held = set()
                self.step(LossAcknowledged())

    @rule()
    def poll(self) -> None:
        self.step(Polled())

    @rule(seconds=st.sampled_from([0.05, 0.2, 3.0, 5.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.tick()

    def tick(self) -> None:
        due = self.member.deadline()
        if due is not None and due <= self.now:
            self.step(Ticked())

    @rule()
    def the_coordinator_moves(self) -> None:
        self.step(CoordinatorLost())

    @invariant()
    def commits_are_refused_exactly_while_the_thread_holds_what_is_lost(self) -> None:
        if self.losing:
            with pytest.raises(errors.CommitFailed):
                self.member.commit_identity()
        elif not self.thread:
            assert self.held == set(self.member.owned)

    @invariant()
    def there_is_always_something_to_wait_for(self) -> None:
        if self.member.state not in (State.FAILED, State.OVERDUE):
            assert self.member.deadline() is not None or self.requests

    def teardown(self) -> None:
        for _ in range(200):
            if self.is_at_its_end() and not self.thread and not self.requests:
                break
            self.now += 0.5
            self.step(Polled())
            while self.thread:
                self.the_thread_does_its_next_task()
            for request in list(self.requests):
                self.requests.remove(request)
                if isinstance(request, FindCoordinator):
                    self.step(CoordinatorFound(1))
                else:
                    self.answer_as_wished(request)
            self.tick()
        assert self.is_at_its_end()
