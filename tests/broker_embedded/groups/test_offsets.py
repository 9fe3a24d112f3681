"""Committed offsets: accepted and refused commits, deletion, and expiration."""

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


def commit(node, *, group="g", offset=5, partitions=(T0,), **member):
    positions = {partition: Position(offset, 1, "note") for partition in partitions}
    return committed(node, group, Commit(positions=positions, **member))


def empty_group_of_members(node, group="g", topics=("t",)):
    """Create a group that had a member of the consumer protocol, with a committed offset."""
    entry = node.groups.groups.find_or_create(group)
    entry.classic.protocol_type = "consumer"
    entry.state_ms = node.clock.time_ms()
    commit(node, group=group)
    return entry


def stable_group(script, node, topics=("t",)):
    """Register the script's group, with its member `id-1` subscribed to `topics`, as a group of the node."""
    subscription = codec.encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 0)
    script.stable("a")
    entry = node.groups.groups.find_or_create("g")
    entry.group = script.group
    entry.classic.group_id = "g"
    member = script.group.members["id-1"]
    script.group.set_protocols(member, tuple(type(p)(p.name, subscription) for p in member.protocols))
    return entry


def test_consumer_without_group_commits_and_fetches(node):
    assert commit(node) == {T0: 0}
    now = node.clock.time_ms()
    assert node.groups.offsets.fetch("g") == {T0: CommittedOffset(5, 1, "note", now)}
    assert list(node.groups.offsets.fetch("g")) == [T0]
    assert node.groups.offsets.fetch("other") == {}


def test_empty_group_accepts_generation_minus_one_of_any_member_id(node):
    commit(node)
    assert commit(node, member_id="any") == {T0: 0}


@pytest.mark.parametrize(("version", "error"), [(8, errors.IllegalGeneration), (9, errors.GroupIdNotFound)])
def test_commit_to_missing_group_is_refused(node, version, error):
    assert commit(node, member_id="m", generation=3, version=version) == {T0: error.code}
    assert len(node.groups.groups) == 0


def test_commit_requires_member_id_and_generation(script):
    script.stable("a")
    check = script.group
    assert check_commit(check, "id-1", None, 1) == 0
    assert check_commit(check, "id-1", None, 2) == errors.IllegalGeneration.code
    assert check_commit(check, "id-9", None, 1) == errors.UnknownMemberId.code
    assert check_commit(check, "id-1", "static", 1) == errors.UnknownMemberId.code
    assert check_commit(check, "", None, -1) == errors.UnknownMemberId.code
    assert check_commit(check, "", None, -1, transactional=True) == 0


def test_commit_of_fenced_static_member_is_refused(script):
    script.join("a", instance="one")
    script.sync("s", "id-1", 1, "one")
    script.join("a2", instance="one")
    assert check_commit(script.group, "id-1", "one", 1) == errors.FencedInstanceId.code
    assert check_commit(script.group, "id-2", "one", 1) == 0


def test_commit_of_old_generation_is_accepted_until_rebalance_completes(script):
    script.stable("a")
    script.join("b")
    assert script.state == "PreparingRebalance"
    assert check_commit(script.group, "id-1", None, 1) == 0
    script.join("a2", "id-1")
    assert script.state == "CompletingRebalance"
    assert check_commit(script.group, "id-1", None, 1) == errors.IllegalGeneration.code
    assert check_commit(script.group, "id-1", None, 2) == errors.RebalanceInProgress.code
    assert check_commit(script.group, "id-1", None, 2, transactional=True) == 0


def test_empty_group_refuses_commit_of_former_member(script):
    script.stable("a")
    script.leave("id-1")
    assert check_commit(script.group, "id-1", None, 1) == errors.UnknownMemberId.code


def test_commit_extends_session(script, node):
    entry = stable_group(script, node)
    node.clock.advance(5000)
    commit(node, member_id="id-1", generation=1)
    assert entry.classic.members["id-1"].deadline == 5010


