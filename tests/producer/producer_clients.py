"""One set of calls for `Producer` and `AsyncProducer`, so that one test suite runs over both."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from pyclient import AsyncProducer, Producer, errors
from pyclient.net.loop_thread import LoopThread
from tests.producer.parts import client_of

PATIENCE = 60.0  # seconds; how long a busy machine may take for what an idle one does at once


class SyncClient:
    name = "sync"

    def __init__(self, *args: Any, **options: Any) -> None:
        self.producer = Producer(*args, **options)
        self.producer_client = client_of(self.producer)

    def send(self, *args: Any, **options: Any) -> Any:
        return self.producer.send(*args, **options)

    def send_many(self, *args: Any, **options: Any) -> Any:
        return self.producer.send_many(*args, **options)

    def result(self, future: Any, timeout: float = PATIENCE) -> Any:
        return future.result(timeout)

    def exception(self, future: Any, timeout: float = PATIENCE) -> Any:
        return future.exception(timeout)

    def partitions_for(self, topic: str) -> Any:
        return self.producer.partitions_for(topic)

    def flush(self, timeout: float | None = PATIENCE) -> None:
        self.producer.flush(timeout)

    def purge(self) -> None:
        self.producer.purge()

    def health(self) -> Any:
        return self.producer.health()

    def metrics(self) -> Any:
        return self.producer.metrics()

    def close(self, timeout: float | None = PATIENCE) -> None:
        self.producer.close(timeout)

    def end(self) -> None:
        self.producer.close(0)


class AsyncClient:
    name = "async"

    def __init__(self, *args: Any, **options: Any) -> None:
        self.thread = LoopThread("test-loop")
        self.thread.start()

        async def make() -> AsyncProducer:
            producer = AsyncProducer(*args, **options)
            await producer.start()
            return producer

        try:
            self.producer = self.thread.run(make)
        except BaseException:
            self.thread.stop(5)
            raise
        self.producer_client: Any = client_of(self.producer)

    def send(self, *args: Any, **options: Any) -> Any:
        return self.thread.run(lambda: self.producer.send(*args, **options))

    def send_many(self, *args: Any, **options: Any) -> Any:
        return self.thread.run(lambda: self.producer.send_many(*args, **options))

    def result(self, future: Any, timeout: float = PATIENCE) -> Any:
        async def wait() -> Any:
            async with asyncio.timeout(timeout):
                return await future

        return self.thread.run(wait)

    def exception(self, future: Any, timeout: float = PATIENCE) -> Any:
        try:
            self.result(future, timeout)
        except Exception as error:
            return error
        return None

    def partitions_for(self, topic: str) -> Any:
        return self.thread.run(self.producer.partitions_for, topic)

    def flush(self, timeout: float | None = PATIENCE) -> None:
        self.thread.run(self.producer.flush, timeout)

    def purge(self) -> None:
        self.thread.run(self.producer.purge)

    def health(self) -> Any:
        return self.producer.health()

    def metrics(self) -> Any:
        return self.producer.metrics()

    def close(self, timeout: float | None = PATIENCE) -> None:
        self.thread.run(self.producer.close, timeout)

    def end(self) -> None:
        try:
            self.thread.run(self.producer.close, 0)
        finally:
            self.thread.stop(5)


CLIENTS = [SyncClient, AsyncClient]


def begin(client: Any, topic: str, *, partition: int | None = 0, value: bytes = b"first") -> None:
    """Send the first value until it is confirmed, which may be more than once.

    Connecting, a topic and a producer id may take a busy machine longer than the time limits of a test that waits for
    them to run out later.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            error = client.exception(client.send(topic, value, partition=partition))
        except errors.KafkaTimeout as late:  # max_block_ms
            error = late
        if error is None:
            return
        assert time.monotonic() < deadline, error
