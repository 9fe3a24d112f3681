"""Consumer groups and time: sessions, rebalance timeouts, how often targets are made, what a restart leaves of that."""

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
def quick() -> Node:
    """A coordinator that makes targets at once; topic `t` has 4 partitions."""
    return with_topic(Node(group_consumer_assignment_interval_ms=0))


def with_topic(node: Node) -> Node:
    node.topics = KnownTopics({"t": TopicInfo(T, 4)}, next(VERSIONS))
    return node


def join(node: Node, member: str, *, rebalance: int = 60_000, instance: str | None = None) -> ConsumerAnswer:
    return say(node, member, 0, owned={}, topics=("t",), rebalance_timeout_ms=rebalance, instance_id=instance)


def say(node: Node, member: str, epoch: int, *, owned: Target | None = None, **more) -> ConsumerAnswer:  # type: ignore[no-untyped-def]
    event = ConsumerHeartbeat(member_id=member, member_epoch=epoch, owned=owned, **more)
    return node.groups.consumer_heartbeat("g", event, makes_own_id=True)


def group_of(node: Node) -> ConsumerGroup:
    entry = node.groups.groups.find("g")
    assert entry is not None
    assert entry.consumer is not None
    return entry.consumer


def test_a_silent_member_is_given_up_when_its_session_ends(quick: Node) -> None:
    join(quick, "a")
    join(quick, "b")
    quick.pass_time(30)
    say(quick, "a", 2)
    quick.pass_time(14.9)
    assert set(group_of(quick).members) == {"a", "b"}
    quick.pass_time(0.2)
    assert set(group_of(quick).members) == {"a"}
    assert group_of(quick).phase is GroupPhase.ASSIGNING
    answer = say(quick, "a", 2, owned={T: frozenset({0, 1})})
    assert (answer.member_epoch, answer.assignment) == (4, {T: frozenset(range(4))})
    with pytest.raises(errors.UnknownMemberId):
        say(quick, "b", 3)


def test_a_member_that_goes_on_reading_what_it_should_give_up_is_out_after_its_rebalance_timeout(quick: Node) -> None:
    join(quick, "a", rebalance=5_000)
    join(quick, "b")
    told = say(quick, "a", 2).assignment
    assert told == {T: frozenset({0, 1})}
    quick.pass_time(4)
    say(quick, "a", 2)  # no heartbeat puts it off
    quick.pass_time(0.9)
    assert "a" in group_of(quick).members
    quick.pass_time(0.2)
    assert set(group_of(quick).members) == {"b"}
    assert say(quick, "b", 3).assignment == {T: frozenset(range(4))}


def test_a_member_that_gave_its_partitions_up_stays(quick: Node) -> None:
    join(quick, "a", rebalance=5_000)
    join(quick, "b")
    told = say(quick, "a", 2).assignment
    assert say(quick, "a", 2, owned=told).member_epoch == 3
    quick.pass_time(10)
    assert set(group_of(quick).members) == {"a", "b"}
    assert not group_of(quick).revocations


def test_a_static_member_has_its_session_to_come_back(quick: Node) -> None:
    join(quick, "a", instance="one")
    say(quick, "a", -2, instance_id="one")
    quick.pass_time(44)
    assert join(quick, "b", instance="one").assignment == {T: frozenset(range(4))}
    assert group_of(quick).epoch == 2
    say(quick, "b", -2, instance_id="one")
    quick.pass_time(46)
    assert group_of(quick).phase is GroupPhase.EMPTY


def test_targets_are_made_no_faster_than_the_interval() -> None:
    node = with_topic(Node(group_consumer_assignment_interval_ms=1_000))
    assert join(node, "a").member_epoch == 2
    late = join(node, "b")
    assert (late.member_epoch, late.assignment) == (2, {})
    assert (group_of(node).epoch, group_of(node).target_epoch) == (3, 2)
    node.pass_time(0.9)
    assert say(node, "b", 2).assignment is None
    node.pass_time(0.2)
    say(node, "b", 2)
    assert group_of(node).target_epoch == 3


