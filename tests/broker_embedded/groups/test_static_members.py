"""Transcripts of static members (KIP-345): restarts keep the assignment, duplicate instance ids are fenced."""

from __future__ import annotations

from pyclient import errors


def two_static_members(script):
    """Create a stable group of two static members, `one` (the leader) and `two`."""
    script.join("a", instance="one")
    script.join("b", instance="two")
    script.join("a2", "id-1", instance="one")
    script.sync("sb", "id-2", 2, "two")
    script.sync("sa", "id-1", 2, "one", id_1=b"1", id_2=b"2")
    assert script.state == "Stable"


def test_static_member_joins_without_known_id(script):
    assert script.join("a", instance="one", known=True).error == 0


def test_restarted_follower_starts_no_rebalance(script):
    two_static_members(script)
    joined = script.join("b2", instance="two", skip=True)
    assert (joined.error, joined.generation, joined.member_id, joined.leader) == (0, 2, "id-3", "id-1")
    assert (joined.members, joined.skip_assignment) == ((), False)
    assert script.state == "Stable"
    assert script.sync("sb2", "id-3", 2, "two").assignment == b"2"
    assert [m.member_id for m in script.stores[-1].snapshot.members] == ["id-1", "id-3"]


def test_restarted_leader_skips_assignment(script):
    two_static_members(script)
    joined = script.join("a3", instance="one", skip=True)
    assert (joined.member_id, joined.leader, joined.skip_assignment) == ("id-3", "id-3", True)
    assert [m.member_id for m in joined.members] == ["id-3", "id-2"]
    assert script.sync("sa3", "id-3", 2, "one").assignment == b"1"


def test_restarted_leader_of_old_version_is_answered_as_follower(script):
    two_static_members(script)
    joined = script.join("a3", instance="one")
    assert (joined.member_id, joined.leader, joined.members) == ("id-3", "id-1", ())
    assert script.sync("sa3", "id-3", 2, "one").assignment == b"1"


def test_changed_metadata_starts_no_rebalance_if_protocol_is_unchanged(script):
    two_static_members(script)
    assert script.join("b2", "", "range=other topics", instance="two").error == 0
    assert script.state == "Stable"


def test_restart_with_other_elected_protocol_starts_rebalance(script):
    script.join("a", "", "range", "sticky", instance="one")
    script.sync("sa", "id-1", 1, "one")
    assert script.join("a2", "", "sticky", instance="one").protocol_name == "sticky"
    assert script.group.generation == 2


def test_replaced_static_member_is_fenced(script):
    two_static_members(script)
    script.join("b2", instance="two")
    code = errors.FencedInstanceId.code
    assert script.heartbeat("id-2", 2, "two") == code
    assert script.sync("old", "id-2", 2, "two").error == code
    assert script.join("old2", "id-2", instance="two").error == code
    assert script.leave(("id-2", "two")) == [code]
    assert script.heartbeat("id-2", 2) == errors.UnknownMemberId.code
    assert script.heartbeat("id-3", 2, "three") == errors.UnknownMemberId.code


def test_parked_requests_of_fenced_member_are_answered(script):
    two_static_members(script)
    script.join("a3", "id-1", instance="one")
    script.join("a4", instance="one")
    assert script.answers["a3"].error == errors.FencedInstanceId.code
    script.join("b2", "id-2", instance="two")
    assert script.answers["a4"].error == 0
    assert script.answers["a4"].leader == "id-3"

    script.sync("parked", "id-2", 3, "two")
    script.join("b3", instance="two")
    assert script.answers["parked"].error == errors.FencedInstanceId.code


def test_restart_before_assignment_starts_rebalance(script):
    two_static_members(script)
    script.join("a3", "id-1", instance="one")
    script.join("b2", "id-2", instance="two")
    assert script.state == "CompletingRebalance"
    assert script.join("b3", instance="two") is None
    assert script.state == "PreparingRebalance"


def test_static_member_stays_in_group_without_rejoin(script):
    script.join("a", instance="one", session=600, rebalance=5)
    script.join("b", rebalance=5, session=600)
    script.join("a2", "id-1", instance="one", session=600, rebalance=5)
    script.sync("sa", "id-1", 2, "one")
    script.sync("sb", "id-2", 2)
    script.join("b2", "id-2", "range=changed", rebalance=5, session=600)
    script.wait(5)
    assert script.answers["b2"].leader == "id-2", "the leader is a member that has rejoined"
    assert [m.instance_id for m in script.answers["b2"].members] == ["one", None]


def test_rebalance_waits_for_absent_static_members(script):
    script.join("a", instance="one", session=600, rebalance=5)
    script.join("b", rebalance=5, session=600)
    script.join("a2", "id-1", instance="one", session=600, rebalance=5)
    script.sync("sa", "id-1", 2, "one")
    script.sync("sb", "id-2", 2)
    script.leave("id-2")
    script.wait(60)
    assert script.state == "PreparingRebalance"
    assert script.join("a3", "id-1", instance="one", session=600, rebalance=5).generation == 3


def test_wait_for_absent_static_members_does_not_spin(script):
    script.join("a", instance="one", session=600, rebalance=0)
    script.sync("sa", "id-1", 1, "one")
    script.join("b", rebalance=0)
    script.leave("id-2")
    ticks = script.ticks
    script.wait(60)
    assert script.state == "PreparingRebalance"
    assert script.ticks - ticks <= 600


def test_leave_removes_static_member_by_instance_id(script):
    two_static_members(script)
    assert script.leave(("", "two"), ("", "absent")) == [0, errors.UnknownMemberId.code]
    assert list(script.group.members) == ["id-1"]


def test_join_answer_waits_until_new_id_is_written(script):
    two_static_members(script)
    script.stores.clear()
    script.hold = True
    assert script.join("b2", instance="two") is None
    script.stored()
    assert script.answers["b2"].error == 0
    assert script.join("b3", instance="two") is None
    script.stored(errors.NotCoordinator.code)
    assert (script.answers["b3"].error, script.answers["b3"].generation) == (errors.NotCoordinator.code, -1)


def test_full_group_admits_returning_static_member(small):
    two_static_members(small)
    assert small.join("b2", instance="two").error == 0
    assert small.join("c", instance="three").error == errors.GroupMaxSizeReached.code
