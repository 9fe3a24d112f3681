"""Nodes that start on the wrong directory or a taken port: each gets one clear error, and no cluster loses anything."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import ClientError, ConfigError
from tests.broker_embedded.test_data_directories import tree
from tests.reading import read_all
from tests.waiting import until

PATIENT = {"broker.session.timeout.ms": 60_000}


def fill(cluster: EmbeddedCluster, *values: bytes, new: bool = True) -> None:
    if new:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t")])
    with Producer(cluster.bootstrap_servers, delivery_timeout_ms=60_000) as producer:
        for value in values:
            producer.send("t", value).result(60)


def read(cluster: EmbeddedCluster) -> list[bytes | None]:
    return [record.value for record in read_all(cluster.bootstrap_servers, "t")]


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "processes"])
def test_swapped_directories_of_two_nodes_are_refused(tmp_path: Path, processes: bool) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path) as cluster:
        fill(cluster, b"one")
    first, second = tmp_path / "node-1", tmp_path / "node-2"
    swap(first, second)
    before = tree(first), tree(second)
    cluster = EmbeddedCluster(3, data_dir=tmp_path, processes=processes)
    with pytest.raises(ClientError, match=r"node-[12]/meta.properties: the directory belongs to node.id [12], this "):
        cluster.start()
    cluster.close()
    assert (tree(first), tree(second)) == before
    swap(first, second)
    with EmbeddedCluster(3, data_dir=tmp_path, processes=processes) as cluster:
        assert read(cluster) == [b"one"]
        assert cluster.wait_isr("t", 0, 3)


def test_directory_of_another_cluster_among_those_of_a_cluster_is_refused(tmp_path: Path) -> None:
    ids = []
    for name in ("a", "b"):
        with EmbeddedCluster(3, data_dir=tmp_path / name) as cluster:
            fill(cluster, name.encode())
            ids.append(cluster.cluster_id)
    own, foreign = tmp_path / "a" / "node-2", tmp_path / "b" / "node-2"
    swap(own, foreign)
    with pytest.raises(ConfigError, match=f"several clusters: node 1 of {ids[0]}, node 2 of {ids[1]}$"):
        EmbeddedCluster(3, data_dir=tmp_path / "a").start()
    swap(own, foreign)
    for name in ("a", "b"):
        with EmbeddedCluster(3, data_dir=tmp_path / name) as cluster:
            assert read(cluster) == [name.encode()]


def test_voter_with_the_directory_of_another_cluster_takes_no_part(tmp_path: Path) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path / "b") as other:
        fill(other, b"b")
        other_id = other.cluster_id
    with EmbeddedCluster(3, data_dir=tmp_path / "a", config=PATIENT) as host:
        fill(host, b"one")
        host.kill(2)
        config = {
            "node.id": 2,
            "process.roles": "broker,controller",
            "controller.quorum.voters": host.controller_quorum_voters,
        }
        guest = EmbeddedCluster(data_dir=tmp_path / "b" / "node-2", config=config)
        expected = rf"broker 2 cannot join: the data directory is of cluster {other_id}, controller [13] of an"
        with pytest.raises(ConfigError, match=expected):
            guest.start(timeout=300.0)
        guest.close()
        fill(host, b"two", new=False)
        host.start(2)
        until(lambda: host.controller_id, "no controller is active")
        assert sorted(host.wait_isr("t", 0, 3)) == [1, 2, 3]
        assert read(host) == [b"one", b"two"]
    with EmbeddedCluster(3, data_dir=tmp_path / "b") as other:
        assert read(other) == [b"b"]


def test_taken_port_of_a_controller_is_an_error_that_names_it(tmp_path: Path) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path, dynamic_quorum=True) as cluster:
        fill(cluster, b"one")
        port = int(cluster.controller_quorum_voters.split(",")[1].rpartition(":")[2])
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use$"),
    ):
        EmbeddedCluster(3, data_dir=tmp_path, dynamic_quorum=True).start()
    with EmbeddedCluster(3, data_dir=tmp_path, dynamic_quorum=True) as cluster:
        assert read(cluster) == [b"one"]


def test_taken_port_in_the_voters_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = {
            "node.id": 5,
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"5@127.0.0.1:{port}",
        }
        cluster = EmbeddedCluster(data_dir=tmp_path, config=config)
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use$"):
            cluster.start()
    with cluster:
        fill(cluster, b"one")
        cluster.restart()
        assert read(cluster) == [b"one"]