def test_sessions_begin_anew_after_a_restart_and_revocations_go_on(quick: Node) -> None:
    join(quick, "a", rebalance=5_000)
    join(quick, "b")
    say(quick, "a", 2)
    quick.pass_time(4)
    quick.restart()
    quick.pass_time(4.9)
    assert set(group_of(quick).members) == {"a", "b"}
    quick.pass_time(0.2)
    assert set(group_of(quick).members) == {"b"}
    quick.pass_time(39.7)
    assert set(group_of(quick).members) == {"b"}
    quick.pass_time(0.3)
    assert not group_of(quick).members


def test_a_member_that_could_not_be_removed_from_the_log_is_removed_later(quick: Node) -> None:
    join(quick, "a")
    quick.failure = errors.NotEnoughReplicas("not now")
    quick.pass_time(50)
    assert set(group_of(quick).members) == {"a"}
    quick.failure = None
    quick.pass_time(2)
    assert not group_of(quick).members


def test_a_join_that_cannot_be_written_leaves_nothing(quick: Node) -> None:
    quick.failure = errors.NotEnoughReplicas("not now")
    with pytest.raises(errors.CoordinatorNotAvailable):
        join(quick, "a")
    assert quick.groups.groups.find("g") is None
    quick.failure = None
    join(quick, "a")
    quick.failure = errors.NotLeaderOrFollower("not now")
    with pytest.raises(errors.NotCoordinator):
        join(quick, "b")
    assert set(group_of(quick).members) == {"a"}


def commit(node: Node, member: str = "", epoch: int = -1, topic: str = "t") -> int:
    positions = {TopicPartition(topic, 0): Position(5)}
    return committed(node, "g", Commit(member_id=member, generation=epoch, positions=positions))[
        TopicPartition(topic, 0)
    ]


def test_offsets_expire_by_the_time_of_their_commit_unless_a_member_reads_the_topic() -> None:
    node = with_topic(Node(offsets_retention_minutes=1, offsets_retention_check_interval_ms=10_000))
    join(node, "a")
    assert commit(node, "a", 2) == 0
    assert commit(node, "a", 2, "gone") == 0
    for _ in range(10):
        node.pass_time(10)
        say(node, "a", 2)
    assert list(node.groups.offsets.fetch("g")) == [TopicPartition("t", 0)]
    say(node, "a", -1)
    node.pass_time(10)  # the minute since the commit is long over
    assert node.groups.groups.find("g") is None
    node.restart()
    assert node.groups.groups.find("g") is None


def test_a_group_that_is_deleted_stays_so_after_a_restart(quick: Node) -> None:
    join(quick, "a")
    say(quick, "a", 2, regex="t.*", topics=())
    commit(quick, "a", 2)
    assert quick.groups.delete("g") == errors.NonEmptyGroup.code
    say(quick, "a", -1)
    assert quick.groups.delete("g") == 0
    quick.restart()
    assert quick.groups.groups.find("g") is None
    assert join(quick, "a").member_epoch == 2


def test_a_groups_own_options_come_before_the_brokers(quick: Node) -> None:
    quick.own_options["g"] = {"consumer.session.timeout.ms": "50000", "consumer.assignment.interval.ms": "5000"}
    join(quick, "a")
    assert join(quick, "b").member_epoch == 2
    quick.pass_time(4.9)
    assert group_of(quick).target_epoch == 2
    quick.pass_time(0.2)
    say(quick, "b", 2)
    assert group_of(quick).target_epoch == 3
    quick.pass_time(45)
    assert set(group_of(quick).members) == {"b"}
    quick.restart()
    quick.pass_time(49)
    assert set(group_of(quick).members) == {"b"}
    quick.pass_time(1.1)
    assert not group_of(quick).members
