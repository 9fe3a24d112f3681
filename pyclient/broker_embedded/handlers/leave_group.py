"""LeaveGroup 0-5: remove members; from 3 on several, by member id or (an administrator) by group.instance.id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.events import Leave, MemberIdentity
from pyclient.broker_embedded.log.incremental_task import in_steps
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.request_context import RequestContext
    from pyclient.protocol.messages.leave_group import MemberIdentity as RequestedMember

_BATCHED: Final = 3


@handles(LeaveGroupRequest, versions=(0, 5), durable=Durable.GROUPS)
def handle(request: LeaveGroupRequest, context: RequestContext) -> IncrementalTask[LeaveGroupResponse]:
    """Remove the members; before version 3 the single member's error is the response's error."""
    batched = context.version >= _BATCHED
    if batched:
        identities = yield from in_steps(_identity, request.members)
    else:
        identities = [MemberIdentity(request.member_id)]
    result = context.services.groups.leave(request.group_id, Leave(members=tuple(identities)))
    if not batched:
        return LeaveGroupResponse(error_code=result.error or result.members[0][1])
    members = []
    for identity, error in result.members:
        answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.instance_id, error_code=error)
        members.append(answer)
        yield None
    return LeaveGroupResponse(error_code=result.error, members=members)


def _identity(member: RequestedMember) -> MemberIdentity:
    return MemberIdentity(member.member_id, member.group_instance_id)
