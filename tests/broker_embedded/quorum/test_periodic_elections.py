"""The active controller elects leaders every `leader.imbalance.check.interval.seconds`, by the timers of its node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.controller import session_watch
from pyclient.broker_embedded.controller.image import TOPIC_RESOURCE
from pyclient.broker_embedded.controller.topics import TopicPlan
from pyclient.broker_embedded.log.incremental_task import run_here
from tests.broker_embedded.quorum.several_nodes import Nodes
from tests.waiting import until_async

INTERVAL = 300
NO_LEADER = -1


def leaders(node: BrokerNode) -> list[int]:
    """Return the leaders of the topic's partitions as the active controller has decided them."""
    topic = node.controller.image.topics["t"]
    return [topic.partitions[index].leader for index in sorted(topic.partitions)]


def in_sync(node: BrokerNode) -> list[list[int]]:
    return [sorted(each.isr) for each in node.controller.image.topics["t"].partitions.values()]


def is_active(node: BrokerNode, broker: int) -> bool:
    known = node.controller.image.brokers.get(broker)
    return known is not None and known.active


async def with_topic(nodes: Nodes, partitions: int = 1) -> BrokerNode:
    """Return the one controller; its topic has replicas on the brokers 2 and 3, and 2 leads."""
    active = await nodes.active()
    await until_async(lambda: is_active(active, 2) and is_active(active, 3), "two brokers")
    assignments = {index: [2, 3] for index in range(partitions)}
    run_here(active.controller.create_topic(TopicPlan("t", assignments=assignments)))
    await nodes.all_have(lambda node: "t" in node.image.topics, "the topic")
    assert leaders(active) == [2] * partitions
    return active


async def advance(node: BrokerNode, seconds: float) -> None:
    """Let the timers of the node that are due within these seconds run; sessions of brokers go on."""
    over = asyncio.Event()
    node.timers.schedule(seconds, over.set)
    node.timers.advance(seconds)
    await over.wait()


async def lead_elsewhere(nodes: Nodes, active: BrokerNode, partitions: int = 1) -> None:
    """Kill broker 2, so that 3 leads, and start it again."""
    await nodes.stop(2, clean=False)
    await until_async(lambda: leaders(active) == [3] * partitions, "a new leader")
    await nodes.start(2)
    await until_async(lambda: in_sync(active) == [[2, 3]] * partitions, "broker 2 is in sync again")
    assert leaders(active) == [3] * partitions


def test_topic_that_allows_unclean_elections_gets_a_leader(tmp_path: Path) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, voters=1) as nodes:
            active = await with_topic(nodes)
            await nodes.stop(3, clean=False)
            await until_async(lambda: in_sync(active) == [[2]], "broker 3 is out of sync")
            await nodes.stop(2, clean=False)
            await until_async(lambda: leaders(active) == [NO_LEADER], "no leader")
            await nodes.start(3)
            await until_async(lambda: is_active(active, 3), "broker 3 is back")
            await advance(active, INTERVAL)
            assert leaders(active) == [NO_LEADER], "the topic does not allow it yet"
            option = {"unclean.leader.election.enable": "true"}
            active.controller.alter_configs(TOPIC_RESOURCE, "t", option)
            await advance(active, INTERVAL / 3)
            assert leaders(active) == [NO_LEADER]
            await advance(active, INTERVAL)
            assert leaders(active) == [3]
            await until_async(lambda: in_sync(active) == [[3]])

    asyncio.run(run())


@pytest.mark.parametrize(("enabled", "leader"), [("true", 2), ("false", 3)])
def test_preferred_leader_that_is_in_sync_again_leads(tmp_path: Path, enabled: str, leader: int) -> None:
    async def run() -> None:
        async with Nodes(tmp_path, voters=1, auto_leader_rebalance_enable=enabled) as nodes:
            active = await with_topic(nodes)
            await lead_elsewhere(nodes, active)
            await advance(active, INTERVAL)
            assert leaders(active) == [leader]

    asyncio.run(run())


def test_elections_beyond_the_limit_of_a_round_follow_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_watch, "MOST_ELECTIONS", 2)

    async def run() -> None:
        async with Nodes(tmp_path, voters=1) as nodes:
            active = await with_topic(nodes, 5)
            await lead_elsewhere(nodes, active, 5)
            await advance(active, INTERVAL)
            await until_async(lambda: leaders(active) == [2] * 5, lambda: leaders(active))

    asyncio.run(run())
