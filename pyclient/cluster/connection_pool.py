"""The pool of a client's broker connections."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.asked_nodes import AskedNodes
from pyclient.cluster.metadata import EMPTY, ClusterMetadata, Node
from pyclient.cluster.node_connection import NodeConnection
from pyclient.config import ClientConfig, parse_address
from pyclient.errors import ConnectionFailed, KafkaError
from pyclient.net.api_versions import requires_sasl
from pyclient.net.connect import Connector, TcpConnector
from pyclient.net.connection import Connection
from pyclient.net.surroundings import SURROUNDINGS

if TYPE_CHECKING:
    from pyclient.net.sasl.authentication import Authenticator

log = logging.getLogger(__name__)


class ConnectionPool:
    """One `NodeConnection` for each node and purpose, bootstrap addresses included (as nodes with ids below 0).

    `failures` has, by address, the error of the last attempt to connect. `on_failed(address)` is called when a
    connection cannot be opened, `on_lost(connection)` when one ends that the pool did not close.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock,
        rng: Rng,
        connector: Connector | None,
        on_failed: Callable[[str], Any],
        on_lost: Callable[[Connection], Any],
    ) -> None:
        self.failures: dict[str, KafkaError] = {}
        self.closed = False
        self._config = config
        self._clock = clock
        self._rng = rng
        self._connector = connector or SURROUNDINGS.get().connector or TcpConnector(config)
        self._authenticator: Authenticator | None = None
        if config.uses_sasl:
            from pyclient.net.sasl.authentication import Authenticator  # few clients need it

            self._authenticator = Authenticator(config, clock)
        self._on_failed = on_failed
        self._on_lost = on_lost
        self._backoff = Backoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000)
        self._metadata: ClusterMetadata = EMPTY
        self._extra_nodes: dict[int, Node] = {}  # nodes from other responses than Metadata, by id
        self._brokers: dict[tuple[int, str], NodeConnection] = {}
        self._bootstrap = [
            Node(-1 - index, *parse_address(address)) for index, address in enumerate(config.bootstrap_servers)
        ]

    def get(self, node_id: int, purpose: str = "", *, optional: bool = False) -> NodeConnection:
        """Return the broker connection of a node; raise `ConnectionFailed` if no such node is known.

        Failures to open an `optional` one are not recorded, since they say nothing about the node.
        """
        node = self._metadata.nodes.get(node_id) or self._extra_nodes.get(node_id)
        if self.closed:
            raise ConnectionFailed("the client is closed")
        if node is None:
            raise ConnectionFailed(f"node {node_id} is not in the cluster, which has {sorted(self._metadata.nodes)}")
        return self._broker(node, purpose, optional=optional)

    def candidates(self, asked: AskedNodes | None = None) -> list[NodeConnection]:
        """Return the connections for a request to any node: open ones, least busy first, then nodes, then bootstrap.

        A repeated question goes to others than those `asked` lately. One more node is connected to for the next time,
        should all nodes that are connected be of no use.
        """
        nodes = [self._broker(node) for node in self._metadata.nodes.values()]
        known = {broker.node.address for broker in nodes}
        bootstrap = [self._broker(node) for node in self._bootstrap if node.address not in known]
        self._rng.shuffle(nodes)
        self._rng.shuffle(bootstrap)
        brokers = sorted(nodes + bootstrap, key=_load)
        if not asked:
            return brokers
        by_address = {broker.node.address: broker for broker in brokers}
        order = asked.order({address: broker.ready is not None for address, broker in by_address.items()})
        unconnected = next((broker for broker in brokers if broker.ready is None), None)
        if unconnected is not None and not self.closed:
            unconnected.wake()
        return [by_address[address] for address in order]

    def addresses(self) -> set[str]:
        """Return the addresses of all known nodes and of bootstrap."""
        nodes = (*self._metadata.nodes.values(), *self._extra_nodes.values(), *self._bootstrap)
        return {node.address for node in nodes}

    def pending_attempts(self) -> list[str]:
        """Return a text for each connection attempt in progress whose address has no failure yet."""
        now = self._clock.monotonic()
        brokers = [broker for broker in self._brokers.values() if broker.connecting_since is not None]
        return [
            f"{broker.node.address}: no connection yet after {now - (broker.connecting_since or now):.1f} s"
            for broker in brokers
            if broker.node.address not in self.failures
        ]

    async def explain_refusal(self, node: Node, error: KafkaError) -> KafkaError:
        """Return the error for a node that closed its connection before any response; often it requires SASL."""
        if self._config.uses_sasl:
            return error
        try:
            connection = await self._open(node)
        except KafkaError:
            return error
        try:
            limits_ms = self._config.socket_connection_setup_timeout_ms, self._config.request_timeout_ms
            required = await requires_sasl(connection, min(limits_ms) / 1000)
        except KafkaError:
            return error
        finally:
            connection.end("it was only opened to detect SASL")
        if not required:
            return error
        protocol = "SASL_SSL" if self._config.uses_tls else "SASL_PLAINTEXT"
        return ConnectionFailed(
            f"{node.address}: its listener demands SASL: set security_protocol={protocol!r}, sasl_mechanism and what "
            "that one needs, or use another listener",
            lasting=True,
        )

    def connected(self) -> tuple[str, ...]:
        """Return the addresses with an open connection; safe from any thread."""
        brokers = list(self._brokers.values())  # a copy, since the loop may change it meanwhile
        return tuple(dict.fromkeys(broker.node.address for broker in brokers if broker.ready is not None))

    def add_node(self, node: Node) -> None:
        """Add a node that a response named; metadata takes precedence."""
        self._extra_nodes[node.node_id] = node

    def update(self, metadata: ClusterMetadata) -> None:
        """Apply new metadata: assign node ids to bootstrap connections, and close those of removed nodes."""
        self._metadata = metadata
        by_address = {node.address: node for node in metadata.nodes.values()}
        for (node_id, purpose), broker in list(self._brokers.items()):
            if node_id < 0:
                node = by_address.get(broker.node.address)
                if node is not None and (node.node_id, purpose) not in self._brokers:
                    broker.set_node(node)
                    self._brokers[node.node_id, purpose] = self._brokers.pop((node_id, purpose))
            elif node_id not in metadata.nodes:
                if node_id not in self._extra_nodes:
                    self._brokers.pop((node_id, purpose)).close()
            elif metadata.nodes[node_id].address != broker.node.address:
                self._brokers.pop((node_id, purpose)).close()
        for address in self.failures.keys() - self.addresses():
            del self.failures[address]

    def close_idle(self, seconds: float) -> None:
        """Close connections that were idle for `seconds`."""
        for broker in self._brokers.values():
            broker.close_if_idle(seconds)

    def close(self) -> None:
        """Close every connection and open no new ones."""
        self.closed = True
        for broker in self._brokers.values():
            broker.close()
        self._brokers.clear()

    def _broker(self, node: Node, purpose: str = "", *, optional: bool = False) -> NodeConnection:
        key = (node.node_id, purpose)
        broker = self._brokers.get(key)
        if broker is not None and broker.node.address != node.address:
            broker.close()
            broker = None
        if broker is None:
            connect = self._open if optional else self._connect
            broker = self._brokers[key] = NodeConnection(
                node, connect, self._backoff, self._clock, self._rng, optional=optional
            )
            if self.closed:  # a call that began before asks on
                broker.close()
        return broker

    async def _open(self, node: Node) -> Connection:
        return await Connection.open(
            node.host,
            node.port,
            config=self._config,
            clock=self._clock,
            node_id=node.node_id,
            connector=self._connector,
            authenticator=self._authenticator,
        )

    async def _connect(self, node: Node) -> Connection:
        try:
            connection = await self._open(node)
        except ConnectionFailed as error:
            log.debug("connection failed: %s", error)
            self.failures[node.address] = error
            self._on_failed(node.address)
            raise
        except Exception as error:  # a bug; recorded so that timeouts of waiting calls mention it
            text = f"{node.address}: unexpected error while connecting: {error!r}"
            self.failures[node.address] = ConnectionFailed(text)
            raise
        self.failures.pop(node.address, None)
        connection.on_closed.append(self._on_lost)
        return connection


def _load(broker: NodeConnection) -> tuple[bool, int]:
    ready = broker.ready
    return ready is None, 0 if ready is None else ready.in_flight
