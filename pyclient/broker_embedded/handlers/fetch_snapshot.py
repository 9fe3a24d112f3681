"""FetchSnapshot v0-1: a replica of the metadata log fetches a snapshot from the active controller (KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.quorum_messages import fetch_snapshot_answer, fetch_snapshot_of
from pyclient.broker_embedded.controller.quorum_requests import ask, name_leader
from pyclient.broker_embedded.dispatch import handles
from pyclient.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse, NodeEndpoint

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(FetchSnapshotRequest, versions=(0, 1))
async def handle(request: FetchSnapshotRequest, context: RequestContext) -> FetchSnapshotResponse:
    """Answer with a piece of the snapshot."""
    answered = await ask(context.services, request, lambda quorum: fetch_snapshot_of(request, quorum))
    if isinstance(answered, int):
        return FetchSnapshotResponse(error_code=answered, topics=[])
    response = fetch_snapshot_answer(answered)
    name_leader(response, NodeEndpoint, answered, context.services.quorum)
    return response
