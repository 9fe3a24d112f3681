"""Transcripts of a classic group: JoinGroup, SyncGroup and rebalances."""

from __future__ import annotations

from pyclient import errors
from pyclient.broker_embedded.groups.events import JoinedMember


def test_first_member_leads_and_receives_members(script):
    joined = script.join("a", "", "range=topics", "sticky")
    assert (joined.error, joined.generation, joined.member_id, joined.leader) == (0, 1, "id-1", "id-1")
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert joined.members == (JoinedMember("id-1", None, b"topics"),)
    assert script.state == "CompletingRebalance"

    assert script.sync("s", "id-1", 1, id_1=b"mine").assignment == b"mine"
    assert script.state == "Stable"
    assert script.heartbeat("id-1", 1) == 0


def test_empty_group_waits_for_initial_delay(delayed):
    assert delayed.join("a") is None
    delayed.wait(2)
    assert delayed.join("b") is None
    delayed.wait(3.9)
    assert "a" not in delayed.answers, "the second member put the end off by another delay"
    delayed.wait(0.1)
    assert delayed.answers["a"].generation == delayed.answers["b"].generation == 1
    assert [member.member_id for member in delayed.answers["a"].members] == ["id-1", "id-2"]
    assert delayed.answers["b"].members == ()
    assert delayed.answers["b"].leader == "id-1"


def test_initial_delay_is_limited_by_rebalance_timeout(delayed):
    for n in range(8):
        delayed.join(f"m{n}", rebalance=10)
        delayed.wait(2)
        if "m0" in delayed.answers:
            break
    assert delayed.now - 1000 == 10
    assert len(delayed.answers["m0"].members) == 5


def test_initial_delay_elapses_fully_even_if_all_joined(delayed):
    assert delayed.join("a") is None
    delayed.wait(2.9)
    assert "a" not in delayed.answers
    delayed.wait(0.1)
    assert delayed.answers["a"].generation == 1


def test_new_member_makes_first_member_rejoin(script):
    script.stable("a")
    assert script.join("b") is None
    assert script.state == "PreparingRebalance"
    assert script.heartbeat("id-1", 1) == errors.RebalanceInProgress.code
    assert script.sync("late", "id-1", 1).error == errors.RebalanceInProgress.code

    assert script.join("a2", "id-1", "range").generation == 2
    assert script.answers["b"].generation == 2
    assert script.heartbeat("id-2", 2) == 0, "heartbeats are fine while the assignment is awaited"

    assert script.sync("sb", "id-2", 2) is None
    assert script.sync("sa", "id-1", 2, id_1=b"1", id_2=b"2").assignment == b"1"
    assert script.answers["sb"].assignment == b"2"


def test_member_omitted_by_leader_gets_empty_assignment(script):
    script.stable("a", "b")
    script.join("c")
    script.join("a2", "id-1")
    script.join("b2", "id-2")
    script.sync("sc", "id-3", script.group.generation)
    script.sync("sa", "id-1", script.group.generation, id_1=b"all", absent=b"ignored")
    assert script.answers["sc"].assignment == b""
    assert script.stores[-1].snapshot.members[2].assignment == b""


def test_protocol_with_most_votes_is_elected(script):
    script.join("a", "", "sticky", "range", "mine")
    script.join("b", "", "range", "sticky")
    script.join("c", "", "range", "sticky")
    assert script.join("a2", "id-1", "sticky", "range", "mine").protocol_name == "range"
    assert script.answers["b"].protocol_name == script.answers["c"].protocol_name == "range"


def test_join_without_common_protocol_is_refused(script):
    script.stable("a")
    assert script.join("b", "", "other").error == errors.InconsistentGroupProtocol.code
    assert script.state == "Stable"


def test_join_without_protocols_or_with_other_type_is_refused(script):
    from pyclient.broker_embedded.groups.events import Join, Protocol

    def ask(reply, protocol_type, *names):
        script.step(
            Join(
                reply=reply,
                member_id="",
                fresh_id="x",
                protocol_type=protocol_type,
                protocols=tuple(Protocol(name, b"") for name in names),
                session_timeout_ms=1,
                rebalance_timeout_ms=1,
            )
        )
        return script.answers[reply].error

    assert ask("none", "consumer") == errors.InconsistentGroupProtocol.code
    assert ask("typeless", "", "range") == errors.InconsistentGroupProtocol.code
    assert ask("connect", "connect", "range") == 0
    assert ask("consumer", "consumer", "range") == errors.InconsistentGroupProtocol.code


def test_unchanged_rejoin_of_follower_starts_no_rebalance(script):
    script.stable("a", "b")
    generation = script.group.generation
    joined = script.join("b2", "id-2")
    assert (joined.error, joined.generation, joined.leader, joined.members) == (0, generation, "id-1", ())
    assert script.state == "Stable"


def test_changed_rejoin_of_follower_starts_rebalance(script):
    script.stable("a", "b")
    assert script.join("b2", "id-2", "range=other topics") is None
    assert script.state == "PreparingRebalance"


def test_rejoin_of_leader_starts_rebalance(script):
    script.stable("a", "b")
    assert script.join("a2", "id-1") is None
    assert script.state == "PreparingRebalance"


def test_repeated_join_is_answered_with_same_generation(script):
    first = script.join("a")
    assert script.join("a2", "id-1") == first
    assert script.group.generation == 1


def test_member_changed_before_assignment_starts_rebalance(script):
    script.stable("a", "b")
    script.join("b2", "id-2", "range=new")
    script.join("a2", "id-1")
    generation = script.group.generation
    assert script.sync("sb", "id-2", generation) is None
    script.join("b3", "id-2", "range=newer")
    assert script.answers["sb"].error == errors.RebalanceInProgress.code
    assert script.state == "PreparingRebalance"


