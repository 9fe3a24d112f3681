"""A real Apache Kafka on loopback: one node or three, KRaft, with nodes that can be paused, killed and restarted.

>>> with RealKafka(version="3.9.2", nodes=3) as kafka:
...     kafka.bootstrap_servers
...     kafka.kill(2)
...     kafka.restart(2)
"""

from __future__ import annotations

import base64
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.kafka.jars import VERSIONS, NoKafka, why_not
from tests.kafka.tools import command, finish

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["AS_SHIPPED", "REPLICATED", "NoKafka", "RealKafka", "free_ports", "why_not"]

REPLICATED: Final = {
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "4000",
}
"""Settings of three nodes that notice soon when one of them is gone."""

START_TIMEOUT: Final = 240.0
STOP_TIMEOUT: Final = 60.0
SHORT_LIVED: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Java's options of a node that tests start and stop: 4.9 s of CPU time until it serves, 8.7 s with `AS_SHIPPED`."""

AS_SHIPPED: Final = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""Java's options of a node that is measured: those of Kafka's own start script."""


class Quorum(NamedTuple):
    """The controllers of a cluster that a node joins: the cluster's id, and `controller.quorum.voters`.

    With `dynamic` the metadata log has the voters, which may change; `voters` are those that a node asks first.
    """

    cluster_id: str
    voters: str
    dynamic: bool = False

    @property
    def setting(self) -> dict[str, str]:
        """The option of a node that joins."""
        if not self.dynamic:
            return {"controller.quorum.voters": self.voters}
        addresses = ",".join(each.partition("@")[2] for each in self.voters.split(","))
        return {"controller.quorum.bootstrap.servers": addresses}


@dataclass
class _Node:
    """One node in a process of its own."""

    number: int
    port: int
    controller_port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def properties(self) -> Path:
        return self.folder / "server.properties"

    @property
    def output(self) -> Path:
        return self.folder / "server.log"

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None, f"node {self.number} does not run"
        self.process.send_signal(number)


class RealKafka:
    """A cluster of `nodes` nodes of a Kafka release, each with `settings` on top of what makes it fit for a test.

    `{node}` in a setting's value is the node's number: `{"broker.rack": "rack-{node}"}`; `{default}` is what it is
    without the setting: `{"listeners": "{default},SSL://127.0.0.1:9093"}`.
    The nodes are brokers and controllers with the ids from `first_id`; with `joins` they are brokers only, in the
    cluster of these controllers. With `dynamic_quorum` the first node is the first voter, and voters can change.
    New data directories begin with the metadata.version of the release `metadata_of`, or the newest.
    `heap` is Java's size of a node's memory, and `jvm` are its other options. Node N keeps its data in `nodeN/data`
    under `directory`, which stays, and opens what is there already; without it, under a temporary one that goes with
    the cluster. Raise `NoKafka` where it cannot run.
    """

    def __init__(
        self,
        version: str = VERSIONS[0],
        *,
        nodes: int = 1,
        heap: str = "1G",
        jvm: tuple[str, ...] = SHORT_LIVED,
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
        metadata_of: str | None = None,
        joins: Quorum | None = None,
        first_id: int = 1,
        dynamic_quorum: bool = False,
    ) -> None:
        self.version = version
        self._joins = joins
        self._jvm = (f"-Xmx{heap}", f"-Xms{heap}", *jvm)
        self._settings = dict(settings or {})
        self._release = () if metadata_of is None else ("--release-version", metadata_of)
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="real-kafka-")) if directory is None else directory
        ports = free_ports(2 * nodes)
        self._nodes = [
            _Node(number, port, controller_port, self.directory / f"node{number}")
            for number, (port, controller_port) in enumerate(zip(ports[::2], ports[1::2], strict=True), first_id)
        ]

        voters = ",".join(f"{node.number}@127.0.0.1:{node.controller_port}" for node in self._nodes)
        self.quorum = Quorum(_new_cluster_id(), voters, dynamic_quorum) if joins is None else joins
        """The controllers, for a node that joins this cluster. The id is that of new data directories."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self._nodes)

    def data_dir(self, node: int = 1) -> Path:
        """Return the directory of a node's logs."""
        return self._node(node).data

    def runs(self, node: int) -> bool:
        """Return True if the node was neither killed nor stopped."""
        return self._node(node).process is not None

    def _node(self, number: int) -> _Node:
        return next(node for node in self._nodes if node.number == number)

    def __enter__(self) -> RealKafka:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Format the data directories that are new, start every node, and wait until the cluster serves."""
        for node in self._nodes:
            node.data.mkdir(parents=True, exist_ok=True)
            lines = (f"{name}={value}" for name, value in self._properties(node).items())
            node.properties.write_text("\n".join(lines) + "\n")
        new = [node for node in self._nodes if not (node.data / "meta.properties").exists()]
        for process in [self._format(node, self.quorum.cluster_id) for node in new]:
            finish(process)
        for node in self._nodes:
            self._launch(node)
        for node in self._nodes:
            self._wait_until_serving(node)

    def _format(self, node: _Node, cluster_id: str) -> subprocess.Popen[str]:
        standalone = ("--standalone",) if self.quorum.dynamic and self._joins is None else ()
        arguments = ("format", "-t", cluster_id, "-c", str(node.properties), *self._release, *standalone)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command("storage", *arguments, version=self.version), stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    def _properties(self, node: _Node) -> dict[str, str]:
        replicas = str(min(3, len(self._nodes)))
        in_sync = "2" if len(self._nodes) >= 3 else "1"
        address = f"PLAINTEXT://127.0.0.1:{node.port}"
        listeners = address if self._joins else f"{address},CONTROLLER://127.0.0.1:{node.controller_port}"
        defaults = {
            "process.roles": "broker" if self._joins else "broker,controller",
            "node.id": str(node.number),
            **self.quorum.setting,
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "advertised.listeners": address,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(node.data),
            "default.replication.factor": replicas,
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.check.interval.ms": "86400000",  # records of tests have times of long ago
        }
        return defaults | {
            name: value.replace("{node}", str(node.number)).replace("{default}", defaults.get(name, ""))
            for name, value in self._settings.items()
        }

    def _launch(self, node: _Node) -> None:
        with node.output.open("ab") as output:
            node.process = subprocess.Popen(
                command("server", str(node.properties), version=self.version, jvm=self._jvm),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _wait_until_serving(self, node: _Node) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if node.process is None or node.process.poll() is not None:
                break
            if _brokers_known_to(node.port) >= sum(other.process is not None for other in self._nodes):
                return
            time.sleep(0.05)
        said = node.output.read_text(errors="replace")[-3000:]
        raise AssertionError(f"node {node.number} of Kafka {self.version} does not serve:\n{said}")

    def pause(self, node: int) -> None:
        """Freeze a node (SIGSTOP), as if its machine hung; its connections stay open."""
        self._node(node).signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        """Resume a paused node."""
        self._node(node).signal(signal.SIGCONT)

    def kill(self, node: int) -> None:
        """Kill a node (SIGKILL)."""
        _end(self._node(node), signal.SIGKILL)

    def stop(self, node: int) -> None:
        """Shut a node down cleanly: it hands over its leaders, and closes its logs."""
        _end(self._node(node), signal.SIGTERM)

    def restart(self, node: int) -> None:
        """Start a killed or stopped node, and wait until it serves."""
        self._launch(self._node(node))
        self._wait_until_serving(self._node(node))

    def close(self) -> None:
        """End every node. Data in a directory of the caller's are closed cleanly and kept."""
        number = signal.SIGKILL if self._temporary else signal.SIGTERM
        for node in self._nodes:
            _end(node, number)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)


