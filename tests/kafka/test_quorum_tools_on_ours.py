"""Kafka's own tools on our metadata quorum whose voters change (KIP-853), and on its log and snapshots."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.checkpoints import uuid_text
from pyclient.broker_embedded.log.incremental_task import run_here
from tests.broker_embedded.quorum.several_nodes import Nodes
from tests.kafka import tools
from tests.kafka.needs import skip_without_kafka
from tests.kafka.topics import wait_until
from tests.waiting import until_async

pytestmark = pytest.mark.kafka

ACLS = "org.apache.kafka.tools.AclCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


async def quorum_tool(node: BrokerNode, *arguments: str, check: bool = True) -> tools.Output:
    """Run kafka-metadata-quorum at a broker, while the nodes go on."""
    at = ("--bootstrap-server", f"127.0.0.1:{node.port}")
    return await asyncio.to_thread(tools.run, "metadata-quorum", *at, *arguments, check=check)


def test_tools_ask_controllers_without_a_broker() -> None:
    """Their clients find all controllers, and the active one, by DescribeCluster (KIP-919)."""
    skip_without_kafka()
    config = {"controller.quorum.fetch.timeout.ms": 60_000}  # the same node leads all the time, also on a busy machine
    with EmbeddedCluster(1, controllers=3, config=config) as cluster:
        voters = dict(each.split("@") for each in cluster.controller_quorum_voters.split(","))
        active = cluster.controller_id
        for node_id, address in voters.items():
            if int(node_id) != active:
                at = ("--bootstrap-controller", address)
                output = tools.run("metadata-quorum", *at, "describe", "--status").out
                assert re.search(rf"LeaderId:\s+{active}\b", output)
                assert cluster.cluster_id in tools.run(CLUSTER, "cluster-id", *at).out
                output = tools.run("features", *at, "describe").out
                assert re.search(r"Feature: metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0", output)
        at = ("--bootstrap-controller", next(iter(voters.values())))
        listed = tools.run(CLUSTER, "list-endpoints", *at).out
        assert {line.split()[0] for line in listed.splitlines()[1:]} == set(voters)
        assert "No partition reassignments found." in tools.run(REASSIGN, *at, "--list").out


def test_tools_configure_controllers_without_a_broker() -> None:
    skip_without_kafka()
    with EmbeddedCluster(1, controllers=3, config=AUTHORIZER) as cluster:
        voters = dict(each.split("@") for each in cluster.controller_quorum_voters.split(","))
        other = next(node for node in voters if int(node) != cluster.controller_id)
        at = ("--bootstrap-controller", voters[other])
        node = (*at, "--entity-type", "brokers", "--entity-name", other)
        described = tools.run("configs", *node, "--describe", "--all").out
        assert re.search(rf"\bnode\.id={other}\b", described)
        assert re.search(r"\bprocess\.roles=controller\b", described)
        tools.run("configs", *node, "--alter", "--add-config", "log.cleaner.threads=3")
        wait_until(lambda: "log.cleaner.threads=3" in tools.run("configs", *node, "--describe").out, "it has 1 thread")
        rule = ("--allow-principal", "User:alice", "--operation", "Read", "--topic", "t")
        tools.run(ACLS, *at, "--add", *rule)
        wait_until(lambda: "principal=User:alice" in tools.run(ACLS, *at, "--list").out, "the ACL is not listed")
        [log] = (Path(cluster.nodes[-1].data_dir) / "__cluster_metadata-0").glob("*.log")
        dumped = tools.run("dump-log", "--cluster-metadata-decoder", "--files", str(log)).out
        registered = re.findall(r'"REGISTER_CONTROLLER_RECORD",.*"controllerId":(\d+),', dumped)
        assert set(registered) == set(voters)


def properties(nodes: Nodes, node_id: int) -> Path:
    """Return the configuration of a controller, as Kafka's tool reads it."""
    host, port = nodes.addresses[node_id]
    path = nodes.path / f"controller-{node_id}.properties"
    path.write_text(
        f"process.roles=controller\nnode.id={node_id}\nlisteners=CONTROLLER://{host}:{port}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={nodes.path}/node-{node_id}\n"
        f"controller.quorum.bootstrap.servers={host}:{port}\n"
    )
    return path


def test_controllers_are_added_described_and_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = Nodes(tmp_path, count=1, dynamic=True, metadata_log_max_record_bytes_between_snapshots=3000)
        async with nodes:
            first = await nodes.active()
            await nodes.add(2)
            await until_async(lambda: len(first.controller.brokers) == 2, "both brokers are unfenced")
            added = await quorum_tool(first, "--command-config", str(properties(nodes, 2)), "add-controller")
            assert "Added controller 2" in added.out
            output = (await quorum_tool(first, "describe", "--status")).out
            assert re.search(r"LeaderId:\s+1\b", output)
            ids = [uuid_text(nodes.key(number).directory_id) for number in (1, 2)]
            voters = re.search(r"CurrentVoters:\s+(.*)", output)
            assert voters is not None
            for number, directory in zip((1, 2), ids, strict=True):
                assert re.search(rf'"id": {number}, "directoryId": "{re.escape(directory)}"', voters[1]), voters[1]
                assert "CONTROLLER://{}:{}".format(*nodes.addresses[number]) in voters[1]
            removal = ("remove-controller", "--controller-id", "2", "--controller-directory-id", ids[1])
            assert re.search(r"Removed\s+KRaft controller 2\b", (await quorum_tool(first, *removal)).out)
            again = await quorum_tool(first, *removal, check=False)
            assert again.code != 0
            assert "Cannot remove voter" in again.out + again.err
            for number in range(12):
                run_here(first.controller.create_topic(TopicPlan(f"t{number}", 3, 1)))
            await nodes.all_have(lambda node: node.quorum and node.quorum.log.start_offset > 3, "snapshots")

    asyncio.run(scenario())
    directory = tmp_path / "node-1" / "__cluster_metadata-0"
    [snapshot] = directory.glob("*.checkpoint")
    output = tools.run("dump-log", "--cluster-metadata-decoder", "--files", str(snapshot)).out
    assert 'KRaftVersion {"version":0,"kRaftVersion":1}' in output
    assert re.search(r'KRaftVoters \{.*"voterId":1\b', output)
    assert "SnapshotFooter" in output
    assert '"type":"REGISTER_BROKER_RECORD"' in output
    logs = ",".join(map(str, sorted(directory.glob("*.log"))))
    output = tools.run("dump-log", "--cluster-metadata-decoder", "--files", logs).out
    assert len(re.findall(r"KRaftVoters \{", output)) >= 2  # voter 2 was added and removed
    assert '"type":"TOPIC_RECORD"' in output
    assert not re.search(r"Could not|exception|unknown", output, re.IGNORECASE)
