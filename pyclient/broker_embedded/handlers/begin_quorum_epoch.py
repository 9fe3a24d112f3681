"""BeginQuorumEpoch v0-1: a new leader of the metadata quorum announces its epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.quorum_messages import begin_answer, begin_of
from pyclient.broker_embedded.controller.quorum_requests import ask, name_leader
from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    NodeEndpoint,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(BeginQuorumEpochRequest, versions=(0, 1))
async def handle(request: BeginQuorumEpochRequest, context: RequestContext) -> BeginQuorumEpochResponse:
    """Answer what this node's replica of the metadata log decides."""
    answered = await ask(context.services, request, lambda quorum: begin_of(request, quorum))
    if isinstance(answered, int):
        return BeginQuorumEpochResponse(error_code=answered, topics=[])
    response = begin_answer(answered)
    name_leader(response, NodeEndpoint, answered, context.services.quorum)
    return response
