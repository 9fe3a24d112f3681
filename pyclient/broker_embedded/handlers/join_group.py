"""JoinGroup 0-9: join a classic group or take part in its rebalance; the answer waits until the members have joined.

From version 4 on a new dynamic member first receives its id and joins with it (KIP-394). Version 5 has static members
(KIP-345), 9 lets a restarted leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.events import Join, Protocol
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext

_NEEDS_KNOWN_ID: Final = 4
_NULLABLE_PROTOCOL: Final = 7
_SKIPS_ASSIGNMENT: Final = 9


@handles(JoinGroupRequest, versions=(0, 9), durable=Durable.GROUPS)
async def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Wait for the group's next generation, or an error."""
    groups = context.services.groups
    timeout = request.rebalance_timeout_ms
    event = Join(
        member_id=request.member_id,
        fresh_id=groups.fresh_member_id(request.group_instance_id or context.client_id),
        protocol_type=request.protocol_type,
        protocols=tuple(Protocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=timeout if timeout >= 0 else request.session_timeout_ms,  # version 0 has none
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=context.client_host,
        needs_known_id=context.version >= _NEEDS_KNOWN_ID,
        can_skip_assignment=context.version >= _SKIPS_ASSIGNMENT,
    )
    result = await groups.join(request.group_id, event)
    no_protocol = None if context.version >= _NULLABLE_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=no_protocol if result.protocol_name is None else result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )
