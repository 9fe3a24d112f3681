"""UpdateRaftVoter v0: a voter of the metadata quorum has other addresses (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.voter_requests import update_voter
from pyclient.broker_embedded.dispatch import handles
from pyclient.broker_embedded.failures import code_of
from pyclient.protocol.messages.update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.request_context import RequestContext


@handles(UpdateRaftVoterRequest, versions=(0, 0))
async def handle(request: UpdateRaftVoterRequest, context: RequestContext) -> UpdateRaftVoterResponse:
    """Answer once the change is committed, or refused; with the leader, if it is known."""
    try:
        answer = await update_voter(context.services, request)
    except Exception as error:  # every failure is answered with its error code
        return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=code_of(error, "UpdateRaftVoter"))
    quorum = context.services.quorum
    at = None if quorum is None or answer.leader_id is None else quorum.addresses.of(answer.leader_id)
    if at is None or answer.leader_id is None:
        return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=answer.error)
    leader = CurrentLeader(leader_id=answer.leader_id, leader_epoch=answer.epoch, host=at[0], port=at[1])
    return UpdateRaftVoterResponse(throttle_time_ms=0, error_code=answer.error, current_leader=leader)
