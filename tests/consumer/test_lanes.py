"""The two lanes of a node hand partitions over to each other without losing one."""

from __future__ import annotations

import asyncio
import random
import threading
from types import SimpleNamespace

from pyclient.config import resolve
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.fetch_buffer import FetchBuffer
from pyclient.consumer.fetcher import Fetcher, Idleness
from pyclient.consumer.metrics import ConsumerMetrics
from pyclient.consumer.subscription import SubscriptionState
from pyclient.protocol.messages.fetch import FetchResponse
from pyclient.testing.clock import ManualClock
from pyclient.types import TopicPartition


class Node:
    """Holds every fetch until the test answers it."""

    def __init__(self) -> None:
        self.metadata = SimpleNamespace(leader=lambda *_: 1)
        self.parked: list[tuple[str, set[int], asyncio.Future]] = []

    async def connection(self, _node, *, purpose):
        return SimpleNamespace(
            address="h:1", version_for=lambda *_: 12, request=lambda request, **_: self.park(purpose, request)
        )

    def park(self, purpose, request) -> asyncio.Future:
        partitions = {part.partition for topic in request.topics for part in topic.partitions}
        reply = asyncio.get_running_loop().create_future()
        self.parked.append((purpose, partitions, reply))
        return reply

    async def answer(self, which: int) -> None:
        self.parked.pop(which)[2].set_result(FetchResponse(session_id=0, responses=[]))
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_the_second_lane_gives_back_the_first_one_takes():
    async def main():
        node, subscription = Node(), SubscriptionState(looks_up_committed=False)
        fetcher = Fetcher(
            node,
            subscription,
            FetchBuffer(subscription, low_bytes=1, high_bytes=10**9, check_crcs=True),
            threading.Lock(),
            resolve(ConsumerConfig, {"bootstrap_servers": "127.0.0.1:1"}),
            clock=ManualClock(),
            rng=random.Random(1),
            on_records=lambda: None,
            on_trouble=lambda errors: None,
            metrics=ConsumerMetrics(),
        )
        subscription.assign([TopicPartition("t", n) for n in range(4)])
        for state in subscription:
            state.start_at(0)
        fetcher.wake()
        await settle()
        assert [(purpose, asked) for purpose, asked, _ in node.parked] == [("fetch", {0, 1, 2, 3})]

        subscription.assign([TopicPartition("t", n) for n in (2, 3)])
        for state in subscription:
            state.start_at(0)
        fetcher.wake()
        await settle()
        assert [(purpose, asked) for purpose, asked, _ in node.parked[1:]] == [("fetch beside", {2, 3})]

        await node.answer(0)
        assert len(node.parked) == 1, "both partitions are in the second lane's hands"
        await node.answer(0)
        assert [(purpose, asked) for purpose, asked, _ in node.parked] == [("fetch", {2, 3})]
        fetcher.stop()
        await settle()

    asyncio.run(main())


def test_memory_for_records_is_given_back_once_when_none_have_come_for_a_while() -> None:
    idleness = Idleness()
    assert not idleness.begins(0, 100.0)  # there never was any
    assert not idleness.begins(1000, 101.0)
    assert not idleness.begins(0, 105.0)
    assert idleness.begins(0, 106.5)
    assert not idleness.begins(0, 120.0)
    assert not idleness.begins(10, 121.0)
    assert idleness.begins(0, 127.0)
