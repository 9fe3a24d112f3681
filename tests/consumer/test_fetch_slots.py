"""The two fetch slots of a node hand partitions over to each other without losing one."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace

from pyclient.config import resolve
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.fetch_buffer import FetchBuffer
from pyclient.consumer.fetcher import Fetcher, Idleness
from pyclient.consumer.metrics import ConsumerMetrics
from pyclient.consumer.subscription import SubscriptionState
from pyclient.errors import ConnectionFailed
from pyclient.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from pyclient.testing.clock import ManualClock
from pyclient.types import TopicPartition
from tests.consumer.consumer_samples import batch_of


class Node:
    """Holds every fetch until the test completes it."""

    def __init__(self) -> None:
        self.metadata = SimpleNamespace(leader=lambda *_: 1)
        self.parked: list[tuple[str, set[int], Callable]] = []

    async def connection(self, _node, *, purpose):
        def send(request, answered, **_):
            self.parked.append(
                (purpose, {part.partition for topic in request.topics for part in topic.partitions}, answered)
            )

        return SimpleNamespace(address="h:1", version_for=lambda *_: 12, send=send, closed=False)

    def request_refresh(self) -> None:
        """Do nothing: the leaders stay after a failure."""

    async def answer(self, which: int, response: FetchResponse | None = None) -> None:
        self.parked.pop(which)[2](response or FetchResponse(session_id=0, responses=[]), None)
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class FetcherFixture:
    """A fetcher whose requests wait at a `Node`; `parked_at_notify` has their number at each `on_records`."""

    def __init__(self, partitions: int) -> None:
        self.node = Node()
        self.parked_at_notify: list[int] = []
        self.subscription = SubscriptionState(looks_up_committed=False)
        self.fetcher = Fetcher(
            ConsumerContext(
                resolve(ConsumerConfig, {"bootstrap_servers": "127.0.0.1:1"}),
                self.node,
                self.subscription,
                threading.Lock(),
                ManualClock(),
                random.Random(1),
            ),
            FetchBuffer(self.subscription, low_bytes=1, high_bytes=10**9, check_crcs=True),
            ConsumerMetrics(),
            on_records=lambda: self.parked_at_notify.append(len(self.node.parked)),
            on_trouble=lambda errors: None,
        )
        self.assign(*range(partitions))

    def assign(self, *partitions: int) -> None:
        self.subscription.assign([TopicPartition("t", number) for number in partitions])
        for state in self.subscription:
            state.start_at(0)

    @property
    def requested(self) -> list[tuple[str, set[int]]]:
        return [(purpose, partitions) for purpose, partitions, _ in self.node.parked]


def records(*partitions: int, high_watermark: int) -> FetchResponse:
    """Return one record for each partition, and how many its log has."""
    parts = [
        PartitionData(partition_index=number, error_code=0, high_watermark=high_watermark, records=batch_of(0, 1))
        for number in partitions
    ]
    return FetchResponse(session_id=0, responses=[FetchableTopicResponse(topic="t", partitions=parts)])


def test_first_slot_takes_over_partitions_of_the_second():
    async def main():
        fixture = FetcherFixture(4)
        node, fetcher = fixture.node, fixture.fetcher
        fetcher.wake()
        await settle()
        assert fixture.requested == [("fetch", {0, 1, 2, 3})]

        fixture.assign(2, 3)
        fetcher.wake()
        await settle()
        assert fixture.requested[1:] == [("second fetch", {2, 3})]

        await node.answer(0)
        assert len(node.parked) == 1, "the second slot has both partitions"
        await node.answer(0)
        assert fixture.requested == [("fetch", {2, 3})]
        fetcher.stop()
        await settle()

    asyncio.run(main())


def test_next_request_is_sent_before_the_user_is_notified():
    async def main():
        fixture = FetcherFixture(1)
        fixture.fetcher.wake()
        await settle()
        _, _, answered = fixture.node.parked.pop()
        answered(records(0, high_watermark=1), None)
        assert fixture.parked_at_notify == [1]
        assert fixture.requested == [("fetch", {0})]
        fixture.fetcher.stop()
        await settle()

    asyncio.run(main())


def test_malformed_response_interrupts_a_slot_only_briefly():
    async def main():
        fixture = FetcherFixture(1)
        fixture.fetcher.wake()
        await settle()
        _, _, answered = fixture.node.parked.pop()
        answered(None, ConnectionFailed("gone"))
        answered(None, ConnectionFailed("a late word changes nothing"))
        async with asyncio.timeout(20):
            while not fixture.node.parked:  # noqa: ASYNC110  # until a backoff is over
                await asyncio.sleep(0.01)
        assert fixture.requested == [("fetch", {0})]
        assert str(fixture.fetcher.last_error) == "gone"
        fixture.fetcher.stop()
        await settle()

    asyncio.run(main())


def test_spare_memory_is_released_once_after_an_idle_time() -> None:
    idleness = Idleness()
    assert not idleness.begins(0, 100.0)  # there never was any
    assert not idleness.begins(1000, 101.0)
    assert not idleness.begins(0, 105.0)
    assert idleness.begins(0, 106.5)
    assert not idleness.begins(0, 120.0)
    assert not idleness.begins(10, 121.0)
    assert idleness.begins(0, 127.0)
