"""A member in the classic protocol is given up, fenced, or leaves, as transcripts."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.consumer.group import State
from pyclient.consumer.group_events import (
    Adopt,
    Adopted,
    CoordinatorFound,
    Departing,
    Fail,
    Joined,
    LossNoted,
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
