"""The roles of a replica in the metadata quorum (KIP-595, KIP-996), a small class each, and their transitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from pyclient.broker_embedded.controller.raft.election_state import ElectionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, VoterSet


class Ballot:
    """The answers to a candidate's requests for votes, counted against a voter set."""

    __slots__ = ("granted", "rejected")

    def __init__(self, me: int) -> None:
        self.granted = {me}
        self.rejected: set[int] = set()

    def record(self, voter: int, *, granted: bool) -> None:
        """Count a voter's answer."""
        (self.granted if granted else self.rejected).add(voter)

    def is_won(self, voters: VoterSet) -> bool:
        """Return True if a majority granted its vote."""
        return len(self.granted.intersection(voters.ids)) >= voters.majority

    def is_lost(self, voters: VoterSet) -> bool:
        """Return True if the voters that have not rejected are no majority any more."""
        return len(voters) - len(self.rejected.intersection(voters.ids)) < voters.majority

    def unanswered(self, voters: VoterSet) -> list[int]:
        """Return the voters that have not answered."""
        return [voter for voter in voters.ids if voter not in self.granted and voter not in self.rejected]


@dataclass(slots=True)
class Unattached:
    """Knows the epoch and perhaps its leader, but follows no leader: waits for a leader until `election_at`."""

    epoch: int
    election_at: float
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Prospective:
    """Asks the voters whether they would vote for it, without touching the epoch (KIP-996)."""

    epoch: int
    election_at: float
    ballot: Ballot
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Candidate:
    """Has voted for itself in a new epoch and asks the others for their votes."""

    epoch: int
    election_at: float
    ballot: Ballot
    voted: ReplicaKey
    backing_off: bool = False
    """It lost and waits for `election_at` to try again, or for another's success."""

    @property
    def leader_id(self) -> None:
        """Always None: a candidate knows no leader of its epoch."""
        return


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of its epoch; abandons that leader if no response arrives by `fetch_until`."""

    epoch: int
    leader_id: int
    fetch_until: float
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    snapshot: OffsetAndEpoch | None = None
    """The snapshot that it is fetching."""
    snapshot_position: int = 0


@dataclass(slots=True)
class Progress:
    """The progress of another replica's log, as the leader knows it."""

    flushed_end: int = -1
    fetched_at: float = float("-inf")
    caught_up_at: float = float("-inf")


@dataclass(slots=True)
class Leader:
    """Appends the records of its epoch, which starts at `epoch_start`, and counts the replicas that have them.

    `quorum_until` is when it resigns unless a majority fetches. `progress` has every replica that fetched, observers
    too; `acknowledged` the voters that know of the epoch.
    """

    epoch: int
    leader_id: int
    voted: ReplicaKey
    epoch_start: int
    quorum_until: float
    begin_at: float
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    fetched: set[int] = field(default_factory=set)
    """The voters that have fetched since the quorum was last seen complete."""

    def majority_end(self, voters: VoterSet, me: ReplicaKey, flushed_end: int) -> int:
        """Return the offset below which a majority of the voters has everything on its disk, -1 if none is known.

        A leader that is no voter any more does not count itself.
        """
        ends = sorted(self._ends(voters, me, flushed_end), reverse=True)
        return ends[voters.majority - 1] if ends else -1

    def _ends(self, voters: VoterSet, me: ReplicaKey, flushed_end: int) -> Iterable[int]:
        ends = {voter.key.id: -1 for voter in voters}
        for key, progress in self.progress.items():
            if key in voters:
                ends[key.id] = max(ends[key.id], progress.flushed_end)
        if me in voters:
            ends[me.id] = flushed_end
        return ends.values()


@dataclass(slots=True)
class Resigned:
    """Was the leader of this epoch and has resigned: sends EndQuorumEpoch, and waits for the next leader."""

    epoch: int
    leader_id: int
    election_at: float
    voted: ReplicaKey | None = None
    preferred: tuple[ReplicaKey, ...] = ()
    unacknowledged: set[int] = field(default_factory=set)


Role: TypeAlias = Unattached | Prospective | Candidate | Follower | Leader | Resigned

SAME_EPOCH: Final[dict[type[Role], frozenset[type[Role]]]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Prospective: frozenset({Unattached, Prospective, Follower}),
    Candidate: frozenset({Prospective, Follower, Leader}),
    Follower: frozenset({Prospective}),
    Leader: frozenset({Resigned}),
    Resigned: frozenset(),
}
"""The roles that may follow a role within its epoch."""

NEXT_EPOCH: Final[dict[type[Role], frozenset[type[Role]]]] = {
    Unattached: frozenset({Unattached, Follower}),
    Prospective: frozenset({Unattached, Candidate, Follower}),
    Candidate: frozenset({Unattached, Follower}),
    Follower: frozenset({Unattached, Follower}),
    Leader: frozenset({Unattached, Follower}),
    Resigned: frozenset({Unattached, Follower}),
}
"""The roles that may follow a role in a later epoch."""


def check_transition(old: Role, new: Role) -> None:
    """Raise `ValueError` if `new` may not follow `old`: an epoch never falls, and has one leader and one vote."""
    allowed = SAME_EPOCH if new.epoch == old.epoch else NEXT_EPOCH
    if new.epoch < old.epoch or type(new) not in allowed[type(old)]:
        raise ValueError(f"{new} cannot follow {old}")
    if new.epoch == old.epoch:
        if old.leader_id not in (None, new.leader_id):
            raise ValueError(f"epoch {old.epoch} has the leader {old.leader_id}: {new} cannot follow")
        if old.voted is not None and new.voted != old.voted:
            raise ValueError(f"the vote of epoch {old.epoch} went to {old.voted}: {new} cannot follow")


def to_remember(role: Role) -> ElectionState:
    """Return what of a role has to survive a restart."""
    return ElectionState(role.epoch, role.leader_id, role.voted)
