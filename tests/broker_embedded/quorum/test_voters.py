"""Voters that change while the quorum runs (KIP-853), over real sockets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import UUID

from pyclient import errors
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from pyclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from pyclient.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from tests.broker_embedded.quorum.several_nodes import Nodes
from tests.waiting import until_async


class Client:
    """Asks the controller listeners of nodes."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.channels = NodeChannels(asyncio.get_running_loop(), "test")

    async def add(self, at: BrokerNode, node_id: int, *, key: UUID | None = None) -> AddRaftVoterResponse:
        host, port = self.nodes.addresses[node_id]
        request = AddRaftVoterRequest(
            cluster_id=self.nodes.cluster_id,
            timeout_ms=5000,
            voter_id=node_id,
            voter_directory_id=key or self.nodes.key(node_id).directory_id,
            listeners=[Listener(name="CONTROLLER", host=host, port=port)],
        )
        answer: AddRaftVoterResponse = await self.ask(at, request)
        return answer

    async def remove(self, at: BrokerNode, node_id: int) -> RemoveRaftVoterResponse:
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node_id, voter_directory_id=self.nodes.key(node_id).directory_id
        )
        answer: RemoveRaftVoterResponse = await self.ask(at, request)
        return answer

    async def describe(self, at: BrokerNode) -> DescribeQuorumResponse:
        partitions = [DescribeQuorumRequestPartitionData(partition_index=0)]
        topics = [DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=partitions)]
        answer: DescribeQuorumResponse = await self.ask(at, DescribeQuorumRequest(topics=topics))
        return answer

    async def ask(self, at: BrokerNode, request: object) -> object:
        channel = self.channels.to(at.node_id, *self.nodes.addresses[at.node_id])
        return await channel.send(request, 20.0)  # type: ignore[arg-type, type-var]


def voters(node: BrokerNode) -> tuple[int, ...]:
    assert node.quorum is not None
    return node.quorum.voters.ids


def test_one_controller_grows_to_three_and_the_first_leaves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, count=1, dynamic=True) as nodes:
            client = Client(nodes)
            first = await nodes.active()
            await nodes.add(2)
            await nodes.add(3)
            for number in (2, 3):
                answer = await until_added(client, first, number)
                assert (answer.error_code, answer.error_message) == (0, None)
            await nodes.all_have(lambda node: voters(node) == (1, 2, 3), "three voters")
            await nodes.all_have(lambda node: node.image.features.get("kraft.version") == 1, "kraft.version 1")

            described = await client.describe(first)
            [partition] = described.topics[0].partitions
            assert [(each.replica_id, each.replica_directory_id) for each in partition.current_voters] == [
                (number, nodes.key(number).directory_id) for number in (1, 2, 3)
            ]
            assert {each.node_id: (each.listeners[0].host, each.listeners[0].port) for each in described.nodes} == (
                nodes.addresses
            )

            assert (await client.remove(first, 1)).error_code == 0
            second = await nodes.active()
            assert second is not first
            await nodes.all_have(lambda node: voters(node) == (2, 3), "two voters")
            await nodes.stop(1)
            await until_async(lambda: second.controller.brokers, "a broker is unfenced")
            run_here(second.controller.create_topic(TopicPlan("after", 1, 1)))
            await nodes.all_have(lambda node: "after" in node.image.topics, "a topic of the new quorum")

    asyncio.run(scenario())


async def until_added(client: Client, at: BrokerNode, node_id: int) -> AddRaftVoterResponse:
    """Add a voter as soon as it has caught up."""
    while True:
        answer = await client.add(at, node_id)
        if answer.error_code != errors.RequestTimedOut.code:
            return answer
        await asyncio.sleep(0.02)


def test_voters_survive_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = Nodes(tmp_path, count=1, dynamic=True, metadata_log_max_record_bytes_between_snapshots=2000)
        async with nodes:
            client = Client(nodes)
            first = await nodes.active()
            await nodes.add(2)
            assert (await until_added(client, first, 2)).error_code == 0
            await until_async(lambda: first.controller.brokers, "a broker is unfenced")
            for number in range(12):
                run_here(first.controller.create_topic(TopicPlan(f"t{number}", 3, 1)))
            await nodes.all_have(lambda node: node.quorum and node.quorum.log.start_offset > 3, "snapshots")
            for node_id in (1, 2):
                await nodes.stop(node_id, clean=False)
        state = json.loads((tmp_path / "node-1" / "__cluster_metadata-0" / "quorum-state").read_text())
        assert state["data_version"] == 1
        assert "currentVoters" not in state
        nodes.ids = range(1, 3)
        async with nodes:
            await nodes.active()
            await nodes.all_have(lambda node: voters(node) == (1, 2), "the voters of the snapshot")
            await nodes.all_have(lambda node: "t11" in node.image.topics, "the last topic")

    asyncio.run(scenario())


def test_controller_at_another_address_updates_the_voters(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, count=3, dynamic=True) as nodes:
            active = await nodes.active()
            moved = next(node for node in nodes.running if node != active.node_id)
            before = nodes.addresses[moved]
            await nodes.all_have(lambda node: address_of(node, moved) == before, "the first address")
            await nodes.stop(moved)
            await nodes.start_elsewhere(moved)
            assert nodes.addresses[moved] != before
            await nodes.all_have(lambda node: address_of(node, moved) == nodes.addresses[moved], "the new address")
            await nodes.stop(active.node_id, clean=False)
            others = set(nodes.running)
            assert (await nodes.active()).node_id in others, "the other two reach each other"

    asyncio.run(scenario())


def address_of(node: BrokerNode, voter: int) -> tuple[str, int]:
    """Return the address of a voter in the metadata log of a node."""
    assert node.quorum is not None
    found = node.quorum.voters.voter(voter)
    assert found is not None
    return found.endpoints[0].host, found.endpoints[0].port


def test_invalid_voter_changes_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, count=1, dynamic=True) as nodes:
            client = Client(nodes)
            first = await nodes.active()
            again = await client.add(first, 1, key=UUID(int=77))
            assert again.error_code == errors.DuplicateVoter.code
            assert "is already part of the set of voters" in str(again.error_message)
            nodes.addresses[9] = ("127.0.0.1", 1)
            silent = await client.add(first, 9)
            assert silent.error_code == errors.RequestTimedOut.code
            assert "lagging behind: it has not fetched" in str(silent.error_message)
            stranger = await client.remove(first, 9)
            assert stranger.error_code == errors.VoterNotFound.code
            last = await client.remove(first, 1)
            assert last.error_code == errors.InvalidRequest.code
            other = await client.ask(
                first, RemoveRaftVoterRequest(cluster_id="other", voter_id=1, voter_directory_id=UUID(int=1))
            )
            assert isinstance(other, RemoveRaftVoterResponse)
            assert other.error_code == errors.InconsistentClusterId.code

    asyncio.run(scenario())


def test_static_voters_cannot_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path) as nodes:
            client = Client(nodes)
            active = await nodes.active()
            await until_async(lambda: active.quorum is not None and active.quorum.is_active, "active")
            removed = await client.remove(active, 2)
            assert removed.error_code == errors.UnsupportedVersion.code
            assert removed.error_message == (
                "Cluster doesn't support removing voter because the kraft.version feature is 0"
            )
            added = await client.add(active, 2)
            assert added.error_code == errors.UnsupportedVersion.code

    asyncio.run(scenario())
