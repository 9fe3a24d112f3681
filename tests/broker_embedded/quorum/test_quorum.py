"""A quorum of several nodes over real sockets: elections, replication, and what outlives its leader."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.controller.metadata_log import TOPIC_ID
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.incremental_task import IncrementalTask, run_here
from pyclient.broker_embedded.network.node_channels import NodeChannels
from pyclient.broker_embedded.replication.durability import Durable, hold_until_durable
from pyclient.errors import ConfigError
from pyclient.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartitionData,
    BeginQuorumEpochRequestTopicData,
)
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.vote import VoteRequest, VoteRequestPartitionData, VoteRequestTopicData
from tests.broker_embedded.quorum.several_nodes import STEADY, Nodes
from tests.waiting import until_async


async def create(node: BrokerNode, topic: str, partitions: int = 1) -> None:
    await until_async(lambda: node.controller.brokers, "a broker is unfenced")
    run_here(node.controller.create_topic(TopicPlan(topic, partitions, 1)))


def log_bytes(node: BrokerNode) -> bytes:
    assert node.quorum is not None
    return node.quorum.log.read_bytes(0, 1 << 24, isolation="log_end")


def test_three_nodes_elect_replicate_and_survive_their_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path) as nodes:
            active = await nodes.active()
            await create(active, "first", 3)
            assert "first" not in active.image.topics  # not committed yet
            assert "first" in active.controller.image.topics
            await nodes.all_have(lambda node: "first" in node.image.topics, "first")
            await nodes.all_have(lambda node: len(node.image.brokers) == 3, "registrations")
            await nodes.stop(active.node_id, clean=False)

            second = await nodes.active()
            assert second.quorum is not None
            assert active.quorum is not None
            assert second.quorum.epoch > active.quorum.epoch
            assert second is not active
            await create(second, "second")
            await nodes.all_have(lambda node: {"first", "second"} <= node.image.topics.keys(), "second")

            back = await nodes.start(active.node_id)
            await nodes.all_have(lambda node: {"first", "second"} <= node.image.topics.keys(), "all on the first again")
            assert len(back.image.topics["first"].partitions) == 3
            await until_async(lambda: len({log_bytes(node) for node in nodes.running.values()}) == 1, "equal logs")

    asyncio.run(scenario())


def test_an_orderly_stop_hands_over_and_a_restart_keeps_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        nodes = Nodes(tmp_path)
        async with nodes:
            active = await nodes.active()
            await create(active, "kept")
            await nodes.all_have(lambda node: "kept" in node.image.topics, "kept")
            await nodes.stop(active.node_id)
            await nodes.active()
        async with nodes:
            await nodes.active()
            await nodes.all_have(lambda node: "kept" in node.image.topics, "kept after a restart")

    asyncio.run(scenario())


def test_brokers_that_are_no_voters_follow_the_metadata(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, count=3, voters=1) as nodes:
            active = await nodes.active()
            assert active.node_id == 1
            await create(active, "t")
            await nodes.all_have(lambda node: "t" in node.image.topics, "t on observers")
            await nodes.stop(1)
            await nodes.start(1)
            await create(await nodes.active(), "u")
            await nodes.all_have(lambda node: "u" in node.image.topics, "u on observers")

    asyncio.run(scenario())


def test_record_without_a_majority_is_refused_and_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path) as nodes:
            active = await nodes.active()
            quorum: Any = active.quorum
            await create(active, "committed")
            await nodes.all_have(lambda node: "committed" in node.image.topics, "committed")
            others = [node_id for node_id in nodes.running if node_id != active.node_id]
            for node_id in others:
                await nodes.stop(node_id, clean=False)
            await create(active, "lost")
            seen: list[bool] = []
            quorum.log.when_committed(quorum.log.end_offset - 1, lambda: seen.append(quorum.is_active))
            await until_async(lambda: not quorum.is_active, "a leader without a majority resigns")
            await until_async(lambda: seen, "the waiter is called")
            assert seen == [False]
            assert "lost" not in active.image.topics
            with pytest.raises(errors.NotController, match="is not the active controller"):
                await create(active, "refused")
            await nodes.stop(active.node_id, clean=False)
            for node_id in others:
                await nodes.start(node_id)
            await create(await nodes.active(), "later")
            await nodes.all_have(lambda node: "later" in node.image.topics, "the other two go on")
            await nodes.start(active.node_id)
            await nodes.all_have(lambda node: "later" in node.image.topics, "the old leader follows")
            assert all("lost" not in node.image.topics for node in nodes.running.values())
            await until_async(lambda: len({log_bytes(node) for node in nodes.running.values()}) == 1, "equal logs")

    asyncio.run(scenario())


def test_work_of_a_controller_fails_if_another_follows_before_its_end(tmp_path: Path) -> None:
    """A leader that took such an answer for a success kept in-sync replicas that the next controller did not have."""

    def in_two_steps(topic: str, context: Any) -> IncrementalTask[str]:
        run_here(context.services.controller.create_topic(TopicPlan(topic, 1, 1)))
        yield None
        return "done"

    async def scenario() -> None:
        async with Nodes(tmp_path) as nodes:
            active = await nodes.active()
            quorum: Any = active.quorum
            await create(active, "committed")
            await nodes.all_have(lambda node: "committed" in node.image.topics, "committed")
            handler = hold_until_durable(Durable.METADATA, in_two_steps, by_controller=True)
            context: Any = SimpleNamespace(services=active.services)
            assert await run_here(handler("whole", context)) == "done"
            assert "whole" in active.image.topics
            for node_id in [node_id for node_id in nodes.running if node_id != active.node_id]:
                await nodes.stop(node_id, clean=False)
            work = handler("half", context)
            next(work)
            await until_async(lambda: not quorum.is_active, "a leader without a majority resigns")
            with pytest.raises(errors.NotController, match="is not the active controller"):
                run_here(work)

    asyncio.run(scenario())


def test_clients_are_answered_while_a_change_of_the_metadata_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, **STEADY) as nodes:
            active = await nodes.active()
            await until_async(lambda: len(active.controller.brokers) == 3, "all brokers are unfenced")
            channels = NodeChannels(asyncio.get_running_loop(), "client")
            channel = channels.to(active.node_id, "127.0.0.1", active.port)
            writer = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            assert (await channel.send(writer, 20.0)).error_code == 0
            for node_id in [node_id for node_id in nodes.running if node_id != active.node_id]:
                await nodes.stop(node_id, clean=False)
            quorum: Any = active.quorum
            await create(active, "waits")
            metadata = await channel.send(MetadataRequest(topics=[]), 20.0)
            assert (metadata.error_code, metadata.controller_id) == (0, active.node_id)
            [found] = (await channel.send(FindCoordinatorRequest(coordinator_keys=["g"]), 20.0)).coordinators
            assert found.error_code == errors.CoordinatorNotAvailable.code
            assert (await channel.send(writer, 20.0)).error_code == 0
            assert quorum.is_active
            assert quorum.applied < quorum.log.end_offset
            channels.close()
            await nodes.stop(active.node_id, clean=False)

    asyncio.run(scenario())


def test_a_paused_leader_is_replaced_and_follows_when_it_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path) as nodes:
            active = await nodes.active()
            active.pause()
            others = [node for node in nodes.running.values() if node is not active]

            def elected() -> BrokerNode | None:
                return next((node for node in others if node.quorum is not None and node.quorum.is_active), None)

            await create(await until_async(elected, "the other two go on"), "meanwhile")
            active.resume()
            await nodes.all_have(lambda node: "meanwhile" in node.image.topics, "all follow again")
            assert (await nodes.active()) is not active

    asyncio.run(scenario())


def test_a_directory_of_another_quorum_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path) as nodes:
            await nodes.active()
        with pytest.raises(ConfigError, match=r"belongs to a quorum of \[1, 2, 3\]"):
            await Nodes(tmp_path, count=1).start(1)

    asyncio.run(scenario())


def test_forged_requests_change_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Nodes(tmp_path, **STEADY) as nodes:
            active = await nodes.active()
            quorum: Any = active.quorum
            channels = NodeChannels(asyncio.get_running_loop(), "forger")
            channel = channels.to(active.node_id, *nodes.addresses[active.node_id])
            epoch = quorum.epoch
            for changes, code in (
                ({"cluster_id": "another"}, errors.InconsistentClusterId.code),
                ({"replica_id": 9}, errors.InvalidRequest.code),
                ({"replica_epoch": 2**31 - 1}, errors.InvalidRequest.code),
            ):
                answer = await channel.send(forged_vote(**changes), 5.0)
                assert answer.error_code == code
            begin = BeginQuorumEpochRequest(
                topics=[
                    BeginQuorumEpochRequestTopicData(
                        topic_name="__cluster_metadata",
                        partitions=[
                            BeginQuorumEpochRequestPartitionData(
                                partition_index=0, leader_id=77, leader_epoch=epoch + 1
                            )
                        ],
                    )
                ]
            )
            assert (await channel.send(begin, 5.0)).error_code == errors.InvalidRequest.code
            assert (await channel.send(VoteRequest(topics=[]), 5.0)).error_code == errors.InvalidRequest.code
            assert (quorum.epoch, quorum.is_active) == (epoch, True)
            channels.close()

    asyncio.run(scenario())


def test_any_voter_answers_with_the_address_of_the_leader(tmp_path: Path) -> None:
    """As a broker of Kafka asks that has `controller.quorum.bootstrap.servers`; without an address it ends itself."""

    async def scenario() -> None:
        async with Nodes(tmp_path, **STEADY) as nodes:
            leader = (await nodes.active()).node_id
            await nodes.all_have(lambda node: node.quorum is not None and node.quorum.leader_id == leader, "the leader")
            channels = NodeChannels(asyncio.get_running_loop(), "observer")
            for node_id, address in nodes.addresses.items():
                answer = await channels.to(node_id, *address).send(fetch_of_a_stranger(), 5.0)
                seen = answer.responses[0].partitions[0].current_leader
                assert seen.leader_id == leader
                endpoints = [(each.node_id, each.host, each.port) for each in answer.node_endpoints]
                assert endpoints == [(leader, *nodes.addresses[leader])]
            channels.close()

    asyncio.run(scenario())


def fetch_of_a_stranger() -> FetchRequest:
    partition = FetchPartition(
        partition=0, current_leader_epoch=0, fetch_offset=0, last_fetched_epoch=0, partition_max_bytes=1 << 20
    )
    topics = [FetchTopic(topic_id=TOPIC_ID, partitions=[partition])]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=9), max_wait_ms=0, min_bytes=0, topics=topics, session_epoch=-1
    )


def forged_vote(cluster_id: str | None = None, replica_id: int = 2, replica_epoch: int = 50) -> VoteRequest:
    partition = VoteRequestPartitionData(
        partition_index=0, replica_epoch=replica_epoch, replica_id=replica_id, last_offset_epoch=0, last_offset=0
    )
    topics = [VoteRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])]
    return VoteRequest(cluster_id=cluster_id, topics=topics)
