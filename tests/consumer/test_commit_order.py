"""Commits of one coroutine without an await in between are all done, in call order."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pyclient import AsyncConsumer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.types import OffsetAndMetadata, TopicPartition
from tests.consumer.consumer_factory import partitions

Consuming = Callable[..., "AsyncConsumer[bytes, bytes]"]
Outcomes = list[tuple[int, Exception | None]]


@pytest.fixture
def topic(new_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    """Return a topic with the values 0 to 9 in partition 0, and an empty partition 1."""
    name = new_topic(2)
    produce(name, *[b"%d" % n for n in range(10)])
    return name


@pytest.fixture
def consuming(cluster: EmbeddedCluster) -> Consuming:
    """Create consumers of one group, inside a running loop."""
    group = f"g-{uuid.uuid4().hex[:8]}"

    def make(*topics: str, **options: Any) -> AsyncConsumer[bytes, bytes]:
        own = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, "auto_offset_reset": "earliest"}
        return AsyncConsumer(*topics, **{"enable_auto_commit": False, **own, **options})

    return make


def noted(outcomes: Outcomes, partition: TopicPartition) -> Callable[..., None]:
    """Return a callback that notes the offset and the error."""
    return lambda offsets, error: outcomes.append((offsets[partition].offset, error))


async def committed(consuming: Consuming, partition: TopicPartition) -> int | None:
    """Return the committed offset as another client sees it."""
    async with consuming() as consumer:
        found = (await consumer.committed([partition]))[partition]
        return None if found is None else found.offset


async def read_three(consumer: AsyncConsumer[bytes, bytes]) -> None:
    assert [record.offset for record in await consumer.poll(30, max_records=3)] == [0, 1, 2]


async def end_of_block(consumer: AsyncConsumer[bytes, bytes]) -> None:
    await consumer.__aexit__(None, None, None)


@pytest.mark.parametrize("end", [AsyncConsumer.close, AsyncConsumer.unsubscribe, end_of_block])
@pytest.mark.parametrize("manual", [False, True])
def test_commits_directly_before_close_are_stored(
    end: Callable[..., Awaitable[None]], manual: bool, consuming: Consuming, topic: str
) -> None:
    (partition,) = partitions(topic, 0)

    async def main() -> tuple[Outcomes, int | None]:
        outcomes: Outcomes = []
        consumer = consuming()
        if manual:
            consumer.assign([partition])
        else:
            consumer.subscribe(topic)
        await read_three(consumer)
        consumer.commit_async(noted(outcomes, partition))
        await end(consumer)
        await consumer.close()  # the callback of one that unsubscribed
        return outcomes, await committed(consuming, partition)

    assert asyncio.run(main()) == ([(3, None)], 3)


def test_synchronous_commit_runs_after_earlier_asynchronous_ones(consuming: Consuming, topic: str) -> None:
    first, second = partitions(topic, 0, 1)

    async def main() -> tuple[Outcomes, dict[TopicPartition, OffsetAndMetadata | None]]:
        outcomes: Outcomes = []
        async with consuming() as consumer:
            consumer.assign([first, second])
            for offset in (1, 2, 3):
                consumer.commit_async({first: offset}, noted(outcomes, first))
            await consumer.commit({first: 4})
            await consumer.commit({second: 7})  # when this is done, so is whatever was asked for before
            return outcomes, await consumer.committed()

    outcomes, found = asyncio.run(main())
    assert outcomes == [(1, None), (2, None), (3, None)]
    assert found == {first: OffsetAndMetadata(4), second: OffsetAndMetadata(7)}


def test_auto_commit_of_close_runs_after_earlier_commits(consuming: Consuming, topic: str) -> None:
    (partition,) = partitions(topic, 0)

    async def main() -> tuple[Outcomes, int | None]:
        outcomes: Outcomes = []
        async with consuming(topic, enable_auto_commit=True) as consumer:
            await read_three(consumer)
            consumer.commit_async({partition: 1}, noted(outcomes, partition))
        return outcomes, await committed(consuming, partition)

    assert asyncio.run(main()) == ([(1, None)], 3)


def test_commit_runs_after_the_auto_commit_of_an_immediate_poll(consuming: Consuming, topic: str) -> None:
    first, second = partitions(topic, 0, 1)

    async def main() -> int | None:
        async with consuming(enable_auto_commit=True, auto_commit_interval_ms=0) as consumer:
            consumer.assign([first])
            await read_three(consumer)
            for offset in (0, 1):
                await consumer.commit({second: offset})  # the second surely after any auto-commit that was under way
            assert len(await consumer.poll(30, max_records=1)) == 1  # it was there; auto-commit shall commit 3
            await consumer.commit()
            await consumer.commit({second: 2})
            return await committed(consuming, first)

    assert asyncio.run(main()) == 4
