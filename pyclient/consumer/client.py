"""The implementation shared by `Consumer` and `AsyncConsumer`."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple

from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import EMPTY
from pyclient.consumer.completed_fetch import BatchSlice
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.consumer_coordinator import ConsumerCoordinator
from pyclient.consumer.consumer_metadata import ConsumerMetadata
from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.fetch_buffer import FetchBuffer
from pyclient.consumer.fetch_plan import high_bytes, low_bytes
from pyclient.consumer.fetcher import Fetcher
from pyclient.consumer.member_events import Subscribed
from pyclient.consumer.metrics import ConsumerMetrics
from pyclient.consumer.offsets_request_manager import OffsetFinder, OffsetsRequestManager
from pyclient.consumer.subscription import Mode, SubscriptionPattern, SubscriptionState
from pyclient.errors import (
    ClosedError,
    CorruptBatch,
    FencedInstanceId,
    KafkaError,
    KafkaTimeout,
    NotAssigned,
    Wakeup,
)
from pyclient.net.connect import Connector
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.records import IMPLEMENTATION, count_intact, log_pure_codec
from pyclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_MAX_ERRORS: Final = 16


class Waiting:
    """The waiters, and the flag of `wakeup()`. `pulse` runs on the loop, `wake_up` in any thread."""

    def __init__(self, describe_failures: Callable[[], str]) -> None:
        self.ended = False
        self._describe_failures = describe_failures
        self._waiters: set[asyncio.Future[None]] = set()
        self._woken = False

    def pulse(self) -> None:
        """Wake all waiters to check their conditions again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def wake_up(self) -> None:
        """End the current wait, or the next one, with `Wakeup`; a `pulse` has to follow."""
        self._woken = True

    def check_wakeup(self) -> None:
        """Raise `Wakeup` if `wake_up` was called since the last check."""
        if self._woken:
            self._woken = False
            raise Wakeup("wakeup() was called")

    async def until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """Return the condition's first value but None; raise `KafkaTimeout` with `what` after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout) as limit:
                while (value := condition()) is None:
                    await self._change()
                return value
        except TimeoutError:
            if not limit.expired():
                raise
            failures = self._describe_failures()
            reason = f"; last failures: {failures}" if failures else ""
            raise KafkaTimeout(f"{what}: not done within {timeout:g} s{reason}") from None

    async def interruptible(self, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> T:
        """Run `function(*args)`, which `wake_up` ends."""
        task = asyncio.ensure_future(function(*args))
        try:
            while True:
                self.check_wakeup()
                change = asyncio.ensure_future(self._change())
                try:
                    await asyncio.wait({task, change}, return_when=asyncio.FIRST_COMPLETED)
                    if task.done():
                        return task.result()
                    await change
                finally:
                    change.cancel()
        finally:
            task.cancel()

    async def _change(self) -> None:
        if self.ended:
            raise ClosedError("the consumer is closed")
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)


class ConsumerClient:
    """Subscription, fetch buffer, group member and cluster client around one lock.

    State shared by the polling thread and the event loop is accessed under the lock; the rest belongs to the loop.
    `notify` is called, on the loop, to wake the polling thread.

    A poll moves positions when it takes records, and `undelivered` is True from then until it has returned them. A call
    that finds it True follows a poll that Ctrl-C or a cancellation ended, and takes those records back.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        clock: Clock,
        notify: Callable[[], None],
        rng: Rng | None = None,
        connector: Connector | None = None,
    ) -> None:
        rng = rng or SURROUNDINGS.get().new_rng()
        self.config = config
        self.clock = clock
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ended = False
        self.undelivered = False
        self.subscription = SubscriptionState(looks_up_committed=config.group_id is not None)
        self.buffer = _buffer(config, self.subscription)
        self.cluster = _cluster(config, clock, rng, connector)
        self.waiting = Waiting(lambda: self.metadata.describe_failures())
        self.metrics = ConsumerMetrics()
        context = ConsumerContext(config, self.cluster, self.subscription, self.lock, clock, rng)
        self.finder = OffsetFinder(context)
        self.coordinator = ConsumerCoordinator(
            context, call=self.call, wake=notify, on_error=self._on_error, on_assignment=self.assignment_changed
        )
        self.metadata = ConsumerMetadata(context, self.coordinator, self._changed)
        self.fetcher = Fetcher(
            context, self.buffer, self.metrics, on_records=self._notify_all, on_trouble=self._changed
        )
        self.offsets = OffsetsRequestManager(
            context,
            self.finder,
            look_up_committed=lambda partitions: self.coordinator.committer.committed(partitions, self.api_timeout),
            on_change=self._changed,
        )
        self._notify = notify
        self._before_start: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._errors: deque[KafkaError] = deque()
        self._reported: KafkaError | None = None
        self._fatal: KafkaError | None = None
        self._raised: KafkaError | None = None  # the last `unreachable` error of the cluster that was raised

    # ---- start and stop, on the loop

    async def start(self) -> None:
        """Connect to the cluster and follow what was subscribed before; idempotent."""
        if self.loop is not None:
            return
        self.loop = asyncio.get_running_loop()
        self.cluster.listeners.append(self.metadata.note)
        log_pure_codec()
        await self.cluster.start()
        self.offsets.start()
        for function, arguments in self._before_start:
            function(*arguments)
        self._before_start.clear()

    async def leave(self, reason: str, timeout: float) -> None:
        """Abandon commits in progress and leave the group; wait at most `timeout` seconds for the confirmation."""
        await self.coordinator.leave(reason, timeout)

    async def shut_down(self) -> None:
        """End every request and close every connection. Commits, callbacks and leaving the group come before."""
        if self.ended:
            return
        self.ended = self.waiting.ended = True
        self.coordinator.stop()
        self.fetcher.stop()
        self.offsets.stop()
        await self.cluster.close()
        self.waiting.pulse()
        self._notify()

    @property
    def api_timeout(self) -> float:
        """`default_api_timeout_ms` in seconds."""
        return self.config.default_api_timeout_ms / 1000

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Schedule a function on the loop, from any thread; before `start`, defer it until then."""
        if self.ended:
            return
        if self.loop is None:
            self._before_start.append((function, arguments))
            return
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError as error:
            raise ClosedError("the consumer's event loop is closed") from error

    # ---- callbacks of the loop

    def _changed(self, errors: Iterable[KafkaError] = ()) -> None:
        """Wake the polling thread and the fetcher: there may be records, errors, or more to fetch."""
        for error in errors:
            self._on_error(error)
        self._wake_workers()
        self._notify_all()

    def _notify_all(self) -> None:
        self.waiting.pulse()
        self._notify()

    def _wake_workers(self) -> None:
        self._wake_fetcher()
        if not self.ended:
            self.offsets.wake()

    def _wake_fetcher(self) -> None:
        if not self.ended:
            self.fetcher.wake()

    def _on_error(self, error: KafkaError) -> None:
        if isinstance(error, FencedInstanceId):
            self._fatal = error
        elif len(self._errors) < _MAX_ERRORS and all(str(error) != str(known) for known in self._errors):
            self._errors.append(error)
        self._notify()

    # ---- subscription, in the polling thread

    def subscribe(self, topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern) -> None:
        """Replace the subscription; the loop follows."""
        with self.lock:
            if isinstance(topics, SubscriptionPattern):
                self.subscription.subscribe_remote_pattern(topics)
            elif isinstance(topics, re.Pattern):
                self.subscription.subscribe_pattern(topics)
            else:
                self.subscription.subscribe(topics)
        self.call(self.metadata.follow)
        if isinstance(topics, SubscriptionPattern):
            self.coordinator.feed(Subscribed((), topics.pattern))
        elif self.subscription.mode is Mode.TOPICS:
            self.coordinator.feed(Subscribed(self.subscription.topics))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment by the user's own; the loop follows."""
        with self.lock:
            self.subscription.assign(partitions)
        self.assignment_changed()

    def unsubscribe(self) -> None:
        """Clear the subscription and the assignment; the group is left before."""
        with self.lock:
            self.subscription.unsubscribe()
        self.assignment_changed()

    def assignment_changed(self) -> None:
        """Free the data of unassigned partitions; the loop follows."""
        with self.lock:
            self.buffer.drop_invalid()
            self.metadata.note_leaders(self.cluster.metadata)
        self.call(self.metadata.follow)

    def moved(self) -> None:
        """Free invalidated data after a seek, pause or resume, and continue fetching."""
        with self.lock:
            self.buffer.drop_invalid()
        self.call(self._wake_workers)

    # ---- polling, in the polling thread

    def begin_poll(self) -> None:
        """Count a poll. Records of earlier polls count as processed from here on."""
        if self.subscription.mode is Mode.NONE:
            raise NotAssigned("nothing is subscribed or assigned: call subscribe() or assign() before poll()")
        self.buffer.polls += 1
        self.metrics.poll_begun(self.clock.monotonic())
        self.coordinator.commits.run_callbacks()

    def end_poll(self, slices: list[BatchSlice]) -> list[BatchSlice]:
        """Count the slices that a poll returns, and return them."""
        self.metrics.poll_ended(slices, self.clock.monotonic())
        return slices

    def keep_up(self, now: float) -> None:
        """Note the poll for the group, and auto-commit what earlier polls returned; repeated while a poll waits."""
        self.coordinator.note_poll(now)
        if self.config.enable_auto_commit and self.coordinator.commits.auto_commit_due(now):
            self.coordinator.commits.auto_commit(self.positions(), now)

    def take(self, limit: int) -> list[BatchSlice]:
        """Return at most `limit` buffered records; raise a pending error."""
        if self._fatal is not None:
            raise self._fatal
        if self._reported is not None:  # removed by the next poll, so that Ctrl-C cannot lose it before it is raised
            if self._errors and self._errors[0] is self._reported:
                self._errors.popleft()
            self._reported = None
        if self._errors:
            self._reported = self._errors[0]
            raise self._reported
        with self.lock:
            unchecked = self.buffer.unchecked(limit)
        if unchecked:
            count_intact(unchecked, self.config.check_crcs)  # without the lock, so that the loop is not held up
        with self.lock:
            error = self.subscription.first_error()
            slices = self._take(limit) if error is None else []
            wants_more, self.buffer.wants_more = self.buffer.wants_more, False
        if error is not None:
            raise error
        if wants_more:
            self.call(self._wake_fetcher)
        if not slices and self.cluster.unreachable is not self._raised:
            self._raised = self.cluster.unreachable
            if self._raised is not None:
                raise self._raised
        return slices

    def _take(self, limit: int) -> list[BatchSlice]:
        self.undelivered = True
        try:
            slices = self.buffer.take(limit)
        except CorruptBatch:  # raised before anything was taken
            self.undelivered = False
            raise
        self.undelivered = bool(slices)
        return slices

    def give_back(self, unread: Sequence[tuple[BatchSlice, int]], *, last: TopicPartition | None = None) -> None:
        """Return slices of the last poll, each from an offset on; move the partition `last` after all others."""
        with self.lock:
            self.buffer.give_back(unread)
            state = self.subscription.find(last) if last is not None else None
            if state is not None:
                self.buffer.put_last(state)

    def take_back(self) -> None:
        """Take back the records that an interrupted poll did not return; they are fetched again."""
        with self.lock:
            self.buffer.rewind()
            self.undelivered = False
        self.call(self._wake_workers)

    def unreachable(self) -> KafkaTimeout | None:
        """Return the error for a poll during which no bootstrap server could ever be reached, else None."""
        if self.cluster.metadata is not EMPTY:
            return None
        failures = self.cluster.last_failures
        if not all(address in failures for address in self.config.bootstrap_servers):
            return None
        return KafkaTimeout(f"no broker could be reached: {self.cluster.describe_failures()}")

    def positions(self, *, before_last_poll: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions to commit; with `before_last_poll`, those before the last poll."""
        with self.lock:
            return self.subscription.positions(before=self.buffer.polls if before_last_poll else None)

    def with_epochs(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the user's offsets to commit, with the leader epochs that they lack where those are known."""
        with self.lock:
            return self.subscription.with_epochs(offsets)

    def known_position(self, partition: TopicPartition) -> int | None:
        """Return the offset of the next record, None if not known yet; raise the partition's error if it is stopped."""
        with self.lock:
            state = self.subscription.require(partition)
            if state.error is not None:
                raise state.error
            return state.position if state.position >= 0 else None

    # ---- state

    def wakeup(self) -> None:
        """End the current wait, or the next one, with `Wakeup`; thread-safe."""
        self.waiting.wake_up()
        self.call(self._changed)

    def numbers(self) -> dict[str, Any]:
        """See `Consumer.metrics`."""
        with self.lock:
            committed = self.config.read_committed
            lag = {state.topic_partition: state.lag(read_committed=committed) for state in self.subscription}
            buffered = sum(state.buffered for state in self.subscription)
        known = {str(partition): each for partition, each in lag.items() if each is not None}
        return {
            **self.metrics.snapshot(self.clock.monotonic()),
            "buffered_bytes": buffered,
            "fetched_bytes_by_node": dict(self.metrics.bytes_by_node),
            "lag": known,
            "lag_max": max(known.values(), default=0),
            **self.coordinator.metrics(),
        }

    def health(self) -> dict[str, Any]:
        """See `Consumer.health`."""
        cluster = self.cluster.health()
        workers = {
            "group": self.coordinator.membership,
            "fetch": self.fetcher,
            "positions": self.offsets,
            "commit": self.coordinator.committer,
        }
        errors = {name: worker.last_error for name, worker in workers.items() if worker is not None}
        with self.lock:
            return {
                "state": "closed" if self.ended else "open",
                "cluster_id": cluster.cluster_id,
                "nodes": list(cluster.nodes),
                "connected_nodes": list(cluster.connected),
                "last_failures": dict(cluster.last_failures),
                "record_codec": IMPLEMENTATION,
                **self.coordinator.health(),
                "subscription": sorted(self.subscription.topics),
                "topic_errors": dict(self.metadata.problems),
                "assignment": sorted(map(str, self.subscription.assignment())),
                "lag": {
                    str(state.topic_partition): state.lag(read_committed=self.config.read_committed)
                    for state in self.subscription
                },
                "buffered_bytes": sum(state.buffered for state in self.subscription),
                "last_errors": {
                    name: f"{type(error).__name__}: {error}" for name, error in errors.items() if error is not None
                },
            }


def _buffer(config: ConsumerConfig, subscription: SubscriptionState) -> FetchBuffer:
    low, high = low_bytes(config), high_bytes(config)
    return FetchBuffer(subscription, low_bytes=low, high_bytes=high, check_crcs=config.check_crcs)


def _cluster(config: ConsumerConfig, clock: Clock, rng: Rng, connector: Connector | None) -> ClusterClient:
    create = config.allow_auto_create_topics
    return ClusterClient(config, clock=clock, rng=rng, connector=connector, allow_auto_topic_creation=create)
