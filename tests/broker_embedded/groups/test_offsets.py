"""Committed offsets: who may commit, what is kept, and for how long."""

from __future__ import annotations

import pytest

from pyclient import errors
from pyclient.broker_embedded.groups.log_records import CommittedOffset
from pyclient.broker_embedded.groups.offset_metadata_manager import Commit, Position
from pyclient.broker_embedded.groups.offsets import check_commit
from pyclient.protocol import codec
from pyclient.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from pyclient.types import TopicPartition
from tests.broker_embedded.groups.conftest import committed

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
DAY_MS = 24 * 3600 * 1000


def commit(node, *, group="g", offset=5, partitions=(T0,), **who):
    positions = {partition: Position(offset, 1, "note") for partition in partitions}
    return committed(node, group, Commit(positions=positions, **who))


def empty_group_of_members(node, group="g", topics=("t",)):
    """A group that had a member of the consumer protocol, and its committed offset."""
    entry = node.groups.groups.find_or_create(group)
    entry.classic.protocol_type = "consumer"
    entry.state_ms = node.clock.time_ms()
    commit(node, group=group)
    return entry


def stable_group(script, node, topics=("t",)):
    """The script's member `id-1`, reading `topics`, as a group of the node."""
    subscription = codec.encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)
    script.stable("a")
    entry = node.groups.groups.find_or_create("g")
    entry.group = script.group
    entry.classic.group_id = "g"
    member = script.group.members["id-1"]
    script.group.set_protocols(member, tuple(type(p)(p.name, subscription) for p in member.protocols))
    return entry


def test_a_consumer_without_a_group_may_commit_and_read(node):
    assert commit(node) == {T0: 0}
    now = node.clock.time_ms()
    assert node.groups.offsets.fetch("g") == {T0: CommittedOffset(5, 1, "note", now)}
    assert list(node.groups.offsets.fetch("g")) == [T0]
    assert node.groups.offsets.fetch("other") == {}


def test_an_empty_group_takes_commits_of_generation_minus_one_whatever_the_member_id(node):
    commit(node)
    assert commit(node, member_id="whoever") == {T0: 0}


@pytest.mark.parametrize(("version", "error"), [(8, errors.IllegalGeneration), (9, errors.GroupIdNotFound)])
def test_a_commit_of_a_generation_of_a_group_that_does_not_exist_is_refused(node, version, error):
    assert commit(node, member_id="m", generation=3, version=version) == {T0: error.code}
    assert len(node.groups.groups) == 0


def test_members_commit_with_their_id_and_generation(script):
    script.stable("a")
    check = script.group
    assert check_commit(check, "id-1", None, 1) == 0
    assert check_commit(check, "id-1", None, 2) == errors.IllegalGeneration.code
    assert check_commit(check, "id-9", None, 1) == errors.UnknownMemberId.code
    assert check_commit(check, "id-1", "static", 1) == errors.UnknownMemberId.code
    assert check_commit(check, "", None, -1) == errors.UnknownMemberId.code
    assert check_commit(check, "", None, -1, transactional=True) == 0


def test_a_fenced_static_member_cannot_commit(script):
    script.join("a", instance="one")
    script.sync("s", "id-1", 1, "one")
    script.join("a2", instance="one")
    assert check_commit(script.group, "id-1", "one", 1) == errors.FencedInstanceId.code
    assert check_commit(script.group, "id-2", "one", 1) == 0


def test_the_old_generation_may_commit_until_the_new_one_begins(script):
    script.stable("a")
    script.join("b")
    assert script.state == "PreparingRebalance"
    assert check_commit(script.group, "id-1", None, 1) == 0
    script.join("a2", "id-1")
    assert script.state == "CompletingRebalance"
    assert check_commit(script.group, "id-1", None, 1) == errors.IllegalGeneration.code
    assert check_commit(script.group, "id-1", None, 2) == errors.RebalanceInProgress.code
    assert check_commit(script.group, "id-1", None, 2, transactional=True) == 0


def test_an_empty_group_refuses_commits_of_an_old_member(script):
    script.stable("a")
    script.leave("id-1")
    assert check_commit(script.group, "id-1", None, 1) == errors.UnknownMemberId.code


def test_a_commit_is_a_sign_of_life(script, node):
    entry = stable_group(script, node)
    node.clock.advance(5000)
    commit(node, member_id="id-1", generation=1)
    assert entry.classic.members["id-1"].deadline == 5010


