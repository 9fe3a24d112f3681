"""A member in the consumer protocol (KIP-848) applies and revokes partitions: transcripts."""

from __future__ import annotations

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import ResolveTopics, TopicsResolved
from tests.consumer.consumer_script import Script, topic_id

# ---- reconciling


def test_revocation_is_acknowledged_before_new_partitions_come() -> None:
    script = Script().stable("a0 a1 a2")
    script.tick()
    assert script.heartbeat_answered(1, "a0") == ["APPLY a0, added nothing, revoked a1 a2"]
    assert script.member.state is State.RECONCILING
    assert script.tick() == ["heartbeat: node 1, epoch 1"]  # while the user's code works
    script.heartbeat_answered(1)
    assert script.member.commit_identity() == (1, "m")  # the callback may commit
    assert script.applied() == ["heartbeat: node 1, epoch 1, owning a0"]
    assert script.heartbeat_answered(2, "a0 a3") == ["APPLY a0 a3, added a3, revoked nothing"]
    assert script.applied() == ["heartbeat: node 1, epoch 2, owning a0 a3"]


def test_changed_assignment_waits_for_the_reconciling_thread() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.heartbeat_answered(1, "a0")
    script.tick()
    assert script.heartbeat_answered(2, "") == []
    assert script.applied() == [
        "heartbeat: node 1, epoch 2, owning a0",
        "APPLY nothing, added nothing, revoked a0",
    ]
    assert script.heartbeat_answered(2) == []
    assert script.member.state is State.RECONCILING
    assert script.applied() == ["heartbeat: node 1, epoch 2, owning nothing"]


def test_acknowledgement_waits_for_the_heartbeat_in_flight() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    script.heartbeat_answered(1, "a0")
    script.tick()
    assert script.applied() == []
    assert script.member.state is State.ACKNOWLEDGING
    assert script.heartbeat_answered(1) == ["heartbeat: node 1, epoch 1, owning a0"]
    assert script.member.state is State.ACKNOWLEDGING
    assert script.heartbeat_answered(2) == []
    assert script.member.state is State.STABLE


def test_repeated_assignment_changes_nothing() -> None:
    script = Script().stable("a0 a1")
    script.tick()
    assert script.heartbeat_answered(2, "a1 a0") == []
    assert script.member.state is State.STABLE


def test_unresolved_topic_does_not_block_others_and_is_retried() -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.heartbeat_answered(2, "a0 a1 c0") == ["resolve c"]
    assert script.resolved("") == ["APPLY a0 a1, added a1, revoked nothing"]
    assert script.applied() == ["heartbeat: node 1, epoch 2, owning a0 a1"]
    script.heartbeat_answered(2)
    assert script.tick() == ["resolve c"]
    assert script.refused(ResolveTopics, errors.ConnectionFailed) == []
    assert script.tick() == ["resolve c"]
    assert script.resolved("c") == ["APPLY a0 a1 c0, added c0, revoked nothing"]


def test_recreated_topic_id_is_acknowledged_without_a_callback() -> None:
    script = Script().stable("a0")
    script.tick()
    script.heartbeat_answered(2, "c0")
    assert script.step(TopicsResolved(script.last[ResolveTopics].attempt, {topic_id("c"): "a"})) == [
        "heartbeat: node 1, epoch 2, owning c0"
    ]
