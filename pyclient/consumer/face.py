"""What both faces of a consumer have in common: everything that does not wait."""

from __future__ import annotations

import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, overload

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import resolve
from pyclient.consumer.arguments import (
    Offsets,
    Partition,
    Partitions,
    Subscription,
    Topics,
    as_limit,
    as_offset,
    as_offsets,
    as_partition,
    as_partitions,
    as_seconds,
    as_subscription,
    check_callback,
    check_listener,
    spread,
    topic_names,
    topics_of,
)
from pyclient.consumer.batches import BatchSlice
from pyclient.consumer.commit_desk import CommitCallback
from pyclient.consumer.config import EARLIEST, LATEST, ConsumerConfig
from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.deserialization import Deserializers, PolledSlices
from pyclient.consumer.iteration import Chunk
from pyclient.consumer.listener import RebalanceListener
from pyclient.consumer.subscription import Mode, SubscriptionPattern
from pyclient.consumer.typevars import K, V
from pyclient.errors import ClosedError, ConcurrentUse, ConfigError, DeserializationError, ForkError
from pyclient.types import OffsetAndMetadata, TopicPartition

log = logging.getLogger("pyclient.consumer")

_LONGEST_WAIT: Final = 1.0
_LOOKS: Final = 3  # within max_poll_interval_ms, of a poll that waits

SECONDS_AFTER_ERROR: Final = 5.0
"""How long the end of a `with` block may take after an exception, which nobody wants to wait long for."""


class Guard:
    """Lets one thread, or task, at a time use a consumer; from inside a callback the same one may use it again.

    Only a weak reference is kept to the call in progress. A call that Ctrl-C ends, at whatever moment, is gone with its
    frame: there is no step of giving back that could be missed.
    """

    __slots__ = ("_current", "_identify", "_lock")

    def __init__(self, identify: Callable[[], object]) -> None:
        self._identify = identify
        self._lock = threading.Lock()
        self._current: Callable[[], GuardedCall | None] = _no_call

    def enter(self, call: GuardedCall) -> None:
        """Register a call; `ConcurrentUse` while one of another thread, or task, is in progress."""
        me = self._identify()
        with self._lock:
            other = self._current()
            if other is not None and other.caller != me:
                raise ConcurrentUse(
                    f"the consumer is in use by {other.caller} and was called from {me}: a consumer serves one thread "
                    "or task at a time; only wakeup() may be called from another one"
                )
            call.caller, call.outer = me, self._current
            self._current = weakref.ref(call)

    def leave(self, call: GuardedCall) -> None:
        """Forget a call; the one around it, if any, is the one in progress again."""
        self._current = call.outer


class GuardedCall:
    """One call of a consumer's method, as a context manager."""

    __slots__ = ("__weakref__", "_guard", "caller", "outer")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.caller: object = None
        self.outer: Callable[[], GuardedCall | None] = _no_call

    def __enter__(self) -> None:
        self._guard.enter(self)

    def __exit__(self, *_: object) -> None:
        self._guard.leave(self)


def _no_call() -> None:
    return None


