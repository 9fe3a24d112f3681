"""A group member in both protocols: it finds the coordinator, fails, loses its partitions, leaves."""

from __future__ import annotations

from typing import Any

import pytest

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    ApplyAssignment,
    AssignmentApplied,
    CoordinatorFound,
    CoordinatorLost,
    Departing,
    Fail,
    FindCoordinator,
    LossAcknowledged,
    Polled,
    RecheckMembership,
    Subscribed,
    Ticked,
)
from tests.consumer import classic_script, consumer_script

CLASSIC, CONSUMER = classic_script.Script, consumer_script.Script
LEAVING = {CLASSIC: "leave as m1", CONSUMER: "leave"}
PERMANENT = {
    CLASSIC: [
        errors.InconsistentGroupProtocol,
        errors.InvalidSessionTimeout,
        errors.GroupAuthorizationFailed,
        errors.GroupMaxSizeReached,
    ],
    CONSUMER: [
        errors.UnreleasedInstanceId,
        errors.UnsupportedAssignor,
        errors.UnsupportedVersion,
        errors.GroupIdNotFound,
        errors.GroupMaxSizeReached,
        errors.InvalidRegularExpression,
        errors.GroupAuthorizationFailed,
    ],
}
both = pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER], ids=["classic", "consumer"])

# ---- joining


@both
def test_loading_coordinator_is_retried_with_growing_backoff(protocol: Any) -> None:
    script = protocol().joining()
    pauses = []
    for _ in range(3):
        assert script.refused(script.JOIN, errors.CoordinatorLoadInProgress) == []
        assert script.member.state is State.WAITING
        begun = script.now
        assert script.tick() == [script.join()]
        pauses.append(script.now - begun)
    assert pauses == pytest.approx([0.1, 0.2, 0.4])


@both
@pytest.mark.parametrize("error", [errors.NotCoordinator, errors.CoordinatorNotAvailable, errors.ConnectionFailed])
def test_moved_coordinator_is_looked_up_again(protocol: Any, error: type[errors.KafkaError]) -> None:
    script = protocol().joining()
    assert script.refused(script.JOIN, error) == []
    assert script.tick() == ["find coordinator"]
    assert script.step(CoordinatorFound(2)) == [script.join(node=2)]


@pytest.mark.parametrize(
    ("protocol", "error"), [(protocol, error) for protocol, found in PERMANENT.items() for error in found]
)
def test_permanent_error_is_raised_and_the_next_poll_retries(protocol: Any, error: type[errors.KafkaError]) -> None:
    script = protocol().joining()
    assert script.refused(script.JOIN, error) == [f"FAIL {error.__name__}"]
    assert script.member.state is State.FAILED
    assert script.member.deadline() is None
    assert script.step(Polled()) == []  # not before the backoff is over
    assert script.step(Polled(), after=1.0) == [script.join(1, "poll was called again")]


@both
def test_unauthorized_coordinator_lookup_is_raised(protocol: Any) -> None:
    script = protocol()
    script.step(Subscribed(("a",)))
    assert script.refused(FindCoordinator, errors.GroupAuthorizationFailed) == ["FAIL GroupAuthorizationFailed"]
    assert script.step(Polled(), after=1.0) == ["find coordinator"]


# ---- stable


@both
def test_commit_error_may_report_a_move_first(protocol: Any) -> None:
    script = protocol().stable("a0")
    assert script.step(CoordinatorLost()) == ["find coordinator"]
    assert script.step(CoordinatorLost()) == []
    assert script.step(CoordinatorFound(2)) == [script.heartbeat(node=2)]


@both
def test_refused_commit_triggers_a_heartbeat(protocol: Any) -> None:
    script = protocol().stable("a0")
    assert script.step(RecheckMembership()) == [script.heartbeat()]
    assert script.step(RecheckMembership()) == []


@both
def test_timely_poll_keeps_the_membership(protocol: Any) -> None:
    script = protocol().stable("a0")
    script.now = 299.0
    script.step(Polled())
    script.now = 300.0
    assert script.step(Ticked()) == [script.heartbeat()]


# ---- lost, fenced, leaving


@both
def test_lost_assignment_is_not_applied(protocol: Any) -> None:
    script = protocol().joining()
    script.assigned("a0")
    stale = script.last[ApplyAssignment].number
    script.tick()
    assert script.refused(script.HEARTBEAT, script.GONE) == ["LOST nothing"]
    assert script.step(AssignmentApplied(stale)) == []
    assert script.member.owned == ()


@both
def test_overdue_member_leaves_raises_and_rejoins_at_the_next_poll(protocol: Any) -> None:
    script = protocol().stable("a0")
    script.now = 300.0
    assert script.step(Ticked()) == [
        f"{LEAVING[protocol]}: max_poll_interval_ms passed without a poll",
        "LOST a0",
        "FAIL PollIntervalExceeded",
    ]
    assert "300.0 s passed without a poll" in str(script.last[Fail].error)
    with pytest.raises(errors.CommitFailed, match="poll overdue"):
        script.member.commit_identity()
    assert script.member.deadline() is None
    script.step(LossAcknowledged())
    assert script.step(Polled(), after=5.0) == [script.join(1, "poll was called again")]


@both
def test_second_consumer_of_the_instance_id_fences_this_one(protocol: Any) -> None:
    script = protocol(instance_id="i").stable("a0")
    script.tick()
    assert script.refused(script.HEARTBEAT, errors.FencedInstanceId) == ["LOST a0", "FAIL FencedInstanceId"]
    assert script.member.state is State.FENCED
    assert script.step(Polled(), after=1000.0) == []
    assert script.step(Subscribed(("b",))) == []
    assert script.member.deadline() is None
    with pytest.raises(errors.CommitFailed):
        script.member.commit_identity()


@both
def test_leaving_member_sends_its_request_and_may_rejoin(protocol: Any) -> None:
    script = protocol().stable("a0")
    assert script.step(Departing("the consumer was closed")) == [f"{LEAVING[protocol]}: the consumer was closed"]
    assert script.member.state is State.IDLE
    assert script.member.deadline() is None
    assert script.step(Subscribed(("a",))) == [script.join()]
