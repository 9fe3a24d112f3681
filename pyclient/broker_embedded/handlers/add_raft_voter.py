"""AddRaftVoter v0-1: make a replica of the metadata log a voter (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.voter_requests import add_voter
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(AddRaftVoterRequest, versions=(0, 1), forwarded=True)
async def handle(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    """Answer once the change is committed, or refused."""
    try:
        answer = await add_voter(context.services, request)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, "AddRaftVoter")
        return AddRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=message_of(error))
    reason = answer.reason or None
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=answer.error, error_message=reason)
