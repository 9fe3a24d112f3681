"""A member in the classic protocol joins and stays: transcripts of events and actions."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    CoordinatorFound,
    HeartbeatAnswered,
    Joined,
    PlanAssignment,
    Planned,
    Refused,
    SendHeartbeat,
    SendJoin,
    SendSync,
    Subscribed,
)
from tests.consumer.classic_script import Script, show, tp

# ---- joining


def test_member_joins_for_the_first_time() -> None:
    script = Script()
    assert script.step(Subscribed(("a", "b"))) == ["find coordinator"]
    assert script.step(CoordinatorFound(1)) == [
        "join node 1 as ?, topics a,b, owning nothing of generation -1: subscribed"
    ]
    assert script.refused(SendJoin, errors.MemberIdRequired, "m1") == [
        "join node 1 as m1, topics a,b, owning nothing of generation -1: subscribed"
    ]
    assert script.joined() == ["sync generation 1 as m1"]
    assert script.synced("a0 b1") == ["APPLY a0 b1, added a0 b1, revoked nothing"]
    assert script.member.state is State.STABLE
    assert script.applied() == []
    assert script.member.commit_identity() == (1, "m1")


def test_leader_plans_for_all_members() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    assert script.joined(leader=True, m1="a", m2="a b") == ["plan range for m1,m2"]
    plan = Planned(script.last[PlanAssignment].attempt, {"m1": tp("a0"), "m2": tp("a1")})
    assert script.step(plan) == ["sync generation 1 as m1 {'m1': 'a0', 'm2': 'a1'}"]
    assert script.member.leader


def test_leader_with_skip_assignment_plans_nothing() -> None:
    script = Script(instance_id="i")
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    attempt = script.last[SendJoin].attempt
    joined = Joined(attempt, "m1", 1, "range", True, {}, keeps_assignment=True)
    assert [show(action) for action in script.member.step(joined, 0.0)] == ["sync generation 1 as m1"]


@pytest.mark.parametrize("request_type", [SendJoin, SendSync])
def test_unknown_member_rejoins_without_its_old_id(request_type: type) -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.refused(SendJoin, errors.MemberIdRequired, "m1")
    if request_type is SendSync:
        script.joined()
    assert script.refused(request_type, errors.UnknownMemberId) == []
    assert script.tick() == ["join node 1 as ?, topics a, owning nothing of generation -1: subscribed"]


def test_rebalance_during_sync_joins_again_with_the_same_id() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    script.joined()
    assert script.refused(SendSync, errors.RebalanceInProgress) == []
    assert script.tick() == ["join node 1 as m1, topics a, owning nothing of generation -1: subscribed"]


def test_responses_of_earlier_attempts_are_ignored() -> None:
    script = Script()
    script.step(Subscribed(("a",)))
    script.step(CoordinatorFound(1))
    stale = script.last[SendJoin].attempt
    script.refused(SendJoin, errors.MemberIdRequired, "m1")
    assert script.step(Joined(stale, "m0", 9, "range", False, {})) == []
    assert script.step(Refused(stale, errors.FencedInstanceId("late"))) == []
    assert script.member.state is State.JOINING


# ---- stable


def test_heartbeats_are_sent_one_at_a_time() -> None:
    script = Script().stable()
    assert script.tick() == ["heartbeat to node 1 as m1, generation 1"]
    assert script.member.deadline() == 300.0  # none is due while one is on its way
    assert script.step(HeartbeatAnswered(script.last[SendHeartbeat].attempt)) == []
    assert script.tick() == ["heartbeat to node 1 as m1, generation 1"]


def test_heartbeat_pauses_of_a_new_generation_grow_to_the_interval() -> None:
    script = Script().stable()
    pauses = []
    for _ in range(10):
        begun = script.now
        script.tick()
        script.step(HeartbeatAnswered(script.last[SendHeartbeat].attempt))
        pauses.append(script.now - begun)
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0, 3.0])


def test_membership_survives_a_move_of_the_coordinator() -> None:
    script = Script().stable()
    script.tick()
    assert script.refused(SendHeartbeat, errors.NotCoordinator) == ["find coordinator"]
    assert script.member.state is State.STABLE
    assert script.step(CoordinatorFound(2)) == ["heartbeat to node 2 as m1, generation 1"]
    assert script.member.commit_identity() == (1, "m1")
