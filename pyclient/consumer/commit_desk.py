"""The order of commits, and those without a waiter: `commit_async` and auto-commit."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pyclient.clock import Clock
from pyclient.consumer.commits import Committer, Offsets
from pyclient.consumer.config import ConsumerConfig
from pyclient.errors import ClosedError, KafkaError, KafkaTimeout
from pyclient.types import OffsetAndMetadata, TopicPartition

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
"""`callback(offsets, error)`; the error is None if they were committed."""

log = logging.getLogger("pyclient.consumer")

_NAMED_PARTITIONS: Final = 5


@dataclass(eq=False, slots=True)
class _AsyncCommit:
    """A `commit_async` without an outcome."""

    offsets: Offsets
    callback: CommitCallback | None
    task: asyncio.Task[None] | None = None


class CommitDesk:
    """Runs the polling thread's commits on the loop and returns their callbacks to the polling thread.

    Commits run in the order of their calls. Those without a waiter are queued until the loop starts them, or until a
    commit that waits, or a close, on the loop starts them first. Each commit is a task; tasks acquire the committer's
    lock in the order they were created.

    `call(function, *arguments)` schedules a function on the loop.
    """

    def __init__(self, committer: Committer, config: ConsumerConfig, clock: Clock, call: Callable[..., None]) -> None:
        self._committer = committer
        self._group_id = config.group_id
        self._timeout = config.default_api_timeout_ms / 1000
        self._interval = config.auto_commit_interval_ms / 1000
        self._retry_after = config.retry_backoff_max_ms / 1000
        self._clock = clock
        self._call = call
        self._next_auto = clock.monotonic() + self._interval
        self._auto_running = False
        self._done: deque[Callable[[], object]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pending: set[_AsyncCommit] = set()
        self._queue: deque[Callable[[], None]] = deque()  # appended by the polling thread, drained by the loop

    @property
    def waiting(self) -> bool:
        """Return True if a `commit_async` has no outcome yet."""
        return bool(self._pending)

    def auto_commit_due(self, now: float) -> bool:
        """Return True if the interval is over and no auto-commit is in progress."""
        return now >= self._next_auto and not self._auto_running

    def auto_commit(self, offsets: Offsets, now: float) -> None:
        """Commit in the background; a failure is logged and retried with the positions of that time."""
        self._next_auto = now + self._interval
        if offsets:
            self._enqueue(partial(self._start_auto_commit, offsets))

    def commit(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commit in the background; a later poll, commit or close calls the callback."""
        commit = _AsyncCommit(offsets, callback)
        self._pending.add(commit)
        try:
            self._enqueue(partial(self._start_async_commit, commit))
        except KafkaError:  # raised to the caller, so the callback is not called
            self._pending.discard(commit)
            raise

    def run_callbacks(self) -> None:
        """Call the callbacks of completed commits, in the polling thread.

        All are called; then the first error is raised, the others are logged. Commits that complete meanwhile wait for
        the next call, so that a callback that commits again cannot loop forever.
        """
        first: Exception | None = None
        for _ in range(len(self._done)):
            callback = self._done.popleft()
            try:
                callback()
            except Exception as error:  # the user's own code may raise anything
                if first is not None:
                    log.exception("a callback of commit_async failed, after an earlier one had failed")
                    continue
                error.add_note("raised by a callback of commit_async, after the commit itself had completed")
                first = error
        if first is not None:
            try:
                raise first
            finally:
                del first  # else the error and this frame would form a cycle that keeps the consumer alive

    def run_last_callbacks(self) -> None:
        """Run the callbacks of a closed consumer's commits.

        A callback that commits again gets a `ClosedError`, which `close` does not raise.
        """
        try:
            self.run_callbacks()
        except ClosedError as error:
            log.debug("a callback of commit_async used the closed consumer: %s", error)

    async def commit_now(self, offsets: Offsets, timeout: float) -> None:
        """Commit after all earlier commits, and wait until the offsets are stored; see `Committer.commit`."""
        self._start_queued()
        await self._start_task(self._committer.commit(offsets, timeout))

    async def settle(self, timeout: float) -> None:
        """Wait for the commits in progress, at most `timeout` seconds."""
        self._start_queued()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    def give_up(self, reason: str) -> None:
        """Fail every pending `commit_async` with a `KafkaTimeout` for its callback, and log it."""
        for commit in list(self._pending):
            if commit.task is not None:
                commit.task.cancel()
            failure = KafkaTimeout(
                f"{reason} before the coordinator of group {self._group_id!r} confirmed {_describe(commit.offsets)}: "
                "whether they are committed is unknown. Check with committed(), or use commit(), which waits"
            )
            log.warning("commit_async: %s", failure)
            self._complete(commit, failure)

    def stop(self) -> None:
        """Abandon the commits in progress."""
        self.give_up("the consumer ended")
        for task in self._tasks:
            task.cancel()

    def _enqueue(self, start: Callable[[], None]) -> None:
        self._queue.append(start)
        self._call(self._start_queued)

    def _start_queued(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _start_async_commit(self, commit: _AsyncCommit) -> None:
        if commit in self._pending:  # else it was abandoned before the loop started it
            commit.task = self._start_task(self._commit(commit))

    def _start_auto_commit(self, offsets: Offsets) -> None:
        if not self._auto_running:
            self._auto_running = True  # set on the loop: Ctrl-C may prevent the polling thread from enqueueing
            self._start_task(self._auto_commit(offsets))

    async def _commit(self, commit: _AsyncCommit) -> None:
        self._complete(commit, await self._commit_or_log(commit.offsets, "commit_async"))

    def _complete(self, commit: _AsyncCommit, failure: KafkaError | None) -> None:
        """Set the outcome, once, and enqueue the callback for the polling thread."""
        callback, offsets = commit.callback, commit.offsets
        if commit in self._pending:
            self._pending.discard(commit)
            if callback is not None:
                self._done.append(lambda: callback(offsets, failure))

    async def _auto_commit(self, offsets: Offsets) -> None:
        try:
            failure = await self._commit_or_log(offsets, "auto-commit")
            if failure is not None and failure.retriable:
                self._next_auto = min(self._next_auto, self._clock.monotonic() + self._retry_after)
        finally:
            self._auto_running = False

    async def _commit_or_log(self, offsets: Offsets, what: str) -> KafkaError | None:
        try:
            await self._committer.commit(offsets, self._timeout)
        except KafkaError as error:
            log.warning("%s: %s", what, error)
            return error
        return None


def _describe(offsets: Offsets) -> str:
    shown = [f"{partition} up to {offset.offset}" for partition, offset in sorted(offsets.items())[:_NAMED_PARTITIONS]]
    more = len(offsets) - len(shown)
    return f"{', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
