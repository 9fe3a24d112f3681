"""SyncGroup 0-5: the leader sends the assignment; each member receives its partitions once the assignment is stored.

Version 3 has static members; 5 requires the protocol and its type (KIP-559).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.events import Sync
from pyclient.broker_embedded.replication.durability import Durable
from pyclient.errors import InconsistentGroupProtocol
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext

_NAMES_PROTOCOL: Final = 5


@handles(SyncGroupRequest, versions=(0, 5), durable=Durable.GROUPS)
async def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Wait for the assignment, or an error."""
    if context.version >= _NAMES_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=InconsistentGroupProtocol.code, assignment=b"")
    event = Sync(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={part.member_id: part.assignment for part in request.assignments},
    )
    result = await context.services.groups.sync(request.group_id, event)
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
