"""Ctrl-C and cancellation at any moment of poll, commit and close: no deadlock, no lost position, and close works."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer
from pyclient.broker_embedded import EmbeddedCluster
from tests.consumer.consumer_factory import Interrupter, partitions

# An interrupt between making a coroutine and handing it to the loop leaves it unawaited: nothing has begun.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

NewTopic = Callable[..., str]
Produce = Callable[..., None]

ROUNDS = [pytest.param(60, id="60"), pytest.param(1000, id="1000", marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
PROTOCOLS = ["classic", "consumer"]


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ctrl_c_at_any_moment_of_poll_and_commit_loses_no_position(
    protocol: str, rounds: int, cluster: EmbeddedCluster, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    topic = new_topic()
    (partition,) = partitions(topic, 0)
    produce(topic, *[b"%d" % n for n in range(rounds // 3)])  # so that some polls wait
    options = {"group_id": group, "group_protocol": protocol, "auto_offset_reset": "earliest"}
    done = interrupted = 0
    with (
        Interrupter() as interrupter,
        Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, config=options) as consumer,
    ):
        while not consumer.assignment():
            done += len(consumer.poll(0.05, max_records=1))
        for round_ in range(rounds):
            if round_ % 3 == 2:
                interrupter.during(consumer.commit)
                continue
            seconds = 5 if done < rounds // 3 else 0.5  # the interrupt ends a wait for more much earlier
            records = interrupter.during(partial(consumer.poll, seconds, max_records=1))
            if records is None:
                interrupted += 1
                assert consumer.position(partition) in (done, done + 1)
                consumer.seek(partition, done)
            else:
                assert [record.offset for record in records] == ([done] if len(records) else [])
                done += len(records)
        consumer.commit()
        assert consumer.committed()[partition].offset == done  # type: ignore[union-attr]
    assert interrupted


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ctrl_c_at_any_moment_of_close_still_closes(
    protocol: str, cluster: EmbeddedCluster, new_topic: NewTopic, produce: Produce
) -> None:
    topic = new_topic()
    produce(topic, b"x")
    with Interrupter(seed=5) as interrupter:
        for _ in range(15):
            consumer = Consumer(
                topic,
                bootstrap_servers=cluster.bootstrap_servers,
                group_id=f"g-{uuid.uuid4().hex[:8]}",
                group_protocol=protocol,
                auto_offset_reset="earliest",
            )
            while len(consumer.poll(30)) == 0:
                pass
            interrupter.during(consumer.close)
            consumer.close()
            assert consumer.closed


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cancelling_at_any_moment_loses_no_record_and_no_position(
    protocol: str, rounds: int, cluster: EmbeddedCluster, new_topic: NewTopic, produce: Produce, group: str
) -> None:
    topic = new_topic()
    (partition,) = partitions(topic, 0)
    count = rounds // 3  # so that some polls wait
    produce(topic, *[b"%d" % n for n in range(count)])
    rng = random.Random(3)

    async def at_random(work: Any) -> Any:
        """Return the result, or None if it was cancelled."""
        task = asyncio.ensure_future(work)
        await asyncio.wait([task], timeout=rng.uniform(0, 0.004))
        task.cancel()
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    async def main() -> None:
        options = {"group_id": group, "group_protocol": protocol, "auto_offset_reset": "earliest"}
        async with AsyncConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, config=options) as consumer:
            while not consumer.assignment():
                await consumer.poll(0.05, max_records=1)
            consumer.seek(partition, 0)
            done, cancelled = 0, 0
            for round_ in range(rounds):
                if round_ % 3 == 2:
                    await at_random(consumer.commit())
                    continue
                records = await at_random(consumer.poll(30 if done < count else 0.02, max_records=1))
                if records is None:
                    cancelled += 1
                    assert await consumer.position(partition) == done  # unreturned records come with the next poll
                else:
                    assert [record.offset for record in records] == ([done] if len(records) else [])
                    done += len(records)
            await consumer.commit()
            assert (await consumer.committed())[partition].offset == done  # type: ignore[union-attr]
            assert cancelled
        for _ in range(15):
            other = AsyncConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, config=options)
            await other.poll(0.05)
            await at_random(other.close())
            await other.close()
            assert other.closed

    asyncio.run(main())