def test_second_join_of_member_replaces_first(script):
    script.stable("a", "b")
    script.join("b2", "id-2", "range=new")
    script.join("b3", "id-2", "range=newer")
    assert script.answers["b2"].error == errors.RebalanceInProgress.code
    script.join("a2", "id-1")
    assert script.answers["b3"].error == 0
    assert [member.metadata for member in script.answers["a2"].members] == [b"", b"newer"]


def test_member_without_rejoin_is_removed_after_rebalance_timeout(script):
    script.join("a", rebalance=5, session=60)
    script.sync("s", "id-1", 1)
    script.join("b", rebalance=7, session=60)
    script.wait(6.9)
    assert "b" not in script.answers, "the slowest member decides how long the group waits"
    script.wait(0.1)
    assert script.answers["b"].leader == "id-2"
    assert list(script.group.members) == ["id-2"]
    assert script.heartbeat("id-1", 1) == errors.UnknownMemberId.code


def test_other_generation_and_unknown_member_are_refused(script):
    script.stable("a")
    assert script.heartbeat("id-1", 7) == errors.IllegalGeneration.code
    assert script.heartbeat("id-9", 1) == errors.UnknownMemberId.code
    assert script.sync("s7", "id-1", 7).error == errors.IllegalGeneration.code
    assert script.sync("s9", "id-9", 1).error == errors.UnknownMemberId.code
    assert script.join("j9", "id-9").error == errors.UnknownMemberId.code


def test_sync_with_other_protocol_is_refused(script):
    script.stable("a")
    code = errors.InconsistentGroupProtocol.code
    assert script.sync("1", "id-1", 1, protocol_type="connect", protocol_name="range").error == code
    assert script.sync("2", "id-1", 1, protocol_type="consumer", protocol_name="sticky").error == code
    assert script.sync("3", "id-1", 1, protocol_type="consumer", protocol_name="range").error == 0


def test_stable_group_answers_repeated_sync(script):
    script.stable("a", "b")
    again = script.sync("again", "id-2", script.group.generation)
    assert again.assignment == b"part of id-2"
    assert (again.protocol_type, again.protocol_name) == ("consumer", "range")


def test_sync_waits_until_assignment_is_written(script):
    script.join("a")
    script.hold = True
    assert script.sync("s", "id-1", 1, id_1=b"x") is None
    assert script.sync("s2", "id-1", 1, id_1=b"y") is None, "asked again: the first assignment is the one being stored"
    assert script.answers["s"].error == errors.RebalanceInProgress.code
    assert len(script.stores) == 1
    script.stored()
    assert script.answers["s2"].assignment == b"x"
    assert script.state == "Stable"


def test_failed_write_of_assignment_starts_rebalance(script):
    script.join("a")
    script.hold = True
    script.sync("s", "id-1", 1, id_1=b"x")
    script.stored(errors.CoordinatorNotAvailable.code)
    assert script.answers["s"].error == errors.CoordinatorNotAvailable.code
    assert script.state == "PreparingRebalance"
    assert script.join("a2", "id-1").generation == 2


def test_assignment_of_old_generation_is_ignored_when_written(script):
    script.join("a")
    script.hold = True
    script.sync("s", "id-1", 1, id_1=b"old")
    script.join("b")
    script.join("a2", "id-1")
    assert script.group.generation == 2
    script.stored()
    assert script.state == "CompletingRebalance"
    script.hold = False
    assert script.sync("sa", "id-1", 2, id_1=b"new").assignment == b"new"


def test_first_join_requires_known_member_id(script):
    asked = script.join("a", known=True)
    assert (asked.error, asked.member_id) == (errors.MemberIdRequired.code, "id-1")
    assert script.state == "Empty"
    joined = script.join("a2", "id-1", known=True)
    assert (joined.error, joined.member_id, joined.generation) == (0, "id-1", 1)


def test_rebalance_waits_for_pending_member_id(script):
    script.stable("a")
    script.join("b", known=True)
    script.join("a2", "id-1", "range=changed")
    assert "a2" not in script.answers
    script.join("b2", "id-2", known=True)
    assert script.answers["a2"].generation == script.answers["b2"].generation == 2


def test_full_group_refuses_new_member(small):
    small.stable("a", "b")
    assert small.join("c").error == errors.GroupMaxSizeReached.code
    assert small.join("a2", "id-1") is None, "a member may always come back"


def test_first_members_to_join_are_admitted_to_full_group(small):
    small.stable("a", "b")
    small.join("b2", "id-2", "range=changed")
    assert small.join("c") is None
    assert small.join("a2", "id-1").error == errors.GroupMaxSizeReached.code
    small.wait(10)  # the session of the refused member
    assert list(small.group.members) == ["id-2", "id-3"]


def test_every_generation_is_written_with_its_members(script):
    script.stable("a", "b")
    snapshot = script.stores[-1].snapshot
    assert (snapshot.protocol_type, snapshot.protocol_name, snapshot.leader) == ("consumer", "range", "id-1")
    assert snapshot.generation == script.group.generation
    assert [(m.member_id, m.client_id, m.assignment) for m in snapshot.members] == [
        ("id-1", "a", b"part of id-1"),
        ("id-2", "b", b"part of id-2"),
    ]
    assert [(m.session_timeout_ms, m.rebalance_timeout_ms) for m in snapshot.members] == [(10_000, 60_000)] * 2