def test_commit_with_long_metadata_fails_for_its_partition_only(node):
    positions = {T0: Position(1, -1, "x" * 4097), T1: Position(2, -1, "x" * 4096)}
    codes = committed(node, "g", Commit(positions=positions))
    assert codes == {T0: errors.OffsetMetadataTooLarge.code, T1: 0}
    assert list(node.groups.offsets.fetch("g")) == [T1]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (errors.NotEnoughReplicas, errors.CoordinatorNotAvailable),
        (errors.NotLeaderOrFollower, errors.NotCoordinator),
        (errors.KafkaStorageError, errors.NotCoordinator),
        (errors.MessageTooLarge, errors.InvalidCommitOffsetSize),
        (errors.PolicyViolation, errors.PolicyViolation),
    ],
)
def test_commit_with_failed_write_is_discarded(node, failure, error):
    commit(node, offset=1)
    node.failure = failure("no space")
    assert commit(node, offset=2) == {T0: error.code}
    assert node.groups.offsets.fetch("g")[T0].offset == 1


def test_deleted_offsets_stay_deleted_after_restart(node):
    commit(node, partitions=(T0, T1))
    assert node.groups.offsets.delete("g", [T0, U0]) == {T0: 0, U0: 0}
    assert list(node.groups.offsets.fetch("g")) == [T1]
    assert list(node.restart().offsets.fetch("g")) == [T1]


def test_offsets_of_subscribed_topic_are_not_deleted(script, node):
    stable_group(script, node)
    commit(node, member_id="id-1", generation=1, partitions=(T0, U0))
    assert node.groups.offsets.delete("g", [T0, U0]) == {T0: errors.GroupSubscribedToTopic.code, U0: 0}
    assert list(node.groups.offsets.fetch("g")) == [T0]


def test_no_offsets_are_deleted_while_subscriptions_are_unknown(script, node):
    entry = stable_group(script, node)
    member = entry.classic.members["id-1"]
    entry.classic.set_protocols(member, tuple(type(p)(p.name, b"\0") for p in member.protocols))
    assert node.groups.offsets.delete("g", [U0]) == {U0: errors.GroupSubscribedToTopic.code}
    entry.classic.protocol_type = "connect"
    with pytest.raises(errors.NonEmptyGroup):
        node.groups.offsets.delete("g", [U0])


def test_delete_of_offsets_of_missing_group_is_refused(node):
    with pytest.raises(errors.GroupIdNotFound):
        node.groups.offsets.delete("g", [T0])


def test_offsets_without_members_expire_after_commit(node):
    commit(node)
    node.pass_time(6 * 24 * 3600)
    commit(node, partitions=(T1,))
    node.pass_time(24 * 3600)
    assert list(node.groups.offsets.fetch("g")) == [T1]
    node.pass_time(6 * 24 * 3600)
    assert len(node.groups.groups) == 0, "the group is deleted with its last offset"
    assert node.restart().offsets.fetch("g") == {}


def test_offsets_expire_after_group_became_empty(node):
    entry = empty_group_of_members(node)
    node.clock.advance(3 * 24 * 3600)
    entry.state_ms = node.clock.time_ms()
    node.clock.advance(7 * 24 * 3600 - 1)
    assert node.groups.offsets.expire() == 0
    node.clock.advance(1)
    assert node.groups.offsets.expire() == 1


def test_offset_expires_after_retention_of_its_commit(node):
    commit(node, retention_ms=1000)
    node.clock.advance(0.9)
    assert node.groups.offsets.expire() == 0
    node.clock.advance(0.2)
    assert node.groups.offsets.expire() == 1


def test_offsets_of_subscribed_topics_do_not_expire(script, node):
    stable_group(script, node)
    commit(node, member_id="id-1", generation=1, partitions=(T0, U0))
    node.clock.advance(8 * 24 * 3600)
    assert node.groups.offsets.expire() == 1
    assert list(node.groups.offsets.fetch("g")) == [T0]


def test_no_offset_expires_during_rebalance(script, node):
    stable_group(script, node)
    commit(node, member_id="id-1", generation=1, partitions=(U0,))
    script.join("b")
    node.clock.advance(8 * 24 * 3600)
    assert node.groups.offsets.expire() == 0


def test_expiration_retries_after_failed_write(node):
    commit(node)
    node.clock.advance(8 * 24 * 3600)
    node.failure = errors.KafkaStorageError("full")
    assert node.groups.offsets.expire() == 0
    node.failure = None
    assert node.groups.offsets.expire() == 1


def test_offsets_are_deleted_with_their_topic(node):
    commit(node, partitions=(T0, U0))
    assert node.groups.offsets.topics_deleted(["t"]) == 1
    assert list(node.restart().offsets.fetch("g")) == [U0]
