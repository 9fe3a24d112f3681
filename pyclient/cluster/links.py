"""Every broker a client knows, and the connections to them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.link import Link
from pyclient.cluster.metadata import EMPTY, ClusterMetadata, Node
from pyclient.config import ClientConfig, parse_address
from pyclient.errors import ConnectionFailed, KafkaError
from pyclient.net.connect import Connector, TcpConnector
from pyclient.net.connection import Connection
from pyclient.net.version_agreement import demands_sasl

log = logging.getLogger(__name__)


class Links:
    """One link for each node and purpose, bootstrap addresses included (as nodes with ids below 0).

    `failures` has, by address, the error of the last attempt to connect. `on_failed(address)` is called when a
    connection cannot be made, `on_lost(connection)` when one ends that we did not close.
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
        self._connector = connector or TcpConnector(config)
        self._on_failed = on_failed
        self._on_lost = on_lost
        self._backoff = Backoff(config.reconnect_backoff_ms / 1000, config.reconnect_backoff_max_ms / 1000)
        self._metadata: ClusterMetadata = EMPTY
        self._learnt: dict[int, Node] = {}
        self._links: dict[tuple[int, str], Link] = {}
        self._bootstrap = [
            Node(-1 - index, *parse_address(address)) for index, address in enumerate(config.bootstrap_servers)
        ]

    def to(self, node_id: int, purpose: str = "", *, optional: bool = False) -> Link:
        """The link to a node; `ConnectionFailed` if no such node is known.

        That an `optional` one cannot be made says nothing of the node, so it is noted nowhere.
        """
        node = self._metadata.nodes.get(node_id) or self._learnt.get(node_id)
        if self.closed:
            raise ConnectionFailed("the client is closed")
        if node is None:
            raise ConnectionFailed(f"node {node_id} is not in the cluster, which has {sorted(self._metadata.nodes)}")
        return self._link(node, purpose, optional=optional)

    def candidates(self) -> list[Link]:
        """Whom to ask when any node will do: open connections, the least busy first, then nodes, then bootstrap."""
        nodes = [self._link(node) for node in self._metadata.nodes.values()]
        known = {link.node.address for link in nodes}
        bootstrap = [self._link(node) for node in self._bootstrap if node.address not in known]
        self._rng.shuffle(nodes)
        self._rng.shuffle(bootstrap)
        return sorted(nodes + bootstrap, key=_business)

    def addresses(self) -> set[str]:
        """The addresses of every node that is known, and of bootstrap."""
        nodes = (*self._metadata.nodes.values(), *self._learnt.values(), *self._bootstrap)
        return {node.address for node in nodes}

    def waits(self) -> list[str]:
        """What is waited for now: a text for each address that is being connected to for the first time."""
        now = self._clock.monotonic()
        links = [link for link in self._links.values() if link.connecting_since is not None]
        return [
            f"{link.node.address}: no connection yet after {now - (link.connecting_since or now):.1f} s"
            for link in links
            if link.node.address not in self.failures
        ]

    async def why_refused(self, node: Node, error: KafkaError) -> KafkaError:
        """The error for a node that ended its connection instead of answering the first request: SASL is often why."""
        try:
            connection = await self._open(node)
        except KafkaError:
            return error
        try:
            demanded = await demands_sasl(connection, self._config.socket_connection_setup_timeout_ms / 1000)
        except KafkaError:
            return error
        finally:
            connection.end("it was only to ask for SASL")
        if not demanded:
            return error
        return ConnectionFailed(
            f"{node.address}: its listener demands SASL, which pyclient does not support yet: use another listener",
            lasting=True,
        )

    def connected(self) -> tuple[str, ...]:
        """The addresses with an open connection."""
        links = list(self._links.values())  # other threads ask, too
        return tuple(dict.fromkeys(link.node.address for link in links if link.ready is not None))

    def learn(self, node: Node) -> None:
        """Notes a node that a response named; metadata has the last word."""
        self._learnt[node.node_id] = node

    def fit(self, metadata: ClusterMetadata) -> None:
        """Follows new metadata.

        A bootstrap connection gets the id its broker turned out to have; links to nodes that are gone are closed.
        """
        self._metadata = metadata
        by_address = {node.address: node for node in metadata.nodes.values()}
        for (node_id, purpose), link in list(self._links.items()):
            if node_id < 0:
                node = by_address.get(link.node.address)
                if node is not None and (node.node_id, purpose) not in self._links:
                    link.adopt(node)
                    self._links[node.node_id, purpose] = self._links.pop((node_id, purpose))
            elif node_id not in metadata.nodes:
                if node_id not in self._learnt:
                    self._links.pop((node_id, purpose)).close()
            elif metadata.nodes[node_id].address != link.node.address:
                self._links.pop((node_id, purpose)).close()
        for address in self.failures.keys() - self.addresses():
            del self.failures[address]

    def close_idle(self, seconds: float) -> None:
        """Closes connections that nobody used for so long."""
        for link in self._links.values():
            link.close_if_idle(seconds)

    def close(self) -> None:
        """Closes every connection and makes no new ones."""
        self.closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _link(self, node: Node, purpose: str = "", *, optional: bool = False) -> Link:
        key = (node.node_id, purpose)
        link = self._links.get(key)
        if link is not None and link.node.address != node.address:
            link.close()
            link = None
        if link is None:
            connect = self._open if optional else self._connect
            link = self._links[key] = Link(node, connect, self._backoff, self._clock, self._rng, optional=optional)
        return link

    async def _open(self, node: Node) -> Connection:
        return await Connection.open(
            node.host,
            node.port,
            config=self._config,
            clock=self._clock,
            node_id=node.node_id,
            connector=self._connector,
        )

    async def _connect(self, node: Node) -> Connection:
        try:
            connection = await self._open(node)
        except ConnectionFailed as error:
            log.debug("%s", error)
            self.failures[node.address] = error
            self._on_failed(node.address)
            raise
        except Exception as error:  # a bug: who waits for the cluster in vain is told of it
            text = f"{node.address}: connecting failed in a way it should not: {error!r}"
            self.failures[node.address] = ConnectionFailed(text)
            raise
        self.failures.pop(node.address, None)
        connection.on_closed.append(self._on_lost)
        return connection


def _business(link: Link) -> tuple[bool, int]:
    ready = link.ready
    return ready is None, 0 if ready is None else ready.in_flight
