"""The state that all parts of the Raft core share: role and transitions, the log's ends, voters, and effects."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyclient.broker_embedded.controller.raft.messages import (
    HighWatermark,
    LeaderChange,
    SaveElection,
    Send,
    Truncate,
    Vote,
)
from pyclient.broker_embedded.controller.raft.roles import (
    Ballot,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
    check_transition,
    to_remember,
)

if TYPE_CHECKING:
    from random import Random

    from pyclient.broker_embedded.config.broker_config import BrokerConfig
    from pyclient.broker_embedded.controller.raft.election_state import ElectionState
    from pyclient.broker_embedded.controller.raft.messages import Effect, Request
    from pyclient.broker_embedded.controller.raft.replica_log import ReplicaLog
    from pyclient.broker_embedded.controller.raft.roles import Role
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, Voter, VoterSetHistory


_Slot: TypeAlias = "tuple[int, type[Request], bool]"
"""A node and a kind of request; a request for a vote does not wait for the end of one for a pre-vote."""


@dataclass(frozen=True, slots=True)
class RaftTimeouts:
    """The quorum's times in seconds; the defaults are Kafka's `controller.quorum.*` options."""

    election: float = 1.0
    """`election.timeout.ms`: how long to wait for a leader or for votes, plus a random part of as much."""
    election_backoff_max: float = 1.0
    """`election.backoff.max.ms`: the longest wait of a candidate that lost, or of a voter whose leader resigned."""
    fetch: float = 2.0
    """`fetch.timeout.ms`: how long a follower waits for its leader before an election."""
    retry_backoff: float = 0.02
    """`retry.backoff.ms`: the pause before a request that failed is sent again."""
    fetch_max_wait: float = 0.5
    """Seconds for which a leader holds a Fetch that has nothing to return."""

    @classmethod
    def of(cls, config: BrokerConfig) -> RaftTimeouts:
        """Return the times of a node. A Fetch is held a quarter of the time after which the follower gives up."""
        fetch = config.seconds("controller.quorum.fetch.timeout.ms")
        return cls(
            election=config.seconds("controller.quorum.election.timeout.ms"),
            election_backoff_max=config.seconds("controller.quorum.election.backoff.max.ms"),
            fetch=fetch,
            retry_backoff=config.seconds("controller.quorum.retry.backoff.ms"),
            fetch_max_wait=min(cls().fetch_max_wait, fetch / 4),
        )

    @property
    def check_quorum(self) -> float:
        """Seconds without fetches from a majority after which a leader resigns."""
        return 1.5 * self.fetch

    @property
    def begin_quorum(self) -> float:
        """Seconds between two BeginQuorumEpoch requests to a voter that does not fetch."""
        return self.fetch / 2


class LocalReplica(NamedTuple):
    """A replica's knowledge of itself and of its quorum before it has read its log."""

    me: ReplicaKey
    description: Voter | None = None
    """This replica as a voter set should have it; None if the voters are configured."""
    bootstrap: tuple[int, ...] = ()
    """Further nodes to ask for the leader, by ids that only the caller knows."""


