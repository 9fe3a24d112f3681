"""The coordinator of a group: the leader of its partition of `__consumer_offsets`, and what moves with the leader."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from pyclient import errors
from pyclient.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker_embedded.replication.hand_controlled import TOPIC_ID, Nodes, run
from tests.waiting import until_async

GROUP = "g"
OFFSETS = "__consumer_offsets"
COMMIT_SECONDS = 55
"""`offsets.commit.timeout.ms` of a test that lets it pass; no other timer of a node is as long."""

T = TypeVar("T")


async def find_coordinator(nodes: Nodes, node_id: int) -> Coordinator:
    """Ask a node for the group's coordinator."""
    request = FindCoordinatorRequest(coordinator_keys=[GROUP])
    response = await nodes.client(node_id).send(request, 60.0)
    found: Coordinator = response.coordinators[0]
    return found


async def commit(nodes: Nodes, node_id: int, offset: int) -> int:
    """Commit an offset of the group. Return the error code."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    topic = OffsetCommitRequestTopic(topic_id=TOPIC_ID, partitions=[partition])
    response = await nodes.client(node_id).send(OffsetCommitRequest(group_id=GROUP, topics=[topic]), 60.0)
    code: int = response.topics[0].partitions[0].error_code
    return code


async def committed(nodes: Nodes, node_id: int) -> tuple[int, int]:
    """Return the error code and the group's committed offset as a node has them."""
    topic = OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])
    response = await nodes.client(node_id).send(request, 60.0)
    group = response.groups[0]
    if group.error_code:
        return group.error_code, -1
    partition = group.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


async def expired(nodes: Nodes, asking: Coroutine[Any, Any, T]) -> T:
    """Return an answer of node 1; when the request waits for replicas, its time passes."""
    timers, asked = nodes.nodes[1].timers, nodes.loop.create_task(asking)

    def waits() -> bool:
        return any(COMMIT_SECONDS - 10 < timer.due - nodes.loop.time() <= COMMIT_SECONDS for timer in timers.pending)

    await until_async(lambda: asked.done() or waits())
    if not asked.done():
        nodes.advance(1, COMMIT_SECONDS)
    return await asked


async def created(nodes: Nodes, node_id: int) -> Coordinator:
    """Return the coordinator when its topic exists."""
    first = await find_coordinator(nodes, node_id)
    assert first.error_code == errors.CoordinatorNotAvailable.code
    await until_async(lambda: OFFSETS in nodes.nodes[node_id].image.topics)
    found = await find_coordinator(nodes, node_id)
    assert found.error_code == 0
    return found


def test_group_moves_with_the_leader_of_its_partition(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        coordinator = await created(nodes, 3)
        assert coordinator.node_id == 1
        assert coordinator.port == nodes.nodes[1].port
        assert await commit(nodes, 1, 7) == 0
        assert await commit(nodes, 2, 8) == errors.NotCoordinator.code
        topic = nodes.nodes[1].image.topics[OFFSETS]
        index = nodes.nodes[1].groups.groups.partition_of(GROUP)
        for node_id in (2, 3):
            opened = nodes.nodes[node_id].logs.find(OFFSETS, index)
            assert opened is not None
            assert opened.end_offset == 1, "a commit is answered when the replicas have it"
        nodes.change(topic.topic_id, index, leader=2)
        assert (await find_coordinator(nodes, 1)).node_id == 2
        assert await committed(nodes, 2) == (0, 7)
        assert await committed(nodes, 1) == (errors.NotCoordinator.code, -1)
        assert await commit(nodes, 1, 9) == errors.NotCoordinator.code
        assert await commit(nodes, 2, 9) == 0
        nodes.change(topic.topic_id, index, leader=1)
        assert await committed(nodes, 1) == (0, 9)

    run(tmp_path, scenario, offsets_topic_replication_factor="3")


async def commit_in_time(nodes: Nodes, offset: int) -> None:
    """Commit until the replicas get it in time, which they may not on a busy machine."""
    while (code := await commit(nodes, 1, offset)) == errors.CoordinatorNotAvailable.code:
        pass
    assert code == 0


def test_commit_that_the_replicas_do_not_get_fails(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        await created(nodes, 1)
        await commit_in_time(nodes, 1)
        nodes.freeze(2, 3)
        code = await expired(nodes, commit(nodes, 1, 2))
        while code == 0:  # a fetch that was on its way
            code = await expired(nodes, commit(nodes, 1, 2))
        assert code == errors.CoordinatorNotAvailable.code
        code, _offset = await expired(nodes, committed(nodes, 1))
        assert code == errors.CoordinatorNotAvailable.code, "the answer would report what may be lost"
        nodes.thaw(2, 3)
        await commit_in_time(nodes, 3)
        assert await committed(nodes, 1) == (0, 3)

    settings = {"offsets_commit_timeout_ms": str(1000 * COMMIT_SECONDS), "replica_lag_time_max_ms": "600000"}
    run(tmp_path, scenario, offsets_topic_replication_factor="3", **settings)


def test_commit_that_waits_fails_when_the_leader_changes(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        await created(nodes, 1)
        await commit_in_time(nodes, 1)
        nodes.freeze(2, 3)
        topic = nodes.nodes[1].image.topics[OFFSETS]
        index = nodes.nodes[1].groups.groups.partition_of(GROUP)
        opened = nodes.nodes[1].logs.find(OFFSETS, index)
        assert opened is not None
        commits = [nodes.loop.create_task(commit(nodes, 1, 2)) for _ in range(5)]
        await until_async(lambda: opened.high_watermark < opened.end_offset)
        nodes.change(topic.topic_id, index, leader=2)
        assert await commits[-1] == errors.NotCoordinator.code
        nodes.thaw(2, 3)

    run(tmp_path, scenario, offsets_topic_replication_factor="3")
