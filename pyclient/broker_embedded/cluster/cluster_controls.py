"""The controls of a cluster of several nodes over HTTP: those of each node, and what concerns several of them.

Calls of `EmbeddedCluster` block, so that each runs in a thread of its own and the server's loop stays free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pyclient.broker_embedded.controls.endpoint import (
    TIMEOUT,
    MethodNotAllowed,
    NotFound,
    count_of,
    flag_of,
    number_of,
    seconds_of,
    text_of,
)
from pyclient.config.options import nearest
from pyclient.errors import ConfigError
from pyclient.net.loop_thread import LoopThread

if TYPE_CHECKING:
    import socket

    from pyclient.broker_embedded.cluster.clusters import ServerWithClusters
    from pyclient.broker_embedded.cluster.embedded_cluster import EmbeddedCluster

Values = Mapping[str, Any]

_CALL_SECONDS: Final = 30.0
_NODE: Final = {"node": "the node's id"}
_ANY: Final = {"node": "the node's id; default: all"}
_PAIR: Final = {"a": "a node's id", "b": "another node's id"}
_PARTITION: Final = {"topic": "the topic", "partition": "the partition"}
_HALF_MINUTE: Final = {"timeout": "how many seconds to wait; default 30"}
_MINUTE: Final = {"timeout": "how many seconds to wait; default 60"}


class ClusterEndpoint(NamedTuple):
    """An endpoint of the whole cluster."""

    method: str
    path: str
    doc: str
    fields: Mapping[str, str]
    call: Callable[[EmbeddedCluster, Values], Any]


class ClusterControls:
    """Answers requests for a cluster; `/nodes/ID/...` are those of one node."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    async def handle(self, method: str, path: str, values: Values) -> Any:
        """Serve a request. Return JSON values.

        Raise `ConfigError` for an invalid request, `NotFound`, `WrongState`, `KafkaTimeout`, `MethodNotAllowed`.
        """
        return await asyncio.to_thread(self.handle_here, method, path, values)

    def handle_here(self, method: str, path: str, values: Values) -> Any:
        """Serve a request in this thread, as `handle` does."""
        parts = path.split("/")
        if path.startswith("/nodes/"):
            if not (parts[2].isascii() and parts[2].isdigit()) or len(parts) < 4:
                raise NotFound(f"{path}: it must be /nodes/ID/..., with what GET /nodes/ID/ lists")
            node = self._cluster.node(int(parts[2]))
            wait = seconds_of(values, "timeout", 0.0) if "timeout" in values else _CALL_SECONDS
            return node.call(method, "/" + "/".join(parts[3:]), dict(values), timeout=wait)
        others = [endpoint.method for endpoint in ENDPOINTS if endpoint.path == path]
        for endpoint in ENDPOINTS:
            if endpoint.path == path and endpoint.method == method:
                for given in values:
                    if given not in endpoint.fields:
                        hint = (
                            nearest(given, endpoint.fields) or f": it takes {', '.join(endpoint.fields) or 'nothing'}"
                        )
                        raise ConfigError(f"{given}: {method} {path} has no such field{hint}")
                return endpoint.call(self._cluster, values)
        if others:
            raise MethodNotAllowed(f"{method} {path}: only {', '.join(others)}")
        close = nearest(path, [endpoint.path for endpoint in ENDPOINTS])
        raise NotFound(f"{path}: there is nothing{close}; GET / lists what there is")


