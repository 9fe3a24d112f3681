"""Vote v0-2: a candidate of the metadata quorum asks for a vote, or whether it would get one (v2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.quorum_messages import vote_answer, vote_of
from pyclient.broker_embedded.controller.quorum_requests import ask, name_leader
from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.vote import NodeEndpoint, VoteRequest, VoteResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(VoteRequest, versions=(0, 2))
async def handle(request: VoteRequest, context: RequestContext) -> VoteResponse:
    """Answer what this node's replica of the metadata log decides."""
    answered = await ask(context.services, request, lambda quorum: vote_of(request, quorum))
    if isinstance(answered, int):
        return VoteResponse(error_code=answered, topics=[])
    response = vote_answer(answered)
    name_leader(response, NodeEndpoint, answered, context.services.quorum)
    return response
