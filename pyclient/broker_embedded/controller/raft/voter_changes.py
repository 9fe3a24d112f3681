"""Changes of the voter set, one voter at a time (KIP-853): added, removed, or with other addresses.

A set counts from the moment at which it is in a replica's log. Two sets that differ in one voter have a majority in
common, so that no two leaders can commit at once; therefore a change waits for the commit of the one before, and for
that of a record of the leader's own epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from pyclient import errors
from pyclient.broker_embedded.controller.raft.messages import (
    AddVoter,
    Answer,
    AppendVoters,
    RemoveVoter,
    UpdateVoter,
    VoterChangeResponse,
)
from pyclient.broker_embedded.controller.raft.roles import Follower, Leader

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.raft.leading import Leading
    from pyclient.broker_embedded.controller.raft.messages import Token, VoterChange
    from pyclient.broker_embedded.controller.raft.quorum_state import QuorumState
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, VoterSet

_TIMED_OUT = errors.RequestTimedOut.code


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A voter set that this leader appended for a request: its answer waits until `end_offset` is committed."""

    token: Token
    epoch: int
    end_offset: int
    until: float


class VoterChanges:
    """Appends changed voter sets as the leader, and as a follower reports changed addresses to the leader."""

    def __init__(self, state: QuorumState, leading: Leading) -> None:
        self.state = state
        self._leading = leading
        self._pending: PendingChange | None = None
        self._report_at = -inf

    def begin_epoch(self, now: float) -> None:
        """Write the set into the log if only the snapshot of a new cluster has it, and this leader's own addresses."""
        state = self.state
        history = state.voters
        if not history.kraft_version:
            return
        voters = history.newest
        described = self._with_description(voters)
        if history.newest_offset < 0 or described != voters:
            self._append(described, now)

    # Requests

    def on_request(self, token: Token, request: VoterChange, now: float) -> None:
        """Answer a request for a change, or append the changed set and answer once it is committed."""
        try:
            voters = self._decide(request, now)
        except errors.BrokerError as error:
            self._answer(token, error.code, str(error.args[0]))
            return
        if voters == self.state.voters.newest:
            self._answer(token, 0)
            return
        end_offset = self._append(voters, now)
        if isinstance(request, AddVoter) and not request.ack_when_committed:
            self._answer(token, 0)
            token = None
        self._pending = PendingChange(token, self.state.epoch, end_offset, now + request.max_wait)

    def refusal(self, request: VoterChange, now: float) -> VoterChangeResponse | None:
        """Return the answer to a request that would be refused now, None if it would be taken."""
        try:
            self._decide(request, now)
        except errors.BrokerError as error:
            return VoterChangeResponse(error.code, self.state.epoch, self.state.leader_id, str(error.args[0]))
        return None

    def _decide(self, request: VoterChange, now: float) -> VoterSet:
        """Return the changed set; raise a `BrokerError` with Kafka's code if the request is refused."""
        self.check_may_change(request)
        history = self.state.voters
        voters = history.newest
        match request:
            case AddVoter(voter):
                if voters.voter(voter.key.id) is not None:
                    raise errors.DuplicateVoter(
                        f"The voter id for {voter.key} is already part of the set of voters {_listed(voters)}."
                    )
                self._check_kraft_version(voter.min_kraft_version, voter.max_kraft_version)
                self._check_caught_up(voter.key, now)
                return voters.with_voter(voter)
            case RemoveVoter(key):
                if key not in voters.keys:
                    raise errors.VoterNotFound(f"Cannot remove voter {key} from the set of voters {_listed(voters)}")
                if len(voters) == 1:
                    raise errors.InvalidRequest(
                        f"Cannot remove voter {key}: it is the only one, and a quorum without voters decides nothing"
                    )
                return voters.without(key)
            case UpdateVoter(voter):
                if voter.key not in voters.keys:
                    raise errors.VoterNotFound(f"{voter.key} is not one of the voters {_listed(voters)}")
                self._check_kraft_version(voter.min_kraft_version, voter.max_kraft_version)
                return voters.with_voter(voter)

    def check_may_change(self, request: VoterChange) -> None:
        """Raise the `BrokerError` if the voters may not be changed now."""
        state = self.state
        history = state.voters
        role = state.role
        if isinstance(request, UpdateVoter) and request.epoch != state.epoch:
            stale = request.epoch < state.epoch
            raise (errors.FencedLeaderEpoch if stale else errors.UnknownLeaderEpoch)(
                f"the request is of epoch {request.epoch}, node {state.me.id} is in epoch {state.epoch}"
            )
        if not isinstance(role, Leader):
            raise errors.NotLeaderOrFollower(f"node {state.me.id} does not lead the metadata quorum")
        if self._pending is not None:
            raise errors.RequestTimedOut("Request timed out waiting for leader to handle previous voter change request")
        if state.high_watermark <= role.epoch_start:
            raise errors.RequestTimedOut(
                "Request timed out waiting for leader to establish HWM and fence previous voter changes"
            )
        if not history.kraft_version:
            what = {AddVoter: "adding", RemoveVoter: "removing", UpdateVoter: "updating"}[type(request)]
            raise errors.UnsupportedVersion(
                f"Cluster doesn't support {what} voter because the kraft.version feature is {history.kraft_version}"
            )
        if history.newest_offset >= state.high_watermark:
            raise errors.RequestTimedOut(
                "Request timed out waiting for voters to commit the latest voter change at "
                f"{history.newest_offset} with HWM {state.high_watermark}"
            )

    def _check_kraft_version(self, least: int, most: int) -> None:
        level = self.state.voters.kraft_version
        if not least <= level <= most:
            raise errors.InvalidRequest(
                f"kraft.version is {level}, and the voter supports only the versions {least} to {most}"
            )

    def _check_caught_up(self, key: ReplicaKey, now: float) -> None:
        """Raise `RequestTimedOut` unless the replica had the whole log lately: otherwise commits would wait for it."""
        role = self.state.role
        assert isinstance(role, Leader)
        progress = role.progress.get(key)
        lately = now - self.state.timeouts.check_quorum
        if progress is None or progress.fetched_at < lately or progress.caught_up_at == -inf:
            seen = "it has not fetched" if progress is None else f"it has the log up to {progress.flushed_end}"
            raise errors.RequestTimedOut(
                f"Aborted add voter operation for {key} since it is lagging behind: {seen}, "
                f"the leader's log ends at {self.state.log.end_offset}"
            )

    def _append(self, voters: VoterSet, now: float) -> int:
        """Append a set, which counts at once; return the offset after it."""
        state = self.state
        role = state.role
        assert isinstance(role, Leader)
        first = state.voters.newest_offset < 0
        effect = AppendVoters(state.log.end_offset, state.epoch, voters, state.voters.kraft_version if first else None)
        state.log.append(state.epoch, effect.offset + effect.count)
        state.voters.add(effect.offset, voters)
        state.effects.append(effect)
        role.quorum_until = now + state.timeouts.check_quorum  # a leader that was alone had no majority to hear from
        role.fetched.clear()
        self._leading.answer_parked()
        self._leading.advance()
        return state.log.end_offset

    def _answer(self, token: Token, error: int, reason: str = "") -> None:
        if token is not None:
            state = self.state
            state.effects.append(Answer(token, VoterChangeResponse(error, state.epoch, state.leader_id, reason)))

    # Time

    def poll(self, now: float) -> float:
        """Answer what is decided, resign as a removed leader, and report this voter's addresses to the leader."""
        state = self.state
        role = state.role
        if isinstance(role, Leader):
            next_at = self._poll_pending(now)
            if not state.is_voter and state.voters.newest_offset < state.high_watermark:
                self._leading.resign(now)
                return now
            return next_at
        if self._pending is not None:
            self._answer(self._pending.token, errors.NotLeaderOrFollower.code, "the leader resigned")
            self._pending = None
        return self._report_to_leader(role, now) if isinstance(role, Follower) else inf

    def _poll_pending(self, now: float) -> float:
        pending = self._pending
        if pending is None:
            return inf
        if pending.epoch == self.state.epoch and pending.end_offset <= self.state.high_watermark:
            self._answer(pending.token, 0)
        elif pending.epoch != self.state.epoch or pending.until <= now:
            self._answer(pending.token, _TIMED_OUT, "Request timed out waiting for the voters to commit the change")
        else:
            return pending.until
        self._pending = None
        return inf

    def _report_to_leader(self, role: Follower, now: float) -> float:
        """Report this voter's addresses to the leader if the set has others."""
        state = self.state
        voters = state.voters.newest
        if not state.voters.kraft_version or self._with_description(voters) == voters or not role.has_fetched:
            return inf
        if now < self._report_at:
            return self._report_at
        assert state.description is not None
        request = UpdateVoter(state.description, state.epoch, state.timeouts.fetch)
        if not state.send(role.leader_id, request, now):
            return state.may_send_at(role.leader_id, request)
        self._report_at = now + state.timeouts.fetch
        return self._report_at

    def _with_description(self, voters: VoterSet) -> VoterSet:
        description = self.state.description
        if description is None or description.key not in voters.keys:
            return voters
        return voters.with_voter(description)


def _listed(voters: VoterSet) -> str:
    return f"[{', '.join(map(str, voters.keys))}]"
