"""Properties that hold in every run of the simulated quorum.

The nine invariants of Kafka's RaftEventSimulationTest, by their names there:

- MonotonicEpoch: a node's epoch on its disk never falls, and is the one in its memory.
- SingleLeader: all nodes name the same leader of an epoch.
- MajorityReachedHighWatermark: what a leader commits is on the disks of a majority of the voters.
- MonotonicHighWatermark: no leader commits less than the leaders of earlier epochs did. Here also: no node's falls.
- SnapshotAtLogStart: a log starts at 0 or at the end of a snapshot, in whose epoch a fetch from there is valid.
- LeaderNeverLoadSnapshot: a leader has the whole log.
- ConsistentCommittedData: all nodes have the same records below their high watermarks.
- AtMostOneUncommittedVoterSet: a leader appends a voter set only after the one before it is committed.
- StableLeadership: a leader that a majority reaches keeps its epoch (see `keeps_its_leader` of the simulation).

Further ones are of Raft itself: one vote per node and epoch, leader completeness (a leader begins with everything
that is committed), committed voter sets that differ in one voter, and liveness.
"""

from __future__ import annotations

from itertools import dropwhile
from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.raft.messages import (
    AppendVoters,
    HighWatermark,
    InstallSnapshot,
    SaveElection,
)
from pyclient.broker_embedded.controller.raft.replica_log import Valid
from pyclient.broker_embedded.controller.raft.roles import Leader
from pyclient.broker_embedded.controller.raft.voters import VoterSet
from tests.broker_embedded.raft.simulated_node import voters_in

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.raft.election_state import ElectionState
    from pyclient.broker_embedded.controller.raft.messages import Effect
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey
    from tests.broker_embedded.raft.simulated_node import Entry, SimulatedNode


class PropertyViolated(AssertionError):
    """The quorum did something that Raft rules out."""


