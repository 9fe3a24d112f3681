"""DescribeGroups 0-6: the state and the members of classic groups.

Version 3 has the authorised operations (all, without an authoriser), 4 static members. 6 answers GROUP_ID_NOT_FOUND for
a missing group or a consumer group (KIP-848); earlier versions answer such a group as Dead without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.acls import ResourceType
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import message_of
from pyclient.broker_embedded.groups.state import DEAD, STABLE
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.errors import BrokerError, GroupIdNotFound
from pyclient.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.state import ClassicGroup, Member
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext

_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11  # read, delete, describe, its options
_NOT_REQUESTED: Final = -(2**31)
_HAS_NOT_FOUND: Final = 6


@handles(DescribeGroupsRequest, versions=(0, 6))
def handle(request: DescribeGroupsRequest, context: RequestContext) -> IncrementalTask[DescribeGroupsResponse]:
    """Describe each named group."""
    described: dict[str, DescribedGroup] = {}  # each is described once
    for group_id in request.groups:
        if group_id not in described:
            operations = _NOT_REQUESTED
            if request.include_authorized_operations:
                operations = context.operations(_OPERATIONS, ResourceType.GROUP, group_id)
            described[group_id] = yield from _describe(group_id, operations, context)
    return DescribeGroupsResponse(groups=[described[group_id] for group_id in request.groups])


def _describe(group_id: str, operations: int, context: RequestContext) -> IncrementalTask[DescribedGroup]:
    yield None
    try:
        entry = context.services.groups.groups.find(group_id)
    except BrokerError as error:
        return _described(group_id, "", _NOT_REQUESTED, error_code=error.code)
    group = None if entry is None else entry.classic
    if group is None:
        if context.version < _HAS_NOT_FOUND:
            return _described(group_id, DEAD.value, operations)
        reason = "not found" if entry is None else "is not a classic group"
        text = message_of(GroupIdNotFound(f"Group {group_id} {reason}."))
        return _described(group_id, DEAD.value, _NOT_REQUESTED, error_code=GroupIdNotFound.code, error_message=text)
    stable = group.state is STABLE
    members = yield from in_steps(lambda member: _member(group, member, stable=stable), list(group.members.values()))
    return _described(
        group_id,
        group.state.value,
        operations,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=members,
    )


def _described(
    group_id: str,
    state: str,
    operations: int,
    *,
    error_code: int = 0,
    error_message: str | None = None,
    protocol_type: str = "",
    protocol_data: str = "",
    members: list[DescribedGroupMember] | None = None,
) -> DescribedGroup:
    return DescribedGroup(
        error_code=error_code,
        error_message=error_message,
        group_id=group_id,
        group_state=state,
        protocol_type=protocol_type,
        protocol_data=protocol_data,
        members=members or [],
        authorized_operations=operations,
    )


def _member(group: ClassicGroup, member: Member, *, stable: bool) -> DescribedGroupMember:
    """Describe a member; its metadata is included in a stable group only, as in Kafka."""
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(group.protocol_name) if stable else b"",
        member_assignment=member.assignment,
    )
