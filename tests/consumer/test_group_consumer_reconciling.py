"""A member in the consumer protocol (KIP-848) takes partitions over and gives them up, as transcripts."""

from __future__ import annotations

from pyclient import errors
from pyclient.consumer.group import State
from pyclient.consumer.group_events import (
    ResolveTopics,
    TopicsResolved,
)
from tests.consumer.consumer_script import Script, topic_id

# ---- reconciling


def test_what_the_coordinator_wants_back_is_given_up_acknowledged_and_only_then_is_there_more() -> None:
    script = Script().stable("a0 a1 a2")
    script.tick()
    assert script.told(1, "a0") == ["ADOPT a0, added nothing, revoked a1 a2"]
    assert script.member.state is State.RECONCILING
    assert script.tick() == ["heartbeat: node 1, epoch 1"]  # while the user's code works
    script.told(1)
    assert script.member.commit_identity() == (1, "m")  # the callback may commit
    assert script.adopted() == ["heartbeat: node 1, epoch 1, owning a0"]
    assert script.told(2, "a0 a3") == ["ADOPT a0 a3, added a3, revoked nothing"]
    assert script.adopted() == ["heartbeat: node 1, epoch 2, owning a0 a3"]


def test_an_assignment_that_changes_while_the_thread_reconciles_waits_for_it() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.told(1, "a0")
    script.tick()
    assert script.told(2, "") == []
    assert script.adopted() == [
        "heartbeat: node 1, epoch 2, owning a0",
        "ADOPT nothing, added nothing, revoked a0",
    ]
    assert script.told(2) == []
    assert script.member.state is State.RECONCILING
    assert script.adopted() == ["heartbeat: node 1, epoch 2, owning nothing"]


def test_an_acknowledgement_waits_for_the_heartbeat_that_is_on_its_way() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.told(1, "a0")
    script.tick()
    assert script.adopted() == []
    assert script.member.state is State.ACKNOWLEDGING
    assert script.told(1) == ["heartbeat: node 1, epoch 1, owning a0"]
    assert script.member.state is State.ACKNOWLEDGING
    assert script.told(2) == []
    assert script.member.state is State.STABLE


def test_the_same_assignment_again_changes_nothing() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    assert script.told(2, "a1 a0") == []
    assert script.member.state is State.STABLE


def test_a_topic_without_a_name_yet_does_not_hold_up_the_others_and_is_asked_for_again() -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.told(2, "a0 a1 c0") == ["resolve c"]
    assert script.resolved("") == ["ADOPT a0 a1, added a1, revoked nothing"]
    assert script.adopted() == ["heartbeat: node 1, epoch 2, owning a0 a1"]
    script.told(2)
    assert script.tick() == ["resolve c"]
    assert script.refused(errors.ConnectionFailed, ResolveTopics) == []
    assert script.tick() == ["resolve c"]
    assert script.resolved("c") == ["ADOPT a0 a1 c0, added c0, revoked nothing"]


def test_a_topic_made_anew_has_another_id_which_is_acknowledged_without_a_callback() -> None:
    script = Script().stable("a0")
    script.tick()
    script.told(2, "c0")
    assert script.step(TopicsResolved(script.last[ResolveTopics].attempt, {topic_id("c"): "a"})) == [
        "heartbeat: node 1, epoch 2, owning c0"
    ]
