"""The nodes of a cluster by what the user asks for, and what is refused."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from pyclient.broker_embedded.cluster.layout import Layout
from pyclient.broker_embedded.cluster.node_configs import NodeConfigs, ReservedPort
from pyclient.errors import ConfigError
from tests.free_ports import first_of_free_ports


def identify(data_dir: Path, node_id: int, cluster_id: str) -> None:
    directory = data_dir / f"node-{node_id}"
    directory.mkdir(parents=True)
    (directory / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n")


def test_one_broker_is_alone_with_the_options_it_was_given() -> None:
    layout = Layout.build(1, config={"num.partitions": 3})
    [node] = layout.nodes
    assert layout.is_one_node
    assert (node.node_id, node.roles, layout.path(node, "/data")) == (1, ("broker", "controller"), "/data")
    assert layout.options(node, {1: "localhost:1"}) == {"num.partitions": 3}


@pytest.mark.parametrize(
    ("brokers", "voters"),
    [(1, (1,)), (2, (1,)), (3, (1, 2, 3)), (4, (1, 2, 3)), (5, (1, 2, 3, 4, 5)), (9, (1, 2, 3, 4, 5))],
)
def test_the_first_brokers_vote_in_an_odd_number(brokers: int, voters: tuple[int, ...]) -> None:
    layout = Layout.build(brokers)
    assert layout.voters == voters
    assert [node.node_id for node in layout.nodes if "controller" in node.roles] == list(voters)
    assert [node.node_id for node in layout.nodes if node.is_broker] == list(range(1, brokers + 1))


def test_dedicated_controllers_have_ids_of_their_own() -> None:
    layout = Layout.build(2, controllers=3)
    assert [(node.node_id, node.roles) for node in layout.nodes] == [
        (1, ("broker",)),
        (2, ("broker",)),
        (3000, ("controller",)),
        (3001, ("controller",)),
        (3002, ("controller",)),
    ]
    assert not Layout.build(1, controllers=1).is_one_node


def test_each_node_of_several_has_its_id_roles_voters_and_rack() -> None:
    layout = Layout.build(3, racks=["a", "b", None], config={"num.partitions": 3})
    addresses = {1: "localhost:11", 2: "localhost:12", 3: "localhost:13"}
    options = layout.options(layout.nodes[1], addresses)
    assert options["node.id"] == 2
    assert options["process.roles"] == "broker,controller"
    assert options["controller.quorum.voters"] == "1@localhost:11,2@localhost:12,3@localhost:13"
    assert options["broker.rack"] == "b"
    assert options["num.partitions"] == 3
    assert "broker.rack" not in layout.options(layout.nodes[2], addresses)
    assert layout.path(layout.nodes[1], "/data") == "/data/node-2"


@pytest.mark.parametrize(
    ("brokers", "asked", "factor", "minimum"),
    [
        (3, {}, 3, 2),
        (5, {}, 3, 2),
        (2, {}, 2, 1),
        (3, {"replication_factor": 2}, 2, 1),
        (3, {"replication_factor": 3, "min_insync_replicas": 3}, 3, 3),
        (3, {"replication_factor": 1}, 1, 1),
        (3, {"config": {"min.insync.replicas": "3"}}, 3, "3"),
    ],
)
def test_topics_are_replicated_as_asked(brokers: int, asked: dict[str, Any], factor: int, minimum: int | str) -> None:
    layout = Layout.build(brokers, **asked)
    found = layout.settings
    assert found["default.replication.factor"] == found["offsets.topic.replication.factor"] == factor
    assert found["min.insync.replicas"] == minimum


def test_defaults_follow_the_factors_in_config() -> None:
    found = Layout.build(3, config={"default.replication.factor": " 1 "}).settings
    assert (found["default.replication.factor"], found["min.insync.replicas"]) == (" 1 ", 1)
    assert found["offsets.topic.replication.factor"] == found["transaction.state.log.replication.factor"] == 3
    assert found["transaction.state.log.min.isr"] == 2
    found = Layout.build(3, config={"transaction.state.log.replication.factor": 1}).settings
    assert (found["transaction.state.log.min.isr"], found["min.insync.replicas"]) == (1, 2)


@pytest.mark.parametrize("config", [{"min.insync.replicas": "2"}, {"default.replication.factor": "3"}])
def test_broker_alone_takes_the_options_of_a_cluster(config: dict[str, str]) -> None:
    assert Layout.build(1, config=config).settings == config


@pytest.mark.parametrize(
    ("brokers", "asked", "expected"),
    [
        (0, {}, "brokers is 0"),
        (True, {}, "brokers is True"),
        (3, {"replication_factor": 4}, r"replication_factor is 4: .* brokers \(3\)"),
        (3, {"replication_factor": 0}, "replication_factor is 0"),
        (3, {"min_insync_replicas": 4}, r"min_insync_replicas is 4, above default\.replication\.factor, which is 3: "),
        (3, {"min_insync_replicas": 0}, "min_insync_replicas is 0"),
        (1, {"min_insync_replicas": 2}, r"min_insync_replicas is 2, above default\.replication\.factor, which is 1"),
        (3, {"config": {"min.insync.replicas": 5}}, r"^min\.insync\.replicas is 5, above default\.replication\.factor"),
        (
            3,
            {"config": {"default.replication.factor": 1}, "min_insync_replicas": 2},
            r"^min_insync_replicas is 2, above default\.replication\.factor, which is 1",
        ),
        (
            3,
            {"config": {"min.insync.replicas": 3}, "replication_factor": 2},
            r"^min\.insync\.replicas is 3, above replication_factor, which is 2",
        ),
        (
            1,
            {"config": {"default.replication.factor": "1", "min.insync.replicas": "2"}},
            r"^min\.insync\.replicas is 2, above default\.replication\.factor, which is 1",
        ),
        (
            3,
            {"config": {"transaction.state.log.min.isr": 3, "transaction.state.log.replication.factor": 1}},
            r"^transaction\.state\.log\.min\.isr is 3, above transaction\.state\.log\.replication\.factor, which is 1",
        ),
        (3, {"config": {"transaction.state.log.min.isr": 4}}, r"above transaction\.state\.log\.replication\.factor"),
        (
            3,
            {"node_properties": {2: {"min.insync.replicas": "4"}}},
            r"^node_properties\[2\]: min\.insync\.replicas is 4, above default\.replication\.factor, which is 3",
        ),
        (3, {"config": {"default.replication.factor": 5}}, r"^default\.replication\.factor is 5: .* \(3\)"),
        (
            2,
            {"config": {"offsets.topic.replication.factor": "3"}},
            r"^offsets\.topic\.replication\.factor is 3: .* \(2\)",
        ),
        (3, {"config": {"transaction.state.log.replication.factor": 4}}, r"^transaction\.state\..* is 4: .* \(3\)"),
        (
            3,
            {"node_properties": {2: {"default.replication.factor": 9}}},
            r"^node_properties\[2\]: default\.replication\.factor is 9: .* \(3\)",
        ),
        (3, {"controllers": 2}, "controllers is 2: .* use 1 or 3"),
        (3, {"controllers": 0}, "controllers is 0"),
        (3, {"racks": ["a"]}, r"racks is .* \(3\)"),
        (3, {"racks": "abc"}, "racks is 'abc'"),
        (3, {"config": {"node.id": 7}}, r"node\.id: in a cluster of several nodes"),
        (3, {"config": {"controller.quorum.voters": "1@x:1"}}, r"controller\.quorum\.voters"),
        (3, {"replication_factor": 3, "config": {"default.replication.factor": "2"}}, "give one of them"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_by_its_name(brokers: int, asked: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        Layout.build(brokers, **asked)


def test_brokers_come_and_go_and_voters_stay() -> None:
    layout, node = Layout.build(3).with_broker("c")
    assert (node.node_id, node.roles, node.rack, node.directory) == (4, ("broker",), "c", "node-4")
    assert layout.voters == (1, 2, 3)
    assert layout.without(4) == Layout.build(3)
    with pytest.raises(ConfigError, match=r"node 1 is also a controller.*: make the cluster with controllers=3"):
        layout.without(1)
    with pytest.raises(ConfigError, match=r"removed: call remove_controller\(1\) first$"):
        Layout.build(3, dynamic_quorum=True).without(1)
    with pytest.raises(ConfigError, match="only broker"):
        Layout.build(1, controllers=3).without(1)


def test_a_directory_is_that_of_the_same_cluster(tmp_path: Path) -> None:
    layout = Layout.build(3)
    assert layout.check_directory(str(tmp_path / "new")) is None
    identify(tmp_path, 1, "one")
    identify(tmp_path, 2, "one")
    assert layout.check_directory(str(tmp_path)) == "one"
    with pytest.raises(ConfigError, match="nodes 1, 2"):
        Layout.build(1).check_directory(str(tmp_path))
    identify(tmp_path, 3, "other")
    with pytest.raises(ConfigError, match="node 1 of one, node 3 of other"):
        layout.check_directory(str(tmp_path))
    identify(tmp_path, 4, "one")
    with pytest.raises(ConfigError, match="nodes 1, 2, 3, 4"):
        layout.check_directory(str(tmp_path))


def test_the_directory_of_one_node_is_not_that_of_several(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=one\nnode.id=1\n")
    with pytest.raises(ConfigError, match="one node"):
        Layout.build(3).check_directory(str(tmp_path))


def test_reserved_port_refuses_connections_until_a_node_listens() -> None:
    reserved = ReservedPort("127.0.0.1")
    try:
        for _life in range(2):
            with socket.create_server(("127.0.0.1", reserved.port)) as server:
                socket.create_connection(("127.0.0.1", reserved.port)).close()
                server.accept()[0].close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", reserved.port))
    finally:
        reserved.release()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere any port may be taken by a connection")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_reserved_port_is_not_assigned_to_connections(host: str) -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first, last = map(int, file.read().split())
    reserved = [ReservedPort(host) for _ in range(50)]
    try:
        ports = {each.port for each in reserved}
        assert len(ports) == 50
        assert not any(first <= port <= last for port in ports)
    finally:
        for each in reserved:
            each.release()


def test_port_in_use_is_not_reserved() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use$"):
            ReservedPort("127.0.0.1", port)


def test_brokers_have_ports_in_a_row_and_controllers_any(tmp_path: Path) -> None:
    first = first_of_free_ports(3)
    configs = NodeConfigs(host="127.0.0.1", port=65534, profile="test", as_version=None)
    with pytest.raises(ConfigError, match="ports above 65535"):
        configs.open(Layout.build(3), str(tmp_path))
    configs = NodeConfigs(host="127.0.0.1", port=first, profile="test", as_version=None)
    layout = Layout.build(3)
    configs.open(layout, str(tmp_path))
    try:
        addresses = [configs.controller_address(voter) for voter in layout.voters]
        assert None not in addresses
        assert len(set(addresses)) == 3
        with (
            pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{first + 2}"),
            socket.create_server(("127.0.0.1", first + 2)),
        ):
            NodeConfigs(host="127.0.0.1", port=first, profile="test", as_version=None).open(layout, str(tmp_path))
    finally:
        configs.close()