class Properties:
    """Checks every effect of every node against what the whole quorum did so far."""

    def __init__(self, nodes: dict[int, SimulatedNode], voters: VoterSet) -> None:
        self._nodes = nodes
        self._leading: set[tuple[int, int]] = set()
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._epochs: dict[int, int] = dict.fromkeys(nodes, 0)
        self._high_watermarks: dict[tuple[int, int], int] = {}
        self._newest_commit = 0, 0
        self._starts: dict[int, tuple[int, int]] = {}
        self._applied: dict[int, tuple[int, int]] = {}
        self.committed: list[Entry] = []
        self._initial_voters = self._committed_voters = voters
        self.lasting_epoch: int | None = None
        """The epoch that must not end, because a majority reaches its leader."""

    def before(self, node: SimulatedNode, effect: Effect) -> None:
        """Check an effect before it is carried out."""
        match effect:
            case SaveElection(state):
                self._check_election(node, state)
            case InstallSnapshot():
                if isinstance(node.running.state.role, Leader):
                    self._fail(f"LeaderNeverLoadSnapshot: node {node.key} does")
            case HighWatermark(offset):
                self._check_log_start(node)
                self._check_high_watermark(node, offset)
            case AppendVoters():
                self._check_uncommitted_voters(node, effect)
            case _:
                pass

    def forget(self, number: int) -> None:
        """Expect nothing of what a node had on a disk that was replaced."""
        self._epochs[number] = 0

    def after(self, node: SimulatedNode) -> None:
        """Check a node after its effects were carried out."""
        state = node.running.state
        role = state.role
        disk = node.disk
        epochs = role.epoch, disk.election.epoch, self._epochs[node.key.id]
        if len(set(epochs)) > 1:
            self._fail("MonotonicEpoch: node {} is in {}, its disk in {}, and was in {}".format(node.key, *epochs))
        if isinstance(role, Leader) and (role.epoch, node.key.id) not in self._leading:
            self._leading.add((role.epoch, node.key.id))
            self._check_leader(node, role.epoch, node.key.id)
            self._check_has_committed(node)
        self._check_log_start(node)
        if state.log.end_offset != disk.end:
            self._fail(f"node {node.key} has {disk.end} entries, the core counts {state.log.end_offset}")

    def applied(self, node: SimulatedNode) -> None:
        """Check that a node applied what the others applied, and remember what is committed."""
        seen = node.incarnation, len(node.applied)
        if self._applied.get(node.key.id) == seen:
            return
        self._applied[node.key.id] = seen
        shared = min(len(node.applied), len(self.committed))
        if node.applied[max(0, shared - 8) : shared] != self.committed[max(0, shared - 8) : shared]:
            self._fail(f"ConsistentCommittedData: node {node.key} applied other entries below {shared}")
        self.committed.extend(node.applied[shared:])
        for entry in node.applied[shared:]:
            if isinstance(entry.value, VoterSet):
                changed = set(entry.value.keys) ^ set(self._committed_voters.keys)
                if len(changed) > 1:
                    self._fail(f"one change at a time: {entry.value!r} follows {self._committed_voters!r}")
                self._committed_voters = entry.value

    def at_end(self) -> None:
        """Compare everything that was ever applied."""
        for node in self._nodes.values():
            if node.applied != self.committed[: len(node.applied)]:
                self._fail(f"ConsistentCommittedData: node {node.key} differs")

    def _check_election(self, node: SimulatedNode, state: ElectionState) -> None:
        number = node.key.id
        if state.epoch < self._epochs[number]:
            self._fail(f"MonotonicEpoch: node {number} goes from {self._epochs[number]} to {state.epoch}")
        self._epochs[number] = state.epoch
        if self.lasting_epoch is not None and state.epoch > self.lasting_epoch:
            self._fail(f"StableLeadership: node {number} ends epoch {self.lasting_epoch} by {state}")
        if state.voted is not None:
            earlier = self._votes.setdefault((node.key, state.epoch), state.voted)
            if earlier != state.voted:
                self._fail(f"one vote: node {number} votes {earlier} and {state.voted} in {state.epoch}")
        if state.leader_id is not None:
            self._check_leader(node, state.epoch, state.leader_id)

    def _check_leader(self, node: SimulatedNode, epoch: int, leader_id: int) -> None:
        leader = self._leaders.setdefault(epoch, leader_id)
        if leader != leader_id:
            self._fail(f"SingleLeader: epoch {epoch} is led by {leader}, and by {leader_id} according to {node.key}")

    def _check_high_watermark(self, node: SimulatedNode, offset: int) -> None:
        key = node.key.id, node.incarnation
        if offset < self._high_watermarks.get(key, 0):
            self._fail(f"MonotonicHighWatermark: node {node.key} goes back to {offset}")
        self._high_watermarks[key] = offset
        role = node.running.state.role
        if not isinstance(role, Leader):
            return
        epoch, committed = self._newest_commit
        if role.epoch >= epoch:  # an earlier leader may learn late of what the newer one has committed meanwhile
            if offset < committed:
                self._fail(
                    f"MonotonicHighWatermark: node {node.key} commits up to {offset} as the leader of epoch "
                    f"{role.epoch}, up to {committed} was committed in epoch {epoch}"
                )
            self._newest_commit = role.epoch, offset
        self._check_majority(node, offset)

    def _check_majority(self, node: SimulatedNode, offset: int) -> None:
        expected = node.disk.entry(offset - 1)
        have = 0
        voters = node.disk_voters()
        for voter in voters:
            disk = self._nodes[voter.key.id].disk
            if disk.directory_id != voter.key.directory_id:
                continue
            if disk.start >= offset or (disk.synced >= offset and disk.entry(offset - 1) == expected):
                have += 1
        if have <= len(voters) // 2:
            self._fail(f"MajorityReachedHighWatermark: {offset} of node {node.key} is synced by {have} voters only")

    def _check_uncommitted_voters(self, node: SimulatedNode, effect: AppendVoters) -> None:
        end = len(node.applied)
        committed = voters_in(node.applied) or self._initial_voters
        later = [entry.value for entry in node.disk.entries[end - node.disk.start :]]
        sets = [value for value in (*later, effect.voters) if isinstance(value, VoterSet)]
        uncommitted = list(dropwhile(lambda voters: voters == committed, sets))
        if len(set(uncommitted)) > 1:
            self._fail(f"AtMostOneUncommittedVoterSet: node {node.key} appends {uncommitted[-1]} after {uncommitted}")

    def _check_log_start(self, node: SimulatedNode) -> None:
        disk, log = node.disk, node.running.state.log
        start, oldest = (node.incarnation, disk.start), disk.oldest
        if self._starts.get(node.key.id) == start:
            return
        self._starts[node.key.id] = start
        if disk.start and (oldest is None or oldest.offset != disk.start):
            self._fail(f"SnapshotAtLogStart: node {node.key} starts at {disk.start} without a snapshot there")
        if oldest is None:
            return
        before = disk.snapshots[oldest]
        fits = len(before) == oldest.offset and before[-1].epoch == oldest.epoch == log.epoch_before(oldest.offset)
        if not fits or log.check_fetch(oldest.offset, oldest.epoch) != Valid():
            self._fail(f"SnapshotAtLogStart: the log of node {node.key} does not continue its snapshot {oldest}")

    def _check_has_committed(self, node: SimulatedNode) -> None:
        disk = node.disk
        end = len(self.committed)
        if disk.end < end or (end > disk.start and disk.entry(end - 1) != self.committed[end - 1]):
            self._fail(f"leader completeness: node {node.key} leads without all {end} committed entries")

    def _fail(self, what: str) -> None:
        raise PropertyViolated(what)
