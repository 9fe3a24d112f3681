"""The admin client's values for groups, and their conversion from and to messages. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyclient.admin.topics import check_names
from pyclient.errors import GroupIdNotFound, KafkaError, UnstableOffsetCommit
from pyclient.protocol.codec import decode_versioned
from pyclient.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pyclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pyclient.protocol.messages import consumer_group_describe, describe_groups
    from pyclient.protocol.messages.list_groups import ListedGroup

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"

_NO_MEMBER: Final = -1
_STATES_SINCE: Final = 4
_TYPES_SINCE: Final = 5
_STABLE_SINCE: Final = 7
_GROUPS_SINCE: Final = 8
_ALL_SINCE: Final = 2


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group that exists. `type` is `classic` or `consumer` (KIP-848); `state` is empty for Kafka before 2.6."""

    group_id: str
    state: str
    type: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, and its current partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members. `assignor` assigns the partitions; `coordinator` is the id of the group's broker."""

    group_id: str
    state: str
    type: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]


def list_request(version: int, states: Iterable[str]) -> ListGroupsRequest:
    """Return the request for one broker's groups; brokers since ListGroups 4 leave out other states."""
    return ListGroupsRequest(states_filter=list(states) if version >= _STATES_SINCE else [])


def listing(group: ListedGroup) -> GroupListing:
    """Return a listed group for the user."""
    return GroupListing(group.group_id, group.group_state, group.group_type.lower() or CLASSIC, group.protocol_type)


def classic_description(group: describe_groups.DescribedGroup, coordinator: int) -> GroupDescription:
    """Return a described classic group for the user; raise `GroupIdNotFound` if it does not exist."""
    if group.group_state == DEAD and not group.members:
        raise GroupIdNotFound(f"there is no group {group.group_id!r}")
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _decode_assignment(member.member_assignment) if group.protocol_type == CONSUMER else (),
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id, group.group_state, CLASSIC, group.protocol_type, group.protocol_data, coordinator, members
    )


def consumer_description(group: consumer_group_describe.DescribedGroup, coordinator: int) -> GroupDescription:
    """Return a described group of the consumer protocol for the user."""
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in sorted(topic.partitions)
            ),
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id, group.group_state, CONSUMER, CONSUMER, group.assignor_name, coordinator, members
    )


def offsets_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, version: int, *, require_stable: bool
) -> OffsetFetchRequest:
    """Return the request for a group's committed offsets, of all partitions if `partitions` is None (version 2)."""
    wanted = None if partitions is None else by_topic(partitions)
    if version >= _GROUPS_SINCE:
        topics = None
        if wanted is not None:
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in wanted.items()]
        groups = [OffsetFetchRequestGroup(group_id=group_id, topics=topics)]
        return OffsetFetchRequest(groups=groups, require_stable=require_stable)
    older = None
    if wanted is not None:
        older = [OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in wanted.items()]
    stable = require_stable and version >= _STABLE_SINCE
    return OffsetFetchRequest(group_id=group_id, topics=older, require_stable=stable)


def offsets_error(response: OffsetFetchResponse, version: int, group_id: str) -> int:
    """Return the error code of the whole group, or that of a partition whose offset is not decided yet.

    Raise `MalformedMessage` if the response is about another group.
    """
    if version >= _GROUPS_SINCE:
        check_names("reading offsets", [group.group_id for group in response.groups], [group_id], what="group")
    code = response.error_code if version < _GROUPS_SINCE else response.groups[0].error_code
    _found, failed = committed_offsets(response, version)
    return code or (UnstableOffsetCommit.code if UnstableOffsetCommit.code in failed.values() else 0)


def committed_offsets(
    response: OffsetFetchResponse, version: int
) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, int]]:
    """Return the committed offsets in a response, without partitions that have none, and the errors of partitions."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    failed: dict[TopicPartition, int] = {}
    for topic in response.groups[0].topics if version >= _GROUPS_SINCE else response.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                failed[topic_partition] = partition.error_code
            elif partition.committed_offset >= 0:
                found[topic_partition] = OffsetAndMetadata(
                    partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                )
    return found, failed


def commit_request(group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> OffsetCommitRequest:
    """Return a commit of a group's offsets without a member; a broker rejects it while the group has members."""
    values = {
        topic_partition: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for topic_partition, offset in offsets.items()
    }
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=_NO_MEMBER,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=values[TopicPartition(name, index)].offset,
                        committed_leader_epoch=values[TopicPartition(name, index)].leader_epoch,
                        committed_metadata=values[TopicPartition(name, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(values).items()
        ],
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the sorted partition numbers by topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(set(partitions)):
        found.setdefault(topic, []).append(partition)
    return found


def _decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return a member's partitions; none for bytes that are not a consumer protocol assignment."""
    if not data:
        return ()
    try:
        assignment = decode_versioned(ConsumerProtocolAssignment, data)
    except KafkaError:
        return ()
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in sorted(topic.partitions)
    )
