"""The faults of a simulated cluster: kills, cuts, stalls, slow links, in an order that the seed decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.controller.broker_lifecycle import BrokerState
from tests.chaos.history import Fault, Freeze, Isolation
from tests.simulation.copying import COPIES
from tests.simulation.damage import Damage
from tests.simulation.workload import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyclient.broker_embedded.broker import BrokerNode
    from tests.chaos.history import History
    from tests.simulation.cluster import Cluster, Node
    from tests.simulation.copying import Copying
    from tests.simulation.disk import Disk
    from tests.simulation.late_requests import LateRequests
    from tests.simulation.world import Process

_UNITING_SECONDS: Final = 5.0


class Nemesis:
    """Strikes a cluster with one fault after the other; some last into the next ones.

    With `power` kills may take a node's power. If not all records are `synced`, this is one node until all are in sync.
    """

    def __init__(self, cluster: Cluster, history: History, late: LateRequests, *, power: bool, synced: bool) -> None:
        self.cluster = cluster
        self.late = late
        self.copiers: list[Copying] = []
        """All that were started, also those that are dead or succeeded."""
        self.killed_in_rebalances = 0
        self.healed = False
        self.rng = cluster.world.rng
        self._history = history
        self._power = power
        self._synced = synced
        self._weak: Node | None = None  # it may not have all records
        self.struck: list[str] = []
        self.powerless: list[int] = []
        """The nodes that lost their power, in order."""
        self.restored: list[int] = []
        """The nodes that got an older copy of their disk, in order."""
        self.damage = Damage(cluster)
        self._copies: dict[int, Disk] = {}
        self._isolated: dict[int, float] = {}  # node id -> since when
        self._stalled: dict[Process, tuple[int, float]] = {}  # of a node, since when

    def strike(self) -> None:
        """Do one random thing."""
        names = list(FAULTS)
        name = self.rng.choices(names, [FAULTS[each][0] for each in names])[0]
        self.struck.append(name)
        self.cluster.world.note(f"fault: {name}")
        FAULTS[name][1](self)

    def heal(self) -> None:
        """Repair the network, let all processes run, and start the nodes that are down."""
        self.cluster.world.note("healed")
        self.healed = True
        self.mend()
        for process in self.cluster.world.processes:
            self._resume(process)
        self.cluster.start()

    def mark(self, began: float) -> None:
        """Note the time of all faults in the history."""
        self._history.add(Fault("all", began, self.cluster.world.now, majority=False))

    # The faults

    def _any(self) -> Node:
        return self.rng.choice(list(self.cluster.nodes.values()))

    def _leader(self) -> Node:
        topic = self.rng.choice([TOPIC, COPIES, "__consumer_offsets", "__transaction_state"])
        partition = self.rng.randrange(PARTITIONS) if topic in (TOPIC, COPIES) else 0
        return self.cluster.leader_of(topic, partition) or self._any()

    def _controller(self) -> Node:
        return self.cluster.controller or self._any()

    def _kill(self, node: Node) -> None:
        if self._weak is not None and self._weak is not node and not self._is_whole():
            return  # the only replica with all records may be another one: that is beyond what replication promises
        power = self._power and node.running is not None and (self._synced or self._is_whole())
        self._end(node, power=power and self.rng.random() < 0.5)
        if self.rng.random() < 0.7:
            self.cluster.world.after(self.rng.uniform(0.05, 2.0), node.start)

    def _end(self, node: Node, *, power: bool) -> None:
        if power and node.running is not None:
            self.powerless.append(node.node_id)
            if not self._synced:
                self._weak = node
        node.kill(power=power)

    def _is_whole(self) -> bool:
        """Return True if all nodes run, are in sync in what they know now, and have no damaged records."""
        brokers = [broker for _node, broker in self.cluster.running()]
        if any(not _is_unfenced(broker) for broker in brokers):
            return False
        return (
            len(brokers) == len(self.cluster.nodes)
            and self.damage.is_repaired
            and all(
                len(state.isr) == len(state.replicas)
                for broker in brokers
                for topic in broker.image.topics.values()
                for state in topic.partitions.values()
            )
        )

    def kill_any(self) -> None:
        self._kill(self._any())

    def kill_leader(self) -> None:
        self._kill(self._leader())

    def kill_controller(self) -> None:
        self._kill(self._controller())

    def kill_all(self) -> None:
        if self._weak is not None and not self._is_whole():
            return
        self._end_all(power=self._power and self._synced and self.rng.random() < 0.5)

    def lose_power(self) -> None:
        """Take the power of a node, in runs with such faults: as soon as all are in sync, if not all is synced."""
        if not self._power:
            return
        if not self._synced:
            self._unite()
            if not self._is_whole():
                return
        node = self._leader()
        self._end(node, power=True)
        self.cluster.world.after(self.rng.uniform(0.05, 2.0), node.start)

    def _unite(self) -> None:
        """Repair the network, start all nodes, and wait for a while until they are in sync."""
        world = self.cluster.world
        self.mend()
        self.cluster.start()
        end = world.now + _UNITING_SECONDS
        while not self._is_whole() and world.now < end:
            world.run(0.1)

    def keep_copy(self) -> None:
        """Copy the disk of a node, as a backup while it runs."""
        node = self._leader()
        self._copies[node.node_id] = node.disk.copy()

    def restore_copy(self) -> None:
        """Give a node an older copy of its disk, when all are in sync and have the same metadata."""
        if not self._copies:
            return
        self._unite()
        offsets = {broker.metadata_offset for _node, broker in self.cluster.running()}
        if not self._is_whole() or len(offsets) > 1:
            return
        node_id = self.rng.choice(list(self._copies))
        node = self._weak = self.cluster.nodes[node_id]
        node.kill()
        node.disk = self._copies.pop(node_id)
        self.restored.append(node_id)
        self.cluster.world.note(f"node {node_id} gets an older copy of its disk")
        self.cluster.world.after(self.rng.uniform(0.05, 2.0), node.start)

    def flip_bit(self) -> None:
        """Flip a bit in a log of a node, when all are in sync. The next faults come before or while it is repaired."""
        self._unite()
        node = self.rng.choice([self._leader, self._any])()
        if self._is_whole() and self.damage.flip(node):
            self._weak = node

    def lose_power_of_all(self) -> None:
        """Take the power of all nodes at once."""
        self.struck.append("power of all")
        self.cluster.world.note("fault: power of all")
        self._end_all(power=True)

    def _end_all(self, *, power: bool) -> None:
        for node in self.cluster.nodes.values():
            self._end(node, power=power)
        for node in self.cluster.nodes.values():
            self.cluster.world.after(self.rng.uniform(0.05, 1.0), node.start)

    def start_all(self) -> None:
        self.cluster.start()

    def isolate(self) -> None:
        self._isolate(self.rng.choice([self._leader, self._controller, self._any])())

    def isolate_for(self, seconds: float) -> None:
        """Cut a leader off from the other nodes for that long, if all are in sync soon: these are a majority."""
        self._unite()
        if not self._is_whole():
            return
        world, began = self.cluster.world, self.cluster.world.now
        self.struck.append("long isolation")
        world.note("fault: long isolation")
        self._isolate(self._leader())
        world.run(seconds)
        self.mend()
        self._history.add(Fault("long isolation", began, world.now))

    def _isolate(self, node: Node) -> None:
        for other in self.cluster.nodes.values():
            if other is not node:
                self._cut(node.host, other.host)
                self._cut(other.host, node.host)
        self._isolated.setdefault(node.node_id, self.cluster.world.now)

    def isolate_wholly(self) -> None:
        node = self.rng.choice([self._leader, self._controller, self._any])()
        for process in self.cluster.world.processes:
            if process.host != node.host:
                self._cut(node.host, process.host)
                self._cut(process.host, node.host)
        self._isolated.setdefault(node.node_id, self.cluster.world.now)

    def cut_one_way(self) -> None:
        node, other = self.rng.sample(list(self.cluster.nodes.values()), 2)
        self._cut(node.host, other.host)

    def cut_answers(self) -> None:
        node = self._leader()
        for process in self.cluster.world.processes:
            if process.alive and process.host.startswith("10.0.1.") and self.rng.random() < 0.5:
                self._cut(node.host, process.host)

    def _cut(self, source: str, target: str) -> None:
        self.cluster.network.cut(source, target)

    def mend(self) -> None:
        """Let everything pass. The nodes that were isolated until now are noted."""
        self.cluster.network.heal()
        now = self.cluster.world.now
        self._history.add(*(Isolation(node_id, began, now) for node_id, began in self._isolated.items()))
        self._isolated.clear()

    def slow_down(self) -> None:
        node, seconds = self._any(), self.rng.choice((0.02, 0.2, 1.0))
        for other in self.cluster.nodes.values():
            self.cluster.network.slow[node.host, other.host] = seconds
            if self.rng.random() < 0.5:
                self.cluster.network.slow[other.host, node.host] = seconds

    def stall(self) -> None:
        node = self.rng.choice([self._leader, self._controller, self._any])()
        process = node.process
        if process is not None and process.alive:
            process.pause()
            self._stalled.setdefault(process, (node.node_id, self.cluster.world.now))
            self.cluster.world.after(self.rng.choice((0.3, 1.2, 2.5)), lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        """Let a process go on. A node's that was stalled until now is noted."""
        stalled = self._stalled.pop(process, None)
        if process.alive:
            if stalled is not None:
                self._history.add(Freeze(*stalled, self.cluster.world.now))
            process.resume()

    def stall_client(self) -> None:
        clients = [each for each in self.cluster.world.processes if each.alive and each.host.startswith("10.0.1.")]
        if clients:
            process = self.rng.choice(clients)
            process.pause()
            self.cluster.world.after(self.rng.uniform(0.2, 4.0), process.resume)

    def hold_request(self) -> None:
        self.late.hold()

    def repeat_request(self) -> None:
        self.late.repeat()

    def replace_copier(self) -> None:
        """Kill a copier, or let it go on later as a zombie."""
        present = {each.name: each for each in self.copiers}  # the last of each name
        if not present:
            return
        each = self.rng.choice(list(present.values()))
        if self.rng.random() < 0.5:
            each.kill()
        elif each.process.alive:
            each.process.pause()
            self.cluster.world.after(self.rng.uniform(0.1, 5.0), each.process.resume)
        self.copiers.append(each.successor())

    def kill_in_rebalance(self, copier: Copying) -> None:
        """Kill a copier, and all its successors, as soon as a rebalance takes or gives it partitions."""
        world = self.cluster.world

        def kill() -> None:
            if copier.over or self.healed:
                return
            self.killed_in_rebalances += 1
            world.note(f"{copier.name} is killed in a rebalance")
            copier.kill()
            world.after(self.rng.uniform(0.05, 1.0), succeed)

        def succeed() -> None:
            if not copier.is_succeeded:
                following = copier.successor()
                self.copiers.append(following)
                self.kill_in_rebalance(following)

        copier.on_rebalance = lambda: world.after(self.rng.choice((0.0, 0.005, 0.05)), kill)

    def nothing(self) -> None:
        """Let time pass without a new fault."""


