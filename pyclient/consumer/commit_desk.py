"""Commits that nobody waits for: `commit_async` and auto-commit."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from pyclient.clock import Clock
from pyclient.consumer.commits import Committer, Offsets
from pyclient.consumer.config import ConsumerConfig
from pyclient.errors import KafkaError
from pyclient.types import OffsetAndMetadata, TopicPartition

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
"""`callback(offsets, error)`; the error is None if they were committed."""

log = logging.getLogger("pyclient.consumer")


class CommitDesk:
    """Takes commits in the polling thread, has them done on the loop, and brings their callbacks back.

    `call(function, *arguments)` runs something on the loop.
    """

    def __init__(self, committer: Committer, config: ConsumerConfig, clock: Clock, call: Callable[..., None]) -> None:
        self._committer = committer
        self._timeout = config.default_api_timeout_ms / 1000
        self._interval = config.auto_commit_interval_ms / 1000
        self._retry_after = config.retry_backoff_max_ms / 1000
        self._clock = clock
        self._call = call
        self._next_auto = clock.monotonic() + self._interval
        self._auto_running = False
        self._done: deque[Callable[[], object]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def auto_commit_due(self, now: float) -> bool:
        """Whether it is time, and the last one is done."""
        return now >= self._next_auto and not self._auto_running

    def auto_commit(self, offsets: Offsets, now: float) -> None:
        """Commits in the background; a failure is logged, and tried again with whatever was polled by then."""
        self._next_auto = now + self._interval
        if offsets:
            self._auto_running = True
            self._call(self._begin, self._auto_commit, offsets)

    def commit(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commits in the background; a later poll, commit or close calls the callback."""
        self._call(self._begin, self._commit, offsets, callback)

    def run_callbacks(self) -> None:
        """Calls the callbacks of commits that are done, in the polling thread; what one raises comes out there."""
        while self._done:
            callback = self._done.popleft()
            try:
                callback()
            except Exception as error:  # the user's own code may raise anything
                error.add_note("raised by a callback of commit_async; the commit itself was over before")
                raise

    async def settle(self) -> None:
        """Waits for the commits that are going on."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def stop(self) -> None:
        """Gives up the commits that are going on."""
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        task = asyncio.get_running_loop().create_task(work(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _commit(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        failure = await self._try(offsets, "commit_async")
        if callback is not None:
            self._done.append(lambda: callback(offsets, failure))

    async def _auto_commit(self, offsets: Offsets) -> None:
        try:
            failure = await self._try(offsets, "auto-commit")
            if failure is not None and failure.retriable:
                self._next_auto = min(self._next_auto, self._clock.monotonic() + self._retry_after)
        finally:
            self._auto_running = False

    async def _try(self, offsets: Offsets, what: str) -> KafkaError | None:
        try:
            await self._committer.commit(offsets, self._timeout)
        except KafkaError as error:
            log.warning("%s: %s", what, error)
            return error
        return None
