"""ConsumerGroupDescribe 0-1 (KIP-848): the state of consumer groups, with current and target assignments of members.

Version 1 has the members' type, classic or consumer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.acls import AclOperation, ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.groups.consumer.assignors import preferred
from pyclient.broker_embedded.groups.consumer_protocol import check_consumer_protocol
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.errors import BrokerError, GroupIdNotFound, InvalidGroupId, TopicAuthorizationFailed, UnsupportedVersion
from pyclient.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.model import Member as GroupMember
    from pyclient.broker_embedded.groups.consumer.model import Target
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11  # read, delete, describe, its options
_NOT_REQUESTED: Final = -(2**31)
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


@handles(ConsumerGroupDescribeRequest, versions=(0, 1))
def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> IncrementalTask[ConsumerGroupDescribeResponse]:
    """Describe each named group; GROUP_ID_NOT_FOUND for one that is not a consumer group."""
    operations = _OPERATIONS if request.include_authorized_operations else _NOT_REQUESTED
    described: dict[str, DescribedGroup] = {}  # each is described once
    for group_id in request.group_ids:
        if group_id in described:
            continue
        try:
            check_consumer_protocol(context.services)
            described[group_id] = yield from _describe(_find(group_id, context), operations, context)
        except BrokerError as error:
            described[group_id] = _refused(group_id, error)
        yield None
    groups = [described[group_id] for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _find(group_id: str, context: RequestContext) -> ConsumerGroup:
    if not group_id:
        raise InvalidGroupId("the group id must not be empty")
    entry = context.services.groups.groups.find(group_id)
    if entry is None:
        raise GroupIdNotFound(f"Group {group_id} not found.")
    if entry.consumer is None:
        raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
    return entry.consumer


def _refused(group_id: str, error: BrokerError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=None if isinstance(error, UnsupportedVersion) else message_of(error),
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _describe(group: ConsumerGroup, operations: int, context: RequestContext) -> IncrementalTask[DescribedGroup]:
    consumers = context.services.groups.consumers
    members = list(group.members.values())
    topics = {name for member in members for name in member.metadata.topics}
    if not all(context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in topics):
        text = "The group has described topic(s) that the client is not authorized to describe."
        return _refused(group.group_id, TopicAuthorizationFailed(text))
    described = yield from in_steps(lambda member: _member(group, member, consumers.topics), members)
    return DescribedGroup(
        error_code=0,
        group_id=group.group_id,
        group_state=group.phase.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred((member.metadata for member in members), consumers.limits(group.group_id).assignors),
        members=described,
        authorized_operations=(
            operations
            if operations == _NOT_REQUESTED
            else context.operations(operations, ResourceType.GROUP, group.group_id)
        ),
    )


def _member(group: ConsumerGroup, member: GroupMember, topics: Topics) -> Member:
    metadata = member.metadata
    return Member(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.topics),
        subscribed_topic_regex=metadata.regex,
        assignment=_assignment(member.current.held(), topics),
        target_assignment=_assignment(group.target_of(member), topics),
        member_type=_CONSUMER_MEMBER if metadata.classic is None else _CLASSIC_MEMBER,
    )


def _assignment(target: Target, topics: Topics) -> Assignment:
    """Return the assignment without partitions of deleted topics."""
    named = [(topics.name_of(topic_id), topic_id, partitions) for topic_id, partitions in target.items()]
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions))
            for name, topic_id, partitions in named
            if name is not None
        ]
    )
