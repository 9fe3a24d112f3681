"""Several nodes of one metadata quorum on one event loop, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller.quorum_files import format_quorum
from pyclient.broker_embedded.controller.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from pyclient.broker_embedded.log.checkpoints import render_identity
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.network.listeners import NodeSockets
from tests.waiting import until_async

_PATIENT: Final = {"broker_session_timeout_ms": 60_000, "controller_quorum_fetch_timeout_ms": 4_000}
STEADY: Final = {"controller_quorum_fetch_timeout_ms": 60_000}
"""On a busy machine, too, the active controller stays."""


class Nodes(AbstractAsyncContextManager["Nodes"]):
    """Nodes with the ids 1, 2, ... in directories below `path`; the first `voters` of them are controllers.

    With `dynamic` the metadata log has the voters (KIP-853), and `add` makes further controllers. By default the
    sessions of brokers last a minute, and a controller is given up after 4 s: on a busy machine, too, they stay.
    """

    def __init__(
        self, path: Path, count: int = 3, voters: int | None = None, *, dynamic: bool = False, **settings: Any
    ) -> None:
        self.path = path
        self.cluster_id = "AAAAAAAAAAAAAAAAAAAAAA"
        self.settings = _PATIENT | settings
        self.voters = range(1, (count if voters is None else voters) + 1)
        self.running: dict[int, BrokerNode] = {}
        self.addresses: dict[int, tuple[str, int]] = {}
        self.ids = range(1, count + 1)
        self._sockets: dict[int, socket.socket] = {}
        for node_id in self.voters:
            bound = socket.create_server(("127.0.0.1", 0))
            self.addresses[node_id] = bound.getsockname()[:2]
            self._sockets[node_id] = bound
        self.initial = tuple(self.voters)
        self.dynamic = dynamic
        if dynamic:
            self._format()

    def key(self, node_id: int) -> ReplicaKey:
        """Return the key of a controller whose voters are in the log."""
        return ReplicaKey(node_id, UUID(int=1000 + node_id))  # Kafka reserves the first hundred

    def _format(self) -> None:
        first = VoterSet(
            Voter(self.key(voter), (Endpoint("CONTROLLER", *self.addresses[voter]),)) for voter in self.initial
        )
        for node_id in self.initial:
            format_quorum(RealFileSystem(), self._identify(node_id), first)

    def _identify(self, node_id: int) -> str:
        """Make a node's directory, whose id is the node's."""
        directory = self.path / f"node-{node_id}"
        if not directory.exists():
            directory.mkdir(parents=True)
            identity = render_identity(
                cluster_id=self.cluster_id, node_id=node_id, directory_id=self.key(node_id).directory_id
            )
            (directory / "meta.properties").write_bytes(identity)
        return str(directory)

    async def add(self, node_id: int) -> BrokerNode:
        """Start a further controller, which observes until it is made a voter."""
        self._identify(node_id)
        return await self.start_elsewhere(node_id)

    async def start_elsewhere(self, node_id: int) -> BrokerNode:
        """Start a controller at a new address."""
        bound = socket.create_server(("127.0.0.1", 0))
        self.addresses[node_id] = bound.getsockname()[:2]
        self._sockets[node_id] = bound
        return await self.start(node_id)

    async def __aenter__(self) -> Nodes:
        for node_id in self.ids:
            await self.start(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for node_id in list(self.running):
            await self.stop(node_id)
        for bound in self._sockets.values():
            bound.close()

    def config(self, node_id: int) -> BrokerConfig:
        """Return the configuration of a node."""
        if self.dynamic:
            known = [f"{host}:{port}" for voter, (host, port) in self.addresses.items() if voter in self.initial]
            if node_id in self.addresses:
                known.append("{}@{}:{}".format(node_id, *self.addresses[node_id]))
            quorum = {"controller.quorum.bootstrap.servers": ",".join(known)}
        else:
            voters = ",".join(f"{voter}@{host}:{port}" for voter, (host, port) in self.addresses.items())
            quorum = {"controller.quorum.voters": voters}
        settings = {
            "node.id": node_id,
            **quorum,
            "process.roles": "broker,controller" if node_id in self.addresses else "broker",
            **{name.replace("_", "."): value for name, value in self.settings.items()},
        }
        directory = self.path / f"node-{node_id}"
        directory.mkdir(parents=True, exist_ok=True)
        return BrokerConfig.build(settings, data_dir=str(directory), cluster_id=self.cluster_id)

    async def start(self, node_id: int) -> BrokerNode:
        """Start a node on its data."""
        controller_listener = self._sockets.pop(node_id, None)
        node = BrokerNode(
            self.config(node_id), loop=asyncio.get_running_loop(), sockets=NodeSockets(controller=controller_listener)
        )
        await node.start()
        self.running[node_id] = node
        return node

    async def stop(self, node_id: int, *, clean: bool = True) -> None:
        """Stop a node; with `clean=False` as if its process had been killed."""
        await self.running.pop(node_id).stop(clean=clean)

    async def active(self) -> BrokerNode:
        """Return the node that is the active controller, once there is one that all others follow."""

        def found() -> BrokerNode | None:
            for node in self.running.values():
                if node.quorum is not None and node.quorum.is_active:
                    followers = [each.quorum for each in self.running.values() if each is not node]
                    if all(each is not None and each.leader_id == node.node_id for each in followers):
                        return node
            return None

        node: BrokerNode = await until_async(found, "an active controller")
        return node

    async def all_have(self, state: Callable[[BrokerNode], Any], what: str) -> None:
        """Wait until a state holds on every running node."""
        await until_async(lambda: all(state(node) for node in self.running.values()), what)
