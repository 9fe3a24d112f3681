"""Timeouts of consumer groups: sessions, revocations, the assignment interval, expiration, and restarts."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from pyclient import errors
from pyclient.broker_embedded.groups.consumer.events import ConsumerAnswer, ConsumerHeartbeat
from pyclient.broker_embedded.groups.consumer.model import GroupPhase, Target
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.consumer.topics import KnownTopics, TopicInfo
from pyclient.broker_embedded.groups.offset_metadata_manager import Commit, Position
from pyclient.types import TopicPartition
from tests.broker_embedded.groups.conftest import Node, committed

T = UUID(int=1)
VERSIONS = itertools.count(1)


@pytest.fixture
def immediate() -> Node:
    """Return a coordinator without an assignment interval; topic `t` has 4 partitions."""
    return with_topic(Node(group_consumer_assignment_interval_ms=0))


def with_topic(node: Node) -> Node:
    node.topics = KnownTopics({"t": TopicInfo(T, 4)}, next(VERSIONS))
    return node


def join(node: Node, member: str, *, rebalance: int = 60_000, instance: str | None = None) -> ConsumerAnswer:
    return heartbeat(node, member, 0, owned={}, topics=("t",), rebalance_timeout_ms=rebalance, instance_id=instance)


def heartbeat(node: Node, member: str, epoch: int, *, owned: Target | None = None, **more) -> ConsumerAnswer:  # type: ignore[no-untyped-def]
    event = ConsumerHeartbeat(member_id=member, member_epoch=epoch, owned=owned, **more)
    return node.groups.consumer_heartbeat("g", event, makes_own_id=True)


def group_of(node: Node) -> ConsumerGroup:
    entry = node.groups.groups.find("g")
    assert entry is not None
    assert entry.consumer is not None
    return entry.consumer


def test_member_is_removed_when_session_expires(immediate: Node) -> None:
    join(immediate, "a")
    join(immediate, "b")
    immediate.pass_time(30)
    heartbeat(immediate, "a", 2)
    immediate.pass_time(14.9)
    assert set(group_of(immediate).members) == {"a", "b"}
    immediate.pass_time(0.2)
    assert set(group_of(immediate).members) == {"a"}
    assert group_of(immediate).phase is GroupPhase.ASSIGNING
    answer = heartbeat(immediate, "a", 2, owned={T: frozenset({0, 1})})
    assert (answer.member_epoch, answer.assignment) == (4, {T: frozenset(range(4))})
    with pytest.raises(errors.UnknownMemberId):
        heartbeat(immediate, "b", 3)


def test_member_that_does_not_revoke_is_removed_after_rebalance_timeout(immediate: Node) -> None:
    join(immediate, "a", rebalance=5_000)
    join(immediate, "b")
    assigned = heartbeat(immediate, "a", 2).assignment
    assert assigned == {T: frozenset({0, 1})}
    immediate.pass_time(4)
    heartbeat(immediate, "a", 2)  # a heartbeat does not extend the timeout
    immediate.pass_time(0.9)
    assert "a" in group_of(immediate).members
    immediate.pass_time(0.2)
    assert set(group_of(immediate).members) == {"b"}
    assert heartbeat(immediate, "b", 3).assignment == {T: frozenset(range(4))}


def test_member_that_revoked_its_partitions_stays(immediate: Node) -> None:
    join(immediate, "a", rebalance=5_000)
    join(immediate, "b")
    assigned = heartbeat(immediate, "a", 2).assignment
    assert heartbeat(immediate, "a", 2, owned=assigned).member_epoch == 3
    immediate.pass_time(10)
    assert set(group_of(immediate).members) == {"a", "b"}
    assert not group_of(immediate).revocations


def test_static_member_can_return_within_its_session(immediate: Node) -> None:
    join(immediate, "a", instance="one")
    heartbeat(immediate, "a", -2, instance_id="one")
    immediate.pass_time(44)
    assert join(immediate, "b", instance="one").assignment == {T: frozenset(range(4))}
    assert group_of(immediate).epoch == 2
    heartbeat(immediate, "b", -2, instance_id="one")
    immediate.pass_time(46)
    assert group_of(immediate).phase is GroupPhase.EMPTY


def test_target_assignments_respect_assignment_interval() -> None:
    node = with_topic(Node(group_consumer_assignment_interval_ms=1_000))
    assert join(node, "a").member_epoch == 2
    late = join(node, "b")
    assert (late.member_epoch, late.assignment) == (2, {})
    assert (group_of(node).epoch, group_of(node).target_epoch) == (3, 2)
    node.pass_time(0.9)
    assert heartbeat(node, "b", 2).assignment is None
    node.pass_time(0.2)
    heartbeat(node, "b", 2)
    assert group_of(node).target_epoch == 3


def test_restart_restarts_sessions_and_keeps_revocations(immediate: Node) -> None:
    join(immediate, "a", rebalance=5_000)
    join(immediate, "b")
    heartbeat(immediate, "a", 2)
    immediate.pass_time(4)
    immediate.restart()
    immediate.pass_time(4.9)
    assert set(group_of(immediate).members) == {"a", "b"}
    immediate.pass_time(0.2)
    assert set(group_of(immediate).members) == {"b"}
    immediate.pass_time(39.7)
    assert set(group_of(immediate).members) == {"b"}
    immediate.pass_time(0.3)
    assert not group_of(immediate).members


def test_removal_of_member_is_retried_after_failed_write(immediate: Node) -> None:
    join(immediate, "a")
    immediate.failure = errors.NotEnoughReplicas("not now")
    immediate.pass_time(50)
    assert set(group_of(immediate).members) == {"a"}
    immediate.failure = None
    immediate.pass_time(2)
    assert not group_of(immediate).members


def test_join_with_failed_write_changes_nothing(immediate: Node) -> None:
    immediate.failure = errors.NotEnoughReplicas("not now")
    with pytest.raises(errors.CoordinatorNotAvailable):
        join(immediate, "a")
    assert immediate.groups.groups.find("g") is None
    immediate.failure = None
    join(immediate, "a")
    immediate.failure = errors.NotLeaderOrFollower("not now")
    with pytest.raises(errors.NotCoordinator):
        join(immediate, "b")
    assert set(group_of(immediate).members) == {"a"}


def commit(node: Node, member: str = "", epoch: int = -1, topic: str = "t") -> int:
    positions = {TopicPartition(topic, 0): Position(5)}
    return committed(node, "g", Commit(member_id=member, generation=epoch, positions=positions))[
        TopicPartition(topic, 0)
    ]


def test_offsets_expire_after_commit_unless_topic_is_subscribed() -> None:
    node = with_topic(Node(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000))
    join(node, "a")
    assert commit(node, "a", 2) == 0
    assert commit(node, "a", 2, "gone") == 0
    for _ in range(10):
        node.pass_time(10)
        heartbeat(node, "a", 2)
    assert list(node.groups.offsets.fetch("g")) == [TopicPartition("t", 0)]
    heartbeat(node, "a", -1)
    node.pass_time(10)  # more than a minute since the commit
    assert node.groups.groups.find("g") is None
    node.restart()
    assert node.groups.groups.find("g") is None


def test_deleted_group_stays_deleted_after_restart(immediate: Node) -> None:
    join(immediate, "a")
    heartbeat(immediate, "a", 2, regex="t.*", topics=())
    commit(immediate, "a", 2)
    assert immediate.groups.delete("g") == errors.NonEmptyGroup.code
    heartbeat(immediate, "a", -1)
    assert immediate.groups.delete("g") == 0
    immediate.restart()
    assert immediate.groups.groups.find("g") is None
    assert join(immediate, "a").member_epoch == 2


def test_group_options_override_broker_options(immediate: Node) -> None:
    immediate.own_options["g"] = {"consumer.session.timeout.ms": "50000", "consumer.assignment.interval.ms": "5000"}
    join(immediate, "a")
    assert join(immediate, "b").member_epoch == 2
    immediate.pass_time(4.9)
    assert group_of(immediate).target_epoch == 2
    immediate.pass_time(0.2)
    heartbeat(immediate, "b", 2)
    assert group_of(immediate).target_epoch == 3
    immediate.pass_time(45)
    assert set(group_of(immediate).members) == {"b"}
    immediate.restart()
    immediate.pass_time(49)
    assert set(group_of(immediate).members) == {"b"}
    immediate.pass_time(1.1)
    assert not group_of(immediate).members
