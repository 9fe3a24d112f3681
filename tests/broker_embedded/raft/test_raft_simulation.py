"""Seeded simulations of the metadata quorum, and planted defects that their properties must find."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.controller.raft.election_state import ElectionState
from pyclient.broker_embedded.controller.raft.elections import Elections
from pyclient.broker_embedded.controller.raft.leading import Leading
from pyclient.broker_embedded.controller.raft.messages import (
    Answer,
    Fetch,
    HighWatermark,
    InstallSnapshot,
    SaveElection,
    Send,
    Vote,
    VoterChange,
    VoteResponse,
)
from pyclient.broker_embedded.controller.raft.quorum_state import LocalReplica, QuorumState
from pyclient.broker_embedded.controller.raft.raft import RaftReplica
from pyclient.broker_embedded.controller.raft.replica_log import OffsetAndEpoch, ReplicaLog, Valid
from pyclient.broker_embedded.controller.raft.roles import Ballot, Leader, Prospective, Unattached
from pyclient.broker_embedded.controller.raft.voter_changes import VoterChanges
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, VoterSet, VoterSetHistory
from tests.broker_embedded.raft.properties import PropertyViolated
from tests.broker_embedded.raft.simulated_node import SimulatedNode
from tests.broker_embedded.raft.simulation import Simulation, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = 2000
GROUPS = 20


@pytest.mark.parametrize("group", range(GROUPS))
def test_seeds_violate_no_property(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        simulate(seed)


def test_same_seed_gives_same_run() -> None:
    first, second = simulate(11), simulate(11)
    assert first.now == second.now
    assert first.properties.committed == second.properties.committed
    assert len(first.properties.committed) > 5


def test_single_voter_leads_at_once() -> None:
    simulation = Simulation(1, voters=1)
    assert simulation.leader() is simulation.nodes[1]
    simulation.propose()
    simulation.run(1.0)
    assert [entry.epoch for entry in simulation.nodes[1].applied][:2] == [1, 1]


def test_isolated_voter_disturbs_no_leader_when_it_returns() -> None:
    simulation = Simulation(3, voters=3)
    assert simulation.run_while(lambda: simulation.leader() is None, 30)
    simulation.run(simulation.now + 5)
    leader = simulation.leader()
    assert leader is not None
    epoch = leader.running.state.epoch
    follower = next(node for node in simulation.nodes if node != leader.key.id)
    simulation.isolate(follower)
    simulation.run(simulation.now + 30)
    simulation.heal()
    simulation.run(simulation.now + 10)
    assert simulation.leader() is leader
    assert leader.running.state.epoch == epoch


def test_leader_without_majority_resigns() -> None:
    simulation = Simulation(5, voters=3)
    assert simulation.run_while(lambda: simulation.leader() is None, 30)
    leader = simulation.leader()
    assert leader is not None
    simulation.isolate(leader.key.id)
    assert simulation.run_while(lambda: isinstance(leader.running.state.role, Leader), 10)
    assert simulation.run_while(lambda: simulation.leader() is None, 30)
    assert simulation.leader() is not leader


# Planted defects: each breaks one rule of Raft and must be found


def vote_twice(patch: pytest.MonkeyPatch) -> None:
    def on_vote(self: Elections, token: Any, request: Any, now: float) -> None:
        state = self.state
        if request.epoch > state.epoch:
            state.become_unattached(request.epoch, now)
        granted = request.epoch == state.epoch and isinstance(state.role, Unattached | Prospective)
        if granted and not request.pre_vote:
            state.role = Unattached(request.epoch, state.election_deadline(now), None, request.candidate)
            state.effects.append(SaveElection(ElectionState(request.epoch, None, request.candidate)))
        state.effects.append(Answer(token, VoteResponse(0, state.epoch, None, granted)))

    patch.setattr(Elections, "on_vote", on_vote)


def ignore_log_of_candidate(patch: pytest.MonkeyPatch) -> None:
    def grants(self: Elections, request: Any) -> bool:
        role = self.state.role
        if request.pre_vote:
            return not isinstance(role, Leader)
        return isinstance(role, Unattached | Prospective) and role.voted in (None, request.candidate)

    patch.setattr(Elections, "grants", grants)


def count_unsynced_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaLog, "flushed_end", property(lambda self: self.end_offset, lambda self, value: None))


def commit_with_a_minority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leader, "majority_end", lambda self, voters, me, flushed_end: flushed_end)


def never_truncate(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReplicaLog, "check_fetch", lambda self, offset, last_epoch: Valid())


def take_every_high_watermark(patch: pytest.MonkeyPatch) -> None:
    def advance(self: QuorumState, offset: int) -> bool:
        if offset == self.high_watermark:
            return False
        self.high_watermark = offset
        self.effects.append(HighWatermark(offset))
        return True

    patch.setattr(QuorumState, "advance_high_watermark", advance)


def commit_records_of_earlier_epochs(patch: pytest.MonkeyPatch) -> None:
    """Commit as in figure 8 of the Raft paper."""

    def advance(self: Leading) -> None:
        role = self.state.role
        if isinstance(role, Leader):
            end = role.majority_end(self.state.voters.newest, self.state.me, self.state.log.flushed_end)
            if self.state.advance_high_watermark(end):
                self.answer_parked()

    patch.setattr(Leading, "advance", advance)


def forget_epoch(patch: pytest.MonkeyPatch) -> None:
    original = SimulatedNode.start

    def start(self: SimulatedNode, now: float) -> None:
        self.disk.election = ElectionState(max(0, self.disk.election.epoch - 1))
        original(self, now)

    patch.setattr(SimulatedNode, "start", start)


def lead_without_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ballot, "is_won", lambda self, voters: True)


def elect_without_pre_vote(patch: pytest.MonkeyPatch) -> None:
    original = QuorumState.become_prospective

    def become_prospective(self: QuorumState, now: float) -> None:
        original(self, now)
        self.become_candidate(now)

    patch.setattr(QuorumState, "become_prospective", become_prospective)


def grant_pre_votes_although_the_leader_is_there(patch: pytest.MonkeyPatch) -> None:
    original = Elections.grants

    def grants(self: Elections, request: Vote) -> bool:
        is_new = request.last.order >= self.state.log.end.order
        return is_new if request.pre_vote else original(self, request)

    patch.setattr(Elections, "grants", grants)


def keep_leading_after_newer_epoch(patch: pytest.MonkeyPatch) -> None:
    def learn(self: QuorumState, epoch: int, leader_id: int | None, now: float) -> None:
        return

    patch.setattr(QuorumState, "learn", learn)


def snapshot_without_last_record(patch: pytest.MonkeyPatch) -> None:
    original = SimulatedNode.install

    def install(self: SimulatedNode, snapshot: Any, now: float) -> None:
        self.pieces.pop()
        original(self, snapshot, now)

    patch.setattr(SimulatedNode, "install", install)


def snapshot_in_epoch_of_leader(patch: pytest.MonkeyPatch) -> None:
    """Name a snapshot after the epoch of the quorum, not after that of its last record."""

    def create_snapshot(self: SimulatedNode, *, delete: bool) -> None:
        snapshot = OffsetAndEpoch(len(self.applied), self.running.state.epoch)
        if snapshot.offset > self.disk.start:
            self.disk.snapshots[snapshot] = tuple(self.applied)
            self.running.snapshot_created(snapshot)
            self.running.delete_before_snapshot()

    patch.setattr(SimulatedNode, "create_snapshot", create_snapshot)


def load_snapshot_when_elected(patch: pytest.MonkeyPatch) -> None:
    original = Leading.begin_epoch

    def begin_epoch(self: Leading, granting: tuple[int, ...]) -> None:
        original(self, granting)
        if self.state.log.snapshot is not None:
            self.state.effects.append(InstallSnapshot(self.state.log.snapshot))

    patch.setattr(Leading, "begin_epoch", begin_epoch)


def change_voters_while_a_change_is_uncommitted(patch: pytest.MonkeyPatch) -> None:
    def check(self: VoterChanges, request: VoterChange) -> None:
        if not isinstance(self.state.role, Leader) or not self.state.voters.kraft_version:
            raise errors.NotLeaderOrFollower

    patch.setattr(VoterChanges, "check_may_change", check)


def count_removed_leader(patch: pytest.MonkeyPatch) -> None:
    def majority_end(self: Leader, voters: VoterSet, me: ReplicaKey, flushed_end: int) -> int:
        ends = {voter.key: -1 for voter in voters} | {key: each.flushed_end for key, each in self.progress.items()}
        return sorted([*(ends[voter.key] for voter in voters if voter.key != me), flushed_end])[-voters.majority]

    patch.setattr(Leader, "majority_end", majority_end)


def add_replica_that_is_behind(patch: pytest.MonkeyPatch) -> None:
    """Count a new voter without the log as if it had it."""

    def majority_end(self: Leader, voters: VoterSet, me: ReplicaKey, flushed_end: int) -> int:
        ends = {voter.key: flushed_end for voter in voters} | {
            key: each.flushed_end for key, each in self.progress.items()
        }
        return sorted(ends[voter.key] for voter in voters)[-voters.majority]

    patch.setattr(Leader, "majority_end", majority_end)


def change_several_voters_at_once(patch: pytest.MonkeyPatch) -> None:
    def without(self: VoterSet, key: ReplicaKey) -> VoterSet:
        return VoterSet(voter for voter in list(self)[:1] if voter.key != key) or self

    patch.setattr(VoterSet, "without", without)


DEFECTS: dict[Callable[[pytest.MonkeyPatch], None], str] = {
    forget_epoch: "MonotonicEpoch",
    lead_without_votes: "SingleLeader",
    count_unsynced_records: "MajorityReachedHighWatermark",
    commit_with_a_minority: "MajorityReachedHighWatermark",
    add_replica_that_is_behind: "MajorityReachedHighWatermark",
    take_every_high_watermark: "MonotonicHighWatermark",
    commit_records_of_earlier_epochs: "MonotonicHighWatermark",
    snapshot_without_last_record: "SnapshotAtLogStart",
    snapshot_in_epoch_of_leader: "SnapshotAtLogStart",
    load_snapshot_when_elected: "LeaderNeverLoadSnapshot",
    never_truncate: "ConsistentCommittedData",
    change_voters_while_a_change_is_uncommitted: "AtMostOneUncommittedVoterSet",
    elect_without_pre_vote: "StableLeadership",
    grant_pre_votes_although_the_leader_is_there: "StableLeadership",
    vote_twice: "one vote",
    ignore_log_of_candidate: "leader completeness",
    count_removed_leader: "leader completeness",
    change_several_voters_at_once: "one change at a time",
    keep_leading_after_newer_epoch: "liveness",
}
"""Each with the property that it violates, also if others find it first."""


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defect_is_found(defect: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    found: set[str] = set()
    for seed in range(2000):
        try:
            simulate(seed)
        except PropertyViolated as violated:
            found.add(str(violated))
            if f": {DEFECTS[defect]}: " in str(violated):
                return
    raise AssertionError(f"{DEFECTS[defect]} does not find it: {found}")


def test_records_of_earlier_epochs_commit_only_with_one_of_this() -> None:
    """Raft 5.4.2, figure 8."""
    ids = (1, 2, 3)
    raft = RaftReplica(
        LocalReplica(ReplicaKey(1)),
        ReplicaLog(end_offset=4, epochs=[(1, 0)]),
        VoterSetHistory(VoterSet.of(*ids)),
        ElectionState(1),
        Random(1),
    )
    raft.start(0.0)
    raft.tick(raft.deadline)
    for pre_vote in (True, False):
        votes = [e.request for e in raft.ready() if isinstance(e, Send) and isinstance(e.request, Vote)]
        assert [vote.pre_vote for vote in votes] == [pre_vote, pre_vote]
        raft.responded(2, votes[0], VoteResponse(0, votes[0].epoch, None, granted=True), 3.0)
    assert isinstance(raft.state.role, Leader)
    raft.flushed(5, 3.0)
    old, new = Fetch(ReplicaKey(2), 2, 4, 1, 0, 0.5), Fetch(ReplicaKey(2), 2, 5, 2, 0, 0.5)
    raft.ready()
    raft.step("old", old, 3.0)
    assert not [effect for effect in raft.ready() if isinstance(effect, HighWatermark)]
    raft.step("new", new, 3.0)
    assert [effect for effect in raft.ready() if isinstance(effect, HighWatermark)] == [HighWatermark(5)]
