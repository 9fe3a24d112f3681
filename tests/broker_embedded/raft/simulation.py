"""A whole metadata quorum in one thread on virtual time: seeded faults, a lossy network, crashes, and properties."""

from __future__ import annotations

import heapq
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyclient.broker_embedded.controller.raft.messages import AddVoter, Answer, RemoveVoter, Send
from pyclient.broker_embedded.controller.raft.quorum_state import RaftTimeouts
from pyclient.broker_embedded.controller.raft.roles import Follower, Leader
from pyclient.broker_embedded.controller.raft.voters import ReplicaKey, Voter, VoterSet
from tests.broker_embedded.raft.properties import Properties, PropertyViolated
from tests.broker_embedded.raft.simulated_node import Entry, SimulatedNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyclient.broker_embedded.controller.raft.messages import Request, VoterChange

TIMEOUTS = RaftTimeouts(election=1.0, fetch=2.0, retry_backoff=0.05, fetch_max_wait=0.5)
REQUEST_TIMEOUT = 2.0


class Simulation:
    """`voters` voters and `observers` observers; everything random comes from `seed`.

    With `dynamic` the voters can change (KIP-853): each replica has a directory id, and the log has the voters.
    """

    def __init__(self, seed: int, *, voters: int = 3, observers: int = 0, dynamic: bool = False) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.loss = 0.0
        self.delay = 0.01
        self.cut: set[tuple[int, int]] = set()
        ids = tuple(range(1, voters + 1))
        self.dynamic = dynamic
        voter_set = VoterSet(Voter(ReplicaKey(node, UUID(int=node))) for node in ids) if dynamic else VoterSet.of(*ids)
        everyone = range(1, voters + observers + 1)
        bootstrap = tuple(everyone) if dynamic else ()
        self.nodes = {
            node: SimulatedNode(node, voter_set, TIMEOUTS, Random(self.rng.getrandbits(64)), bootstrap=bootstrap)
            for node in everyone
        }
        self.properties = Properties(self.nodes, voter_set)
        self.changes: list[int] = []
        """The error codes of the answers to changes of the voters."""
        self._directories = 1000
        self.proposed = 0
        self.idle = False
        self.accepted: dict[int, int] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._ticks: dict[int, float] = {}
        self._waiting: dict[int, bool] = {}
        for node in self.nodes.values():
            node.start(0.0)
            self.settle(node)

    # The loop

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Arrange a call after `delay` seconds of virtual time."""
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, action))

    def run(self, until: float) -> None:
        """Let virtual time pass up to `until`."""
        while self._events and self._events[0][0] <= until:
            self.now, _number, action = heapq.heappop(self._events)
            action()
        self.now = until

    def run_while(self, condition: Callable[[], bool], limit: float) -> bool:
        """Let time pass while `condition` holds, `limit` seconds at most; return whether it ended."""
        end = self.now + limit
        while condition():
            if not self._events or self._events[0][0] > end:
                return False
            self.now, _number, action = heapq.heappop(self._events)
            action()
        return True

    def settle(self, node: SimulatedNode) -> None:
        """Carry out a node's effects until there are none, check the properties, and arrange its next tick."""
        raft = node.running
        if effects := raft.ready():
            deliver = partial(self._deliver, node)
            while effects:
                for effect in effects:
                    self.properties.before(node, effect)
                    node.perform(effect, self.now, deliver)
                effects = raft.ready()
            self.properties.after(node)
            self.properties.applied(node)
        if node.sync_due:
            node.sync_due = False
            self.at(self.rng.random() * 0.01, self._for(node, lambda: self._sync(node)))
        deadline = raft.deadline
        if deadline < self._ticks.get(node.key.id, float("inf")):
            self._ticks[node.key.id] = deadline
            self.at(max(0.0, deadline - self.now), self._for(node, lambda: self._tick(node, deadline)))

    def _for(self, node: SimulatedNode, action: Callable[[], None]) -> Callable[[], None]:
        incarnation = node.incarnation

        def run() -> None:
            if node.incarnation == incarnation and node.raft is not None:
                action()

        return run

    def _tick(self, node: SimulatedNode, deadline: float) -> None:
        if self._ticks.get(node.key.id) == deadline:
            del self._ticks[node.key.id]
        node.running.tick(self.now)
        self.settle(node)

    def _sync(self, node: SimulatedNode) -> None:
        node.sync(self.now)
        self.settle(node)

    # The network

    def _deliver(self, node: SimulatedNode, message: Send | Answer) -> None:
        if isinstance(message, Answer):
            message.token(message.response)
            return
        self._count += 1
        number = self._count
        self._waiting[number] = True
        request, source, target = message.request, node, self.nodes[message.node]

        def fail() -> None:
            if self._waiting.pop(number, False):
                source.running.failed(target.key.id, request, self.now)
                self.settle(source)

        def responded(response: Any) -> None:
            def arrive() -> None:
                if self._waiting.pop(number, False):
                    source.running.responded(target.key.id, request, response, self.now)
                    self.settle(source)

            self._send(target.key.id, source.key.id, self._for(source, arrive))

        self.at(REQUEST_TIMEOUT, self._for(source, fail))
        self._send(source.key.id, target.key.id, lambda: self._arrive(target, request, responded))

    def _arrive(self, target: SimulatedNode, request: Request, responded: Callable[[Any], None]) -> None:
        if target.raft is not None:
            target.raft.step(responded, request, self.now)
            self.settle(target)

    def _send(self, source: int, target: int, arrive: Callable[[], None]) -> None:
        if (source, target) in self.cut or self.rng.random() < self.loss:
            return
        self.at(self.rng.random() * self.delay, arrive)

    # What happens to the nodes

    def leader(self) -> SimulatedNode | None:
        """Return the node that leads the highest epoch, None if no running node leads."""
        leading = [n for n in self.nodes.values() if n.raft is not None and isinstance(n.raft.state.role, Leader)]
        return max(leading, key=lambda node: node.running.state.epoch, default=None)

    def propose(self) -> None:
        """Let every node that believes it leads append a record or a few."""
        for node in self.nodes.values():
            if node.raft is not None and isinstance(node.raft.state.role, Leader):
                count = self.rng.randint(1, 3)
                values = [Entry(node.raft.state.epoch, self.proposed + at) for at in range(count)]
                self.proposed += count
                node.raft.append(tuple(values), count, self.now)
                self.settle(node)

    def propose_every(self, seconds: float) -> None:
        """Let records be appended from now on, again and again, except while `idle`."""
        if not self.idle:
            self.propose()
        self.at(seconds, lambda: self.propose_every(seconds))

    def change_voters(self) -> None:
        """Ask a node that believes it leads to add a random node that is no voter, or to remove a random voter."""
        leader = self.leader()
        if leader is None:
            return
        voters = leader.running.state.voters.newest
        strangers = [
            node.key for node in self.nodes.values() if node.key not in voters and node.key.id not in voters.ids
        ]
        request: VoterChange
        if strangers and (len(voters) == 1 or self.rng.random() < 0.6):
            request = AddVoter(Voter(self.rng.choice(strangers)), 2.0, ack_when_committed=self.rng.random() < 0.7)
        else:
            request = RemoveVoter(self.rng.choice(voters.keys), 2.0)
        leader.running.step(lambda response: self.changes.append(response.error), request, self.now)
        self.settle(leader)

    def replace_disk(self, number: int) -> None:
        """Kill a node that is no voter, and start it with an empty disk: it is another replica."""
        node = self.nodes[number]
        if any(number in each.disk_voters().ids for each in self.nodes.values()):
            return
        self.crash(number)
        self._directories += 1
        node.replace_disk(UUID(int=self._directories))
        self.properties.forget(number)
        self.restart(number)

    def crash(self, number: int) -> None:
        """Kill a node."""
        node = self.nodes[number]
        if node.raft is not None:
            node.crash()
            self._ticks.pop(number, None)

    def restart(self, number: int) -> None:
        """Start a node that was killed."""
        node = self.nodes[number]
        if node.raft is None:
            node.start(self.now)
            self.settle(node)

    def isolate(self, number: int) -> None:
        """Cut a node off from the others."""
        for other in self.nodes:
            self.cut.add((number, other))
            self.cut.add((other, number))

    def cut_all_but_a_majority(self, leader: SimulatedNode) -> None:
        """Cut links between voters, some in one direction only, but none between a leader and a majority.

        Of five voters every second time as in KIP-996: two others reach the leader and each other, one reaches just one
        of these two, and the last one just the leader.
        """
        me = leader.key.id
        voters = leader.running.state.voters.newest
        others = [node for node in voters.ids if node != me]
        self.rng.shuffle(others)
        if len(voters) == 5 and self.rng.random() < 0.5:
            only_leader, not_leader, both, third = others
            whole = [(me, only_leader), (me, both), (me, third), (both, not_leader), (both, third)]
            pairs = [(one, other) for one in voters.ids for other in voters.ids if one != other]
            self.cut.update(pair for pair in pairs if pair not in whole and pair[::-1] not in whole)
            return
        majority = {me, *others[: voters.majority - 1]}
        for one in voters.ids:
            for other in voters.ids:
                often = me in (one, other)
                if one != other and not {one, other} <= majority and self.rng.random() < (0.7 if often else 0.2):
                    self.cut.add((one, other))

    def heal(self) -> None:
        """Repair the network and start all nodes."""
        self.cut.clear()
        self.loss, self.delay = 0.0, 0.01
        for number in self.nodes:
            self.restart(number)

    def fault(self) -> None:
        """Do one random thing to the network, a node, or a log."""
        rng = self.rng
        number = rng.choice(list(self.nodes))
        node = self.nodes[number]
        match rng.randrange(16 if self.dynamic else 10):
            case 0:
                self.isolate(number)
            case 1:
                other = rng.choice(list(self.nodes))
                self.cut.add((number, other))
            case 2:
                self.cut.clear()
            case 3:
                self.loss = rng.choice((0.0, 0.05, 0.3))
            case 4:
                self.delay = rng.choice((0.001, 0.05, 0.5, 3.0))
            case 5:
                self.crash(number)
                if rng.random() < 0.4:
                    self.restart(number)
            case 6:
                for each in self.nodes:
                    self.restart(each)
            case 7:
                if node.raft is not None:
                    node.create_snapshot(delete=rng.random() < 0.7)
                    self.settle(node)
            case 8:
                if node.raft is not None:
                    node.raft.resign(self.now)
                    self.settle(node)
            case 9:
                leader = self.leader()
                if leader is not None:
                    self.crash(leader.key.id)
            case 10:
                self.replace_disk(number)
            case _:
                self.change_voters()