class ClusterControlServer:
    """Serves the controls of a cluster by HTTP, on a loop of its own."""

    def __init__(self, cluster: EmbeddedCluster, listener: socket.socket) -> None:
        from pyclient.broker_embedded.controls.http import url_of

        self.url = url_of(listener)
        self._listener = listener
        self._controls = ClusterControls(cluster)
        self._thread = LoopThread("pyclient-cluster-controls")
        self._server: ServerWithClusters | None = None

    def start(self) -> None:
        """Serve until `close`."""
        self._thread.start()
        self._thread.keep()
        self._server = self._thread.run(self._serve, timeout=_CALL_SECONDS)

    def close(self) -> None:
        """Stop serving, and end the calls that wait."""
        if self._server is not None:
            self._thread.run(self._server.close, timeout=_CALL_SECONDS)
        self._thread.stop(_CALL_SECONDS)

    async def _serve(self) -> ServerWithClusters:
        from pyclient.broker_embedded.cluster.clusters import ServerWithClusters

        server = ServerWithClusters(self._controls, self._listener)
        server.start()
        return server


def _describe(cluster: EmbeddedCluster, _values: Values) -> Any:
    endpoints = [
        {"method": each.method, "path": each.path, "doc": each.doc, "fields": dict(each.fields)} for each in ENDPOINTS
    ]
    return {"cluster": _state(cluster, {}), "endpoints": endpoints}


def _state(cluster: EmbeddedCluster, _values: Values) -> Any:
    brokers = set(cluster.brokers)
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "controller_id": cluster.controller_id if any(node.reachable for node in brokers) else None,
        "nodes": [
            {
                "node_id": node.id,
                "state": node.state,
                "address": node.address if node in brokers else None,
                "pid": node.pid,
                "data_dir": node.data_dir,
            }
            for node in cluster.nodes
        ],
    }


