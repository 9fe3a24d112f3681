"""Fetches that wait for more data: woken by appends, answered at the latest when their wait time is over."""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pyclient.broker_embedded.replication.delayed_fetch import (
    Act,
    Answer,
    Answered,
    Attempt,
    Began,
    DelayedFetch,
    Fail,
    Failed,
    Grown,
    Progress,
    Signal,
    WakeIn,
)
from pyclient.broker_embedded.scheduling.request_slices import SlicedRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.log.unified_log import UnifiedLog
    from pyclient.broker_embedded.replication.delayed_fetch import Effect, Event
    from pyclient.broker_embedded.scheduling.request_slices import RequestSlices
    from pyclient.broker_embedded.scheduling.timers import ShiftedClock, Timer


class Reading(Progress, Protocol):
    """A Fetch that can be attempted repeatedly."""

    @property
    def logs(self) -> Iterable[UnifiedLog]:
        """Return the logs whose growth may complete the fetch."""

    def when_opened(self, callback: Callable[[], object]) -> None:
        """Call `callback` for each log that the last attempt did not find open, when it is."""

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


class _WaitingFetch:
    """A Fetch that waits, with what carries out the effects of its `decisions`."""

    __slots__ = ("attempt", "connection", "decisions", "future", "logs", "outcome", "reading", "timer")

    def __init__(self, reading: Reading, future: asyncio.Future[Any], connection: WaitingConnection) -> None:
        self.decisions = DelayedFetch(reading)
        self.reading = reading
        self.connection = connection
        self.future = future
        self.logs: tuple[UnifiedLog, ...] = ()
        self.attempt: SlicedRequest | None = None  # in progress
        self.outcome: Answered | Failed | Signal  # of the last attempt
        self.timer: Timer | None = None


class FetchPurgatory:
    """The waiting fetches by the logs they wait for. It belongs to the node's loop.

    It carries out what each `DelayedFetch` decides.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: ShiftedClock,
        schedule: Callable[[float, Callable[[], None]], Timer],
        slices: RequestSlices,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._schedule = schedule
        self._slices = slices
        self._waiting: dict[UnifiedLog, dict[_WaitingFetch, None]] = {}
        self._watched: set[UnifiedLog] = set()

    def __len__(self) -> int:
        # copies: other threads may call this
        return len({fetch for fetches in list(self._waiting.values()) for fetch in list(fetches)})

    def park(self, reading: Reading, wait: float, connection: WaitingConnection) -> asyncio.Future[Any]:
        """Return a future of the response, which is made when there is enough data, or after `wait` seconds."""
        fetch = _WaitingFetch(reading, self._loop.create_future(), connection)
        self._wait_at_logs(fetch)
        reading.when_opened(partial(self._receive, fetch, Signal.OPENED))
        self._receive(fetch, Began(wait))
        connection.on_abandoned = partial(self._receive, fetch, Signal.ABANDONED)
        # a client that has only finished sending gets an answer
        connection.on_ended = partial(self._receive, fetch, Signal.ANSWER_NOW)

        def over(_done: object) -> None:
            connection.on_abandoned = connection.on_ended = None

        fetch.future.add_done_callback(over)
        return fetch.future

    def wake(self, log: UnifiedLog) -> None:
        """Retry the fetches that wait for `log`; several appends in one iteration of the loop cost one attempt."""
        if log in self._waiting:
            grown, now = Grown(log), self._clock.monotonic()
            for fetch in self._waiting[log]:
                self._receive_at(fetch, grown, now)

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
            self._receive(fetch, Signal.ANSWER_NOW)

    # Decisions

    def _receive(self, fetch: _WaitingFetch, event: Event) -> None:
        self._receive_at(fetch, event, self._clock.monotonic())

    def _receive_at(self, fetch: _WaitingFetch, event: Event, now: float) -> None:
        try:
            effects = fetch.decisions.receive(event, now)
        except Exception as error:  # of a check: it becomes the result of the request
            effects = fetch.decisions.receive(Failed(error), now)
        for effect in effects:
            self._perform(fetch, effect)

    def _perform(self, fetch: _WaitingFetch, effect: Effect) -> None:
        match effect:
            case Act.WAKE_SOON:
                self._loop.call_soon(self._woken, fetch)
            case Attempt():
                attempt = fetch.attempt = SlicedRequest(_steps(fetch, effect.last), partial(self._attempted, fetch))
                if self._slices.begin(attempt):
                    self._attempted(fetch)
            case Answer():
                self._release(fetch)
                if not fetch.future.done():
                    fetch.future.set_result(effect.response)
            case WakeIn():
                if fetch.timer is not None:
                    fetch.timer.cancel()
                fetch.timer = self._schedule(effect.seconds, partial(self._receive, fetch, Signal.ANSWER_NOW))
            case Act.RELEASE:
                self._release(fetch)
            case Act.WATCH_LOGS:
                self._wait_at_logs(fetch)
            case Fail():
                self._release(fetch)
                if not fetch.future.done():
                    fetch.future.set_exception(effect.error)

    def _woken(self, fetch: _WaitingFetch) -> None:
        """Retry, and send the answer before the next waiting fetch is retried: a follower can work meanwhile."""
        self._receive(fetch, Signal.WOKEN)
        if fetch.future.done():
            fetch.connection.answer_now(fetch.future)

    def _attempted(self, fetch: _WaitingFetch) -> None:
        fetch.attempt = None
        self._receive(fetch, fetch.outcome)

    # Logs

    def _wait_at_logs(self, fetch: _WaitingFetch) -> None:
        fetch.logs = tuple({*fetch.logs, *fetch.reading.logs})
        for log in fetch.logs:
            self._watch(log)
            self._waiting.setdefault(log, {})[fetch] = None

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

    def _release(self, fetch: _WaitingFetch) -> None:
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


def _steps(fetch: _WaitingFetch, last: bool) -> IncrementalTask[None]:
    try:
        response = yield from fetch.reading.attempt(last)
    except Exception as error:  # becomes the result of the request
        fetch.outcome = Failed(error)
    else:
        fetch.outcome = Signal.TOO_LITTLE if response is None else Answered(response)
