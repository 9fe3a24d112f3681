"""The leader of the metadata quorum: appends, serves fetches, and decides what is committed (KIP-595, KIP-630)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from pyclient import errors
from pyclient.broker_embedded.controller.raft.messages import (
    Answer,
    AppendLeaderChange,
    AppendRecords,
    BeginQuorumEpoch,
    FetchResponse,
    FetchSnapshotResponse,
)
from pyclient.broker_embedded.controller.raft.replica_log import Diverging, NeedsSnapshot
from pyclient.broker_embedded.controller.raft.roles import Leader, Progress

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.raft.messages import Fetch, FetchSnapshot, Token
    from pyclient.broker_embedded.controller.raft.quorum_state import QuorumState
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey


@dataclass(frozen=True, slots=True)
class DelayedFetch:
    """A Fetch that waits for records, for a higher high watermark, or for `until`."""

    token: Token
    request: Fetch
    until: float


class Leading:
    """The leader's side of replication."""

    def __init__(self, state: QuorumState) -> None:
        self.state = state
        self._parked: list[DelayedFetch] = []

    def begin_epoch(self, granting: tuple[int, ...]) -> None:
        """Append the record that opens this leader's epoch: only records of its own epoch prove what is committed."""
        state = self.state
        offset = state.log.end_offset
        state.log.append(state.epoch, offset + 1)
        voters = state.voters.newest.ids
        state.effects.append(AppendLeaderChange(offset, state.epoch, state.me.id, voters, granting))

    def append(self, data: Any, count: int) -> int:
        """Append a batch of `count` records and return its base offset; raise `NotController` if this is no leader."""
        state = self.state
        if not isinstance(state.role, Leader):
            raise errors.NotController(
                f"node {state.me} does not lead the metadata quorum: the leader of epoch {state.epoch} is "
                f"{'not known' if state.leader_id is None else f'node {state.leader_id}'}"
            )
        offset = state.log.end_offset
        state.log.append(state.epoch, offset + count)
        state.effects.append(AppendRecords(offset, state.epoch, data))
        self.answer_parked()
        return offset

    # Requests from replicas

    def on_fetch(self, token: Token, request: Fetch, now: float) -> None:
        """Answer a replica's Fetch, or park it until there is something to answer."""
        state = self.state
        error = self._refusal(request.epoch)
        if not error and (request.offset < 0 or request.last_epoch < 0 or request.last_epoch > request.epoch):
            error = errors.InvalidRequest.code
        if error:
            state.effects.append(Answer(token, FetchResponse(error, state.epoch, state.leader_id)))
            return
        place = state.log.check_fetch(request.offset, request.last_epoch)
        if isinstance(place, Diverging):
            self._record_fetch(request.replica, now)
            self._answer(token, diverging=place.end)
        elif isinstance(place, NeedsSnapshot):
            self._record_fetch(request.replica, now)
            self._answer(token, snapshot=place.snapshot)
        else:
            self._record_fetch(request.replica, now, request.offset)
            self._parked.append(DelayedFetch(token, request, now + request.max_wait))
            self.advance()
            self.answer_parked()
            self._expire(now)

    def on_fetch_snapshot(self, token: Token, request: FetchSnapshot, now: float) -> None:
        """Answer with a piece of a snapshot that this replica has."""
        state = self.state
        error = self._refusal(request.epoch)
        if not error and request.snapshot not in (state.log.snapshot, state.log.oldest_snapshot):
            error = errors.SnapshotNotFound.code
        response = FetchSnapshotResponse(error, state.epoch, state.leader_id, request.snapshot, request.position)
        if error:
            state.effects.append(Answer(token, response))
            return
        self._record_fetch(request.replica, now)
        state.effects.append(Answer(token, response, read_snapshot=request.snapshot))

    def _refusal(self, epoch: int) -> int:
        state = self.state
        if epoch < state.epoch:
            return errors.FencedLeaderEpoch.code
        if epoch > state.epoch:
            return errors.UnknownLeaderEpoch.code
        return 0 if isinstance(state.role, Leader) else errors.NotLeaderOrFollower.code

    def _answer(self, token: Token, **fields: Any) -> None:
        state = self.state
        read_from = fields.pop("read_from", None)
        response = FetchResponse(0, state.epoch, state.leader_id, state.high_watermark, **fields)
        state.effects.append(Answer(token, response, read_from=read_from))

    def _record_fetch(self, replica: ReplicaKey, now: float, flushed_end: int | None = None) -> None:
        """Note a replica's request; a complete majority of voters proves that this leader is not cut off."""
        state = self.state
        role = state.role
        assert isinstance(role, Leader)
        progress = role.progress.setdefault(replica, Progress())
        progress.fetched_at = now
        if flushed_end is not None:
            progress.flushed_end = flushed_end
            if flushed_end >= state.log.end_offset:
                progress.caught_up_at = now
        voters = state.voters.newest
        if replica in voters and replica.id != state.me.id:
            role.acknowledged.add(replica.id)
            role.fetched.add(replica.id)
            if len(role.fetched.intersection(voters.ids)) >= voters.majority - (state.me in voters):
                role.fetched.clear()
                role.quorum_until = now + state.timeouts.check_quorum

    # Commit

    def advance(self) -> None:
        """Commit what a majority has on its disks, once that includes a record of this leader's epoch (Raft 5.4.2)."""
        state = self.state
        role = state.role
        if not isinstance(role, Leader):
            return
        end = role.majority_end(state.voters.newest, state.me, state.log.flushed_end)
        if end > role.epoch_start and state.advance_high_watermark(end):
            self.answer_parked()

    def answer_parked(self) -> None:
        """Answer the parked fetches for which there is something to answer."""
        state = self.state
        parked, self._parked = self._parked, []
        for waiting in parked:
            request = waiting.request
            if request.offset < state.log.end_offset:
                self._answer(waiting.token, read_from=request.offset)
            elif request.high_watermark < state.high_watermark:
                self._answer(waiting.token)
            else:
                self._parked.append(waiting)

    def refuse_parked(self) -> None:
        """Answer the Fetch requests that wait at a former leader with the present epoch and leader."""
        state = self.state
        parked, self._parked = self._parked, []
        for waiting in parked:
            error = self._refusal(waiting.request.epoch)
            response = FetchResponse(error, state.epoch, state.leader_id)
            state.effects.append(Answer(waiting.token, response))

    def _expire(self, now: float) -> None:
        due = [waiting for waiting in self._parked if waiting.until <= now]
        if due:
            self._parked = [waiting for waiting in self._parked if waiting.until > now]
            for waiting in due:
                self._answer(waiting.token)

    # Time

    def poll(self, now: float) -> float:
        """Do what a leader has to do by `now`; return when to look again."""
        state = self.state
        role = state.role
        if not isinstance(role, Leader):
            if self._parked:
                self.refuse_parked()
            return inf
        if state.others and now >= role.quorum_until:
            self.resign(now)
            return now
        self._expire(now)
        next_at = min((waiting.until for waiting in self._parked), default=inf)
        if state.others:
            next_at = min(next_at, role.quorum_until)
        return min(next_at, self._announce_epoch(role, now))

    def _announce_epoch(self, role: Leader, now: float) -> float:
        state = self.state
        if now >= role.begin_at:
            role.begin_at = now + state.timeouts.begin_quorum
            silent = now - state.timeouts.begin_quorum
            recent = {key.id for key, progress in role.progress.items() if progress.fetched_at > silent}
            role.acknowledged &= recent
        next_at = role.begin_at
        for voter in state.voters.newest:
            node = voter.key.id
            if node == state.me.id or node in role.acknowledged:
                continue
            request = BeginQuorumEpoch(voter.key, state.me.id, role.epoch)
            if not state.send(node, request, now):
                next_at = min(next_at, state.may_send_at(node, request))
        return next_at

    def resign(self, now: float) -> None:
        """Give up the leadership and name the voters that have most of the log as successors."""
        state = self.state
        role = state.role
        if not isinstance(role, Leader):
            return
        ends = {key.id: progress.flushed_end for key, progress in role.progress.items()}
        others = [voter.key for voter in state.voters.newest if voter.key.id != state.me.id]
        others.sort(key=lambda key: (-ends.get(key.id, -1), key))
        state.become_resigned(now, tuple(others))
        self.refuse_parked()
