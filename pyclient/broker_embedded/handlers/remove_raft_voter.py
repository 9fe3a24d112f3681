"""RemoveRaftVoter v0: make a voter of the metadata quorum an observer (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.voter_requests import remove_voter
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of, message_of
from pyclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(RemoveRaftVoterRequest, versions=(0, 0), forwarded=True)
async def handle(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
    """Answer once the change is committed, or refused."""
    try:
        answer = await remove_voter(context.services, request)
    except Exception as error:  # every failure is answered with its error code
        code = code_of(error, "RemoveRaftVoter")
        return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=code, error_message=message_of(error))
    reason = answer.reason or None
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=answer.error, error_message=reason)
