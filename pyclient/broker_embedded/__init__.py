"""A real Kafka broker to test with: starts in milliseconds, keeps Kafka's own files, any Kafka client can use it.

`EmbeddedCluster` (cluster/) starts brokers in threads or processes. A `BrokerNode` (broker.py) is one of them: it makes
the parts of a node and joins them. `Route` (dispatch.py) leads a request from its connection (network/) to its handler
(handlers/), which gets the `BrokerServices`. ARCHITECTURE.md lists the rooms in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster

__all__ = ["EmbeddedCluster"]


if not TYPE_CHECKING:  # to a type checker, a module with this function has every name

    def __getattr__(name: str) -> Any:
        if name != "EmbeddedCluster":  # imported on first use: a broker's process does without it
            raise AttributeError(f"module 'pyclient.broker_embedded' has no attribute {name!r}")
        from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster

        return EmbeddedCluster
