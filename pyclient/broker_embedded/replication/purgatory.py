"""Fetches that wait for more data: woken by appends, answered at the latest when their wait time is over."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyclient.broker_embedded.scheduling.request_slices import SlicedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.scheduling.request_slices import RequestSlices
    from pyclient.broker_embedded.scheduling.timers import Timer


_OFFSETS_WAIT: Final = 0.005
"""Seconds for which a new high watermark or log start waits for records, to be sent to a follower together with them
(docs/measurements.md, "Replicated produce")."""


class Reading(Protocol):
    """A Fetch that can be attempted repeatedly."""

    @property
    def is_behind(self) -> bool:
        """Return True if the last attempt found offsets that the client, a follower, does not know yet."""

    @property
    def logs(self) -> Iterable[UnifiedLog]:
        """Return the logs whose growth may complete the fetch."""

    def when_opened(self, callback: Callable[[], object]) -> None:
        """Call `callback` for each log that the last attempt did not find open, when it is."""

    def may_be_enough(self, grown: Collection[UnifiedLog]) -> bool:
        """Return True if an attempt may succeed after these logs have grown; cheaper than the attempt."""

    def attempt(self, last: bool) -> IncrementalTask[Any | None]:
        """Return the response; None (never when `last`) while there is too little data."""


class WaitingConnection(Protocol):
    """The connection of a Fetch that waits."""

    on_abandoned: Callable[[], None] | None
    """Called when the connection closes."""
    on_ended: Callable[[], None] | None
    """Called when the client has closed its sending side."""

    def answer_now(self, waiting: asyncio.Future[Any]) -> None:
        """Send the answer in `waiting`, which is done, in this iteration of the loop."""


class DelayedFetch:
    """One Fetch that waits; `grown` are the logs that were appended to since its last check."""

    __slots__ = ("attempt", "connection", "future", "grown", "is_brief", "last", "logs", "opened", "reading", "timer")

    def __init__(self, reading: Reading, future: asyncio.Future[Any], connection: WaitingConnection) -> None:
        self.reading = reading
        self.connection = connection
        self.logs: tuple[UnifiedLog, ...] = ()
        self.opened = False  # a log was opened since the last attempt
        self.future = future
        self.grown: set[UnifiedLog] = set()
        self.attempt: SlicedRequest | None = None  # in progress
        self.last = False  # the next attempt must answer, with whatever data there is
        self.timer: Timer | None = None
        self.is_brief = False  # the timer ends after `_OFFSETS_WAIT`


class FetchPurgatory:
    """The waiting fetches by the logs they wait for. It belongs to the node's loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        schedule: Callable[[float, Callable[[], None]], Timer],
        slices: RequestSlices,
    ) -> None:
        self._loop = loop
        self._schedule = schedule
        self._slices = slices
        self._waiting: dict[UnifiedLog, dict[DelayedFetch, None]] = {}
        self._watched: set[UnifiedLog] = set()

    def __len__(self) -> int:
        # copies: other threads may call this
        return len({fetch for fetches in list(self._waiting.values()) for fetch in list(fetches)})

    def park(self, reading: Reading, wait: float, connection: WaitingConnection) -> asyncio.Future[Any]:
        """Return a future of the response, which is made when there is enough data, or after `wait` seconds."""
        fetch = DelayedFetch(reading, self._loop.create_future(), connection)
        self._wait_at_logs(fetch)
        reading.when_opened(lambda: self._retry_after_opening(fetch))
        self._wait_for(fetch, min(wait, _OFFSETS_WAIT) if reading.is_behind else wait)
        fetch.is_brief = reading.is_behind
        connection.on_abandoned = lambda: self._forget(fetch)
        connection.on_ended = lambda: self._try(fetch, True)  # a client that has only finished sending gets an answer

        def over(_done: object) -> None:
            connection.on_abandoned = connection.on_ended = None

        fetch.future.add_done_callback(over)
        return fetch.future

    def wake(self, log: UnifiedLog) -> None:
        """Retry the fetches that wait for `log`; several appends in one iteration of the loop cost one attempt."""
        for fetch in self._waiting.get(log, ()):
            if not fetch.grown:
                self._loop.call_soon(self._woken, fetch)
            fetch.grown.add(log)

    def forget_topic(self, topic: str) -> None:
        """Answer the fetches that wait for a deleted topic."""
        self._watched = {log for log in self._watched if log.topic != topic}
        for log in [log for log in self._waiting if log.topic == topic]:
            self._answer(log)

    def answer_all(self) -> None:
        """Answer every waiting fetch now, before the node stops."""
        for log in list(self._waiting):
            self._answer(log)

    def _answer(self, log: UnifiedLog) -> None:
        for fetch in list(self._waiting.get(log, ())):
            self._try(fetch, True)

    def _wait_at_logs(self, fetch: DelayedFetch) -> None:
        fetch.logs = tuple({*fetch.logs, *fetch.reading.logs})
        for log in fetch.logs:
            self._watch(log)
            self._waiting.setdefault(log, {})[fetch] = None

    def _wait_for(self, fetch: DelayedFetch, seconds: float) -> None:
        fetch.timer = self._schedule(seconds, lambda: self._try(fetch, True))

    def _shorten(self, fetch: DelayedFetch) -> None:
        """Answer soon if there are offsets that the follower does not know."""
        if fetch.reading.is_behind and not fetch.is_brief and fetch.timer is not None:
            fetch.is_brief = True
            fetch.timer.cancel()
            self._wait_for(fetch, _OFFSETS_WAIT)

    def _retry_after_opening(self, fetch: DelayedFetch) -> None:
        fetch.opened = True
        self._try(fetch, False)

    def _watch(self, log: UnifiedLog) -> None:
        if log not in self._watched:
            self._watched.add(log)
            # The log refers to this listener: a strong reference back would be a cycle, which keeps the log of a
            # deleted topic for ever once the collector has frozen it.
            reference = weakref.ref(log)

            def wake(*_args: object) -> None:
                if (grown := reference()) is not None:
                    self.wake(grown)

            log.on_append.append(wake)

    def _woken(self, fetch: DelayedFetch) -> None:
        """Retry, and send the answer before the next waiting fetch is retried: a follower can work meanwhile."""
        self._try(fetch, False)
        if fetch.future.done():
            fetch.connection.answer_now(fetch.future)

    def _try(self, fetch: DelayedFetch, last: bool) -> None:
        fetch.last = fetch.last or last
        if fetch.attempt is not None or fetch.future.done() or fetch.timer is None:
            return  # `_attempted` starts the next one if it is due
        grown, fetch.grown = fetch.grown, set()
        try:
            if not fetch.last and not fetch.opened and not fetch.reading.may_be_enough(grown):
                self._shorten(fetch)
                return
        except Exception as error:  # becomes the result of the request
            self._fail(fetch, error)
            return
        attempt = fetch.attempt = SlicedRequest(self._attempt(fetch), lambda: self._attempted(fetch))
        if self._slices.begin(attempt):
            self._attempted(fetch)

    def _attempt(self, fetch: DelayedFetch) -> IncrementalTask[None]:
        last, was_opened = fetch.last, fetch.opened
        fetch.opened = False
        try:
            response = yield from fetch.reading.attempt(last)
        except Exception as error:  # becomes the result of the request
            self._fail(fetch, error)
            return
        if response is not None:
            self._forget(fetch)
            fetch.future.set_result(response)
            return
        if was_opened:
            self._wait_at_logs(fetch)
        self._shorten(fetch)

    def _attempted(self, fetch: DelayedFetch) -> None:
        fetch.attempt = None
        if fetch.grown or fetch.last or fetch.opened:
            self._try(fetch, False)

    def _fail(self, fetch: DelayedFetch, error: Exception) -> None:
        self._forget(fetch)
        if not fetch.future.done():
            fetch.future.set_exception(error)

    def _forget(self, fetch: DelayedFetch) -> None:
        if fetch.attempt is not None:
            fetch.attempt.abandoned = True
        if fetch.timer is not None:
            fetch.timer.cancel()
            fetch.timer = None
        for log in fetch.logs:
            fetches = self._waiting.get(log)
            if fetches is not None:
                fetches.pop(fetch, None)
                if not fetches:
                    del self._waiting[log]
