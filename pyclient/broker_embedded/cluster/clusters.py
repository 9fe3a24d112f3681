"""Whole clusters over HTTP: requests to `/clusters` create and destroy them, in milliseconds each.

They run in this process (or, with `processes`, in processes of it), on ports of their own, and end with the controls.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyclient.broker_embedded.controls.endpoint import MethodNotAllowed, NotFound, text_of
from pyclient.config.options import nearest
from pyclient.errors import ConfigError

if TYPE_CHECKING:
    import socket

    from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster
    from pyclient.broker_embedded.controls.http import ControlServer, Handling

Values = Mapping[str, Any]

PATH: Final = "/clusters"
_MOST: Final = 1000
_OPTIONS: Final = (
    "brokers",
    "replication_factor",
    "min_insync_replicas",
    "processes",
    "racks",
    "controllers",
    "dynamic_quorum",
    "profile",
    "as_version",
    "config",
    "node_properties",
    "security",
    "users",
    "acls",
)
"""The arguments of `EmbeddedCluster` that a request may give: data directories and addresses are chosen here."""


class Clusters:
    """The clusters that requests have created, by their ids. Calls block; they come from several threads."""

    def __init__(self) -> None:
        self._clusters: dict[str, EmbeddedCluster] = {}
        self._starting: set[str] = set()
        """The ids of clusters that do not serve yet: requests do not find them."""
        self._lock = threading.Lock()
        self._count = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<Clusters {sorted(self._clusters)}>"

    def create(self, values: Values) -> dict[str, Any]:
        """Start a cluster with the given options. Return its id and how to reach it. Raise `ConfigError`."""
        from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster

        known = ("id", *_OPTIONS)
        for name in values:
            if name not in known:
                hint = nearest(name, known) or f": it takes {', '.join(known)}"
                raise ConfigError(f"{name}: POST {PATH} has no such field{hint}")
        options = {name: value for name, value in values.items() if name in _OPTIONS}
        for name in ("config", "node_properties", "users"):
            if name in options and not isinstance(options[name], dict):
                raise ConfigError(f"{name} is {options[name]!r:.100}: it must be a JSON object")
        if "acls" in options:
            options["acls"] = _tuples(options["acls"])
        if "node_properties" in options:
            options["node_properties"] = _by_number(options["node_properties"])
        cluster = EmbeddedCluster(**options)
        cluster_id = self._register(text_of(values, "id"), cluster)
        try:
            cluster.start()
        except BaseException:
            with self._lock:
                self._starting.discard(cluster_id)
                self._clusters.pop(cluster_id, None)
            cluster.close()
            raise
        with self._lock:
            self._starting.discard(cluster_id)
        return self.describe(cluster_id)

    def _register(self, wanted: str | None, cluster: EmbeddedCluster) -> str:
        if wanted is not None and not wanted.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"id is {wanted!r:.100}: it must be of letters, digits, - and _")
        with self._lock:
            if self._closed or len(self._clusters) >= _MOST:
                raise ConfigError(f"no more clusters: there are {len(self._clusters)}")
            while wanted is None or (wanted in self._clusters and wanted == f"c{self._count}"):
                self._count += 1
                wanted = f"c{self._count}"
            if wanted in self._clusters:
                raise ConfigError(f"id is {wanted!r}: there is a cluster with this id")
            self._clusters[wanted] = cluster
            self._starting.add(wanted)
            return wanted

    def _remove(self, cluster_id: str) -> EmbeddedCluster:
        with self._lock:
            found = self.find(cluster_id)
            del self._clusters[cluster_id]
        return found

    def find(self, cluster_id: str) -> EmbeddedCluster:
        """Return a cluster that serves. Raise `NotFound`."""
        found = self._clusters.get(cluster_id)
        if found is None or cluster_id in self._starting:
            raise NotFound(f"there is no cluster {cluster_id!r:.100}; GET {PATH} lists them")
        return found

    def describe(self, cluster_id: str) -> dict[str, Any]:
        """Return how to reach a cluster. Raise `NotFound`."""
        cluster = self.find(cluster_id)
        nodes = [{"node_id": node.id, "state": node.state} for node in cluster.nodes]
        return {
            "id": cluster_id,
            "bootstrap_servers": cluster.bootstrap_servers,
            "controls": f"{PATH}/{cluster_id}",
            "nodes": nodes,
        }

    def all(self) -> list[dict[str, Any]]:
        """Return all clusters that serve."""
        with self._lock:
            serving = sorted(self._clusters.keys() - self._starting)
        found = []
        for cluster_id in serving:
            with contextlib.suppress(NotFound):  # it was destroyed meanwhile
                found.append(self.describe(cluster_id))
        return found

    def destroy(self, cluster_id: str) -> dict[str, Any]:
        """Close a cluster, and remove its data. Raise `NotFound`."""
        self._remove(cluster_id).close()
        return {}

    def close(self) -> None:
        """Destroy all clusters, and create no more."""
        with self._lock:
            self._closed = True
            clusters = list(self._clusters.values())
            self._clusters.clear()
        for cluster in clusters:
            cluster.close()


def _tuples(acls: Any) -> list[tuple[Any, ...]]:
    """Return the ACLs, which are lists of lists in JSON. Raise `ConfigError`."""
    if not isinstance(acls, list) or not all(isinstance(each, list) for each in acls):
        raise ConfigError(f'acls is {acls!r:.100}: it must be a JSON list like [["topic", "t", "User:alice", "read"]]')
    return [tuple(each) for each in acls]


def _by_number(properties: Mapping[str, Any]) -> dict[int, Any]:
    """Return the options of single nodes by their ids, which are texts in JSON. Raise `ConfigError`."""
    found = {}
    for node_id, options in properties.items():
        if not (node_id.isascii() and node_id.isdigit()) or not isinstance(options, dict):
            raise ConfigError(
                f'node_properties has {node_id!r:.100}: it is an object such as {{"2": {{"name": "value"}}}}'
            )
        found[int(node_id)] = options
    return found


class ControlsWithClusters:
    """Controls that answer requests below `/clusters`, too."""

    def __init__(self, controls: Handling) -> None:
        self._controls = controls
        self._clusters = Clusters()

    async def handle(self, method: str, path: str, values: Values) -> Any:
        """Serve a request. Return JSON values; raises as the controls of a cluster do."""
        if path != PATH and not path.startswith(f"{PATH}/"):
            return await self._controls.handle(method, path, values)
        return await asyncio.to_thread(self._handle, method, path.removeprefix(PATH).strip("/"), values)

    def close(self) -> None:
        """Destroy the clusters."""
        self._clusters.close()

    def _handle(self, method: str, rest: str, values: Values) -> Any:
        from pyclient.broker_embedded.cluster.cluster_controls import ClusterControls

        clusters = self._clusters
        cluster_id, _, below = rest.partition("/")
        if below:
            return ClusterControls(clusters.find(cluster_id)).handle_here(method, f"/{below}", values)
        if (method, cluster_id) == ("POST", ""):
            return clusters.create(values)
        if method not in ("GET", "DELETE") or (method == "DELETE" and not cluster_id):
            raise MethodNotAllowed(f"{method} {PATH}/{rest}: only GET and {'DELETE' if rest else 'POST'}")
        if values:
            raise ConfigError(f"{method} {PATH}/{rest} takes no fields")
        if method == "DELETE":
            return clusters.destroy(cluster_id)
        return clusters.describe(cluster_id) if cluster_id else clusters.all()


class ServerWithClusters:
    """A server of controls, and the clusters that were created by it."""

    def __init__(self, controls: Handling, listener: socket.socket) -> None:
        from pyclient.broker_embedded.controls.http import ControlServer

        self._controls = ControlsWithClusters(controls)
        self._server: ControlServer = ControlServer(self._controls, listener)

    def start(self) -> None:
        """Serve on the running loop until `close`."""
        self._server.start()

    async def close(self) -> None:
        """Stop serving, and destroy the clusters."""
        await self._server.close()
        await asyncio.to_thread(self._controls.close)