def test_metadata_that_is_too_long_is_refused_for_its_partition_only(node):
    positions = {T0: Position(1, -1, "x" * 4097), T1: Position(2, -1, "x" * 4096)}
    codes = committed(node, "g", Commit(positions=positions))
    assert codes == {T0: errors.OffsetMetadataTooLarge.code, T1: 0}
    assert list(node.groups.offsets.fetch("g")) == [T1]


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (errors.NotEnoughReplicas, errors.CoordinatorNotAvailable),
        (errors.NotLeaderOrFollower, errors.NotCoordinator),
        (errors.KafkaStorageError, errors.NotCoordinator),
        (errors.MessageTooLarge, errors.InvalidCommitOffsetSize),
        (errors.PolicyViolation, errors.PolicyViolation),
    ],
)
def test_a_commit_that_was_not_written_is_not_kept(node, failure, told):
    commit(node, offset=1)
    node.failure = failure("the disk says no")
    assert commit(node, offset=2) == {T0: told.code}
    assert node.groups.offsets.fetch("g")[T0].offset == 1


def test_offsets_are_deleted_for_good(node):
    commit(node, partitions=(T0, T1))
    assert node.groups.offsets.delete("g", [T0, U0]) == {T0: 0, U0: 0}
    assert list(node.groups.offsets.fetch("g")) == [T1]
    assert list(node.restart().offsets.fetch("g")) == [T1]


def test_offsets_of_a_topic_that_members_read_are_not_deleted(script, node):
    stable_group(script, node)
    commit(node, member_id="id-1", generation=1, partitions=(T0, U0))
    assert node.groups.offsets.delete("g", [T0, U0]) == {T0: errors.GroupSubscribedToTopic.code, U0: 0}
    assert list(node.groups.offsets.fetch("g")) == [T0]


def test_while_the_subscriptions_cannot_be_known_no_offsets_are_deleted(script, node):
    entry = stable_group(script, node)
    member = entry.classic.members["id-1"]
    entry.classic.set_protocols(member, tuple(type(p)(p.name, b"\0") for p in member.protocols))
    assert node.groups.offsets.delete("g", [U0]) == {U0: errors.GroupSubscribedToTopic.code}
    entry.classic.protocol_type = "connect"
    with pytest.raises(errors.NonEmptyGroup):
        node.groups.offsets.delete("g", [U0])


def test_deleting_offsets_of_a_group_that_does_not_exist_is_refused(node):
    with pytest.raises(errors.GroupIdNotFound):
        node.groups.offsets.delete("g", [T0])


def test_offsets_of_a_consumer_without_a_group_expire_after_their_commit(node):
    commit(node)
    node.pass_time(6 * 24 * 3600)
    commit(node, partitions=(T1,))
    node.pass_time(24 * 3600)
    assert list(node.groups.offsets.fetch("g")) == [T1]
    node.pass_time(6 * 24 * 3600)
    assert len(node.groups.groups) == 0, "the group went with its last offset"
    assert node.restart().offsets.fetch("g") == {}


def test_offsets_of_a_group_expire_after_its_last_member_left(node):
    entry = empty_group_of_members(node)
    node.clock.advance(3 * 24 * 3600)
    entry.state_ms = node.clock.time_ms()
    node.clock.advance(7 * 24 * 3600 - 1)
    assert node.groups.offsets.expire() == 0
    node.clock.advance(1)
    assert node.groups.offsets.expire() == 1


def test_a_commit_may_name_its_own_retention(node):
    commit(node, retention_ms=1000)
    node.clock.advance(0.9)
    assert node.groups.offsets.expire() == 0
    node.clock.advance(0.2)
    assert node.groups.offsets.expire() == 1


def test_while_members_read_only_offsets_of_other_topics_expire(script, node):
    stable_group(script, node)
    commit(node, member_id="id-1", generation=1, partitions=(T0, U0))
    node.clock.advance(8 * 24 * 3600)
    assert node.groups.offsets.expire() == 1
    assert list(node.groups.offsets.fetch("g")) == [T0]


def test_while_a_group_rebalances_nothing_expires(script, node):
    stable_group(script, node)
    commit(node, member_id="id-1", generation=1, partitions=(U0,))
    script.join("b")
    node.clock.advance(8 * 24 * 3600)
    assert node.groups.offsets.expire() == 0


def test_what_could_not_be_deleted_is_kept_for_the_next_round(node):
    commit(node)
    node.clock.advance(8 * 24 * 3600)
    node.failure = errors.KafkaStorageError("full")
    assert node.groups.offsets.expire() == 0
    node.failure = None
    assert node.groups.offsets.expire() == 1


def test_offsets_go_with_their_topic(node):
    commit(node, partitions=(T0, U0))
    assert node.groups.offsets.topics_deleted(["t"]) == 1
    assert list(node.restart().offsets.fetch("g")) == [U0]
