"""A member in the classic protocol is removed, fenced, or leaves: transcripts."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    CoordinatorFound,
    Departing,
    Joined,
    LossAcknowledged,
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
    assert script.refused(SendHeartbeat, error) == ["LOST a0"]
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


def test_overdue_poll_while_revoking_leaves_too() -> None:
    script = Script().stable("a0")
    script.step(RejoinWanted("why not"))
    assert script.member.state is State.REVOKING
    script.now = 300.0
    assert script.step(Ticked())[1:] == ["LOST a0", "FAIL PollIntervalExceeded"]
    assert script.step(Released()) == []


# ---- fenced


# ---- leaving


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
