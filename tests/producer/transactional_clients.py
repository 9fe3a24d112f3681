"""Transactional producers of both kinds with the same calls, and what readers see of their transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest

from pyclient import Admin, AsyncProducer, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.net.loop_thread import LoopThread
from tests.reading import read_all

PATIENCE = 60.0
PARTITIONS = 3


class Future:
    """A record's future of an `AsyncProducer`, for a thread that waits."""

    def __init__(self, loop: LoopThread, future: Any) -> None:
        self._loop = loop
        self._future = future

    def result(self, timeout: float) -> Any:
        async def wait() -> Any:
            return await asyncio.wait_for(asyncio.ensure_future(_await(self._future)), timeout or PATIENCE)

        return self._loop.run(wait)


async def _await(future: Any) -> Any:
    return await future


class AsyncTransactions:
    """An `AsyncProducer` on a loop in a thread of its own, with the calls of `Producer`."""

    def __init__(self, servers: str, **options: Any) -> None:
        self.thread = LoopThread("producer-of-a-test")
        self.thread.start()
        self.producer = AsyncProducer(servers, **options)

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            async def work() -> Any:
                return await getattr(self.producer, name)(*arguments, **options)

            result = self.thread.run(work)
            return Future(self.thread, result) if name == "send" else result

        return call

    @contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[Self]:
        context = self.producer.transaction(timeout)
        self.thread.run(context.__aenter__)
        try:
            yield self
        except BaseException as error:

            async def leave(error: BaseException = error) -> bool | None:
                return await context.__aexit__(type(error), error, error.__traceback__)

            if not self.thread.run(leave):
                raise
        else:
            self.thread.run(context.__aexit__, None, None, None)

    def close(self, timeout: float | None = None) -> None:
        self.thread.run(self.producer.close, timeout)
        self.thread.stop(PATIENCE)

    @property
    def closed(self) -> bool:
        return self.producer.closed


class Transactional:
    """Makes initialized producers with the transactional id `name`."""

    def __init__(self, kind: Any, servers: str, name: str, version: str) -> None:
        self.servers = servers
        self.version = version  # Kafka's release
        self._kind = kind
        self._name = name
        self._made: list[Any] = []

    def __call__(self, **options: Any) -> Any:
        producer = self._kind(self.servers, transactional_id=self._name, linger_ms=0, **options)
        self._made.append(producer)
        producer.init_transactions(timeout=PATIENCE)
        return producer

    def epoch_of(self, producer: Any) -> int:
        client = producer if isinstance(producer, Producer) else producer.producer
        epoch = client.health()["producer_epoch"]
        assert isinstance(epoch, int)
        return epoch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self._made:
            if not producer.closed:
                producer.close(5)


@pytest.fixture(scope="module", params=["4.3", "3.9"])
def release(request: pytest.FixtureRequest) -> Iterator[tuple[str, EmbeddedCluster]]:
    """Yield a release of Kafka, and a broker like it: transaction.version 2 or 0."""
    with EmbeddedCluster(as_version=request.param) as cluster:
        yield request.param, cluster


@pytest.fixture(params=[Producer, AsyncTransactions], ids=["sync", "async"])
def make(request: pytest.FixtureRequest, release: tuple[str, EmbeddedCluster], topic: str) -> Iterator[Transactional]:
    """Make producers of this topic's transactional id; they are closed afterwards, and then faults are cancelled."""
    version, cluster = release
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    with Transactional(request.param, cluster.bootstrap_servers, topic, version) as made:
        yield made
    cluster.faults.clear()


def values_of(servers: str, topic: str, level: Any) -> list[bytes]:
    """Return all values up to the end that a reader of this isolation level sees."""
    records = read_all(servers, topic, PARTITIONS, isolation_level=level)
    return [record.value for record in records if record.value is not None]


def committed_offset(servers: str, group: str, place: TopicPartition) -> int | None:
    """Return the group's committed offset of a partition."""
    with Consumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False) as consumer:
        position = consumer.committed([place])[place]
    return None if position is None else position.offset
