"""A replica of the metadata log that is not its leader: finds and follows the leader, and fetches its snapshots."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.raft.messages import (
    Append,
    Fetch,
    FetchSnapshot,
    InstallSnapshot,
    StoreSnapshotPiece,
)
from pyclient.broker_embedded.controller.raft.roles import Follower, Unattached
from pyclient.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyclient.broker_embedded.controller.raft.messages import Batch, FetchResponse, FetchSnapshotResponse
    from pyclient.broker_embedded.controller.raft.quorum_state import QuorumState
    from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
    from pyclient.broker_embedded.controller.raft.voters import VoterSet


class Following:
    """The follower's side of replication, for voters and observers."""

    def __init__(self, state: QuorumState) -> None:
        self.state = state
        self._installing: OffsetAndEpoch | None = None

    # Time

    def poll(self, now: float) -> float:
        """Send the next request if there is one to send; return when to look again."""
        state = self.state
        role = state.role
        if self._installing is not None or not isinstance(role, Unattached | Follower):
            return inf
        if state.log.flushed_end < state.log.end_offset:
            return inf  # the next fetch confirms to the leader that everything before its offset is on the disk
        if isinstance(role, Unattached):
            return self._look_for_leader(now)
        if now >= role.fetch_until and not state.is_voter:
            return self._look_for_leader(now)
        request: Fetch | FetchSnapshot = self._fetch(state.timeouts.fetch_max_wait)
        if role.snapshot is not None:
            request = FetchSnapshot(state.me, role.epoch, role.snapshot, role.snapshot_position)
        return inf if state.send(role.leader_id, request, now) else state.may_send_at(role.leader_id, request)

    def _look_for_leader(self, now: float) -> float:
        state = self.state
        others = [*state.others, *state.bootstrap]
        if not others:
            return inf
        request = self._fetch(0.0)
        waits = [state.may_send_at(node, request) for node in others]
        if inf in waits:  # one request at a time: its answer or its failure comes
            return inf
        if min(waits) > now:
            return min(waits)
        free = [node for node, wait in zip(others, waits, strict=True) if wait <= now]
        state.send(state.rng.choice(free), request, now)
        return inf

    def _fetch(self, max_wait: float) -> Fetch:
        state = self.state
        offset = state.log.flushed_end
        return Fetch(state.me, state.epoch, offset, state.log.epoch_before(offset), state.high_watermark, max_wait)

    def on_leader_lost(self, node: int, now: float) -> None:
        """Stop believing in a leader that is gone, at a random time so that voters rarely begin an election together.

        Voters that still receive its responses reject the pre-vote.
        """
        state = self.state
        role = state.role
        if isinstance(role, Follower) and role.leader_id == node:
            role.fetch_until = min(role.fetch_until, now + state.rng.random() * state.timeouts.election / 4)
            role.has_fetched = False

    # Answers

    def on_fetch_response(self, node: int, request: Fetch, response: FetchResponse, now: float) -> bool:
        """Take records, a truncation or a snapshot id from the leader; return False if the response was of no use."""
        state = self.state
        state.learn(response.epoch, response.leader_id, now)
        role = state.role
        if response.error or not isinstance(role, Follower) or node != role.leader_id or request.epoch != role.epoch:
            return isinstance(role, Follower) and not response.error
        role.fetch_until = now + state.timeouts.fetch
        if request.offset != state.log.end_offset or self._installing is not None:
            return True  # the log changed meanwhile
        if response.diverging is not None:
            state.truncate(state.log.truncation_point(response.diverging))
        elif response.snapshot is not None:
            role.snapshot, role.snapshot_position = response.snapshot, 0
        else:
            role.has_fetched = True
            if response.batches:
                self._append(node, response.batches)
            state.advance_high_watermark(min(response.high_watermark, state.log.end_offset))
        return True

    def _append(self, node: int, batches: Sequence[Batch]) -> None:
        state = self.state
        end, epoch = state.log.end_offset, state.log.last_epoch
        for batch in batches:
            if batch.base_offset != end or not epoch <= batch.epoch <= state.epoch or batch.end_offset <= end:
                raise CorruptRecord(
                    f"node {node}, leader of metadata epoch {state.epoch}, sent a batch of epoch {batch.epoch} with "
                    f"the offsets {batch.base_offset} to {batch.end_offset} after offset {end} of epoch {epoch}"
                )
            end, epoch = batch.end_offset, batch.epoch
        for batch in batches:
            state.log.append(batch.epoch, batch.end_offset)
            if batch.voters is not None:
                state.voters.add(batch.base_offset, batch.voters)
        state.effects.append(Append(tuple(batches)))

    def on_snapshot_response(
        self, node: int, request: FetchSnapshot, response: FetchSnapshotResponse, now: float
    ) -> bool:
        """Take a piece of a snapshot; return False if the response was of no use."""
        state = self.state
        state.learn(response.epoch, response.leader_id, now)
        role = state.role
        if not isinstance(role, Follower) or node != role.leader_id or request.epoch != role.epoch:
            return False
        if role.snapshot != request.snapshot or role.snapshot_position != request.position:
            return True
        if response.error:
            role.snapshot = None  # the leader has a newer one by now: its next answer to a Fetch names it
            return False
        role.fetch_until = now + state.timeouts.fetch
        state.effects.append(StoreSnapshotPiece(request.snapshot, request.position, response.data))
        role.snapshot_position += len(response.data)
        if role.snapshot_position >= response.size:
            self._installing = request.snapshot
            role.snapshot = None
            state.effects.append(InstallSnapshot(request.snapshot))
        return bool(response.data) or role.snapshot is None

    def installed(self, snapshot: OffsetAndEpoch, voters: VoterSet | None) -> None:
        """Note that the fetched snapshot has replaced the log. `voters` is the set that it has, None for none."""
        state = self.state
        if snapshot != self._installing:
            raise ValueError(f"snapshot {snapshot} was not being installed")
        self._installing = None
        state.log.restart(snapshot)
        state.voters.restart(snapshot.offset, voters)
        state.advance_high_watermark(snapshot.offset)
