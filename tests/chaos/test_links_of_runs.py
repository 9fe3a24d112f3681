"""The nodes of a chaos run have no connections to each other but those over the proxies of the run's process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.run import _cluster
from tests.waiting import PATIENCE, until

_ESTABLISHED: Final = "01"
_LISTENING: Final = "0A"
RUN: Final = 0


class Socket(NamedTuple):
    """A socket of IPv4, as Linux lists it."""

    port: int
    peer: int
    state: str


def sockets(pid: int) -> Iterator[Socket]:
    """Yield the sockets of a process."""
    inodes = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            inodes.add(os.readlink(path).removeprefix("socket:[").removesuffix("]"))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes:
            port, peer = (int(each.rpartition(":")[2], 16) for each in fields[1:3])
            yield Socket(port, peer, fields[3])


def reached(cluster: EmbeddedCluster) -> dict[int, set[int]]:
    """Return the processes to whose listeners each node has connections; that of the run is `RUN`."""
    pids = {RUN: os.getpid()} | {node.id: node.pid for node in cluster.nodes if node.pid is not None}
    every = {name: [*sockets(pid)] for name, pid in pids.items()}
    listening = {each.port: name for name, several in every.items() for each in several if each.state == _LISTENING}
    found: dict[int, set[int]] = {}
    for name, several in every.items():
        peers = {listening.get(each.peer, name) for each in several if each.state == _ESTABLISHED}
        found[name] = peers - {name}
    return found


def test_nodes_reach_each_other_over_proxies_only_also_after_a_kill(tmp_path: Path) -> None:
    with _cluster(str(tmp_path)) as (cluster, _proxies):
        ids = [node.id for node in cluster.nodes]
        over_proxies = {node_id: {RUN} for node_id in ids}

        def of_nodes() -> dict[int, set[int]]:
            return {name: others for name, others in reached(cluster).items() if name != RUN}

        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 3, 3)])
        for partition in range(3):
            cluster.wait_isr("t", partition, 3, PATIENCE)
        until(lambda: of_nodes() == over_proxies, of_nodes)
        cluster.kill(ids[0])
        cluster.start()
        for partition in range(3):
            cluster.wait_isr("t", partition, 3, PATIENCE)
        until(lambda: of_nodes() == over_proxies, of_nodes)
