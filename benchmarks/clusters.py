"""The clusters of the client benchmarks: the embedded broker in its own process, then a real Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console

from pyclient import Admin, NewTopic

_SETTINGS = {"log.segment.delete.delay.ms": "500"}  # topics that were deleted make room soon, as ours do


@contextmanager
def fresh_topic(servers: str, partitions: int) -> Iterator[str]:
    """Create a topic for one run, and delete it afterwards."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 1)])
        yield name
        admin.delete_topics([name])


class Measured(NamedTuple):
    """A cluster to measure on; `pid` is the broker's process where it is the embedded one."""

    servers: str
    name: str
    pid: int | None = None


def measured_clusters(given: str | None) -> Iterator[Measured]:
    """Yield the cluster given, or ours in its own process and then a real Kafka where Java and Maven are."""
    if given:
        yield Measured(given, given)
        return
    from pyclient.broker_embedded import EmbeddedCluster

    with EmbeddedCluster(processes=True) as cluster:
        yield Measured(cluster.bootstrap_servers, "the embedded broker", cluster.pid)
    from tests.kafka.jars import why_not
    from tests.kafka.runner import AS_SHIPPED, RealKafka

    reason = why_not()
    if reason:
        Console().print(f"no real Kafka to compare with: {reason}")
        return
    with RealKafka(settings=_SETTINGS, jvm=AS_SHIPPED) as kafka:
        yield Measured(kafka.bootstrap_servers, f"Apache Kafka {kafka.version}")


def brokers(given: str | None) -> Iterator[tuple[str, str]]:
    """Yield the address and name of each cluster."""
    for cluster in measured_clusters(given):
        yield cluster.servers, cluster.name
