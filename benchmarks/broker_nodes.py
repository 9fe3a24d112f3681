"""The two brokers that are measured side by side, each in a process of its own: ours and a real Apache Kafka."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster

SETTINGS = {"log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "500"}
"""Options of both brokers: compaction starts soon, and files of deleted topics are removed soon."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Cpu:
    """Seconds of processor time of a process so far."""

    user: float
    system: float

    @property
    def total(self) -> float:
        """The seconds of both."""
        return self.user + self.system


@dataclass(frozen=True)
class Node:
    """A running broker."""

    name: str
    servers: str
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to connect to."""
        return address_of(self.servers)

    def cpu(self) -> Cpu:
        """Return its processor time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(") ")[2].split()
        return Cpu(int(fields[11]) / _TICKS, int(fields[12]) / _TICKS)

    def resident_mb(self) -> float:
        """Return its resident memory, in MB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE / 1e6

    @contextmanager
    def topic(self, name: str, partitions: int = 1, **configs: str) -> Iterator[str]:
        """Create a topic for the block, and delete it at its end."""
        options = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(self.servers) as admin:
            admin.create_topics([NewTopic(name, partitions, 1, configs=options)])
            try:
                yield name
            finally:
                admin.delete_topics([name])


def address_of(servers: str) -> tuple[str, int]:
    """Return host and port of the first of `servers`."""
    host, _, port = servers.partition(",")[0].rpartition(":")
    return host, int(port)


@contextmanager
def both(kafka: bool) -> Iterator[list[Node]]:
    """Run ours, and a real Kafka if one is wanted, during the block."""
    with ExitStack() as stack:
        cluster = stack.enter_context(EmbeddedCluster(processes=True, profile="kafka", config=SETTINGS))
        assert cluster.pid is not None
        nodes = [Node("pyclient", cluster.bootstrap_servers, cluster.pid)]
        if kafka:
            from tests.kafka.runner import AS_SHIPPED, RealKafka

            real = stack.enter_context(RealKafka(settings=SETTINGS, jvm=AS_SHIPPED))
            process = real._nodes[0].process
            assert process is not None
            nodes.append(Node(f"Kafka {real.version}", real.bootstrap_servers, process.pid))
        yield nodes
