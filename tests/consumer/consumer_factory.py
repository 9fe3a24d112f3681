"""Sync and async consumers with the same blocking calls, so that every test runs with both."""

from __future__ import annotations

import contextlib
import inspect
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from pyclient.consumer import AsyncConsumer, Consumer, RebalanceListener
from pyclient.errors import PollIntervalExceeded
from pyclient.net.loop_thread import LoopThread
from pyclient.types import TopicPartition

PATIENCE = 40.0  # seconds; how long a busy machine may take for what an idle one does at once


class BlockingAsync:
    """An `AsyncConsumer` on a loop in a thread; each call waits for its result."""

    def __init__(self, thread: LoopThread, *topics: str, **options: Any) -> None:
        self._thread = thread

        async def make() -> AsyncConsumer[Any, Any]:
            return AsyncConsumer(*topics, **options)

        self.raw = thread.run(make)
        if topics:
            thread.run(self.raw.__aenter__)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.raw, name)
        if not callable(method) or name == "wakeup":
            return method

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return lambda *args, **kwargs: self._thread.run(lambda: call(*args, **kwargs))

    def __iter__(self) -> Iterator[Any]:
        generator = self.raw.__aiter__()
        try:
            while True:
                yield self._thread.run(_next, generator)
        finally:
            self._thread.run(generator.aclose)

    def __enter__(self) -> BlockingAsync:
        return self

    def __exit__(self, *error: Any) -> None:
        self._thread.run(self.raw.__aexit__, *error)

    def __repr__(self) -> str:
        return repr(self.raw)


async def _next(generator: Any) -> Any:
    return await anext(generator)


class BlockingSync(Consumer[Any, Any]):
    """A `Consumer` with a `raw` attribute as in `BlockingAsync`."""

    @property
    def raw(self) -> Consumer[Any, Any]:
        return self


class ConsumerFactory:
    """Creates consumers of one API and one group protocol, and closes those that a test leaves open."""

    def __init__(self, name: str, bootstrap_servers: str, protocol: str = "classic", **defaults: Any) -> None:
        self.name = name
        self.protocol = protocol
        self._defaults = defaults
        self.bootstrap_servers = bootstrap_servers
        self._made: list[Any] = []
        self._thread: LoopThread | None = None

    def __call__(self, *topics: str, **options: Any) -> Any:
        """Create a consumer; by default it reads from the earliest record and notices rebalances quickly."""
        defaults: dict[str, Any] = {"auto_offset_reset": "earliest", "group_protocol": self.protocol} | self._defaults
        if options.get("group_protocol", self.protocol) == "classic":
            defaults["heartbeat_interval_ms"] = 50
        options = {"bootstrap_servers": self.bootstrap_servers, **defaults, **options}
        if self.name == "sync":
            consumer: Any = BlockingSync(*topics, **options)
        else:
            if self._thread is None:
                self._thread = LoopThread("test-async-consumers")
                self._thread.start()
            consumer = BlockingAsync(self._thread, *topics, **options)
        self._made.append(consumer)
        return consumer

    def forget(self, consumer: Any) -> None:
        """Forget a consumer that the test has closed."""
        self._made.remove(consumer)

    def close(self) -> None:
        for consumer in self._made:
            consumer.close(timeout=5)
        if self._thread is not None:
            self._thread.stop(5)

    def __enter__(self) -> ConsumerFactory:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class EventLog(RebalanceListener):
    """Record rebalance callbacks: `+0 1` assigned, `-0` revoked, `!0` lost."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_assigned(self, partitions: Any) -> None:
        self._note("+", partitions)

    def on_revoked(self, partitions: Any) -> None:
        self._note("-", partitions)

    def on_lost(self, partitions: Any) -> None:
        self._note("!", partitions)

    def _note(self, sign: str, partitions: Any) -> None:
        self.lines.append(sign + " ".join(str(p.partition) for p in sorted(partitions)))


def read(consumer: Any, count: int, *, seconds: float = PATIENCE) -> list[Any]:
    """Poll until `count` records came; fail after so many seconds."""
    records: list[Any] = []
    deadline = time.monotonic() + seconds
    while len(records) < count:
        records += consumer.poll(0.1, max_records=max(1, count - len(records)))
        assert len(records) >= count or time.monotonic() < deadline, (
            f"{len(records)} of {count} records came; {consumer.health()}"
        )
    return records


def read_although_late(consumer: Any, count: int) -> list[Any]:
    """Read as `read` does; again if the consumer left the group because a busy machine let it poll too late."""
    for _ in range(20):
        with contextlib.suppress(PollIntervalExceeded):
            return read(consumer, count)
    return read(consumer, count)


def poll_until(consumers: Sequence[Any], condition: Callable[[], bool], *, seconds: float = PATIENCE) -> list[Any]:
    """Poll the consumers in turn until the condition holds; return the records."""
    records: list[Any] = []
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [consumer.health() for consumer in consumers]
        for consumer in consumers:
            records += consumer.poll(0.02)
    return records


def shares(consumers: Sequence[Any]) -> list[list[int]]:
    """Return the partition numbers of each consumer."""
    return [sorted(partition.partition for partition in consumer.assignment()) for consumer in consumers]


def close_in_time(consumer: Any, timeout: float) -> None:
    """Close the consumer in a thread, so that a hanging close fails the test; raise the error of the close."""
    outcome: Future[None] = Future()

    def close() -> None:
        try:
            outcome.set_result(consumer.close(timeout))
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=close, daemon=True).start()
    outcome.result(PATIENCE)
    assert "closed" in repr(consumer)


def values(records: Any) -> list[bytes]:
    return [record.value for record in records]


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


class Interrupter:
    """Presses Ctrl-C while `armed`, a random moment after `press` is called."""

    def __init__(self, seed: int = 7) -> None:
        self.armed = False
        self._rng = random.Random(seed)
        self._before: Any = None

    def __enter__(self) -> Interrupter:
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _handle(self, *_: object) -> None:
        if self.armed:
            raise KeyboardInterrupt

    def during(self, call: Callable[[], Any]) -> Any:
        """Return the call's result, or None if it was interrupted."""
        main = threading.main_thread().ident
        timer = threading.Timer(self._rng.uniform(0, 0.008), signal.pthread_kill, (main, signal.SIGINT))
        result = None
        timer.start()
        try:
            try:
                self.armed = True
                result = call()
            finally:
                self.armed = False
        except KeyboardInterrupt:
            result = None
        timer.join()
        return result


@pytest.fixture(params=["sync", "async"])
def consumers(request: pytest.FixtureRequest, cluster: Any) -> Iterator[ConsumerFactory]:
    """Create consumers of one API; the test runs with both."""
    with ConsumerFactory(request.param, cluster.bootstrap_servers) as factory:
        yield factory
