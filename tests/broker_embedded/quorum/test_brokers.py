"""Brokers of several nodes over real sockets: registered, fenced when killed, unfenced when they come back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.incremental_task import run_here
from tests.broker_embedded.quorum.several_nodes import Nodes
from tests.waiting import until_async


def active_brokers(node: BrokerNode) -> list[int]:
    return sorted(broker.node_id for broker in node.image.brokers.values() if broker.active)


async def all_know(nodes: Nodes, *brokers: int) -> None:
    """Wait until all nodes know these brokers as the active ones."""
    await nodes.all_have(lambda node: active_brokers(node) == sorted(brokers), f"active brokers {brokers}")


async def create_topic(nodes: Nodes) -> BrokerNode:
    """Create a topic with replicas on all nodes, when they are active. Return the node of the active controller."""
    active = await nodes.active()
    await all_know(nodes, 1, 2, 3)
    run_here(active.controller.create_topic(TopicPlan("t", 6, 3)))
    await nodes.all_have(lambda node: "t" in node.image.topics, "the topic")
    return active


def check_replicas(node: BrokerNode, survivors: list[int]) -> None:
    """Check that these nodes are the in-sync replicas of the topic, and lead it."""
    for partition in node.image.topics["t"].partitions.values():
        assert partition.leader in survivors
        assert sorted(partition.isr) == survivors


def test_killed_broker_is_fenced_and_comes_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            active = await create_topic(nodes)
            victim = next(node for node in nodes.running if node != active.node_id)
            others = [node for node in (1, 2, 3) if node != victim]
            await nodes.stop(victim, clean=False)
            await all_know(nodes, *others)
            check_replicas(active, others)
            epoch = active.image.brokers[victim].epoch
            await nodes.start(victim)
            await all_know(nodes, 1, 2, 3)
            assert active.image.brokers[victim].epoch > epoch

    asyncio.run(run())


def test_killed_controller_is_fenced_by_its_successor(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            active = await create_topic(nodes)
            await nodes.stop(active.node_id, clean=False)
            others = sorted(nodes.running)
            await all_know(nodes, *others)
            successor = await nodes.active()
            check_replicas(successor, others)

    asyncio.run(run())


def test_broker_that_stops_in_order_hands_its_leaderships_over_first(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path) as nodes:
            active = await create_topic(nodes)
            leaver = next(node for node in nodes.running if node != active.node_id)
            others = [node for node in (1, 2, 3) if node != leaver]
            epoch = active.image.brokers[leaver].epoch
            await nodes.stop(leaver)
            await until_async(lambda: active_brokers(active) == others, "the broker is fenced")
            assert all(partition.leader in others for partition in active.image.topics["t"].partitions.values())
            restarted = await nodes.start(leaver)
            assert restarted.logs.directories.clean_epoch == epoch
            await all_know(nodes, 1, 2, 3)

    asyncio.run(run())
