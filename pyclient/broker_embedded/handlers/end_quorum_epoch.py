"""EndQuorumEpoch v0-1: a leader of the metadata quorum resigns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.quorum_messages import end_answer, end_of
from pyclient.broker_embedded.controller.quorum_requests import ask, name_leader
from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse, NodeEndpoint

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(EndQuorumEpochRequest, versions=(0, 1))
async def handle(request: EndQuorumEpochRequest, context: RequestContext) -> EndQuorumEpochResponse:
    """Answer what this node's replica of the metadata log decides."""
    answered = await ask(context.services, request, lambda quorum: end_of(request, quorum))
    if isinstance(answered, int):
        return EndQuorumEpochResponse(error_code=answered, topics=[])
    response = end_answer(answered)
    name_leader(response, NodeEndpoint, answered, context.services.quorum)
    return response
