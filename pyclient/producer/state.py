"""A producer's state in plain values, for `metrics()` and `health()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyclient.records import IMPLEMENTATION

if TYPE_CHECKING:
    from pyclient.producer.core import ProducerCore


def metrics_of(core: ProducerCore) -> dict[str, Any]:
    """Return the result of `Producer.metrics`."""
    with core.lock:
        pool = core.accumulator.pool
        return {
            **core.sender.metrics.snapshot(core.clock.monotonic()),
            "records_failed": core.desk.failures.records,
            "requests_in_flight": core.sender.total_in_flight,
            "connections_used": core.sender.connections,
            "batches_unconfirmed": len(core.accumulator.incomplete),
            "buffer_bytes_used": pool.total - pool.available,
            "buffer_bytes_total": pool.total,
            "sends_blocked": pool.waiting,
        }


def health_of(core: ProducerCore) -> dict[str, Any]:
    """Return the result of `Producer.health`."""
    cluster = core.cluster.health()
    with core.lock:
        pool = core.accumulator.pool
        return {
            "state": "closed" if core.closed else "open",
            "cluster_id": cluster.cluster_id,
            "nodes": list(cluster.nodes),
            "connected_nodes": list(cluster.connected),
            "last_failures": dict(cluster.last_failures),
            "record_codec": IMPLEMENTATION,
            "topics": sorted(core.accumulator.topics),
            "batches_unconfirmed": len(core.accumulator.incomplete),
            "requests_in_flight": core.sender.total_in_flight,
            "buffer_bytes_used": pool.total - pool.available,
            "buffer_bytes_total": pool.total,
            "sends_blocked": pool.waiting,
            "producer_id": core.sender.identity.producer_id,
        }
