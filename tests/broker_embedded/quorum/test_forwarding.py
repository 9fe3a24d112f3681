"""Requests of clients that only the active controller can answer, asked of any node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from pyclient import errors
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.network.node_channels import NodeChannel, NodeChannels
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pyclient.protocol.messages.describe_cluster import DescribeClusterRequest
from pyclient.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from pyclient.protocol.messages.envelope import EnvelopeRequest
from pyclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.quorum.several_nodes import STEADY, Nodes
from tests.waiting import until_async


def run(
    path: Path, scenario: Callable[[Nodes, NodeChannels, BrokerNode], Coroutine[Any, Any, None]], **settings: Any
) -> None:
    async def main() -> None:
        async with Nodes(path, **settings) as nodes:
            active = await nodes.active()
            await nodes.all_have(lambda node: len(unfenced(node)) == 3, "all brokers are unfenced")
            channels = NodeChannels(asyncio.get_running_loop(), "client")
            try:
                await scenario(nodes, channels, active)
            finally:
                channels.close()

    asyncio.run(main())


def unfenced(node: BrokerNode) -> list[int]:
    return sorted(broker.node_id for broker in node.image.brokers.values() if not broker.fenced)


def to(channels: NodeChannels, node: BrokerNode) -> NodeChannel:
    return channels.to(node.node_id, "127.0.0.1", node.port)


def creation(name: str, partitions: int = 3, replicas: int = 3) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def other_than(nodes: Nodes, active: BrokerNode) -> BrokerNode:
    return next(node for node in nodes.running.values() if node is not active)


def test_any_node_creates_alters_and_deletes_topics(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, channels: NodeChannels, active: BrokerNode) -> None:
        for node in nodes.running.values():
            name = f"by-{node.node_id}"
            [created] = (await to(channels, node).send(creation(name), 20.0)).topics
            assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 3, 3)
            [again] = (await to(channels, node).send(creation(name), 20.0)).topics
            assert again.error_code == errors.TopicAlreadyExists.code
        follower = other_than(nodes, active)
        alter = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="by-1",
                    configs=[AlterableConfig(name="retention.ms", config_operation=0, value="5")],
                )
            ],
            validate_only=False,
        )
        [altered] = (await to(channels, follower).send(alter, 20.0)).responses
        assert altered.error_code == 0
        await nodes.all_have(lambda node: node.image.topic_configs("by-1") == {"retention.ms": "5"}, "the option")
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="by-2", topic_id=ZERO_UUID)], timeout_ms=30_000)
        [deleted] = (await to(channels, follower).send(delete, 20.0)).responses
        assert deleted.error_code == 0
        await nodes.all_have(lambda node: set(node.image.topics) == {"by-1", "by-3"}, "the deletion")

    run(tmp_path, scenario)


def test_every_node_describes_all_brokers_and_the_quorum(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, channels: NodeChannels, active: BrokerNode) -> None:
        ports = {node.node_id: node.port for node in nodes.running.values()}
        ask = DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequestTopicData(
                    topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
                )
            ]
        )
        for node in nodes.running.values():
            metadata = await to(channels, node).send(MetadataRequest(topics=[]), 20.0)
            assert {broker.node_id: broker.port for broker in metadata.brokers} == ports
            assert metadata.controller_id == active.node_id
            cluster = await to(channels, node).send(
                DescribeClusterRequest(include_cluster_authorized_operations=False), 20.0
            )
            assert {broker.broker_id: broker.port for broker in cluster.brokers} == ports
            assert (cluster.controller_id, cluster.cluster_id) == (active.node_id, nodes.cluster_id)
            described = await to(channels, node).send(ask, 20.0)
            [partition] = described.topics[0].partitions
            assert (partition.error_code, partition.leader_id) == (0, active.node_id)
            assert [voter.replica_id for voter in partition.current_voters] == [1, 2, 3]
            assert all(voter.log_end_offset > 0 for voter in partition.current_voters)
            assert partition.observers == []
            assert {each.node_id: each.listeners[0].port for each in described.nodes} == {
                voter: port for voter, (_host, port) in nodes.addresses.items()
            }

    run(tmp_path, scenario, **STEADY)


def test_producer_ids_of_all_nodes_differ(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, channels: NodeChannels, _active: BrokerNode) -> None:
        ids = []
        for node in nodes.running.values():
            for _ in range(3):
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
                answer = await to(channels, node).send(request, 20.0)
                assert answer.error_code == 0
                ids.append(answer.producer_id)
        assert len(set(ids)) == len(ids)

    run(tmp_path, scenario)


def test_a_request_outlives_the_controller_that_it_was_sent_to(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, channels: NodeChannels, active: BrokerNode) -> None:
        follower = other_than(nodes, active)
        await nodes.stop(active.node_id, clean=False)
        [created] = (await to(channels, follower).send(creation("meanwhile", replicas=2), 20.0)).topics
        assert created.error_code == 0
        await nodes.all_have(lambda node: "meanwhile" in node.image.topics, "the topic")

    run(tmp_path, scenario)


def test_invalid_envelope_is_refused(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes, channels: NodeChannels, active: BrokerNode) -> None:
        channel = channels.to(active.node_id, *nodes.addresses[active.node_id])
        metadata = b"\0\x03\0\x01\0\0\0\0\xff\xff" + b"\xff\xff\xff\xff"
        for data, host in ((b"", b"\x7f\0\0\1"), (b"\0\x13\0\x07", b"\x7f\0\0\1"), (metadata, b"\x7f\0\0\1")):
            request = EnvelopeRequest(request_data=data, request_principal=None, client_host_address=host)
            assert (await channel.send(request, 5.0)).error_code == errors.InvalidRequest.code
        quorum: Any = active.quorum
        await until_async(lambda: quorum.is_active, "it is still active")

    run(tmp_path, scenario, **STEADY)
