"""Properties that hold in every run of the simulated quorum: those of Kafka's own Raft simulation, and more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.controller.raft.messages import HighWatermark, InstallSnapshot, SaveElection
from pyclient.broker_embedded.controller.raft.roles import Leader
from pyclient.broker_embedded.controller.raft.voters import VoterSet

if TYPE_CHECKING:
    from pyclient.broker_embedded.controller.raft.messages import Effect
    from pyclient.broker_embedded.controller.raft.voters import ReplicaKey
    from tests.broker_embedded.raft.simulated_node import Entry, SimulatedNode


class PropertyViolated(AssertionError):
    """The quorum did something that Raft rules out."""


class Properties:
    """Checks every effect of every node against what the whole quorum did so far."""

    def __init__(self, nodes: dict[int, SimulatedNode], voters: VoterSet) -> None:
        self._nodes = nodes
        self._leaders: dict[int, int] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._epochs: dict[int, int] = dict.fromkeys(nodes, 0)
        self._high_watermarks: dict[tuple[int, int], int] = {}
        self.committed: list[Entry] = []
        self._committed_voters = voters

    def before(self, node: SimulatedNode, effect: Effect) -> None:
        """Check an effect before it is carried out."""
        match effect:
            case SaveElection(state):
                number = node.key.id
                if state.epoch < self._epochs[number]:
                    self._fail(f"monotonic epoch: node {number} goes from {self._epochs[number]} to {state.epoch}")
                self._epochs[number] = state.epoch
                if state.voted is not None:
                    earlier = self._votes.setdefault((node.key, state.epoch), state.voted)
                    if earlier != state.voted:
                        self._fail(f"one vote: node {number} votes {earlier} and {state.voted} in {state.epoch}")
            case InstallSnapshot():
                if isinstance(node.running.state.role, Leader):
                    self._fail(f"a leader never loads a snapshot: node {node.key} does")
            case HighWatermark(offset):
                self._check_high_watermark(node, offset)
            case _:
                pass

    def forget(self, number: int) -> None:
        """Expect nothing of what a node had on a disk that was replaced."""
        self._epochs[number] = 0

    def after(self, node: SimulatedNode) -> None:
        """Check a node after its effects were carried out."""
        role = node.running.state.role
        disk = node.disk
        if isinstance(role, Leader):
            if role.epoch not in self._leaders:
                self._check_has_committed(node)
            leader = self._leaders.setdefault(role.epoch, node.key.id)
            if leader != node.key.id:
                self._fail(f"single leader: epoch {role.epoch} has the leaders {leader} and {node.key}")
        if disk.start and (disk.oldest is None or disk.oldest.offset != disk.start):
            self._fail(f"snapshot at log start: node {node.key} starts at {disk.start} without a snapshot there")
        if node.running.state.log.end_offset != disk.end:
            self._fail(f"node {node.key} has {disk.end} entries, the core counts {node.running.state.log.end_offset}")

    def applied(self, node: SimulatedNode) -> None:
        """Check that a node applied what the others applied, and remember what is committed."""
        shared = min(len(node.applied), len(self.committed))
        if node.applied[max(0, shared - 8) : shared] != self.committed[max(0, shared - 8) : shared]:
            self._fail(f"consistent committed data: node {node.key} applied other entries below {shared}")
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
                self._fail(f"consistent committed data: node {node.key} differs")

    def _check_high_watermark(self, node: SimulatedNode, offset: int) -> None:
        key = node.key.id, node.incarnation
        if offset < self._high_watermarks.get(key, 0):
            self._fail(f"monotonic high watermark: node {node.key} goes back to {offset}")
        self._high_watermarks[key] = offset
        role = node.running.state.role
        if not isinstance(role, Leader):
            return
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
            self._fail(f"majority reached high watermark: {offset} of node {node.key} is synced by {have} voters only")

    def _check_has_committed(self, node: SimulatedNode) -> None:
        disk = node.disk
        end = len(self.committed)
        if disk.end < end or (end > disk.start and disk.entry(end - 1) != self.committed[end - 1]):
            self._fail(f"leader completeness: node {node.key} leads without all {end} committed entries")

    def _fail(self, what: str) -> None:
        raise PropertyViolated(what)
