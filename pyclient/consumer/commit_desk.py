"""The order of commits, and those that nobody waits for: `commit_async` and auto-commit."""

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

_SHOWN: Final = 5


@dataclass(eq=False, slots=True)
class _Asked:
    """A `commit_async` whose outcome nobody was told yet."""

    offsets: Offsets
    callback: CommitCallback | None
    task: asyncio.Task[None] | None = None


class CommitDesk:
    """Takes commits in the polling thread, has them done on the loop, and brings their callbacks back.

    They are done in the order they were asked for. What nobody waits for lies in a queue until the loop comes to it, or
    until somebody on the loop commits and waits, or closes: that begins first what lies there. Each commit is a task,
    and tasks come to the committer's line in the order they were made.

    `call(function, *arguments)` runs something on the loop.
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
        self._asked: set[_Asked] = set()
        self._queue: deque[Callable[[], None]] = deque()  # the polling thread adds, the loop takes

    @property
    def waiting(self) -> bool:
        """Whether there are commits of `commit_async` without an outcome."""
        return bool(self._asked)

    def auto_commit_due(self, now: float) -> bool:
        """Whether it is time, and the last one is done."""
        return now >= self._next_auto and not self._auto_running

    def auto_commit(self, offsets: Offsets, now: float) -> None:
        """Commits in the background; a failure is logged, and tried again with whatever was polled by then."""
        self._next_auto = now + self._interval
        if offsets:
            self._ask(partial(self._begin_auto, offsets))

    def commit(self, offsets: Offsets, callback: CommitCallback | None) -> None:
        """Commits in the background; a later poll, commit or close calls the callback."""
        asked = _Asked(offsets, callback)
        self._asked.add(asked)
        try:
            self._ask(partial(self._begin_asked, asked))
        except KafkaError:  # whom it is raised to need not be called back
            self._asked.discard(asked)
            raise

    def run_callbacks(self) -> None:
        """Calls the callbacks of commits that are done, in the polling thread.

        All of them, whatever they raise: the first error comes out there afterwards, more are logged. Those of commits
        that end meanwhile wait for the next time, else one that asks again might go on for ever.
        """
        first: Exception | None = None
        for _ in range(len(self._done)):
            callback = self._done.popleft()
            try:
                callback()
            except Exception as error:  # the user's own code may raise anything
                if first is not None:
                    log.exception("a callback of commit_async failed, as one before it did")
                    continue
                error.add_note("raised by a callback of commit_async; the commit itself was over before")
                first = error
        if first is not None:
            try:
                raise first
            finally:
                del first  # else the error and this frame would keep each other, and the consumer, alive

    def run_last_callbacks(self) -> None:
        """`run_callbacks` of a consumer that is closed: those of commits that other callbacks asked for too late.

        Who tries again from there is refused, which is nothing that `close` should raise.
        """
        try:
            self.run_callbacks()
        except ClosedError as error:
            log.debug("a callback of commit_async asked for more than a closed consumer does: %s", error)

    async def commit_now(self, offsets: Offsets, timeout: float) -> None:
        """Commits after whatever was asked for before, and waits until it is stored; see `Committer.commit`."""
        self._begin_queued()
        await self._begin(self._committer.commit(offsets, timeout))

    async def settle(self, timeout: float) -> None:
        """Waits for the commits that were asked for, no longer than `timeout` seconds."""
        self._begin_queued()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout)

    def give_up(self, reason: str) -> None:
        """Ends what `commit_async` began and has no outcome yet: its callback gets a `KafkaTimeout`; logged, too."""
        for asked in list(self._asked):
            if asked.task is not None:
                asked.task.cancel()
            failure = KafkaTimeout(
                f"{reason} before the coordinator of group {self._group_id!r} confirmed {_described(asked.offsets)}: "
                "whether they are committed is unknown. committed() tells; commit() waits for it"
            )
            log.warning("commit_async: %s", failure)
            self._tell(asked, failure)

    def stop(self) -> None:
        """Gives up the commits that are going on."""
        self.give_up("the consumer ended")
        for task in self._tasks:
            task.cancel()

    def _ask(self, begin: Callable[[], None]) -> None:
        self._queue.append(begin)
        self._call(self._begin_queued)

    def _begin_queued(self) -> None:
        while self._queue:
            self._queue.popleft()()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _begin_asked(self, asked: _Asked) -> None:
        if asked in self._asked:  # else it was given up before the loop came to it
            asked.task = self._begin(self._commit(asked))

    def _begin_auto(self, offsets: Offsets) -> None:
        if not self._auto_running:
            self._auto_running = True  # here, as Ctrl-C may come in the polling thread before this is asked for
            self._begin(self._auto_commit(offsets))

    async def _commit(self, asked: _Asked) -> None:
        self._tell(asked, await self._try(asked.offsets, "commit_async"))

    def _tell(self, asked: _Asked, failure: KafkaError | None) -> None:
        """The outcome, once, for the polling thread to call back with."""
        callback, offsets = asked.callback, asked.offsets
        if asked in self._asked:
            self._asked.discard(asked)
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


def _described(offsets: Offsets) -> str:
    shown = [f"{partition} up to {place.offset}" for partition, place in sorted(offsets.items())[:_SHOWN]]
    more = len(offsets) - len(shown)
    return f"{', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
