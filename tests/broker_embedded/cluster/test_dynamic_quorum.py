"""Controllers of a cluster that join and leave while it runs (KIP-853)."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.cluster_controls import ClusterControls
from pyclient.broker_embedded.cluster.controllers_file import FILE, read_controllers
from pyclient.broker_embedded.cluster.dynamic_quorum import VoterChanges
from pyclient.broker_embedded.cluster.layout import Layout
from pyclient.broker_embedded.cluster.node_configs import NodeConfigs
from pyclient.broker_embedded.log.checkpoints import META_PROPERTIES, render_identity
from pyclient.errors import (
    ConfigError,
    DuplicateVoter,
    InvalidReplicationFactor,
    InvalidRequest,
    RequestTimedOut,
    VoterNotFound,
)
from tests.waiting import until


def voters(cluster: EmbeddedCluster) -> list[int]:
    with Admin(cluster.bootstrap_servers) as admin:
        return sorted(voter.replica_id for voter in admin.describe_metadata_quorum().voters)


def create(cluster: EmbeddedCluster, topic: str) -> None:
    with Admin(cluster.bootstrap_servers) as admin:

        def created() -> bool:
            """Create the topic; False if, on a busy machine, the only broker is fenced for a moment."""
            with contextlib.suppress(InvalidReplicationFactor):
                admin.create_topics([NewTopic(topic, 1, 1)])
                return True
            return False

        until(created)


def topics(cluster: EmbeddedCluster) -> set[str]:
    with Admin(cluster.bootstrap_servers) as admin:
        return set(admin.list_topics())


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "processes"])
def test_controllers_join_and_the_active_one_leaves(tmp_path: Path, processes: bool) -> None:
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True, data_dir=tmp_path, processes=processes) as cluster:
        assert voters(cluster) == [3000]
        create(cluster, "before")
        assert [cluster.add_controller().id, cluster.add_controller().id] == [3001, 3002]
        assert voters(cluster) == [3000, 3001, 3002]
        assert [node.id for node in cluster.nodes] == [1, 3000, 3001, 3002]
        cluster.remove_controller(3000)
        until(lambda: cluster.controller_id in (3001, 3002), "no other controller became active")
        assert voters(cluster) == [3001, 3002]
        assert [node.id for node in cluster.nodes] == [1, 3001, 3002]
        create(cluster, "between")
        cluster.kill()
        cluster.start()
        assert voters(cluster) == [3001, 3002]
        with pytest.raises(ConfigError, match="node 3000"):
            cluster.remove_controller(3000)
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True, data_dir=tmp_path, processes=processes) as cluster:
        assert [node.id for node in cluster.nodes] == [1, 3001, 3002]
        assert voters(cluster) == [3001, 3002]
        create(cluster, "after")
        assert topics(cluster) >= {"before", "between", "after"}
        assert cluster.add_controller().id == 3003  # not that of the directory of 3000


def test_broker_removed_from_the_voters_serves_and_can_be_removed() -> None:
    with EmbeddedCluster(3, dynamic_quorum=True) as cluster:
        active = cluster.controller_id
        assert active in (1, 2, 3)
        cluster.remove_controller(active)
        until(lambda: cluster.controller_id not in (None, active), "no other controller became active")
        assert voters(cluster) == [node for node in (1, 2, 3) if node != active]
        known = [entry.partition("@")[0] for entry in cluster.controller_quorum_voters.split(",")]
        assert known == [str(node) for node in (1, 2, 3) if node != active]
        assert [broker.id for broker in cluster.brokers] == [1, 2, 3]
        cluster.restart(active)
        create(cluster, "t")
        with pytest.raises(ConfigError, match=f"node {active} is not a voter"):
            cluster.remove_controller(active)
        cluster.remove_broker(active)
        assert [broker.id for broker in cluster.brokers] == [node for node in (1, 2, 3) if node != active]
        assert topics(cluster) >= {"t"}


def test_node_that_was_down_meanwhile_finds_the_new_controllers() -> None:
    with EmbeddedCluster(2, controllers=1, dynamic_quorum=True) as cluster:
        cluster.kill(2)
        cluster.add_controller()
        cluster.remove_controller(3000)
        cluster.start(2)
        create(cluster, "t")
        assert cluster.node(2).config.quorum.voters.keys() == {3001}


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "processes"])
def test_node_started_by_its_own_controls_finds_the_new_controllers(processes: bool) -> None:
    """Node 2 is down while they change, node 3 is paused: both start with other controllers than before."""
    with EmbeddedCluster(3, controllers=1, dynamic_quorum=True, processes=processes) as cluster:
        cluster.node(2).call("POST", "/broker/stop")
        cluster.pause(3)
        cluster.add_controller()
        cluster.remove_controller(3000)
        cluster.resume(3)
        cluster.node(3).call("POST", "/broker/restart", {"down_seconds": 0.0})
        cluster.node(2).call("POST", "/broker/start")

        def joined() -> bool:
            known = cluster.node(3001).call("GET", "/broker")["brokers"]
            return all([node, cluster.node(node).call("GET", "/broker")["broker_epoch"]] in known for node in (2, 3))

        until(joined, "nodes 2 and 3 have found the new controller")
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", assignments={0: (2, 3)})])
        cluster.wait_isr("t", 0, 2)
        for node in (2, 3):
            assert cluster.node(node).config.quorum.voters.keys() == {3001}


def test_static_voters_and_invalid_controllers_are_refused() -> None:
    with EmbeddedCluster() as cluster:
        node = cluster.node(1)
        with pytest.raises(ConfigError, match="its voters cannot change"):
            node.call("POST", "/quorum/bootstrap", {"servers": "2@127.0.0.1:9093"})
        with pytest.raises(ConfigError, match="servers is missing"):
            node.call("POST", "/quorum/bootstrap")
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True) as cluster:
        with pytest.raises(ConfigError, match=r"must look like 1@host:port"):
            cluster.node(1).call("POST", "/quorum/bootstrap", {"servers": "x@127.0.0.1:9093"})
        cluster.node(1).call("POST", "/broker/restart")
        create(cluster, "t")


def test_controller_that_could_not_be_added_is_no_voter() -> None:
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True) as cluster:
        before = cluster.controller_quorum_voters
        with (
            cluster.faults.fail("AddRaftVoter", InvalidRequest, when="after") as fault,
            pytest.raises(InvalidRequest, match="adding controller 3001"),
        ):
            cluster.add_controller()
        assert fault.hits() == 1
        assert voters(cluster) == [3000]
        assert cluster.controller_quorum_voters == before
        assert [node.id for node in cluster.nodes] == [1, 3000]
        create(cluster, "t")
        assert voters(cluster) == [3000]
        assert cluster.add_controller().id == 3002


def test_changes_are_repeated_until_the_voters_are_as_wanted() -> None:
    """After a lost answer the voter is there, or gone, already: that is what was wanted."""
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True) as cluster:
        with cluster.faults.disconnect("AddRaftVoter", when="after") as lost:
            added = cluster.add_controller()
        assert lost.hits() == 1
        assert voters(cluster) == [3000, 3001]
        with cluster.faults.disconnect("RemoveRaftVoter", when="after") as lost:
            cluster.remove_controller(added.id)
        assert lost.hits() == 1
        assert voters(cluster) == [3000]


def test_voter_with_the_same_id_and_another_directory_is_an_error(tmp_path: Path) -> None:
    other = render_identity(cluster_id="x", node_id=3000, directory_id=uuid.uuid4())
    (tmp_path / META_PROPERTIES).write_bytes(other)
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True) as cluster:
        changes = VoterChanges(lambda: cluster.brokers[0].config, 30)
        with cluster.faults.fail("AddRaftVoter", RequestTimedOut), pytest.raises(DuplicateVoter):
            changes.add(3000, os.fspath(tmp_path), "127.0.0.1:1")
        with cluster.faults.fail("RemoveRaftVoter", RequestTimedOut), pytest.raises(VoterNotFound):
            changes.remove(3000, os.fspath(tmp_path))


def test_formatting_that_was_interrupted_is_done_again(tmp_path: Path) -> None:
    configs = NodeConfigs(host="127.0.0.1", port=0, profile="test", as_version=None)
    configs.open(Layout.build(3, dynamic_quorum=True), os.fspath(tmp_path))
    configs.close()
    for node in (2, 3):
        shutil.rmtree(tmp_path / f"node-{node}")
    with EmbeddedCluster(3, dynamic_quorum=True, data_dir=tmp_path) as cluster:
        assert voters(cluster) == [1, 2, 3]
        create(cluster, "t")
    with EmbeddedCluster(3, dynamic_quorum=True, data_dir=tmp_path) as cluster:
        assert "t" in topics(cluster)


@pytest.mark.parametrize("options", [{"users": {"alice": "secret"}}, {"users": ["alice"]}], ids=["passwords", "tokens"])
@pytest.mark.parametrize("security", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_controllers_join_and_leave_with_security(security: str, options: dict[str, Any]) -> None:
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True, security=security, acls=[], **options) as cluster:
        assert cluster.add_controller().id == 3001
        assert "@" in cluster.controller_quorum_voters.partition(",")[2]
        cluster.remove_controller(3000)
        until(lambda: cluster.controller_id == 3001, "the other controller did not become active")
        cluster.kill()
        cluster.start()


def test_last_voter_stays_and_others_come_and_go_over_http() -> None:
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True) as cluster:
        with pytest.raises(InvalidRequest):
            cluster.remove_controller(3000)
        assert voters(cluster) == [3000]
        controls = ClusterControls(cluster)
        assert controls.handle_here("POST", "/cluster/add-controller", {}) == {"node": 3001}
        assert voters(cluster) == [3000, 3001]
        controls.handle_here("POST", "/cluster/remove-controller", {"node": 3001})
        assert voters(cluster) == [3000]


def test_static_voters_do_not_change(tmp_path: Path) -> None:
    with EmbeddedCluster(1, controllers=1, data_dir=tmp_path) as cluster:
        for call in (cluster.add_controller, lambda: cluster.remove_controller(3000)):
            with pytest.raises(ConfigError, match="dynamic_quorum=True"):
                call()
    with pytest.raises(ConfigError, match="static voters"):
        EmbeddedCluster(1, controllers=1, dynamic_quorum=True, data_dir=tmp_path).start()


def test_directory_of_a_dynamic_quorum_is_opened_as_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("3000=127.0.0.1:1234\n3001=127.0.0.1:1235\n")
    assert read_controllers(os.fspath(tmp_path)) == {3000: 1234, 3001: 1235}
    with pytest.raises(ConfigError, match="voters can change"):
        EmbeddedCluster(1, controllers=1, data_dir=tmp_path).start()
    (tmp_path / FILE).write_text("3000=nowhere\n")
    with pytest.raises(ConfigError, match="must be like"):
        read_controllers(os.fspath(tmp_path))


def test_single_node_has_no_voters() -> None:
    with pytest.raises(ConfigError, match="alone has no voters"):
        EmbeddedCluster(dynamic_quorum=True)


def test_layout_takes_the_voters_of_the_directory(tmp_path: Path) -> None:
    layout = Layout.build(3, dynamic_quorum=True).with_voters([2, 3, 3000])
    assert [(node.node_id, node.is_broker, node.is_controller) for node in layout.nodes] == [
        (1, True, False),
        (2, True, True),
        (3, True, True),
        (3000, False, True),
    ]
    (tmp_path / "node-3005").mkdir()
    more, added = layout.with_controller(os.fspath(tmp_path))
    assert (added.node_id, more.voters) == (3006, (2, 3, 3000, 3006))
    assert more.without_voter(3).voters == (2, 3000, 3006)
