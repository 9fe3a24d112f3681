"""A member in the consumer protocol (KIP-848) joins and stays: transcripts."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.consumer.member import State
from pyclient.consumer.member_events import (
    ConsumerHeartbeatAnswered,
    CoordinatorFound,
    SendConsumerHeartbeat,
    Subscribed,
)
from tests.consumer.consumer_script import INTERVAL, JOIN, Script

# ---- joining


def test_member_joins_with_epoch_0_and_acknowledges_the_assignment() -> None:
    script = Script()
    assert script.step(Subscribed(("a",))) == ["find coordinator"]
    assert script.step(CoordinatorFound(1)) == [JOIN]
    with pytest.raises(errors.CommitFailed):
        script.member.commit_identity()
    assert script.heartbeat_answered(3, "a0 a1") == ["resolve a"]
    assert script.resolved("a") == ["APPLY a0 a1, added a0 a1, revoked nothing"]
    assert script.member.state is State.RECONCILING
    assert script.applied() == ["heartbeat: node 1, epoch 3, owning a0 a1"]
    assert script.member.state is State.ACKNOWLEDGING
    assert script.heartbeat_answered(3) == []
    assert script.member.state is State.STABLE
    assert script.member.commit_identity() == (3, "m")


def test_member_with_an_empty_assignment_waits() -> None:
    script = Script().joining()
    assert script.heartbeat_answered(1, "") == ["APPLY nothing, added nothing, revoked nothing"]
    assert script.applied() == []
    assert script.member.state is State.STABLE
    assert script.tick() == ["heartbeat: node 1, epoch 1"]
    assert script.heartbeat_answered(2, "a0") == ["resolve a"]


def test_join_response_without_an_assignment_means_empty() -> None:
    script = Script().joining()
    assert script.heartbeat_answered(1) == ["APPLY nothing, added nothing, revoked nothing"]


def test_changed_subscription_while_joining_is_reported_next() -> None:
    script = Script().joining()
    assert script.step(Subscribed(("a", "b"))) == []
    assert script.heartbeat_answered(1, "") == [
        "APPLY nothing, added nothing, revoked nothing",
        "heartbeat: node 1, epoch 1, topics a,b",
    ]


# ---- patterns


def test_pattern_is_reported_and_withdrawn() -> None:
    script = Script()
    script.step(Subscribed((), "a|b"))
    assert script.step(CoordinatorFound(1)) == [
        "heartbeat: node 1, epoch 0, everything, topics , pattern 'a|b', owning nothing"
    ]
    script.heartbeat_answered(1, "")
    script.applied()
    assert script.step(Subscribed((), "c.*")) == ["heartbeat: node 1, epoch 1, pattern 'c.*'"]
    script.heartbeat_answered(1)
    assert script.step(Subscribed(("a",))) == ["heartbeat: node 1, epoch 1, topics a, pattern ''"]


# ---- stable


def test_heartbeats_are_sent_one_at_a_time_at_the_set_interval() -> None:
    script = Script().stable()
    assert script.member.deadline() == INTERVAL
    assert script.tick() == ["heartbeat: node 1, epoch 1"]
    assert script.member.deadline() == 300.0  # none is due while one is on its way
    script.step(ConsumerHeartbeatAnswered(script.last[SendConsumerHeartbeat].attempt, 1, 2.0, None))
    assert script.member.deadline() == script.now + 2.0


def test_new_subscription_is_reported_at_once() -> None:
    script = Script().stable()
    assert script.step(Subscribed(("a",))) == []
    assert script.step(Subscribed(("b", "a"))) == ["heartbeat: node 1, epoch 1, topics b,a"]


def test_new_epoch_alone_is_accepted() -> None:
    script = Script().stable()
    script.tick()
    assert script.heartbeat_answered(7) == []
    assert script.member.commit_identity() == (7, "m")


def test_heartbeat_after_a_lost_one_is_complete() -> None:
    script = Script().stable("a0")
    script.tick()
    assert script.refused(SendConsumerHeartbeat, errors.ConnectionFailed) == ["find coordinator"]
    assert script.step(CoordinatorFound(2)) == ["heartbeat: node 2, epoch 1, everything, topics a, owning a0"]
    assert script.member.state is State.STABLE
    assert script.heartbeat_answered(1, "a0") == []
    assert script.tick() == ["heartbeat: node 2, epoch 1"]


def test_node_that_is_not_the_coordinator_is_retried_with_backoff() -> None:
    script = Script().stable()
    script.tick()
    script.refused(SendConsumerHeartbeat, errors.NotCoordinator)
    assert len(script.step(CoordinatorFound(1))) == 1
    script.refused(SendConsumerHeartbeat, errors.NotCoordinator)
    assert script.step(CoordinatorFound(1)) == []
    begun = script.now
    assert script.tick()[0].startswith("heartbeat: node 1, epoch 1, everything")
    assert script.now - begun == pytest.approx(0.1)


def test_loading_coordinator_delays_heartbeats() -> None:
    script = Script().stable()
    script.tick()
    assert script.refused(SendConsumerHeartbeat, errors.CoordinatorLoadInProgress) == []
    begun = script.now
    assert script.tick()[0].startswith("heartbeat: node 1, epoch 1, everything")
    assert script.now - begun == pytest.approx(0.1)
    assert script.member.state is State.STABLE
