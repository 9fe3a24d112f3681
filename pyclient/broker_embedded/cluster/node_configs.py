"""The configuration of each node of a cluster: its options, directory, ports and the cluster's id."""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
import uuid
from typing import Any, Final

from pyclient.broker_embedded.cluster.controllers_file import read_controllers, write_controllers
from pyclient.broker_embedded.cluster.layout import Layout, NodePlan
from pyclient.broker_embedded.cluster.security import ClusterSecurity, host_of
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.log.checkpoints import uuid_text
from pyclient.broker_embedded.log.data_directory import cluster_of
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.config.addresses import format_address
from pyclient.errors import ConfigError

_LAST_PORT: Final = 65535
_FIRST_PORT: Final = 20_000  # well-known ports are mostly below
_ENOUGH_PORTS: Final = 5_000


class NodeConfigs:
    """Makes the configurations of a cluster's nodes. In a cluster of several, it keeps their ports from `open` on.

    A given `port` is that of the first broker; the others have the ports that follow it.
    """

    def __init__(
        self,
        *,
        host: str,
        port: int,
        profile: str,
        as_version: str | None,
        security: ClusterSecurity | None = None,
    ) -> None:
        """Without `security`, all listeners are PLAINTEXT."""
        self.host = host
        self._port = port
        self._profile = profile
        self._as_version = as_version
        self._security = security or ClusterSecurity("PLAINTEXT", None)
        self._certificates: dict[str, Any] = {}
        self._extra: dict[tuple[int, str], ReservedPort] = {}
        self._data_dir = ""
        self._cluster_id: str | None = None
        self._listeners: dict[int, ReservedPort] = {}
        self._controllers: dict[int, ReservedPort] = {}

    def draft(self, layout: Layout, node: NodePlan, data_dir: str) -> BrokerConfig:
        """Return the configuration of a node without what is known when the cluster starts. Raise `ConfigError`."""
        return self._build(layout, node, data_dir, self._port if layout.is_one_node else 0)

    def open(self, layout: Layout, data_dir: str) -> None:
        """Check the data directory and reserve the ports. Raise `ConfigError`; then nothing is reserved."""
        self._data_dir = data_dir
        self._cluster_id = layout.check_directory(data_dir)
        self._certificates = {
            **self._security.options(data_dir, host_of(layout.settings, self.host), layout.settings),
            **self._security.secret_key(data_dir, layout.settings),
        }
        if layout.is_one_node:
            return
        self._cluster_id = self._cluster_id or _new_id()
        try:
            brokers = [node for node in layout.nodes if node.is_broker]
            if self._port and self._port + len(brokers) - 1 > _LAST_PORT:
                raise ConfigError(f"port is {self._port}: {len(brokers)} brokers would need ports above {_LAST_PORT}")
            for number, node in enumerate(brokers):
                self._listeners[node.node_id] = ReservedPort(self.host, self._port and self._port + number)
            ports = self._known_ports(layout, data_dir)
            for voter in layout.voters:
                self._controllers[voter] = ReservedPort(self.host, ports.get(voter, 0))
            self.voters_changed(layout)  # before any directory: one without this file has static voters
            if layout.dynamic:
                self._format(layout, self._cluster_id)
        except BaseException:
            self.close()
            raise

    def _format(self, layout: Layout, cluster_id: str) -> None:
        """Format the directories of the first voters, also again if that was interrupted before."""
        from pyclient.broker_embedded.cluster.dynamic_quorum import format_controllers, was_started  # few need it

        directories = {node.node_id: layout.path(node, self._data_dir) for node in layout.nodes}
        if not was_started(directories.values()):
            voters = {node_id: path for node_id, path in directories.items() if node_id in layout.voters}
            format_controllers(cluster_id, voters, self._controller_addresses())

    @staticmethod
    def _known_ports(layout: Layout, data_dir: str) -> dict[int, int]:
        """Return the ports of the controllers of a dynamic quorum; empty for a new cluster.

        Raise `ConfigError` if the directory's cluster has static voters and this one a dynamic quorum, or vice versa.
        """
        ports = read_controllers(data_dir)
        if ports and not layout.dynamic:
            raise ConfigError(f"{data_dir} has a cluster whose voters can change: use dynamic_quorum=True")
        if layout.dynamic and not ports and layout.has_data(data_dir):
            raise ConfigError(f"{data_dir} has a cluster with static voters: dynamic_quorum=True needs a new directory")
        return ports

    def voters_changed(self, layout: Layout) -> None:
        """Note the voters of a dynamic quorum and their addresses, for the next cluster on the data."""
        if layout.dynamic:
            addresses = self._controller_addresses()
            write_controllers(self._data_dir, {voter: addresses[voter] for voter in layout.voters})

    def add_controller(self, node_id: int) -> str:
        """Reserve the port of a further controller. Return its `host:port`."""
        self._controllers[node_id] = ReservedPort(self.host)
        return self._controller_addresses()[node_id]

    def config(self, layout: Layout, node: NodePlan) -> BrokerConfig:
        """Return the configuration of a node; `open` must have been called."""
        if layout.is_one_node:
            return self._build(layout, node, self._data_dir, self._port)
        if node.is_broker and node.node_id not in self._listeners:
            self._listeners[node.node_id] = ReservedPort(self.host)
        port = self._listeners[node.node_id].port if node.is_broker else 0
        return self._build(layout, node, self._data_dir, port)

    @property
    def cluster_id(self) -> str:
        """Return the id of the cluster, which has been started."""
        known = cluster_of(RealFileSystem(), self._data_dir, self._cluster_id, given=self._cluster_id is not None)
        if known is None:
            raise ConfigError(f"{self._data_dir} has no cluster id yet: start the cluster first")
        return known

    def quorum_voters(self, layout: Layout) -> str:
        """Return the voters as in `controller.quorum.voters`; empty for a node alone."""
        addresses = self._controller_addresses()
        return ",".join(f"{voter}@{addresses[voter]}" for voter in sorted(layout.voters) if voter in addresses)

    def controller_address(self, node_id: int) -> str | None:
        """Return the `host:port` of a node's controller listener; None if it is not a voter, or alone."""
        reserved = self._controllers.get(node_id)
        return None if reserved is None else format_address(self.host, reserved.port)

    def forget(self, node_id: int) -> None:
        """Give back the ports of a node that has left the cluster."""
        for ports in (self._listeners, self._controllers):
            reserved = ports.pop(node_id, None)
            if reserved is not None:
                reserved.release()

    def close(self) -> None:
        """Give the ports back."""
        for reserved in (*self._listeners.values(), *self._controllers.values(), *self._extra.values()):
            reserved.release()
        self._extra.clear()
        self._listeners.clear()
        self._controllers.clear()

    def _controller_addresses(self) -> dict[int, str]:
        return {voter: format_address(self.host, each.port) for voter, each in self._controllers.items()}

    def _build(self, layout: Layout, node: NodePlan, data_dir: str, port: int) -> BrokerConfig:
        addresses = self._controller_addresses()
        options = {
            **self._security.mechanisms(several=not layout.is_one_node),
            **self._certificates,
            **layout.options(node, addresses, data_dir),
            **self._security.authorizer(layout.settings),
        }
        if not layout.is_one_node:
            options |= self._security.rules_of_nodes(options)
        return BrokerConfig.build(
            self._with_ports(node, options, port),
            data_dir=layout.path(node, data_dir) if data_dir else "",
            host=self.host,
            port=port,
            profile=self._profile,
            as_version=self._as_version,
            cluster_id=self._cluster_id,
            security=self._security.protocol,
            users=self._security.node_users(several=not layout.is_one_node),
            acls=self._security.acls,
        )

    def _with_ports(self, node: NodePlan, options: dict[str, Any], port: int) -> dict[str, Any]:
        """Return the options with a port for each listener that has none, which stays the same while it exists.

        In a cluster of several nodes, `port` is that of the first listener.
        """
        text = options.get("listeners")
        if not isinstance(text, str) or not self._data_dir:
            return options
        entries = []
        for number, entry in enumerate(filter(None, (each.strip() for each in text.split(",")))):
            if entry.endswith(":0"):
                start = entry.removesuffix("0")
                if number or not port:
                    port = self._reserved(node.node_id, start)
                entry = f"{start}{port}"
            entries.append(entry)
        return {**options, "listeners": ",".join(entries)}

    def _reserved(self, node_id: int, entry: str) -> int:
        key = node_id, entry
        if key not in self._extra:
            host = entry.partition("://")[2].removesuffix(":").strip("[]")
            self._extra[key] = ReservedPort(host)
        return self._extra[key].port


