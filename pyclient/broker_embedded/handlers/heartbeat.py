"""Heartbeat 0-4: extend a member's session; REBALANCE_IN_PROGRESS asks it to rejoin. 3 has static members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.groups.events import Heartbeat
from pyclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(HeartbeatRequest, versions=(0, 4))
def handle(request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Extend the member's session."""
    event = Heartbeat(
        member_id=request.member_id, generation=request.generation_id, instance_id=request.group_instance_id
    )
    return HeartbeatResponse(error_code=context.services.groups.heartbeat(request.group_id, event))
