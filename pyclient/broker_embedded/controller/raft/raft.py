"""The Raft core of the metadata quorum: requests, responses and time in, effects out. No I/O, no clock, no threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controller.raft.elections import Elections
from pyclient.broker_embedded.controller.raft.following import Following
from pyclient.broker_embedded.controller.raft.leading import Leading
from pyclient.broker_embedded.controller.raft.messages import (
    AddVoter,
    BeginQuorumEpoch,
    DeleteBefore,
    EndQuorumEpoch,
    Fetch,
    FetchResponse,
    FetchSnapshot,
    FetchSnapshotResponse,
    QuorumEpochResponse,
    RemoveVoter,
    UpdateVoter,
    Vote,
    VoterChangeResponse,
    VoteResponse,
)
from pyclient.broker_embedded.controller.raft.quorum_state import LocalReplica, QuorumState, RaftTimeouts
from pyclient.broker_embedded.controller.raft.roles import Candidate, Leader
from pyclient.broker_embedded.controller.raft.voter_changes import VoterChanges

if TYPE_CHECKING:
    from random import Random

    from pyclient.broker_embedded.controller.raft.election_state import ElectionState
    from pyclient.broker_embedded.controller.raft.messages import Effect, Request, Response, Token, VoterChange
    from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch, ReplicaLog
    from pyclient.broker_embedded.controller.raft.voters import VoterSet, VoterSetHistory

DEFAULT_TIMEOUTS: Final = RaftTimeouts()


class RaftReplica:
    """One replica of the metadata log (KIP-595; Kafka: KafkaRaftClient).

    Every call takes `now` in seconds and may add effects; `ready` returns them for the caller to carry out in their
    order, and `deadline` is the time of the next `tick`. A call with bytes from another node that contradict what is
    committed raises; nothing was changed by it.
    """

    def __init__(
        self,
        local: LocalReplica,
        log: ReplicaLog,
        voters: VoterSetHistory,
        election: ElectionState,
        rng: Random,
        timeouts: RaftTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self.state = QuorumState(local, log, voters, election, timeouts, rng)
        self.deadline = 0.0
        self._elections = Elections(self.state)
        self._leading = Leading(self.state)
        self._changes = VoterChanges(self.state, self._leading)
        self._following = Following(self.state)

    def start(self, now: float) -> None:
        """Enter the role that the remembered election gives."""
        self.state.begin(now)
        self.tick(now)

    def ready(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self.state.effects = self.state.effects, []
        return effects

    def step(self, token: Token, request: Request | VoterChange, now: float) -> None:
        """Take another node's request; an `Answer` with its token follows, perhaps later."""
        match request:
            case Vote():
                self._elections.on_vote(token, request, now)
            case BeginQuorumEpoch():
                self._elections.on_begin(token, request, now)
            case EndQuorumEpoch():
                self._elections.on_end(token, request, now)
            case Fetch():
                self._leading.on_fetch(token, request, now)
            case FetchSnapshot():
                self._leading.on_fetch_snapshot(token, request, now)
            case AddVoter() | RemoveVoter() | UpdateVoter():
                self._changes.on_request(token, request, now)
        self.tick(now)

    def refusal(self, request: VoterChange, now: float) -> VoterChangeResponse | None:
        """Return the answer to a change of the voters that would be refused now, None if it would be taken."""
        return self._changes.refusal(request, now)

    def responded(self, node: int, request: Request, response: Response, now: float) -> None:
        """Take a node's response to a request that was sent to it."""
        useful = not response.error
        try:
            match request, response:
                case Vote(), VoteResponse():
                    self._elections.on_vote_response(node, request, response, now)
                case BeginQuorumEpoch() | EndQuorumEpoch(), QuorumEpochResponse():
                    self._elections.on_epoch_response(node, request, response, now)
                case Fetch(), FetchResponse():
                    useful = self._following.on_fetch_response(node, request, response, now)
                case FetchSnapshot(), FetchSnapshotResponse():
                    useful = self._following.on_snapshot_response(node, request, response, now)
                case UpdateVoter(), VoterChangeResponse():
                    self.state.learn(response.epoch, response.leader_id, now)
                case _:
                    raise TypeError(f"{type(response).__name__} does not answer {type(request).__name__}")
        except BaseException:
            useful = False
            raise
        finally:
            self.state.ended(node, request, now, failed=not useful)
        self.tick(now)

    def failed(self, node: int, request: Request, now: float) -> None:
        """Handle a request without a response: the connection ended, or it took too long."""
        self.state.ended(node, request, now, failed=True)
        self.tick(now)

    def leader_lost(self, node: int, now: float) -> None:
        """Handle a lost connection to a node: if this replica follows it, an election begins soon."""
        self._following.on_leader_lost(node, now)
        self.tick(now)

    def append(self, data: Any, count: int, now: float) -> int:
        """Append `count` records as a batch and return its base offset.

        Raise `NotController` if this replica does not lead. The records are committed when the high watermark passes
        them; if another leader comes first, they may never be.
        """
        offset = self._leading.append(data, count)
        self.tick(now)
        return offset

    def flushed(self, end_offset: int, now: float) -> None:
        """Record that the log is on the disk up to `end_offset`.

        A sync that began before a truncation must not be reported: what followed is not on the disk.
        """
        log = self.state.log
        log.flushed_end = max(log.flushed_end, min(end_offset, log.end_offset))
        self._leading.advance()
        self.tick(now)

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """Record a snapshot of the committed state, written up to `snapshot.offset`."""
        if snapshot.offset > self.state.high_watermark:
            raise ValueError(f"the snapshot {snapshot} has more than is committed ({self.state.high_watermark})")
        self.state.log.snapshot = snapshot

    def delete_before_snapshot(self) -> None:
        """Let the log start at the end of its newest snapshot."""
        log = self.state.log
        if log.snapshot is not None and log.snapshot.offset > log.start_offset:
            log.delete_before(log.snapshot)
            self.state.voters.trim(log.start_offset)
            self.state.effects.append(DeleteBefore(log.snapshot))

    def snapshot_installed(self, snapshot: OffsetAndEpoch, voters: VoterSet | None, now: float) -> None:
        """Record that a fetched snapshot has replaced the log; `voters` is the set in it, None if it has none."""
        self._following.installed(snapshot, voters)
        self.tick(now)

    def resign(self, now: float) -> None:
        """Give up the leadership, as before an orderly shutdown; without effect on others."""
        self._leading.resign(now)
        self.tick(now)

    def tick(self, now: float) -> None:
        """Do everything that is due, until no role changes any more."""
        state = self.state
        while True:
            role = state.role
            deadline = self._elections.poll(now)
            if state.role is not role:
                if isinstance(state.role, Leader) and isinstance(role, Candidate):
                    self._leading.begin_epoch(tuple(sorted(role.ballot.granted)))
                    self._changes.begin_epoch(now)
                continue
            deadline = min(deadline, self._changes.poll(now), self._leading.poll(now), self._following.poll(now))
            if state.role is role:
                self.deadline = deadline
                return
