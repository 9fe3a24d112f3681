"""A consumer's state in plain values, for `metrics()` and `health()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyclient.records import IMPLEMENTATION

if TYPE_CHECKING:
    from pyclient.consumer.core import ConsumerCore


def numbers_of(core: ConsumerCore) -> dict[str, Any]:
    """See `Consumer.metrics`."""
    with core.lock:
        committed = core.config.read_committed
        lag = {state.topic_partition: state.lag(read_committed=committed) for state in core.subscription}
        buffered = sum(state.buffered for state in core.subscription)
    known = {str(partition): each for partition, each in lag.items() if each is not None}
    return {
        **core.metrics.snapshot(core.clock.monotonic()),
        "buffered_bytes": buffered,
        "fetched_bytes_by_node": dict(core.metrics.bytes_by_node),
        "lag": known,
        "lag_max": max(known.values(), default=0),
        **core.group.metrics(),
    }


def health_of(core: ConsumerCore) -> dict[str, Any]:
    """See `Consumer.health`."""
    cluster = core.cluster.health()
    workers = {
        "group": core.coordinator,
        "fetch": core.fetcher,
        "positions": core.positions_found,
        "commit": core.committer,
    }
    errors = {name: worker.last_error for name, worker in workers.items() if worker is not None}
    with core.lock:
        return {
            "state": "closed" if core.ended else "open",
            "cluster_id": cluster.cluster_id,
            "nodes": list(cluster.nodes),
            "connected_nodes": list(cluster.connected),
            "last_failures": dict(cluster.last_failures),
            "record_codec": IMPLEMENTATION,
            **core.group.health(),
            "subscription": sorted(core.subscription.topics),
            "topic_errors": dict(core.topics.problems),
            "assignment": sorted(map(str, core.subscription.assignment())),
            "lag": {
                str(state.topic_partition): state.lag(read_committed=core.config.read_committed)
                for state in core.subscription
            },
            "buffered_bytes": sum(state.buffered for state in core.subscription),
            "last_errors": {
                name: f"{type(error).__name__}: {error}" for name, error in errors.items() if error is not None
            },
        }
