"""The network between the nodes of a cluster, for tests: links are cut, healed and slow.

Two nodes reach each other directly until the first call for them; from then on over proxies, whose addresses they
receive. All other connections stay as they are: one that ends may cost a broker its session, or elect a controller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pyclient.broker_embedded.cluster.links import Links
from pyclient.config.addresses import format_address, parse_address
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.broker import Broker

Listeners = Mapping[str, str]
"""The listeners of a node, `broker` and `controller`, with their addresses."""


class NodeLinks:
    """Cuts and slows down the links between nodes, which are named by their ids.

    `listeners` returns those of a node. `brokers` is the cluster's own list.
    """

    def __init__(self, brokers: Sequence[Broker], listeners: Callable[[Broker], Listeners]) -> None:
        self._brokers = brokers
        self._listeners = listeners
        self._links: Links | None = None
        self._pairs: set[frozenset[int]] = set()

    def cut(self, a: int, b: int, *, one_way: bool) -> None:
        """Let no bytes pass from `a` to `b`, nor back unless `one_way`."""
        self._opened(a, b).cut(a, b, one_way=one_way)

    def slow(self, a: int, b: int, latency_ms: float, bandwidth: float | None) -> None:
        """Delay bytes between two nodes, in each direction, and limit how many pass per second."""
        self._opened(a, b).slow(a, b, latency_ms, bandwidth)

    def heal(self) -> None:
        """Let everything pass between all nodes."""
        if self._links is not None:
            self._links.heal()

    def close(self) -> None:
        """End the proxies."""
        if self._links is not None:
            self._links.close()

    def addresses(self, node_id: int) -> dict[str, str]:
        """Return the addresses that a node has to use in place of the listeners of others; empty without proxies."""
        found: dict[str, str] = {}
        for broker in self._brokers:
            if self._links is not None and {node_id, broker.id} in self._pairs:
                for name, address in self._listeners(broker).items():
                    proxy = self._links.proxy(node_id, broker.id, name, parse_address(address))
                    found[address] = format_address(*proxy)
        return found

    def _opened(self, *nodes: int) -> Links:
        known = [broker.id for broker in self._brokers]
        for node_id in nodes:
            if node_id not in known:
                raise ConfigError(f"there is no node {node_id!r}: the cluster has {', '.join(map(str, known))}")
        if len(set(nodes)) < len(nodes):
            raise ConfigError(f"node {nodes[0]}: a link has two different ends")
        if self._links is None:
            self._links = Links()
        if set(nodes) not in self._pairs:
            self._pairs.add(frozenset(nodes))
            for broker in self._brokers:
                if broker.id in nodes and broker.reachable:  # others receive the addresses at their start
                    broker.call("POST", "/links", {"addresses": self.addresses(broker.id)})
        return self._links