def _end(node: _Node, number: signal.Signals) -> None:
    process, node.process = node.process, None
    if process is None or process.poll() is not None:
        return
    process.send_signal(signal.SIGCONT)
    process.send_signal(number)
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _new_cluster_id() -> str:
    """Return a random id without a leading dash, which commands would take for an option."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "x", 1)


def free_ports(count: int) -> list[int]:
    """Return free ports outside of the range from which the system assigns ports."""
    held: list[socket.socket] = []
    while len(held) < count:
        with suppress(OSError):  # it is in use
            held.append(socket.create_server(("127.0.0.1", random.randrange(10_000, _first_given_port()))))
    ports = [listener.getsockname()[1] for listener in held]
    for listener in held:
        listener.close()
    return ports


def _first_given_port() -> int:
    """Return the first of the ports that the system assigns to connections, and to servers on port 0."""
    with suppress(OSError):
        return max(20_000, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]))
    return 32_768


def _brokers_known_to(port: int) -> int:
    """Return how many brokers a node's Metadata names; 0 while it does not answer or knows no controller."""
    body = struct.pack(">hhih i", 3, 1, 7, -1, 0)
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection, connection.makefile("rb") as stream:
            connection.sendall(struct.pack(">i", len(body)) + body)
            size = struct.unpack(">i", stream.read(4))[0]
            answer = stream.read(size)
        brokers: int = struct.unpack_from(">i", answer, 4)[0]
        position = 8
        for _ in range(brokers):
            position += 4 + 2 + struct.unpack_from(">h", answer, position + 4)[0] + 4
            rack = struct.unpack_from(">h", answer, position)[0]
            position += 2 + max(rack, 0)
        controller = struct.unpack_from(">i", answer, position)[0]
    except (OSError, struct.error):
        return 0
    return brokers if controller >= 0 else 0
