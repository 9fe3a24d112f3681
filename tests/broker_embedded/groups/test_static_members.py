"""Transcripts of static members (KIP-345): a restart takes its old place, two of one name fence each other."""

from __future__ import annotations

from pyclient import errors


def both_static(script):
    """A stable group of two static members, `one` (leading) and `two`."""
    script.join("a", instance="one")
    script.join("b", instance="two")
    script.join("a2", "id-1", instance="one")
    script.sync("sb", "id-2", 2, "two")
    script.sync("sa", "id-1", 2, "one", id_1=b"1", id_2=b"2")
    assert script.state == "Stable"


def test_a_static_member_needs_no_known_id(script):
    assert script.join("a", instance="one", known=True).error == 0


def test_a_restarted_follower_takes_its_place_without_a_rebalance(script):
    both_static(script)
    joined = script.join("b2", instance="two", skip=True)
    assert (joined.error, joined.generation, joined.member_id, joined.leader) == (0, 2, "id-3", "id-1")
    assert (joined.members, joined.skip_assignment) == ((), False)
    assert script.state == "Stable"
    assert script.sync("sb2", "id-3", 2, "two").assignment == b"2"
    assert [m.member_id for m in script.stores[-1].snapshot.members] == ["id-1", "id-3"]


def test_a_restarted_leader_is_told_to_skip_the_assignment(script):
    both_static(script)
    joined = script.join("a3", instance="one", skip=True)
    assert (joined.member_id, joined.leader, joined.skip_assignment) == ("id-3", "id-3", True)
    assert [m.member_id for m in joined.members] == ["id-3", "id-2"]
    assert script.sync("sa3", "id-3", 2, "one").assignment == b"1"


def test_a_restarted_leader_of_an_older_version_takes_itself_for_a_follower(script):
    both_static(script)
    joined = script.join("a3", instance="one")
    assert (joined.member_id, joined.leader, joined.members) == ("id-3", "id-1", ())
    assert script.sync("sa3", "id-3", 2, "one").assignment == b"1"


def test_changed_metadata_causes_no_rebalance_while_the_protocol_stays(script):
    both_static(script)
    assert script.join("b2", "", "range=other topics", instance="two").error == 0
    assert script.state == "Stable"


def test_a_restart_that_changes_the_chosen_protocol_starts_a_rebalance(script):
    script.join("a", "", "range", "sticky", instance="one")
    script.sync("sa", "id-1", 1, "one")
    assert script.join("a2", "", "sticky", instance="one").protocol_name == "sticky"
    assert script.group.generation == 2


def test_whoever_held_the_place_before_is_fenced(script):
    both_static(script)
    script.join("b2", instance="two")
    code = errors.FencedInstanceId.code
    assert script.heartbeat("id-2", 2, "two") == code
    assert script.sync("old", "id-2", 2, "two").error == code
    assert script.join("old2", "id-2", instance="two").error == code
    assert script.leave(("id-2", "two")) == [code]
    assert script.heartbeat("id-2", 2) == errors.UnknownMemberId.code
    assert script.heartbeat("id-3", 2, "three") == errors.UnknownMemberId.code


def test_parked_requests_of_the_fenced_one_are_answered(script):
    both_static(script)
    script.join("a3", "id-1", instance="one")
    script.join("a4", instance="one")
    assert script.answers["a3"].error == errors.FencedInstanceId.code
    script.join("b2", "id-2", instance="two")
    assert script.answers["a4"].error == 0
    assert script.answers["a4"].leader == "id-3"

    script.sync("parked", "id-2", 3, "two")
    script.join("b3", instance="two")
    assert script.answers["parked"].error == errors.FencedInstanceId.code


def test_a_restart_while_the_assignment_is_awaited_starts_another_rebalance(script):
    both_static(script)
    script.join("a3", "id-1", instance="one")
    script.join("b2", "id-2", instance="two")
    assert script.state == "CompletingRebalance"
    assert script.join("b3", instance="two") is None
    assert script.state == "PreparingRebalance"


def test_a_static_member_keeps_its_place_over_a_rebalance_it_missed(script):
    script.join("a", instance="one", session=600, rebalance=5)
    script.join("b", rebalance=5, session=600)
    script.join("a2", "id-1", instance="one", session=600, rebalance=5)
    script.sync("sa", "id-1", 2, "one")
    script.sync("sb", "id-2", 2)
    script.join("b2", "id-2", "range=changed", rebalance=5, session=600)
    script.wait(5)
    assert script.answers["b2"].leader == "id-2", "the leader is one who came back"
    assert [m.instance_id for m in script.answers["b2"].members] == ["one", None]


def test_a_rebalance_waits_on_while_only_absent_static_members_are_left(script):
    script.join("a", instance="one", session=600, rebalance=5)
    script.join("b", rebalance=5, session=600)
    script.join("a2", "id-1", instance="one", session=600, rebalance=5)
    script.sync("sa", "id-1", 2, "one")
    script.sync("sb", "id-2", 2)
    script.leave("id-2")
    script.wait(60)
    assert script.state == "PreparingRebalance"
    assert script.join("a3", "id-1", instance="one", session=600, rebalance=5).generation == 3


def test_waiting_for_absent_static_members_does_not_spin(script):
    script.join("a", instance="one", session=600, rebalance=0)
    script.sync("sa", "id-1", 1, "one")
    script.join("b", rebalance=0)
    script.leave("id-2")
    ticks = script.ticks
    script.wait(60)
    assert script.state == "PreparingRebalance"
    assert script.ticks - ticks <= 600


def test_an_administrator_removes_a_static_member_by_its_name(script):
    both_static(script)
    assert script.leave(("", "two"), ("", "nobody")) == [0, errors.UnknownMemberId.code]
    assert list(script.group.members) == ["id-1"]


def test_the_answer_waits_until_the_new_id_is_in_the_log(script):
    both_static(script)
    script.stores.clear()
    script.hold = True
    assert script.join("b2", instance="two") is None
    script.stored()
    assert script.answers["b2"].error == 0
    assert script.join("b3", instance="two") is None
    script.stored(errors.NotCoordinator.code)
    assert (script.answers["b3"].error, script.answers["b3"].generation) == (errors.NotCoordinator.code, -1)


def test_a_full_group_lets_a_static_member_back_in(small):
    both_static(small)
    assert small.join("b2", instance="two").error == 0
    assert small.join("c", instance="three").error == errors.GroupMaxSizeReached.code
