"""Transcripts of how members go: leaving, silence, and never asking for the assignment."""

from __future__ import annotations

from pyclient import errors
from pyclient.broker_embedded.groups.classic import next_deadline
from pyclient.broker_embedded.groups.leaving import disband


def test_the_last_member_that_leaves_leaves_an_empty_group(script):
    script.stable("a")
    assert script.leave("id-1") == [0]
    assert script.state == "Empty"
    assert (script.group.generation, script.group.protocol_name, script.group.leader) == (2, None, None)
    assert script.stores[-1].snapshot.members == ()
    assert script.heartbeat("id-1", 1) == errors.UnknownMemberId.code
    assert next_deadline(script.group) is None


def test_an_empty_group_starts_again_with_another_protocol_type_and_the_next_generation(script):
    script.stable("a")
    script.leave("id-1")
    assert script.join("b", "", "other").generation == 3


def test_one_leave_of_several_members_starts_one_rebalance(script):
    script.stable("a", "b", "c")
    generation = script.group.generation
    assert script.leave("id-1", "id-9", "id-2") == [0, errors.UnknownMemberId.code, 0]
    assert script.state == "PreparingRebalance"
    assert script.group.leader == "id-3"
    assert script.join("c2", "id-3").generation == generation + 1


def test_a_stranger_that_leaves_disturbs_nobody(script):
    script.stable("a")
    assert script.leave("id-9", "") == [errors.UnknownMemberId.code] * 2
    assert script.state == "Stable"


def test_a_member_that_leaves_while_its_join_is_parked_is_told(script):
    script.stable("a", "b")
    script.join("b2", "id-2", "range=changed")
    script.leave("id-2")
    assert script.answers["b2"].error == errors.UnknownMemberId.code
    assert script.join("a2", "id-1").error == 0


def test_the_last_missing_member_leaving_completes_the_rebalance(script):
    script.stable("a", "b")
    script.join("a2", "id-1")
    script.leave("id-2")
    assert [member.member_id for member in script.answers["a2"].members] == ["id-1"]


def test_a_given_id_can_be_given_back(script):
    script.stable("a")
    script.join("b", known=True)
    script.join("a2", "id-1", "range=changed")
    assert script.leave(("id-2", "whatever")) == [0]
    assert script.answers["a2"].generation == 2


def test_a_silent_member_is_dropped_when_its_session_ends(script):
    script.stable("a", "b")
    generation = script.group.generation
    script.wait(6)
    assert script.heartbeat("id-1", generation) == 0
    script.wait(4)
    assert list(script.group.members) == ["id-1"]
    assert script.heartbeat("id-1", generation) == errors.RebalanceInProgress.code


def test_a_member_whose_request_is_parked_does_not_lose_its_session(script):
    script.stable("a", "b")
    script.join("a2", "id-1")
    for _ in range(6):
        script.wait(9)
        assert script.heartbeat("id-2", script.group.generation) == errors.RebalanceInProgress.code
    script.wait(6)  # the rebalance timeout
    assert script.answers["a2"].error == 0
    assert list(script.group.members) == ["id-1"]


def test_the_session_starts_again_when_the_answer_goes_out(script):
    script.stable("a", "b")
    script.join("a2", "id-1")
    script.wait(9)
    script.join("b2", "id-2")
    script.wait(9)
    assert list(script.group.members) == ["id-1", "id-2"]
    script.wait(1)
    assert script.group.members == {}


def test_a_parked_new_member_that_never_comes_back_is_forgotten_after_five_minutes(script):
    script.join("a", rebalance=3600, session=10)
    script.sync("s", "id-1", 1)
    script.join("b", rebalance=3600)
    for _ in range(299):
        script.wait(1)
        script.heartbeat("id-1", 1)
    assert "b" not in script.answers
    script.wait(1)
    assert script.answers["b"].error == errors.UnknownMemberId.code


def test_a_given_id_is_forgotten_with_its_session(script):
    script.stable("a")
    script.join("b", known=True, session=20)
    script.join("a2", "id-1", "range=changed")
    script.wait(19.9)
    assert "a2" not in script.answers
    script.wait(0.1)
    assert script.answers["a2"].generation == 2
    assert script.join("b2", "id-2").error == errors.UnknownMemberId.code


def test_a_member_that_never_asks_for_its_assignment_is_dropped_after_the_rebalance_timeout(script):
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


def test_a_leader_that_never_hands_in_the_assignment_is_dropped_and_the_others_try_again(script):
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


def test_everybody_gone_before_the_initial_delay_ends_leaves_an_empty_group(delayed):
    delayed.join("a")
    delayed.leave("id-1")
    assert delayed.answers["a"].error == errors.UnknownMemberId.code
    assert delayed.state == "PreparingRebalance"
    delayed.wait(3)
    assert delayed.state == "Empty"
    assert next_deadline(delayed.group) is None


def test_a_group_that_ends_here_tells_everybody_who_waits(script):
    script.stable("a", "b")
    script.join("b2", "id-2", "range=changed")
    for answer in disband(script.group, errors.NotCoordinator.code):
        script.answers[answer.reply] = answer.result
    assert script.answers["b2"].error == errors.NotCoordinator.code
    assert script.state == "Dead"
    assert next_deadline(script.group) is None
    code = errors.CoordinatorNotAvailable.code
    assert script.heartbeat("id-1", 1) == code
    assert script.join("c").error == code
    assert script.sync("s", "id-1", 1).error == code