class QuorumState:
    """A replica's role with its checked transitions, and everything the parts of the core share."""

    def __init__(
        self,
        local: LocalReplica,
        log: ReplicaLog,
        voters: VoterSetHistory,
        election: ElectionState,
        timeouts: RaftTimeouts,
        rng: Random,
    ) -> None:
        self.me, self.description, self.bootstrap = local
        self.log = log
        self.voters = voters
        self.timeouts = timeouts
        self.rng = rng
        self.high_watermark = log.oldest_snapshot.offset if log.oldest_snapshot is not None else 0
        self.effects: list[Effect] = []
        self._in_flight: set[_Slot] = set()
        self._not_before: dict[_Slot, float] = {}
        self._remembered = election
        self.role: Role = Unattached(election.epoch, -inf)

    def begin(self, now: float) -> None:
        """Take the role that follows from the remembered election: a former leader resigns, its own vote remains."""
        epoch, leader, voted = self._remembered.epoch, self._remembered.leader_id, self._remembered.voted
        at = self.election_deadline(now)
        if self.me in self.voters.newest and len(self.voters.newest) == 1:
            self.role = Prospective(epoch, at, Ballot(self.me.id), leader, voted)
        elif leader == self.me.id:
            self.role = Resigned(epoch, leader, at, voted)
        elif voted == self.me and leader is None and self.is_voter:
            self.role = Candidate(epoch, at, Ballot(self.me.id), voted)
        elif leader is not None:
            self.role = Follower(epoch, leader, now + self.timeouts.fetch, voted)
        else:
            if not epoch:  # there never was a leader: waiting a whole timeout would only delay a new cluster
                at = now + (at - now) / 8
            self.role = Unattached(epoch, at, None, voted)

    @property
    def epoch(self) -> int:
        """The epoch of the quorum as far as this replica knows."""
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        """The node that leads the epoch, None if it is not known."""
        return self.role.leader_id

    @property
    def is_voter(self) -> bool:
        """Return True if this replica may campaign: it is a voter, or its removal is not known to be committed.

        Until then the others may need its longer log to get the removal (Ongaro, section 4.2.2). Its own vote does not
        count.
        """
        history = self.voters
        if self.me in history.newest:
            return True
        return history.newest_offset >= self.high_watermark and self.me in history.at(history.newest_offset)

    @property
    def others(self) -> list[int]:
        """The node ids of the other voters."""
        return [node for node in self.voters.newest.ids if node != self.me.id]

    def election_deadline(self, now: float) -> float:
        """Return when to give up waiting: random, so that two replicas rarely begin an election together."""
        return now + self.timeouts.election * (1 + self.rng.random())

    # Transitions

    def become_unattached(self, epoch: int, now: float, *, voted: ReplicaKey | None = None) -> None:
        """Enter a newer epoch, or vote for a candidate of this one."""
        kept = self.role.voted if epoch == self.epoch else None
        leader = None if epoch != self.epoch or voted is not None else self.leader_id
        self._become(Unattached(epoch, self.election_deadline(now), leader, voted or kept))

    def become_prospective(self, now: float) -> None:
        """Begin to ask for pre-votes in the present epoch."""
        role = self.role
        ballot = Ballot(self.me.id)
        self._become(Prospective(role.epoch, self.election_deadline(now), ballot, role.leader_id, role.voted))

    def become_candidate(self, now: float) -> None:
        """Begin a new epoch with a vote for this replica itself."""
        self._become(Candidate(self.epoch + 1, self.election_deadline(now), Ballot(self.me.id), self.me))

    def become_follower(self, epoch: int, leader_id: int, now: float) -> None:
        """Follow the leader of an epoch."""
        voted = self.role.voted if epoch == self.epoch else None
        for slot in [each for each in self._not_before if each[0] == leader_id]:
            del self._not_before[slot]  # it refused before it led
        self._become(Follower(epoch, leader_id, now + self.timeouts.fetch, voted))

    def become_leader(self, now: float) -> None:
        """Lead the epoch in which the votes were won."""
        start = self.log.end_offset
        self._become(Leader(self.epoch, self.me.id, self.me, start, now + self.timeouts.check_quorum, now))

    def become_resigned(self, now: float, preferred: tuple[ReplicaKey, ...]) -> None:
        """Lead no longer; the epoch has no other leader any more."""
        role = self.role
        at = self.election_deadline(now)
        self._become(Resigned(role.epoch, self.me.id, at, role.voted, preferred, set(self.others)))

    def learn(self, epoch: int, leader_id: int | None, now: float) -> None:
        """Take what a message says of the quorum: a newer epoch, or the leader of this one."""
        if leader_id == self.me.id:
            leader_id = None
        if epoch > self.epoch:
            if leader_id is None:
                self.become_unattached(epoch, now)
            else:
                self.become_follower(epoch, leader_id, now)
        elif epoch == self.epoch and leader_id is not None and self.leader_id is None:
            self.become_follower(epoch, leader_id, now)

    def _become(self, role: Role) -> None:
        check_transition(self.role, role)
        known = self.epoch, self.leader_id
        self.role = role
        remembered = to_remember(role)
        if remembered != self._remembered:
            self._remembered = remembered
            self.effects.append(SaveElection(remembered))
        if known != (role.epoch, role.leader_id):
            self.effects.append(LeaderChange(role.epoch, role.leader_id))

    # The log

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset`; it never falls. Return True if it moved."""
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.effects.append(HighWatermark(offset))
        return True

    def truncate(self, offset: int) -> None:
        """Drop the log from `offset` on, with the voter sets in it."""
        if offset < self.high_watermark:
            raise ValueError(
                f"the leader {self.leader_id} of epoch {self.epoch} asks to truncate the metadata log to {offset}, "
                f"below the committed offset {self.high_watermark}"
            )
        if offset < self.log.end_offset:
            self.log.truncate(offset)
            self.voters.truncate(offset)
            self.effects.append(Truncate(offset))

    # Requests to other nodes: one of a kind in flight to a node

    def send(self, node: int, request: Request, now: float) -> bool:
        """Send a request unless one of its kind is in flight to the node or failed a moment ago."""
        slot = _slot(node, request)
        if slot in self._in_flight or now < self._not_before.get(slot, -inf):
            return False
        self._in_flight.add(slot)
        self.effects.append(Send(node, request))
        return True

    def ended(self, node: int, request: Request, now: float, *, failed: bool) -> None:
        """Note that a request has ended; after a failure the next one of its kind waits."""
        slot = _slot(node, request)
        self._in_flight.discard(slot)
        if failed:
            self._not_before[slot] = now + self.timeouts.retry_backoff
        else:
            self._not_before.pop(slot, None)

    def may_send_at(self, node: int, request: Request) -> float:
        """Return when a request of this kind may be sent: infinity while one is in flight."""
        slot = _slot(node, request)
        return inf if slot in self._in_flight else self._not_before.get(slot, -inf)


def _slot(node: int, request: Request) -> _Slot:
    return node, type(request), isinstance(request, Vote) and request.pre_vote
