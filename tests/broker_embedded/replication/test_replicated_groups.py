"""The coordinator of a group: the leader of its partition of `__consumer_offsets`, and what moves with the leader."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pyclient import errors
from pyclient.broker_embedded.dispatch import route
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.broker_embedded.log.unified_log import UnifiedLog
from pyclient.broker_embedded.request_context import RequestContext
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
OTHER_GROUP = "other"
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


def committing(offset: int, group: str = GROUP) -> OffsetCommitRequest:
    """Return a request to commit an offset of a group."""
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    topic = OffsetCommitRequestTopic(topic_id=TOPIC_ID, partitions=[partition])
    return OffsetCommitRequest(group_id=group, topics=[topic])


def fetching(*groups: str) -> OffsetFetchRequest:
    """Return a request for the committed offsets of groups."""
    topic = OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[0])
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic]) for group in groups])


async def commit(nodes: Nodes, node_id: int, offset: int, group: str = GROUP) -> int:
    """Commit an offset of a group. Return the error code."""
    response = await nodes.client(node_id).send(committing(offset, group), 60.0)
    code: int = response.topics[0].partitions[0].error_code
    return code


async def committed(nodes: Nodes, node_id: int) -> tuple[int, int]:
    """Return the error code and the group's committed offset as a node has them."""
    response = await nodes.client(node_id).send(fetching(GROUP), 60.0)
    group = response.groups[0]
    if group.error_code:
        return group.error_code, -1
    partition = group.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def handled(nodes: Nodes, node_id: int, request: Any) -> Any:
    """Return the steps in which a node serves a request."""
    found = route(type(request).api_key, 10)
    assert found is not None
    context = RequestContext(nodes.nodes[node_id].services, type(request).api_key, 10, "test", None)  # type: ignore[arg-type]
    return found.handler(request, context)


def log_of(nodes: Nodes, node_id: int, group: str = GROUP) -> tuple[int, UnifiedLog]:
    """Return the partition of a group, and its log on a node."""
    index = nodes.nodes[node_id].groups.groups.partition_of(group)
    opened = nodes.nodes[node_id].logs.find(OFFSETS, index)
    assert opened is not None
    return index, opened


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
        index, opened = log_of(nodes, 1)
        commits = [nodes.loop.create_task(commit(nodes, 1, 2)) for _ in range(5)]
        await until_async(lambda: opened.high_watermark < opened.end_offset)
        nodes.change(nodes.topic_id(OFFSETS), index, leader=2)
        assert await commits[-1] == errors.NotCoordinator.code
        nodes.thaw(2, 3)

    run(tmp_path, scenario, offsets_topic_replication_factor="3")


def test_commit_fails_when_the_leader_changes_between_its_steps(tmp_path: Path) -> None:
    """Leave the record in the log of a node that leads no more: the next leader does not have it."""

    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        await created(nodes, 1)
        await commit_in_time(nodes, 1)
        index, opened = log_of(nodes, 1)
        steps, end = handled(nodes, 1, committing(2)), opened.end_offset
        while opened.end_offset == end:
            next(steps)
        nodes.change(nodes.topic_id(OFFSETS), index, leader=2)
        with pytest.raises(errors.NotCoordinator):
            run_here(steps)
        assert await committed(nodes, 2) == (0, 1)

    run(tmp_path, scenario, offsets_topic_replication_factor="3")


def test_offsets_are_not_returned_when_the_leader_changes_meanwhile(tmp_path: Path) -> None:
    """Refuse offsets that may be those of a commit that the next leader does not have."""

    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        await created(nodes, 1)
        await commit_in_time(nodes, 1)
        index, _opened = log_of(nodes, 1)
        waiting = run_here(handled(nodes, 1, committing(2)))
        steps = handled(nodes, 1, fetching(GROUP))
        next(steps)
        nodes.change(nodes.topic_id(OFFSETS), index, leader=2)
        with pytest.raises(errors.NotCoordinator):
            run_here(steps)
        with pytest.raises(errors.NotCoordinator):
            await waiting

    run(tmp_path, scenario, offsets_topic_replication_factor="3")


def test_offsets_of_a_lost_commit_are_not_returned_when_others_follow(tmp_path: Path) -> None:
    """Let an answer wait for the commits of two groups, of which one is lost: the next leader writes others there."""

    async def scenario(nodes: Nodes) -> None:
        nodes.create([1, 2, 3])
        await created(nodes, 1)
        (index, opened), (other_index, other) = log_of(nodes, 1), log_of(nodes, 1, OTHER_GROUP)
        assert index != other_index
        await commit_in_time(nodes, 1)
        nodes.freeze(2, 3)
        lost = opened.end_offset
        waiting = [run_here(handled(nodes, 1, committing(2, group))) for group in (GROUP, OTHER_GROUP)]
        asked = run_here(handled(nodes, 1, fetching(GROUP, OTHER_GROUP)))
        nodes.change(nodes.topic_id(OFFSETS), index, leader=2, isr=[2])
        while await commit(nodes, 2, 3) != 0:
            pass
        await until_async(lambda: opened.high_watermark > lost)
        assert other.high_watermark < other.end_offset
        nodes.thaw(2, 3)
        with pytest.raises(errors.NotCoordinator):
            await asked
        with pytest.raises(errors.NotCoordinator):
            await waiting[0]
        await waiting[1]

    run(tmp_path, scenario, offsets_topic_replication_factor="3")