def simulate(seed: int, *, faults: int = 12) -> Simulation:
    """Run a quorum through random faults, then heal it and see it commit; raise `PropertyViolated` with the seed."""
    rng = Random(seed)
    voters, observers = rng.choice((1, 2, 3, 3, 3, 5)), rng.choice((0, 0, 1, 2))
    simulation = Simulation(seed, voters=voters, observers=observers, dynamic=rng.random() < 0.5)
    try:
        for _ in range(faults):
            for _ in range(rng.randint(1, 3)):
                simulation.propose()
                simulation.run(simulation.now + rng.random() * 0.6)
            simulation.fault()
        simulation.heal()
        _converges(simulation)
        simulation.properties.at_end()
    except Exception as error:
        raise PropertyViolated(f"seed {seed}, at {simulation.now:.3f} s: {error}") from error
    return simulation


def _converges(simulation: Simulation) -> None:
    """Check that a healed quorum elects a leader, commits on every node, and keeps the leader while links are cut."""

    def has_no_lasting_leader() -> bool:
        leader = simulation.leader()
        if leader is None:
            return True
        state = leader.running.state  # a leader that is being removed will resign
        return leader.key not in state.voters.newest or state.voters.newest_offset >= state.high_watermark

    if not simulation.run_while(has_no_lasting_leader, 60):
        raise PropertyViolated("liveness: no leader within 60 s of the healing")
    goal = len(simulation.properties.committed)

    simulation.propose_every(0.1)
    if not simulation.run_while(lambda: any(len(node.applied) <= goal for node in simulation.nodes.values()), 60):
        lengths = {number: len(node.applied) for number, node in simulation.nodes.items()}
        raise PropertyViolated(f"liveness: nothing was committed everywhere within 60 s: {lengths}, wanted {goal + 1}")
    keeps_its_leader(simulation)


def keeps_its_leader(simulation: Simulation) -> None:
    """Check that a leader that reaches a majority keeps its epoch and commits while other links are cut (KIP-996)."""

    def is_followed_by_all() -> bool:
        leader = simulation.leader()
        return leader is not None and all(
            isinstance(role := node.running.state.role, Follower)
            and role.has_fetched
            and role.leader_id == leader.key.id
            and node.disk.synced == leader.disk.end
            for node in simulation.nodes.values()
            if node is not leader
        )

    if not simulation.run_while(lambda: not is_followed_by_all(), 60):
        raise PropertyViolated("liveness: the nodes did not follow the leader within 60 s")
    leader = simulation.leader()
    assert leader is not None
    # A voter whose log is as long as the others' may win an election: without new records it stays so.
    simulation.idle = simulation.rng.random() < 0.5
    simulation.cut_all_but_a_majority(leader)
    simulation.properties.lasting_epoch = leader.running.state.epoch
    simulation.run(simulation.now + 4)
    simulation.idle = False
    committed = len(simulation.properties.committed)
    if not simulation.run_while(lambda: len(simulation.properties.committed) <= committed, 10):
        raise PropertyViolated(f"liveness: node {leader.key} commits nothing although a majority reaches it")