def _is_unfenced(broker: BrokerNode) -> bool:
    """Return True if the controller has registered this life of a broker, and unfenced it."""
    lifecycle = None if broker.membership is None else broker.membership.lifecycle
    return lifecycle is not None and lifecycle.lifecycle.state is BrokerState.RUNNING


FAULTS: Final[Mapping[str, tuple[int, Callable[[Nemesis], None]]]] = {
    "kill any": (2, Nemesis.kill_any),
    "kill leader": (4, Nemesis.kill_leader),
    "kill controller": (2, Nemesis.kill_controller),
    "kill all": (1, Nemesis.kill_all),
    "lose power": (2, Nemesis.lose_power),
    "start all": (2, Nemesis.start_all),
    "isolate from nodes": (3, Nemesis.isolate),
    "isolate wholly": (2, Nemesis.isolate_wholly),
    "cut one way": (3, Nemesis.cut_one_way),
    "cut answers": (3, Nemesis.cut_answers),
    "mend": (5, Nemesis.mend),
    "slow": (2, Nemesis.slow_down),
    "stall node": (3, Nemesis.stall),
    "stall client": (1, Nemesis.stall_client),
    "hold request": (3, Nemesis.hold_request),
    "repeat request": (4, Nemesis.repeat_request),
    "replace copier": (3, Nemesis.replace_copier),
    "nothing": (2, Nemesis.nothing),
}
