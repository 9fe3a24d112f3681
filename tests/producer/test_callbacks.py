"""Callbacks at the default linger: they run in order of completion and do not delay the producer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pyclient import AsyncProducer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.producer.network import FaultyNetwork
from tests.waiting import until

PARTITIONS = 3


def wait_for(seen: list[Any], count: int) -> None:
    until(lambda: len(seen) >= count)


def test_callbacks_run_in_order_of_completion_across_partitions(
    make: Any, cluster: EmbeddedCluster, topic: str, network: FaultyNetwork
) -> None:
    """One of two partitions, each with a connection of its own, is confirmed later than the other, in turn."""
    network.look_like_two_brokers(cluster.bootstrap_servers, lambda name, partition: partition == 1)
    client = make()
    seen: list[tuple[int, int]] = []
    wanted: list[tuple[int, int]] = []

    def note(future: Any) -> None:
        seen.append((future.partition, future.result(0).offset))

    for number in range(6):
        late, early = number % 2, 1 - number % 2
        offsets = range(number * 20, number * 20 + 20)
        with cluster.faults.hold("Produce", topic=topic, partition=late, times=None) as held:
            for partition in (late, early):
                for _ in offsets:
                    client.send(topic, b"x", partition=partition, on_delivery=note)
            held.wait()
            wanted += [(early, offset) for offset in offsets]
            wait_for(seen, len(wanted))
            held.release()
        wanted += [(late, offset) for offset in offsets]
        client.flush(60)
        assert seen == wanted


def test_all_outcomes_of_a_batch_are_known_in_its_first_callback(make: Any, topic: str) -> None:
    client = make(linger_ms=60_000, delivery_timeout_ms=120_000)
    known: list[bool] = []
    futures: list[Any] = []
    for _ in range(100):
        on_delivery = lambda _: known.append(all(future.done() for future in futures))  # noqa: E731
        futures.append(client.send(topic, b"x", partition=0, on_delivery=on_delivery))
    client.flush(60)
    assert known == [True] * 100


def test_slow_callback_delays_only_later_ones(cluster: EmbeddedCluster, topic: str) -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []
    with Producer(cluster.bootstrap_servers) as producer:

        def slow(_: object) -> None:
            begun.set()
            go_on.wait(60)
            seen.append(-1)

        def note(number: int) -> Any:
            return lambda _: seen.append(number)

        first = producer.send(topic, b"slow", partition=0, on_delivery=slow)
        assert begun.wait(60) and first.result(60).offset == 0
        try:
            for number in range(30):
                future = producer.send(topic, b"x", partition=number % PARTITIONS, on_delivery=note(number))
                assert future.result(60).partition == number % PARTITIONS
            many = producer.send_many(topic, [b"x"] * 500)
            many.add_done_callback(note(30))
            assert len(many.result(60)) == 500 and many.delivered == 500
            awaited = producer.send(topic, b"x", on_delivery=note(31))
            assert asyncio.run(result_of(awaited)).topic == topic
            with pytest.raises(errors.KafkaTimeout):  # which waits for callbacks
                producer.flush(0.05)
            assert seen == []
        finally:
            go_on.set()
        producer.flush(60)
        assert seen == [-1, *range(32)]


async def result_of(future: Any) -> Any:
    return await future


def test_task_started_by_a_callback_does_not_delay_the_loop(cluster: EmbeddedCluster, topic: str) -> None:
    """Callbacks of the asynchronous client run on the loop, and what takes its time there is a task."""

    async def scenario() -> None:
        seen: list[object] = []
        go_on = asyncio.Event()
        tasks: list[asyncio.Future[None]] = []

        async def slowly(future: Any) -> None:
            await go_on.wait()
            seen.append(future)

        def begin(future: Any) -> None:
            assert asyncio.get_running_loop() is loop
            tasks.append(asyncio.ensure_future(slowly(future)))

        loop = asyncio.get_running_loop()
        async with AsyncProducer(cluster.bootstrap_servers) as producer:
            slow = await producer.send(topic, b"slow", partition=0, on_delivery=begin)
            await slow
            later = []
            for number in range(30):
                later.append(await producer.send(topic, b"x", partition=number % PARTITIONS, on_delivery=seen.append))
                await later[-1]
            await producer.flush(60)
            assert seen == later
            go_on.set()
            await asyncio.gather(*tasks)
            assert seen == [*later, slow]

    asyncio.run(scenario())
