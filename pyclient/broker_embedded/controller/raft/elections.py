"""Elections of the metadata quorum: pre-votes, votes, and the beginning and the end of a leader's epoch (KIP-595)."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller.raft.messages import (
    Answer,
    BeginQuorumEpoch,
    EndQuorumEpoch,
    QuorumEpochResponse,
    Vote,
    VoteResponse,
)
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
from pyclient.broker_embedded.controller.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from pyclient.protocol.fields import ZERO_UUID

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.raft.messages import Token
    from pyclient.broker_embedded.controller.raft.quorum_state import QuorumState
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey


class Elections:
    """Gives and collects votes, and announces the leader to others."""

    def __init__(self, state: QuorumState) -> None:
        self.state = state

    # Requests from others

    def on_vote(self, token: Token, request: Vote, now: float) -> None:
        """Answer a request for a vote or a pre-vote."""
        state = self.state
        # A candidate's epoch is new: no log has a record of it yet. A pre-vote is for the epoch that the log may have.
        newest = request.epoch if request.pre_vote else request.epoch - 1
        if min(request.epoch, request.last.offset, request.last.epoch) < 0 or request.last.epoch > newest:
            error = errors.InvalidRequest.code
        elif not self._is_me(request.voter):
            error = errors.InvalidVoterKey.code
        elif request.epoch < state.epoch:
            error = errors.FencedLeaderEpoch.code
        else:
            error = 0
            if request.epoch > state.epoch:
                state.become_unattached(request.epoch, now)
        granted = not error and self.grants(request)
        if granted and not request.pre_vote and state.role.voted is None:
            state.become_unattached(state.epoch, now, voted=request.candidate)
        state.effects.append(Answer(token, VoteResponse(error, state.epoch, state.leader_id, granted)))

    def grants(self, request: Vote) -> bool:
        """Return True if a valid request of this epoch gets the vote, or would get it."""
        role = self.state.role
        # A repeated request is compared again: the candidate may have lost the end of its log in a crash meanwhile.
        if request.last.order < self.state.log.end.order:
            return False
        if request.pre_vote:
            return not isinstance(role, Leader) and not (isinstance(role, Follower) and role.has_fetched)
        if not isinstance(role, Unattached | Prospective) or role.leader_id is not None:
            return False
        return role.voted in (None, request.candidate)

    def on_begin(self, token: Token, request: BeginQuorumEpoch, now: float) -> None:
        """Follow the new leader that announces its epoch."""
        state = self.state
        if not self._is_me(request.voter):
            error = errors.InvalidVoterKey.code
        elif request.epoch < state.epoch:
            error = errors.FencedLeaderEpoch.code
        elif request.epoch == state.epoch and state.leader_id not in (None, request.leader_id):
            error = errors.InvalidRequest.code
        else:
            error = 0
            if request.epoch == state.epoch and isinstance(state.role, Prospective):
                state.become_follower(request.epoch, request.leader_id, now)
            state.learn(request.epoch, request.leader_id, now)
        state.effects.append(Answer(token, QuorumEpochResponse(error, state.epoch, state.leader_id)))

    def on_end(self, token: Token, request: EndQuorumEpoch, now: float) -> None:
        """Prepare an election because the leader resigned: its preferred successor at once, the others a bit later."""
        state = self.state
        if request.epoch < state.epoch:
            error = errors.FencedLeaderEpoch.code
        elif request.epoch == state.epoch and state.leader_id not in (None, request.leader_id):
            error = errors.InvalidRequest.code
        else:
            error = 0
            state.learn(request.epoch, request.leader_id, now)
            role = state.role
            if isinstance(role, Follower) and role.leader_id == request.leader_id:
                role.fetch_until = now + self._successor_wait(request)
                role.has_fetched = False  # otherwise it would reject the successor's pre-vote
        state.effects.append(Answer(token, QuorumEpochResponse(error, state.epoch, state.leader_id)))

    def _successor_wait(self, request: EndQuorumEpoch) -> float:
        state = self.state
        longest = state.timeouts.election_backoff_max
        for position, key in enumerate(request.preferred):
            if self._is_me(key):
                wait: float = state.timeouts.retry_backoff * 2 ** (position - 1) if position else 0.0
                return min(wait, longest)
        return longest * state.rng.random()

    def _is_me(self, key: ReplicaKey) -> bool:
        me = self.state.me
        return key.id == me.id and key.directory_id in (ZERO_UUID, me.directory_id)

    # Answers

    def on_vote_response(self, node: int, request: Vote, response: VoteResponse, now: float) -> None:
        """Count a vote, unless it is one of an earlier election."""
        state = self.state
        state.learn(response.epoch, response.leader_id, now)
        role = state.role
        wanted = Prospective if request.pre_vote else Candidate
        if isinstance(role, wanted) and request.epoch == role.epoch and not response.error:
            role.ballot.record(node, granted=response.granted)

    def on_epoch_response(
        self, node: int, request: BeginQuorumEpoch | EndQuorumEpoch, response: QuorumEpochResponse, now: float
    ) -> None:
        """Note that a voter knows of the beginning or the end of this replica's epoch."""
        state = self.state
        state.learn(response.epoch, response.leader_id, now)
        role = state.role
        if response.error or request.epoch != role.epoch:
            return
        if isinstance(role, Leader) and isinstance(request, BeginQuorumEpoch):
            role.acknowledged.add(node)
        elif isinstance(role, Resigned) and isinstance(request, EndQuorumEpoch):
            role.unacknowledged.discard(node)

    # Time

    def poll(self, now: float) -> float:
        """Do what the role requires by `now`; return when to look again."""
        state = self.state
        role = state.role
        match role:
            case Unattached():
                if state.is_voter and now >= role.election_at:
                    state.become_prospective(now)
                    return now
                return role.election_at if state.is_voter else inf
            case Prospective():
                return self._poll_prospective(role, now)
            case Candidate():
                return self._poll_candidate(role, now)
            case Resigned():
                return self._poll_resigned(role, now)
            case Follower():
                if state.is_voter and now >= role.fetch_until:
                    state.become_prospective(now)
                    return now
                return role.fetch_until if state.is_voter else inf
            case Leader():
                return inf

    def _poll_prospective(self, role: Prospective, now: float) -> float:
        state = self.state
        voters = state.voters.newest
        if not state.is_voter:
            self._give_up(role, now)
        elif role.ballot.is_won(voters):
            state.become_candidate(now)
        elif role.ballot.is_lost(voters) or now >= role.election_at:
            self._give_up(role, now)
        else:
            return min(role.election_at, self._ask_for_votes(role, now))
        return now

    def _give_up(self, role: Prospective, now: float) -> None:
        state = self.state
        if role.leader_id is not None and role.leader_id != state.me.id:
            state.become_follower(role.epoch, role.leader_id, now)
        else:
            state.become_unattached(role.epoch, now)

    def _poll_candidate(self, role: Candidate, now: float) -> float:
        state = self.state
        voters = state.voters.newest
        if role.ballot.is_won(voters):
            state.become_leader(now)
        elif now >= role.election_at:
            state.become_prospective(now)
        elif role.backing_off:
            return role.election_at
        elif role.ballot.is_lost(voters):
            # Two candidates that split the votes would go on splitting them if both tried again at once.
            role.backing_off = True
            role.election_at = min(role.election_at, now + state.rng.random() * state.timeouts.election_backoff_max)
            return role.election_at
        else:
            return min(role.election_at, self._ask_for_votes(role, now))
        return now

    def _ask_for_votes(self, role: Prospective | Candidate, now: float) -> float:
        state = self.state
        # Only what is on the disk counts: a vote won with more would outlast a crash that lost the rest.
        last = OffsetAndEpoch(state.log.flushed_end, state.log.epoch_before(state.log.flushed_end))
        next_at = inf
        for node in role.ballot.unanswered(state.voters.newest):
            voter = state.voters.newest.voter(node)
            if voter is None:
                continue
            request = Vote(voter.key, state.me, role.epoch, last, pre_vote=isinstance(role, Prospective))
            if not state.send(node, request, now):
                next_at = min(next_at, state.may_send_at(node, request))
        return next_at

    def _poll_resigned(self, role: Resigned, now: float) -> float:
        state = self.state
        if now >= role.election_at:
            state.become_unattached(role.epoch + 1, now)
            return now
        next_at = role.election_at
        for node in sorted(role.unacknowledged.intersection(state.voters.newest.ids)):
            request = EndQuorumEpoch(state.me.id, role.epoch, role.preferred)
            if not state.send(node, request, now):
                next_at = min(next_at, state.may_send_at(node, request))
        return next_at
