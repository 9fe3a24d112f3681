"""SyncGroup 0-5: the leader hands in the assignment; every member's answer is its own part, once that is stored.

3 has static members; 5 checks the protocol's type and name (KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.events import Sync
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.dispatch import RequestContext


@handles(SyncGroupRequest, versions=(0, 5))
async def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Wait for the assignment (or for the reason why there is none)."""
    event = Sync(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={part.member_id: part.assignment for part in request.assignments},
    )
    result = await context.node.groups.sync(request.group_id, event)
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
