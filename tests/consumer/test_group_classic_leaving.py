"""A member in the classic protocol is removed, fenced, or leaves: transcripts."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    ApplyAssignment,
    AssignmentApplied,
    CoordinatorFound,
    Departing,
    Fail,
    Joined,
    LossAcknowledged,
    Polled,
    RejoinWanted,
    Released,
    SendHeartbeat,
    SendJoin,
    Subscribed,
    Ticked,
)
from tests.consumer.classic_script import Script

# ---- lost


@pytest.mark.parametrize(("error", "member_id"), [(errors.UnknownMemberId, "?"), (errors.IllegalGeneration, "m1")])
def test_removed_member_loses_its_partitions_and_rejoins(error: type[errors.KafkaError], member_id: str) -> None:
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
    script.step(LossAcknowledged())
    assert script.member.commit_identity() == (7, "m2")


def test_lost_assignment_is_not_applied() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.joined()
    script.synced("a0")
    stale = script.last[ApplyAssignment].number
    script.tick()
    assert script.refused(SendHeartbeat, errors.UnknownMemberId) == ["LOSE nothing"]
    assert script.step(AssignmentApplied(stale)) == []
    assert script.member.owned == ()


def test_overdue_member_leaves_raises_and_rejoins_at_the_next_poll() -> None:
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
    script.step(LossAcknowledged())
    assert script.step(Polled(), after=5.0) == [
        "join node 1 as ?, topics a, owning nothing of generation -1: poll was called again"
    ]


def test_timely_poll_keeps_the_membership() -> None:
    script = Script().stable("a0")
    script.now = 299.0
    script.step(Polled())
    script.now = 300.0
    assert script.step(Ticked()) == ["heartbeat to node 1 as m1, generation 1"]


def test_overdue_poll_while_revoking_leaves_too() -> None:
    script = Script().stable("a0")
    script.step(RejoinWanted("why not"))
    assert script.member.state is State.REVOKING
    script.now = 300.0
    assert script.step(Ticked())[1:] == ["LOSE a0", "FAIL PollIntervalExceeded"]
    assert script.step(Released()) == []


# ---- fenced


def test_second_consumer_of_the_instance_id_fences_this_one() -> None:
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


def test_leaving_member_sends_leave_group() -> None:
    script = Script().stable("a0")
    assert script.step(Departing("the consumer was closed")) == ["leave as m1: the consumer was closed"]
    assert script.member.state is State.IDLE
    assert script.member.deadline() is None
    assert script.step(Subscribed(("a",))) == [
        "join node 1 as ?, topics a, owning nothing of generation -1: subscribed"
    ]


def test_static_member_leaves_without_leave_group() -> None:
    script = Script(instance_id="i").stable("a0")
    assert script.step(Departing("the consumer was closed")) == []


def test_leaving_while_joining_ignores_the_response() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.refused(SendJoin, errors.MemberIdRequired, "m1")
    attempt = script.last[SendJoin].attempt
    assert script.step(Departing("closed")) == ["leave as m1: closed"]
    assert script.step(Joined(attempt, "m1", 1, "range", False, {})) == []
    assert script.member.state is State.IDLE