def _new_id() -> str:
    """Return a random cluster id without a leading dash, which command lines would take for an option."""
    while (text := uuid_text(uuid.UUID(int=random.getrandbits(128), version=4))).startswith("-"):
        pass
    return text


class ReservedPort:
    """A port that the system assigns to no other program until `release`; a node in any process can listen on it.

    The socket that keeps it is bound and does not listen: on Linux another socket with SO_REUSEADDR may be bound to the
    port, too, and while none listens there connections are refused. Elsewhere the port is only looked up.

    On Linux a free port is one that the system assigns to no connection: a cluster that was stopped needs its ports
    again, and connections of other programs would often have one of them by then.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        """Reserve `port`; 0 is any free one. Raise `ConfigError` if it is taken, or for another machine's address."""
        self._descriptor = -1
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            if port or not _bind_unassigned(bound, host):
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind((host, port))
            if port:
                _check_free(bound)
        except (OSError, OverflowError) as error:
            bound.close()
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"the broker cannot listen on {host}:{port}: {reason}") from error
        self.port: int = bound.getsockname()[1]
        if sys.platform.startswith("linux"):
            # Its own finalizer would warn before the one of a cluster that is collected without having been closed.
            self._descriptor = bound.detach()
        else:
            bound.close()

    def __repr__(self) -> str:
        return f"<ReservedPort {self.port}>"

    def release(self) -> None:
        """Give the port back."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.release()


def _bind_unassigned(unbound: socket.socket, host: str) -> bool:
    """Bind to a free port below those that the system assigns to connections; return False if none was found."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
            limit = int(file.read().split()[0])
    except (OSError, ValueError):
        return False
    if limit - _FIRST_PORT < _ENOUGH_PORTS:
        return False
    for port in random.sample(range(_FIRST_PORT, limit), 20):
        try:
            unbound.bind((host, port))  # without SO_REUSEADDR, which lets two sockets that do not listen share a port
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return True
    return False


def _check_free(bound: socket.socket) -> None:
    """Raise `OSError` if another socket listens on the port: binding to it may succeed, listening does not."""
    with socket.socket(bound.family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(bound.getsockname())
        probe.listen(1)
