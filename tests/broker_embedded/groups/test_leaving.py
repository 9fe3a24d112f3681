"""Transcripts of members that are removed: LeaveGroup, expired sessions, and missing SyncGroup requests."""

from __future__ import annotations

from pyclient import errors
from pyclient.broker_embedded.groups.classic import next_deadline
from pyclient.broker_embedded.groups.leaving import mark_dead


def test_group_is_empty_after_last_member_leaves(script):
    script.stable("a")
    assert script.leave("id-1") == [0]
    assert script.state == "Empty"
    assert (script.group.generation, script.group.protocol_name, script.group.leader) == (2, None, None)
    assert script.stores[-1].snapshot.members == ()
    assert script.heartbeat("id-1", 1) == errors.UnknownMemberId.code
    assert next_deadline(script.group) is None


def test_empty_group_accepts_new_protocol_in_next_generation(script):
    script.stable("a")
    script.leave("id-1")
    assert script.join("b", "", "other").generation == 3


def test_leave_of_several_members_starts_one_rebalance(script):
    script.stable("a", "b", "c")
    generation = script.group.generation
    assert script.leave("id-1", "id-9", "id-2") == [0, errors.UnknownMemberId.code, 0]
    assert script.state == "PreparingRebalance"
    assert script.group.leader == "id-3"
    assert script.join("c2", "id-3").generation == generation + 1


def test_leave_of_unknown_member_changes_nothing(script):
    script.stable("a")
    assert script.leave("id-9", "") == [errors.UnknownMemberId.code] * 2
    assert script.state == "Stable"


def test_leave_answers_parked_join_of_member(script):
    script.stable("a", "b")
    script.join("b2", "id-2", "range=changed")
    script.leave("id-2")
    assert script.answers["b2"].error == errors.UnknownMemberId.code
    assert script.join("a2", "id-1").error == 0


def test_leave_of_last_missing_member_completes_rebalance(script):
    script.stable("a", "b")
    script.join("a2", "id-1")
    script.leave("id-2")
    assert [member.member_id for member in script.answers["a2"].members] == ["id-1"]


def test_pending_member_id_can_leave(script):
    script.stable("a")
    script.join("b", known=True)
    script.join("a2", "id-1", "range=changed")
    assert script.leave(("id-2", "any")) == [0]
    assert script.answers["a2"].generation == 2


def test_member_is_removed_when_session_expires(script):
    script.stable("a", "b")
    generation = script.group.generation
    script.wait(6)
    assert script.heartbeat("id-1", generation) == 0
    script.wait(4)
    assert list(script.group.members) == ["id-1"]
    assert script.heartbeat("id-1", generation) == errors.RebalanceInProgress.code


def test_session_does_not_expire_while_request_is_parked(script):
    script.stable("a", "b")
    script.join("a2", "id-1")
    for _ in range(6):
        script.wait(9)
        assert script.heartbeat("id-2", script.group.generation) == errors.RebalanceInProgress.code
    script.wait(6)  # the rebalance timeout
    assert script.answers["a2"].error == 0
    assert list(script.group.members) == ["id-1"]


def test_session_restarts_when_parked_request_is_answered(script):
    script.stable("a", "b")
    script.join("a2", "id-1")
    script.wait(9)
    script.join("b2", "id-2")
    script.wait(9)
    assert list(script.group.members) == ["id-1", "id-2"]
    script.wait(1)
    assert script.group.members == {}


def test_parked_new_member_is_removed_after_five_minutes(script):
    script.join("a", rebalance=3600, session=10)
    script.sync("s", "id-1", 1)
    script.join("b", rebalance=3600)
    for _ in range(299):
        script.wait(1)
        script.heartbeat("id-1", 1)
    assert "b" not in script.answers
    script.wait(1)
    assert script.answers["b"].error == errors.UnknownMemberId.code


def test_pending_member_id_expires_with_session(script):
    script.stable("a")
    script.join("b", known=True, session=20)
    script.join("a2", "id-1", "range=changed")
    script.wait(19.9)
    assert "a2" not in script.answers
    script.wait(0.1)
    assert script.answers["a2"].generation == 2
    assert script.join("b2", "id-2").error == errors.UnknownMemberId.code


def test_member_without_sync_is_removed_after_rebalance_timeout(script):
    script.stable("a", "b")
    script.join("b2", "id-2", "range=changed")
    script.join("a2", "id-1")
    generation = script.group.generation
    script.sync("sa", "id-1", generation)
    assert script.state == "Stable"
    for _ in range(59):
        script.wait(1)
        assert script.heartbeat("id-1", generation) == 0
        assert script.heartbeat("id-2", generation) == 0
    script.wait(1)
    assert list(script.group.members) == ["id-1"]
    assert script.state == "PreparingRebalance"


def test_leader_without_assignment_is_removed_and_others_rejoin(script):
    script.stable("a", "b")
    script.join("b2", "id-2", "range=changed")
    script.join("a2", "id-1")
    generation = script.group.generation
    script.sync("sb", "id-2", generation)
    for _ in range(60):
        script.heartbeat("id-1", generation)
        script.wait(1)
    assert script.answers["sb"].error == errors.RebalanceInProgress.code
    joined = script.join("b3", "id-2", "range=changed")
    assert (joined.error, joined.leader) == (0, "id-2")


def test_group_is_empty_if_all_leave_during_initial_delay(delayed):
    delayed.join("a")
    delayed.leave("id-1")
    assert delayed.answers["a"].error == errors.UnknownMemberId.code
    assert delayed.state == "PreparingRebalance"
    delayed.wait(3)
    assert delayed.state == "Empty"
    assert next_deadline(delayed.group) is None


def test_disband_answers_parked_requests(script):
    script.stable("a", "b")
    script.join("b2", "id-2", "range=changed")
    for answer in mark_dead(script.group, errors.NotCoordinator.code):
        script.answers[answer.reply] = answer.result
    assert script.answers["b2"].error == errors.NotCoordinator.code
    assert script.state == "Dead"
    assert next_deadline(script.group) is None
    code = errors.CoordinatorNotAvailable.code
    assert script.heartbeat("id-1", 1) == code
    assert script.join("c").error == code
    assert script.sync("s", "id-1", 1).error == code
