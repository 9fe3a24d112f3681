"""One consumer without its face: what `Consumer` and `AsyncConsumer` share."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import EMPTY, ClusterMetadata
from pyclient.consumer.batches import BatchSlice
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.coordinator import ThreadTask
from pyclient.consumer.fetch_buffer import FetchBuffer
from pyclient.consumer.fetch_plan import high_bytes, low_bytes
from pyclient.consumer.fetcher import Fetcher
from pyclient.consumer.group_events import Adopt, Subscribed
from pyclient.consumer.group_side import GroupSide
from pyclient.consumer.list_offsets import OffsetFinder
from pyclient.consumer.metrics import ConsumerMetrics
from pyclient.consumer.offsets import PositionFinder
from pyclient.consumer.subscription import Mode, SubscriptionPattern, SubscriptionState
from pyclient.consumer.topic_watch import TopicWatch, describe_refusal
from pyclient.consumer.waiting import Waiting
from pyclient.errors import (
    ClosedError,
    FencedInstanceId,
    KafkaError,
    KafkaTimeout,
    NotAssigned,
    for_code,
    from_code,
)
from pyclient.net.connect import Connector
from pyclient.types import OffsetAndMetadata, TopicPartition

log = logging.getLogger("pyclient.consumer")

_MANY_ERRORS: Final = 16


class ConsumerCore:
    """Subscription, fetch buffer, group member and cluster client around one lock.

    The thread that polls and the event loop meet here: what they share is touched under the lock, the rest belongs to
    the loop. `notify` is called, on the loop, when the polling thread should look again.
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
        rng = rng or Random()
        self.config = config
        self.clock = clock
        self.lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.ended = False
        self.subscription = SubscriptionState(looks_up_committed=config.group_id is not None)
        self.buffer = FetchBuffer(
            self.subscription,
            low_bytes=low_bytes(config),
            high_bytes=high_bytes(config),
            check_crcs=config.check_crcs,
        )
        self.cluster = ClusterClient(
            config,
            clock=clock,
            rng=rng,
            connector=connector,
            allow_auto_topic_creation=config.allow_auto_create_topics,
        )
        self.topic_watch = TopicWatch(may_be_created=config.allow_auto_create_topics)
        self.waiting = Waiting(self._describe_failures)
        self.metrics = ConsumerMetrics()
        self.finder = OffsetFinder(self.cluster, config, clock=clock, rng=rng)
        self.group = GroupSide(
            self.cluster,
            config,
            self.subscription,
            self.lock,
            clock=clock,
            rng=rng,
            call=self.call,
            on_task=self._on_task,
            on_error=self._on_error,
            on_assignment=self.assignment_changed,
        )
        self.coordinator, self.committer = self.group.coordinator, self.group.committer
        self.desk, self.rebalances = self.group.desk, self.group.rebalances
        self.fetcher = Fetcher(
            self.cluster,
            self.subscription,
            self.buffer,
            self.lock,
            config,
            clock=clock,
            rng=rng,
            on_records=self._notify_all,
            on_trouble=self._changed,
            metrics=self.metrics,
        )
        self.positions_found = PositionFinder(
            self.cluster,
            self.subscription,
            self.lock,
            config,
            self.finder,
            clock=clock,
            look_up_committed=lambda partitions: self.committer.committed(partitions, self.api_timeout),
            on_change=self._changed,
        )
        self._notify = notify
        self._before_start: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._errors: deque[KafkaError] = deque()
        self._fatal: KafkaError | None = None

    # ---- life, on the loop

    async def start(self) -> None:
        """Begins to look for the cluster, and for what was subscribed before."""
        self.loop = asyncio.get_running_loop()
        self.cluster.listeners.append(self._on_metadata)
        await self.cluster.start()
        self.positions_found.start()
        for function, arguments in self._before_start:
            function(*arguments)
        self._before_start.clear()

    async def leave(self, reason: str, timeout: float) -> None:
        """Leaves the group, if in one; waits no longer than `timeout` seconds for the broker to know."""
        await self.group.leave(reason, timeout)

    async def shut_down(self) -> None:
        """Ends every request and closes every connection. Commits, callbacks and leaving are done before."""
        if self.ended:
            return
        self.ended = self.waiting.ended = True
        self.group.stop()
        self.fetcher.stop()
        self.positions_found.stop()
        await self.cluster.close()
        self.waiting.pulse()
        self._notify()

    @property
    def api_timeout(self) -> float:
        """`default_api_timeout_ms` in seconds."""
        return self.config.default_api_timeout_ms / 1000

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Calls a function on the loop soon, from any thread; before there is a loop, when `start` gives one."""
        if self.ended:
            return
        if self.loop is None:
            self._before_start.append((function, arguments))
            return
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError as error:
            raise ClosedError("the consumer's event loop is closed") from error

    # ---- what the loop tells

    def _changed(self, errors: Iterable[KafkaError] = ()) -> None:
        """Something may be there for the user, or to be fetched."""
        for error in errors:
            self._on_error(error)
        self._wake_workers()
        self._notify_all()

    def _notify_all(self) -> None:
        self.waiting.pulse()
        self._notify()

    def _wake_workers(self) -> None:
        if not self.ended:
            self.fetcher.wake()
            self.positions_found.wake()

    def _on_error(self, error: KafkaError) -> None:
        if isinstance(error, FencedInstanceId):
            self._fatal = error
        elif len(self._errors) < _MANY_ERRORS and all(str(error) != str(known) for known in self._errors):
            self._errors.append(error)
        self._notify()

    def _on_task(self, task: ThreadTask) -> None:
        self.rebalances.add(task)
        self._notify()

    # ---- metadata

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        internal_too = not self.config.exclude_internal_topics
        names = [
            info.name for info in metadata.topics.values() if info.partitions and (internal_too or not info.internal)
        ]
        with self.lock:
            self._note_leaders(metadata)
            matched = self.subscription.match(names)
        if self.coordinator is None:
            self._assign_everything(metadata)
        else:
            self.group.note_metadata(metadata, matched=matched)
        self._watch_topics(metadata)
        self._changed(self._topic_errors(metadata))

    def _note_leaders(self, metadata: ClusterMetadata) -> None:
        for partition in self.subscription.assignment():
            info = metadata.partition(*partition)
            if info is not None:
                topic_id = metadata.topics[partition.topic].topic_id
                self.subscription.note_leader(partition, info.leader_epoch, topic_id)

    def _topic_errors(self, metadata: ClusterMetadata) -> list[KafkaError]:
        """What waiting cannot help: topics that may not be read, or cannot exist."""
        wanted = {*self.subscription.topics, *(partition.topic for partition in self.subscription.assignment())}
        infos = [metadata.topics[topic] for topic in wanted if topic in metadata.topics]
        return [
            from_code(info.error_code, describe_refusal(info))
            for info in infos
            if info.error_code and not for_code(info.error_code).retriable
        ]

    def _watch_topics(self, metadata: ClusterMetadata) -> None:
        """Topics that are not there are no error, but said once: the name may be mistyped."""
        assigned = self.subscription.assignment()
        wanted = dict.fromkeys([*self.subscription.topics, *(topic for topic, _ in assigned)])
        pattern = self.subscription.pattern.pattern if self.subscription.pattern is not None else None
        for text in self.topic_watch.look(metadata, wanted, assigned, self.clock.monotonic(), pattern=pattern):
            log.warning("%s", text)

    def _describe_failures(self) -> str:
        return "; ".join(filter(None, [*self.topic_watch.problems.values(), self.cluster.describe_failures()]))

    def _assign_everything(self, metadata: ClusterMetadata) -> None:
        """Without a group, a subscription means every partition of its topics."""
        if self.subscription.mode not in (Mode.TOPICS, Mode.PATTERN):
            return
        wanted = [
            TopicPartition(topic, number)
            for topic in self.subscription.topics
            for number in range(metadata.partition_count(topic) or 0)
        ]
        held = self.rebalances.expected()
        added = tuple(partition for partition in wanted if partition not in held)
        revoked = tuple(partition for partition in held if partition not in wanted)
        if added or revoked:
            self._on_task(Adopt(0, tuple(wanted), added, revoked))

    # ---- subscription, in the polling thread

    def subscribe(self, topics: Iterable[str] | re.Pattern[str] | SubscriptionPattern) -> None:
        """Replaces the subscription; the loop follows."""
        with self.lock:
            if isinstance(topics, SubscriptionPattern):
                self.subscription.subscribe_remote_pattern(topics)
            elif isinstance(topics, re.Pattern):
                self.subscription.subscribe_pattern(topics)
            else:
                self.subscription.subscribe(topics)
        self.call(self._follow)
        if isinstance(topics, SubscriptionPattern):
            self.group.feed(Subscribed((), topics.pattern))
        elif self.subscription.mode is Mode.TOPICS:
            self.group.feed(Subscribed(self.subscription.topics))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replaces the assignment by the user's own; the loop follows."""
        with self.lock:
            self.subscription.assign(partitions)
        self.assignment_changed()

    def unsubscribe(self) -> None:
        """Forgets subscription and assignment; the group is left before."""
        with self.lock:
            self.subscription.unsubscribe()
        self.assignment_changed()

    def assignment_changed(self) -> None:
        """What is not assigned any more is freed; the loop follows."""
        with self.lock:
            self.buffer.drop_void()
            self._note_leaders(self.cluster.metadata)
        self.call(self._follow)

    def moved(self) -> None:
        """After a seek, pause or resume: what became void is freed, and fetching goes on."""
        with self.lock:
            self.buffer.drop_void()
        self.call(self._wake_workers)

    def _follow(self) -> None:
        """Asks the cluster about the topics that matter now."""
        subscription = self.subscription
        if subscription.mode is Mode.PATTERN:
            self.cluster.set_topics(None)
        else:
            self.cluster.set_topics({*subscription.topics, *(topic for topic, _ in subscription.assignment())})
        if self.cluster.metadata is not EMPTY:
            self._on_metadata(self.cluster.metadata)

    # ---- polling, in the polling thread

    def begin_poll(self) -> None:
        """Counts a poll: what earlier ones returned is done with from here on."""
        if self.subscription.mode is Mode.NONE:
            raise NotAssigned("nothing is subscribed or assigned: call subscribe() or assign() before poll()")
        self.buffer.polls += 1
        self.metrics.poll_begun(self.clock.monotonic())
        self.desk.run_callbacks()

    def end_poll(self, slices: list[BatchSlice]) -> list[BatchSlice]:
        """Counts what a poll returns."""
        self.metrics.poll_ended(slices, self.clock.monotonic())
        return slices

    def keep_up(self, now: float) -> None:
        """What goes on while a poll waits: it counts as polling, and auto-commit commits what earlier ones returned."""
        self.group.note_poll(now)
        if self.config.enable_auto_commit and self.desk.auto_commit_due(now):
            self.desk.auto_commit(self.positions(), now)

    def take(self, limit: int) -> list[BatchSlice]:
        """Records that are there, at most `limit`; raises what the loop met."""
        if self._fatal is not None:
            raise self._fatal
        if self._errors:
            raise self._errors.popleft()
        with self.lock:
            error = self.subscription.first_error()
            slices = self.buffer.take(limit) if error is None else []
            wants_more, self.buffer.wants_more = self.buffer.wants_more, False
        if error is not None:
            raise error
        if wants_more:
            self.call(self._wake_workers)
        return slices

    def unreachable(self) -> KafkaTimeout | None:
        """The error for a poll that waited in vain for a cluster that never answered at all."""
        if self.cluster.metadata is not EMPTY:
            return None
        failures = self.cluster.last_failures
        if not all(address in failures for address in self.config.bootstrap_servers):
            return None
        return KafkaTimeout(f"no broker could be reached: {self.cluster.describe_failures()}")

    def positions(self, *, before_last_poll: bool = False) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where the user stands; with `before_last_poll`, without what the last poll returned."""
        with self.lock:
            return self.subscription.positions(before=self.buffer.polls if before_last_poll else None)

    def known_position(self, partition: TopicPartition) -> int | None:
        """The offset of the next record, if it is known; raises what stands in the way of ever knowing it."""
        with self.lock:
            state = self.subscription.require(partition)
            if state.error is not None:
                raise state.error
            return state.position if state.position >= 0 else None

    # ---- state

    def wakeup(self) -> None:
        """Ends the wait that is going on, or the next one, with `Wakeup`; from any thread."""
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
            **self.group.metrics(),
        }

    def health(self) -> dict[str, Any]:
        """See `Consumer.health`."""
        cluster = self.cluster.health()
        workers = {
            "group": self.coordinator,
            "fetch": self.fetcher,
            "positions": self.positions_found,
            "commit": self.committer,
        }
        errors = {name: worker.last_error for name, worker in workers.items() if worker is not None}
        with self.lock:
            return {
                "state": "closed" if self.ended else "open",
                "cluster_id": cluster.cluster_id,
                "nodes": list(cluster.nodes),
                "connected_nodes": list(cluster.connected),
                "last_failures": dict(cluster.last_failures),
                **self.group.health(),
                "subscription": sorted(self.subscription.topics),
                "topic_errors": dict(self.topic_watch.problems),
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
