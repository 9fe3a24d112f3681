"""The nodes of a simulated cluster: each is a process that can be killed and started again on its disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.network.listeners import NodeSockets
from tests.simulation.disk import Disk, MemoryFileSystem, SimulatedDiskThread
from tests.simulation.network import Network
from tests.simulation.world import Process, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
_STOP_SECONDS: Final = 60.0
OPTIONS: Final[Mapping[str, Any]] = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": 6_000,
    "group.consumer.session.timeout.ms": 6_000,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "broker.heartbeat.interval.ms": 250,
    "replica.fetch.wait.max.ms": 250,
    "replica.lag.time.max.ms": 1500,
}


class Node:
    """One node: its disk, and the process that runs it, if one does."""

    def __init__(self, cluster: Cluster, node_id: int, voters: str, setup: Mapping[str, Any]) -> None:
        self.node_id = node_id
        self.host = f"10.0.0.{node_id}"
        self.disk = Disk()
        self.life = 0
        self.process: Process | None = None
        self.broker: BrokerNode | None = None
        self._cluster = cluster
        self._fs: MemoryFileSystem | None = None
        self._config = BrokerConfig.build(
            {
                **OPTIONS,
                **setup["config"],
                "node.id": node_id,
                "process.roles": "broker,controller",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
            },
            data_dir=f"/node-{node_id}",
            host=self.host,
            port=PORT,
            as_version=setup["as_version"],
            profile=setup["profile"],
        )

    @property
    def running(self) -> BrokerNode | None:
        """The broker, if its process lives."""
        return self.broker if self.process is not None and self.process.alive else None

    def start(self) -> None:
        """Start a process on the disk, unless one runs."""
        if self.process is not None and self.process.alive:
            return
        world, network = self._cluster.world, self._cluster.network
        self.life += 1
        world.note(f"node {self.node_id} starts, life {self.life}")
        self.process = process = Process(world, f"node-{self.node_id}", self.host)
        network.attach(process)
        self._fs = fs = MemoryFileSystem(self.disk, process.clock.time_ms)
        fs.make_directory(self._config.data_dir)
        fs.sync_directory(os.path.dirname(self._config.data_dir))

        def made() -> BrokerNode:
            return BrokerNode(
                self._config,
                loop=process.loop,
                clock=process.clock,
                rng=process.new_rng(),
                fs=fs,
                sockets=NodeSockets(
                    network.listen(process, PORT),  # type: ignore[arg-type]
                    network.listen(process, CONTROLLER_PORT),  # type: ignore[arg-type]
                ),
                disk_thread=SimulatedDiskThread(process),
            )

        self.broker = process.within(made)
        assert self.broker is not None
        process.spawn(self.broker.start(), f"start of node {self.node_id}")

    def kill(self, *, power: bool = False) -> None:
        """End the process at once. With the `power` the disk forgets what was not synced."""
        process, broker, fs = self.process, self.broker, self._fs
        if process is None or broker is None or fs is None or not process.alive:
            return
        fs.dead = True
        process.kill()
        broker.descriptors.close()
        lost = self.disk.lose_unsynced(self._cluster.world.rng) if power else 0
        self._cluster.world.note(f"node {self.node_id} is killed" + (f", {lost} bytes are lost" if power else ""))

    def stop(self) -> None:
        """End the process in order."""
        process, broker, fs = self.process, self.broker, self._fs
        assert process is not None and broker is not None and fs is not None and process.alive
        world = self._cluster.world
        stopped = process.spawn(broker.stop(), f"stop of node {self.node_id}")
        world.run_until(stopped.done, _STOP_SECONDS, f"the stop of node {self.node_id}")
        fs.dead = True
        process.kill()
        world.note(f"node {self.node_id} has stopped")


class Cluster:
    """Three nodes, which are brokers and voters of the metadata quorum; `config` has options on top of `OPTIONS`."""

    def __init__(
        self,
        world: World,
        nodes: int = 3,
        *,
        as_version: str | None = None,
        profile: str = "test",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.world = world
        setup = {"as_version": as_version, "profile": profile, "config": config or {}}
        self.network = Network(world)
        ids = range(1, nodes + 1)
        voters = ",".join(f"{each}@10.0.0.{each}:{CONTROLLER_PORT}" for each in ids)
        self.nodes = {each: Node(self, each, voters, setup) for each in ids}
        self.bootstrap = ",".join(f"{node.host}:{PORT}" for node in self.nodes.values())
        self._clients = 0

    def start(self) -> None:
        """Start all nodes."""
        for node in self.nodes.values():
            node.start()

    def running(self) -> Iterator[tuple[Node, BrokerNode]]:
        """Yield the nodes that run, with their brokers."""
        for node in self.nodes.values():
            if node.running is not None:
                yield node, node.running

    @property
    def controller(self) -> Node | None:
        """The node that leads the quorum in the highest epoch."""
        active = [(broker.metadata_epoch, node.node_id) for node, broker in self.running() if _is_active(broker)]
        return self.nodes[max(active)[1]] if active else None

    def leader_of(self, topic: str, partition: int) -> Node | None:
        """Return the leader of a partition as the node with the newest metadata knows it."""
        found = self.image()
        state = None if found is None or topic not in found.topics else found.topics[topic].partitions.get(partition)
        return None if state is None else self.nodes.get(state.leader)

    def image(self) -> Any:
        """Return the newest metadata of a running node."""
        brokers = [(broker.metadata_offset, node.node_id) for node, broker in self.running()]
        broker = self.nodes[max(brokers)[1]].running if brokers else None
        return None if broker is None else broker.image

    def client(self, name: str) -> Process:
        """Return a process on a host of its own for a client."""
        self._clients += 1
        process = Process(self.world, name, f"10.0.1.{self._clients}")
        self.network.attach(process)
        return process

    def close(self) -> None:
        """End all processes, when the simulation is over."""
        for node in self.nodes.values():
            node.kill()
        for process in self.world.processes:
            process.discard()


def _is_active(broker: BrokerNode) -> bool:
    return broker.quorum is not None and broker.quorum.is_active
