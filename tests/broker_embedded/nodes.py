"""The node of a cluster that runs in a thread, to look at the state of its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.cluster.runners import ThreadRunner

T = TypeVar("T")


def node_of(cluster: EmbeddedCluster) -> BrokerNode:
    """Return the cluster's node."""
    runner = cluster.brokers[0].runner
    assert isinstance(runner, ThreadRunner)
    return runner.node


def on_loop(cluster: EmbeddedCluster, work: Callable[[BrokerNode], T]) -> T:
    """Return the result of `work(node)`, called on the node's loop."""
    node = node_of(cluster)

    async def call() -> T:
        return work(node)

    return asyncio.run_coroutine_threadsafe(call(), node.loop).result(30)
