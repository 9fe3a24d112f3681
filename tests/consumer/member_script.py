"""A scripted group member: events in, actions in words out, with a manual clock."""

from __future__ import annotations

from typing import Any, Self

from pyclient.consumer.member import Member, State
from pyclient.consumer.member_events import (
    Action,
    ApplyAssignment,
    AssignmentApplied,
    CoordinatorFound,
    Event,
    Fail,
    FindCoordinator,
    PartitionsLost,
    Subscribed,
    Ticked,
)
from pyclient.types import TopicPartition


def names(partitions: tuple[TopicPartition, ...]) -> str:
    return " ".join(f"{p.topic}{p.partition}" for p in partitions) or "nothing"


def show_in_any_protocol(action: Action) -> str:
    match action:
        case FindCoordinator():
            return "find coordinator"
        case ApplyAssignment():
            return f"APPLY {names(action.assigned)}, added {names(action.added)}, revoked {names(action.revoked)}"
        case PartitionsLost():
            return f"LOST {names(action.partitions)}"
        case Fail():
            return f"FAIL {type(action.error).__name__}"
        case _:
            raise AssertionError(f"{action!r} does not belong to this protocol")


class MemberScript:
    """The part shared by both protocols' scripts; responses belong to `last`, the last action of each kind."""

    member: Member

    def __init__(self) -> None:
        self.now = 0.0
        self.last: dict[type, Any] = {}

    def show(self, action: Action) -> str:
        return show_in_any_protocol(action)

    def step(self, event: Event, *, after: float = 0.0) -> list[str]:
        self.now += after
        actions = self.member.step(event, self.now)
        for action in actions:
            self.last[type(action)] = action
        return [self.show(action) for action in actions]

    def tick(self) -> list[str]:
        due = self.member.deadline()
        assert due is not None
        self.now = max(self.now, due)
        return self.step(Ticked())

    def assigned(self, partitions: str) -> list[str]:
        raise NotImplementedError

    def joining(self) -> Self:
        self.step(Subscribed(("a",)))
        self.step(CoordinatorFound(1))
        assert self.member.state is State.JOINING
        return self

    def stable(self, partitions: str = "a0 a1") -> Self:
        self.joining()
        self.assigned(partitions)
        self.settle()
        assert self.member.state is State.STABLE
        return self

    def settle(self) -> None:
        """Apply the assignment, and complete the request that reports it, if the protocol has one."""
        self.applied()

    def applied(self) -> list[str]:
        return self.step(AssignmentApplied(self.last[ApplyAssignment].number))