def _start(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.start(_one_or_all(values))
    return _state(cluster, {})


def _kill(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.kill(_one_or_all(values))
    return _state(cluster, {})


def _stop(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.stop(_needed(values, "node"))
    return _state(cluster, {})


def _restart(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.restart(_one_or_all(values))
    return _state(cluster, {})


def _pause(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.pause(_needed(values, "node"))
    return _state(cluster, {})


def _resume(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.resume(_needed(values, "node"))
    return _state(cluster, {})


def _cut(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.cut(_needed(values, "a"), _needed(values, "b"), one_way=flag_of(values, "one_way", default=False))
    return {}


def _slow(cluster: EmbeddedCluster, values: Values) -> Any:
    bandwidth = None if values.get("bandwidth") is None else number_of(values, "bandwidth")
    _require(values, "latency_ms")
    cluster.slow(_needed(values, "a"), _needed(values, "b"), number_of(values, "latency_ms"), bandwidth)
    return {}


def _heal(cluster: EmbeddedCluster, _values: Values) -> Any:
    cluster.heal()
    return {}


def _freeze_follower(cluster: EmbeddedCluster, values: Values) -> Any:
    return {"node": cluster.freeze_follower(*_partition(values), seconds_of(values, "timeout", 30.0))}


def _leader(cluster: EmbeddedCluster, values: Values) -> Any:
    return {"leader": cluster.leader_of(*_partition(values))}


def _move_leader(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.move_leader(*_partition(values), _needed(values, "node"), seconds_of(values, "timeout", 30.0))
    return {}


def _wait_isr(cluster: EmbeddedCluster, values: Values) -> Any:
    seconds = seconds_of(values, "timeout", 10.0)
    return {"isr": cluster.wait_isr(*_partition(values), _needed(values, "size"), seconds)}


def _add_broker(cluster: EmbeddedCluster, values: Values) -> Any:
    return {"node": cluster.add_broker(text_of(values, "rack"), seconds_of(values, "timeout", 30.0)).id}


def _remove_broker(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.remove_broker(_needed(values, "node"), seconds_of(values, "timeout", 60.0))
    return _state(cluster, {})


def _add_controller(cluster: EmbeddedCluster, values: Values) -> Any:
    return {"node": cluster.add_controller(seconds_of(values, "timeout", 60.0)).id}


def _remove_controller(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.remove_controller(_needed(values, "node"), seconds_of(values, "timeout", 60.0))
    return _state(cluster, {})


def _advance(cluster: EmbeddedCluster, values: Values) -> Any:
    cluster.advance_time(seconds_of(values, "seconds", None))
    return {}


def _partition(values: Values) -> tuple[str, int]:
    topic = text_of(values, "topic")
    if topic is None:
        raise ConfigError("topic is missing: name one")
    return topic, _needed(values, "partition")


def _needed(values: Values, name: str) -> int:
    _require(values, name)
    return count_of(values, name, 0)


def _require(values: Values, name: str) -> None:
    if values.get(name) is None:
        raise ConfigError(f"{name} is missing: give it")


def _one_or_all(values: Values) -> int | Literal["all"]:
    """Return the node of a call, or "all" if the call has no such field. Raise `ConfigError` for null."""
    return count_of(values, "node", 0) if "node" in values else "all"


ENDPOINTS: Final[tuple[ClusterEndpoint, ...]] = (
    ClusterEndpoint(
        "GET", "/", "the state of the cluster, and this list; /nodes/ID/ has that of a node", {}, _describe
    ),
    ClusterEndpoint("GET", "/cluster", "the nodes, their states, and the active controller", {}, _state),
    ClusterEndpoint("POST", "/cluster/start", "start what does not run", _ANY, _start),
    ClusterEndpoint("POST", "/cluster/kill", "end nodes as a crash would", _ANY, _kill),
    ClusterEndpoint("POST", "/cluster/restart", "stop nodes cleanly and start them", _ANY, _restart),
    ClusterEndpoint("POST", "/cluster/stop", "stop a node cleanly", _NODE, _stop),
    ClusterEndpoint("POST", "/cluster/pause", "freeze a node", _NODE, _pause),
    ClusterEndpoint("POST", "/cluster/resume", "end a pause", _NODE, _resume),
    ClusterEndpoint(
        "POST",
        "/cluster/cut",
        "cut the network between two nodes",
        {**_PAIR, "one_way": "true: only from a to b"},
        _cut,
    ),
    ClusterEndpoint(
        "POST",
        "/cluster/slow",
        "make the network between two nodes slow",
        {**_PAIR, "latency_ms": "the delay of each direction", "bandwidth": "bytes per second; default: no limit"},
        _slow,
    ),
    ClusterEndpoint("POST", "/cluster/heal", "end cuts, delays and frozen followers", {}, _heal),
    ClusterEndpoint(
        "POST",
        "/cluster/freeze-follower",
        "have an in-sync follower replicate nothing, once there is one",
        {**_PARTITION, **_HALF_MINUTE},
        _freeze_follower,
    ),
    ClusterEndpoint("GET", "/cluster/leader", "the leader of a partition", _PARTITION, _leader),
    ClusterEndpoint(
        "POST",
        "/cluster/move-leader",
        "have another replica lead, once it is in sync",
        {**_PARTITION, **_NODE, **_HALF_MINUTE},
        _move_leader,
    ),
    ClusterEndpoint(
        "GET",
        "/cluster/wait-isr",
        "wait until a partition has that many in-sync replicas",
        {**_PARTITION, "size": "how many", **TIMEOUT},
        _wait_isr,
    ),
    ClusterEndpoint(
        "POST", "/cluster/add-broker", "start one more broker", {"rack": "its rack", **_HALF_MINUTE}, _add_broker
    ),
    ClusterEndpoint(
        "POST", "/cluster/remove-broker", "drain a broker, stop and unregister it", {**_NODE, **_MINUTE}, _remove_broker
    ),
    ClusterEndpoint(
        "POST", "/cluster/add-controller", "start a controller and make it a voter", _MINUTE, _add_controller
    ),
    ClusterEndpoint(
        "POST",
        "/cluster/remove-controller",
        "remove a voter from the quorum",
        {**_NODE, **_MINUTE},
        _remove_controller,
    ),
    ClusterEndpoint(
        "POST", "/time/advance", "advance the clocks of all nodes", {"seconds": "by how many seconds"}, _advance
    ),
)
"""All endpoints of the cluster."""