class ConsumerFace(Generic[K, V]):
    """Options, subscription, positions and state. Nothing here waits for a broker."""

    def __init__(
        self,
        topics: Sequence[Topics],
        given: Mapping[str, Any],
        config: Mapping[str, Any] | None,
        deserializers: Deserializers,
        notify: Callable[[], None],
        identify: Callable[[], object],
    ) -> None:
        subscription = topics_of(topics)
        options = {name: value for name, value in given.items() if value is not None}
        self._config: ConsumerConfig = resolve(ConsumerConfig, options, config)
        self._deserializers = deserializers
        self._listener: RebalanceListener | None = None
        self._in_callback = False
        self._deserializing = False
        # how often a poll that waits, which is polling, says so to the group and looks after its commits
        self._longest_wait = min(_LONGEST_WAIT, self._config.max_poll_interval_ms / 1000 / _LOOKS)
        self._chunk: Chunk | None = None
        self._closed = False
        self._closing = False
        self._pid = os.getpid()
        self._guard = Guard(identify)
        self._core = ConsumerCore(self._config, clock=SYSTEM_CLOCK, notify=notify)
        if subscription is not None:
            self._follow(subscription, None)

    # ---- what to read

    def subscribe(
        self,
        topics: Topics | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics; with a `group_id` as a member of that group, which shares them out.

        A `pattern`, or a compiled one as `topics`, means every topic whose whole name it matches, also those created
        later; a `SubscriptionPattern` is matched by the broker, with `group_protocol="consumer"` only. Replaces the
        subscription before. `listener` is told when partitions come and go; see `RebalanceListener`. Without a
        `group_id` all partitions of the topics are this consumer's. Raises `ConfigError` after `assign()`.
        """
        with self._use():
            self._settle()
            self._follow(as_subscription(topics, pattern), check_listener(listener))
            self._begin()

    def _follow(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        if isinstance(subscription, SubscriptionPattern):
            self._check_remote_pattern(subscription)
        self._listener = listener
        self._core.subscribe(subscription)

    def assign(self, partitions: Partitions) -> None:
        """Reads exactly these partitions, in no group; with a `group_id` offsets can still be committed under it.

        Replaces the assignment before; partitions that stay keep their positions. Raises `ConfigError` after
        `subscribe()`.
        """
        with self._use():
            self._settle()
            wanted = as_partitions(partitions)
            topic_names(topic for topic, _ in wanted)
            if self._config.enable_auto_commit and self._core.subscription.mode is Mode.MANUAL:
                self._core.desk.commit(self._core.positions(), None)
            self._core.assign(wanted)
            self._begin()

    def assignment(self) -> set[TopicPartition]:
        """The partitions this consumer reads now."""
        self._check_open()
        return set(self._core.subscription.assignment())

    def subscription(self) -> set[str]:
        """The topics subscribed to; for a pattern those that match it so far."""
        self._check_open()
        return set(self._core.subscription.topics)

    # ---- where to read

    def seek(self, partition: Partition, offset: int | OffsetAndMetadata, *, leader_epoch: int = -1) -> None:
        """The next poll goes on at `offset`, which need not exist: a wrong one is for `auto_offset_reset` to settle.

        An `OffsetAndMetadata`, as `committed()` gives, brings its leader epoch along. Raises `NotAssigned` if the
        partition is not this consumer's.
        """
        if not isinstance(offset, OffsetAndMetadata):
            offset = OffsetAndMetadata(offset, "", leader_epoch)
        wanted, place = as_partition(partition), as_offset(offset, "an offset to seek")
        with self._use():
            self._settle()
            with self._core.lock:
                self._core.subscription.require(wanted).start_at(place.offset, place.leader_epoch)
            self._core.moved()

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """The next poll goes on at the first record there is; without arguments in every assigned partition."""
        self._seek_to_end_of_log(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partitions) -> None:
        """The next poll goes on behind the last record there is; without arguments in every assigned partition."""
        self._seek_to_end_of_log(partitions, LATEST)

    def _seek_to_end_of_log(self, partitions: Sequence[Partitions], timestamp: int) -> None:
        with self._use():
            self._settle()
            with self._core.lock:
                subscription = self._core.subscription
                wanted = spread(partitions) if partitions else subscription.assignment()
                for state in [subscription.require(partition) for partition in wanted]:
                    state.reset(timestamp)
            self._core.moved()

    def pause(self, *partitions: Partitions) -> None:
        """Polls return nothing of these until `resume`; the consumer stays in its group and keeps what is fetched.

        All partitions there are: `pause(consumer.assignment())`. Raises `NotAssigned`, and pauses none, if one is not
        this consumer's.
        """
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: Partitions) -> None:
        """Polls return records of these again; without arguments of every assigned partition."""
        self._set_paused(partitions or [self._core.subscription.assignment()], paused=False)

    def _set_paused(self, partitions: Sequence[Partitions], *, paused: bool) -> None:
        with self._use():
            self._settle()
            wanted = spread(partitions)
            with self._core.lock:
                subscription = self._core.subscription
                (subscription.pause if paused else subscription.resume)(wanted)
            self._core.moved()

    def paused(self) -> set[TopicPartition]:
        """The partitions that `pause` stopped."""
        self._check_open()
        with self._core.lock:
            return {state.topic_partition for state in self._core.subscription if state.paused}

    def lag(self) -> dict[TopicPartition, int | None]:
        """How many offsets each assigned partition is behind its end, as the last fetch told; None if not known yet."""
        with self._use():
            self._settle()
            with self._core.lock:
                committed = self._config.read_committed
                return {state.topic_partition: state.lag(read_committed=committed) for state in self._core.subscription}

    # ---- commits and wake-ups that wait for nothing

    @overload
    def commit_async(self, callback: CommitCallback | None = None, /) -> None: ...
    @overload
    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None: ...
    def commit_async(
        self, offsets: Offsets | CommitCallback | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commits as `commit` does, without waiting: `commit_async(callback)` or `commit_async(offsets, callback)`.

        `callback(offsets, error)` is called by a later poll, commit or close, in the thread that calls it; without one
        a failure is logged.
        """
        if callable(offsets):
            if callback is not None:
                raise TypeError("commit_async takes one callback")
            offsets, callback = None, offsets
        check_callback(callback)
        with self._use():
            self._settle()
            self._core.desk.commit(self._to_commit(offsets), callback)

    def wakeup(self) -> None:
        """Ends the wait that is going on in another thread, or the next one, with `Wakeup`. Thread-safe."""
        self._check_process()
        if not self._closed:
            self._core.wakeup()

    # ---- state

    def health(self) -> dict[str, Any]:
        """The consumer's state: cluster, group, assignment, lag, buffered bytes, and the last error of each part."""
        self._check_process()
        return self._core.health()

    def metrics(self) -> dict[str, Any]:
        """Counts since the consumer began, as plain numbers; rates look back 30 s.

        Records, bytes (as they are in the log), polls and the share of time they take (`poll_idle_ratio`, near 1 when
        the user waits for records); fetches, their bytes and seconds (waiting at the broker included);
        `fetched_bytes_by_node` (node id -> bytes: who was read from); `buffered_bytes` fetched and not yet polled;
        `lag` by partition and `lag_max`; and the group's part: rebalances, heartbeats, commits.
        """
        self._check_process()
        return self._core.numbers()

    @property
    def closed(self) -> bool:
        """Whether `close()` was called."""
        return self._closed

    def __repr__(self) -> str:
        name = type(self).__name__
        servers = ",".join(self._config.bootstrap_servers)
        core = self._core
        if not self._is_mine():
            return f"<{name} {servers} of another process>"
        if self._closed:
            return f"<{name} {servers} closed>"
        group = ""
        if core.coordinator is not None:
            group = f" group {core.coordinator.group_id!r} {core.coordinator.member.state.value}"
        return f"<{name} {servers}{group} reading {core.subscription.describe()}>"

    # ---- inside

    def _begin(self) -> None:
        """Something is to be read: work in the background may begin, if there is anything to do it on."""

    def _is_mine(self) -> bool:
        return self._pid == os.getpid()

    def _use(self) -> GuardedCall:
        """A call in progress, of an open consumer in the process that made it."""
        self._check_open()
        if self._deserializing:
            raise ConcurrentUse(
                "the consumer was called by a deserializer or by on_deserialization_error, which run inside a poll() "
                "whose records are not returned yet"
            )
        return GuardedCall(self._guard)

    def _check_open(self) -> None:
        """`ClosedError` after `close()`, `ForkError` in a forked child. `health`, `metrics` and `wakeup` go on."""
        self._check_process()
        if self._closed:
            raise ClosedError("the consumer is closed: make a new one to read more")

    def _check_process(self) -> None:
        if not self._is_mine():
            raise ForkError(f"this consumer belongs to process {self._pid}: after fork() make one of your own")

    def _settle(self) -> None:
        """Gives back what a `for` loop has not read, or an interrupted poll not returned: positions are the user's.

        Each call does this first. It may be interrupted itself: the next one does it again.
        """
        if self._core.undelivered:
            self._core.take_back()
            self._chunk = None
        elif self._chunk is not None:
            self._chunk.settle()
            self._chunk = None

    def _stopped(self, work: PolledSlices, partition: TopicPartition) -> bool:
        """After a record that may not be skipped; True if the poll is to raise that, because nothing comes before it.

        Then everything is given back, and the partition goes behind the others, so that it holds none of them up.
        """
        first = not work.done
        if first:
            work.stop_all()
            self._core.give_back(work.unread, last=partition)
            self._core.undelivered = False
        else:
            work.stop()
        return first

    def _returnable(self, work: PolledSlices) -> list[BatchSlice]:
        """What is left to return of a poll."""
        if work.unread:
            self._core.give_back(work.unread)
        if not work.done:
            self._core.undelivered = False
        for partition, errors in work.skipped.items():
            self._note_skipped(partition, errors)
        return work.done

    def _note_skipped(self, partition: TopicPartition, errors: Sequence[DeserializationError]) -> None:
        """Count records that were left out; a function that decided so can say it itself."""
        self._core.metrics.skipped += len(errors)
        if self._deserializers.on_error == "skip":
            text = "%s: skipped %d records that cannot be deserialized, the first: %s"
            log.warning(text, partition, len(errors), errors[0].message)

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._config.group_id is None:
            raise ConfigError("offsets are committed under a group: give the consumer a group_id")
        if offsets is None:
            return self._core.positions()
        return as_offsets(offsets)

    def _check_remote_pattern(self, pattern: SubscriptionPattern) -> None:
        if self._config.group_id is None or self._config.group_protocol != "consumer":
            raise ConfigError(
                f"{pattern!r} is matched by the broker, for which it takes a group_id and group_protocol='consumer'; "
                f"re.compile({pattern.pattern!r}) is matched in this client"
            )

    def _check_callback(self) -> None:
        if self._in_callback:
            raise ConcurrentUse("poll() was called inside a rebalance callback, which runs inside a poll() itself")

    def _patience(self, timeout: float | None) -> float:
        return self._core.api_timeout if timeout is None else as_seconds(timeout)

    def _wanted(self, partitions: Partitions | None) -> list[TopicPartition]:
        return list(self._core.subscription.assignment()) if partitions is None else as_partitions(partitions)

    def _check_reached(self, timeout: float) -> None:
        """A poll that waited in vain for a cluster that never answered says so."""
        error = self._core.unreachable() if timeout > 0 else None
        if error is not None:
            raise error

    def _limit(self, max_records: int | None) -> int:
        return self._config.max_poll_records if max_records is None else as_limit(max_records)
