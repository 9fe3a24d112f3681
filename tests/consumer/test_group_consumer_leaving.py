"""A member in the consumer protocol (KIP-848) is removed, fenced, or leaves: transcripts."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    ConsumerHeartbeatAnswered,
    Departing,
    LossAcknowledged,
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
    assert script.refused(SendConsumerHeartbeat, error) == ["LOST a0"]
    assert script.tick() == [JOIN]
    script.heartbeat_answered(9, "a1")
    with pytest.raises(errors.CommitFailed, match="member epoch 9"):
        script.member.commit_identity()  # the user may still be at work on what is lost
    script.step(LossAcknowledged())
    assert script.member.commit_identity() == (9, "m")


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
    assert script.step(Ticked())[1:] == ["LOST a0 a1", "FAIL PollIntervalExceeded"]
    assert script.applied() == []


# ---- fenced


# ---- leaving


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
