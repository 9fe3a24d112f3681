"""A member in the consumer protocol (KIP-848) is removed, fenced, or leaves: transcripts."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    ApplyAssignment,
    AssignmentApplied,
    ConsumerHeartbeatAnswered,
    Departing,
    LossAcknowledged,
    Polled,
    Refused,
    SendConsumerHeartbeat,
    Subscribed,
    Ticked,
    TopicsResolved,
)
from tests.consumer.consumer_script import INTERVAL, JOIN, Script, ids

# ---- lost


@pytest.mark.parametrize("error", [errors.FencedMemberEpoch, errors.UnknownMemberId])
def test_removed_member_loses_its_partitions_and_rejoins_under_its_id(
    error: type[errors.KafkaError],
) -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.refused(error) == ["LOSE a0"]
    assert script.tick() == [JOIN]
    script.heartbeat_answered(9, "a1")
    with pytest.raises(errors.CommitFailed, match="member epoch 9"):
        script.member.commit_identity()  # the user may still be at work on what is lost
    script.step(LossAcknowledged())
    assert script.member.commit_identity() == (9, "m")


def test_lost_assignment_is_not_applied() -> None:
    script = Script().joining()
    script.heartbeat_answered(1, "a0")
    script.resolved("a")
    stale = script.last[ApplyAssignment].number
    script.tick()
    assert script.refused(errors.FencedMemberEpoch) == ["LOSE nothing"]
    assert script.step(AssignmentApplied(stale)) == []
    assert script.member.owned == ()


def test_overdue_member_leaves_raises_and_rejoins_at_the_next_poll() -> None:
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
    script.step(LossAcknowledged())
    assert script.step(Polled(), after=5.0) == [JOIN]


def test_overdue_member_leaves_after_a_late_join_response() -> None:
    script = Script().joining()
    script.now = 300.0
    assert script.heartbeat_answered(1, "a0") == [
        "leave: max_poll_interval_ms passed without a poll",
        "FAIL PollIntervalExceeded",
    ]


def test_overdue_poll_while_revoking_leaves_too() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.heartbeat_answered(1, "a0")
    script.now = 300.0
    assert script.step(Ticked())[1:] == ["LOSE a0 a1", "FAIL PollIntervalExceeded"]
    assert script.adopted() == []


# ---- fenced


def test_second_consumer_of_the_instance_id_fences_this_one() -> None:
    script = Script(instance_id="i").stable("a0")
    script.tick()
    assert script.refused(errors.FencedInstanceId) == ["LOSE a0", "FAIL FencedInstanceId"]
    assert script.member.state is State.FENCED
    assert script.step(Polled(), after=1000.0) == []
    assert script.step(Subscribed(("b",))) == []
    assert script.member.deadline() is None


# ---- leaving


def test_leaving_member_sends_a_heartbeat_and_may_rejoin() -> None:
    script = Script().stable("a0")
    assert script.step(Departing("the consumer was closed")) == ["leave: the consumer was closed"]
    assert script.member.state is State.IDLE
    assert script.member.deadline() is None
    assert script.step(Subscribed(("a",))) == [JOIN]


def test_leaving_while_joining_sends_a_leave_heartbeat() -> None:
    script = Script().joining()
    attempt = script.last[SendConsumerHeartbeat].attempt
    assert script.step(Departing("closed")) == ["leave: closed"]
    assert script.step(ConsumerHeartbeatAnswered(attempt, 1, INTERVAL, ids("a0"))) == []
    assert script.member.state is State.IDLE


def test_member_that_never_joined_leaves_without_a_request() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    assert script.step(Departing("closed")) == []


def test_responses_of_earlier_attempts_are_ignored() -> None:
    script = Script().stable("a0")
    stale = script.last[SendConsumerHeartbeat].attempt
    script.tick()
    assert script.step(ConsumerHeartbeatAnswered(stale, 9, INTERVAL, ids("a5"))) == []
    assert script.step(Refused(stale, errors.FencedMemberEpoch("late"))) == []
    assert script.step(TopicsResolved(stale, {})) == []
    assert script.member.generation == 1
