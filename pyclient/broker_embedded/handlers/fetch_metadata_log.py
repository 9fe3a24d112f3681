"""Fetch v13-18: replicas of the metadata log fetch it from the active controller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.quorum_messages import fetch_answer, fetch_of
from pyclient.broker_embedded.controller.quorum_requests import ask, name_leader
from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.fetch import FetchRequest, FetchResponse, NodeEndpoint

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(FetchRequest, versions=(13, 18))
async def handle(request: FetchRequest, context: RequestContext) -> FetchResponse:
    """Answer what this node's replica of the metadata log decides."""
    answered = await ask(context.services, request, lambda quorum: fetch_of(request, quorum))
    if isinstance(answered, int):
        return FetchResponse(error_code=answered, responses=[])
    response = fetch_answer(answered)
    name_leader(response, NodeEndpoint, answered, context.services.quorum)
    return response
