"""The part of the consumer API that does not wait, shared by `Consumer` and `AsyncConsumer`."""

from __future__ import annotations

import logging
import os
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Self, overload

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
from pyclient.consumer.client import ConsumerClient
from pyclient.consumer.commit_request_manager import CommitCallback
from pyclient.consumer.completed_fetch import BatchSlice
from pyclient.consumer.config import EARLIEST, LATEST, ConsumerConfig
from pyclient.consumer.deserialization import Chunk, Deserializers, PolledSlices
from pyclient.consumer.rebalance_listener import RebalanceListener
from pyclient.consumer.records import K, V
from pyclient.consumer.runners import Runner
from pyclient.consumer.subscription import Mode, SubscriptionPattern
from pyclient.errors import ClosedError, ConcurrentUse, ConfigError, DeserializationError, ForkError
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger("pyclient.consumer")

_LONGEST_WAIT: Final = 1.0
_CHECKS_PER_POLL_INTERVAL: Final = 3  # of a waiting poll, per max_poll_interval_ms

SECONDS_AFTER_ERROR: Final = 5.0
"""The time limit of closing at the end of a `with` block that raised."""


class Guard:
    """Admits one thread, or task, at a time to a consumer; a callback within a call may call the consumer again.

    A call that Ctrl-C ends is released with its frame, because only a weak reference to it is kept.
    """

    __slots__ = ("_calls", "_identify", "_lock")

    def __init__(self, identify: Callable[[], object]) -> None:
        self._identify = identify
        self._lock = threading.Lock()
        self._calls: list[weakref.ref[GuardedCall]] = []  # in progress, the innermost last; or ended with their frame

    def enter(self, call: GuardedCall) -> None:
        """Register a call; raise `ConcurrentUse` while a call of another thread, or task, is in progress."""
        caller = self._identify()
        with self._lock:
            calls = [(known, other.caller) for known in self._calls if (other := known()) is not None]
            other = None  # the error's traceback would keep that call in progress
            if calls and calls[-1][1] != caller:
                raise ConcurrentUse(
                    f"the consumer is in use by {calls[-1][1]} and was called from {caller}: a consumer serves one "
                    "thread or task at a time; only wakeup() may be called from another one"
                )
            call.caller = caller
            self._calls = [*(known for known, _ in calls), weakref.ref(call)]

    def leave(self, call: GuardedCall) -> None:
        """Unregister a call; the enclosing one, if any, is in progress again."""
        self._calls = [known for known in self._calls if known() is not call]


class GuardedCall:
    """One call of a consumer's method, as a context manager; without `leave` it ends with the caller's frame."""

    __slots__ = ("__weakref__", "_guard", "caller")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self.caller: object = None

    def __enter__(self) -> None:
        self._guard.enter(self)

    def __exit__(self, *_: object) -> None:
        self._guard.leave(self)

    def enter(self) -> Self:
        """Begin the call, which then ends with `leave` or with the last reference to this object."""
        self._guard.enter(self)
        return self

    def leave(self) -> None:
        """End the call."""
        self._guard.leave(self)


class BaseConsumer(Generic[K, V]):
    """Options, subscription, positions and state. Nothing here waits for a broker."""

    def __init__(
        self,
        topics: Sequence[Topics],
        given: Mapping[str, Any],
        config: Mapping[str, Any] | None,
        deserializers: Deserializers,
        runner: Runner,
    ) -> None:
        subscription = topics_of(topics)
        options = {name: value for name, value in given.items() if value is not None}
        self._config: ConsumerConfig = resolve(ConsumerConfig, options, config)
        self._deserializers = deserializers
        self._listener: RebalanceListener | None = None
        self._in_callback = False
        self._deserializing = False
        # the longest wait inside a poll until it notes the poll for the group and checks for auto-commits again
        self._longest_wait = min(_LONGEST_WAIT, self._config.max_poll_interval_ms / 1000 / _CHECKS_PER_POLL_INTERVAL)
        self._chunk: Chunk | None = None
        self._closed = False
        self._closing = False
        self._begin = runner.begin  # starts background work, if there is a thread for it
        self._pid = os.getpid()
        self._guard = Guard(runner.caller)
        clock = SURROUNDINGS.get().clock
        self._client = runner.client = ConsumerClient(self._config, clock=clock, notify=runner.ready.set)
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
        """Read these topics; with a `group_id` as a member of that group, which distributes their partitions.

        A `pattern`, or a compiled one as `topics`, means every topic whose whole name it matches, also those created
        later; a `SubscriptionPattern` is matched by the broker, with `group_protocol="consumer"` only. Replaces the
        previous subscription. `listener` is called when partitions are assigned or revoked; see `RebalanceListener`.
        Without a `group_id` all partitions of the topics are assigned. Raise `ConfigError` after `assign()`.
        """
        with self._use():
            self._settle()
            self._follow(as_subscription(topics, pattern), check_listener(listener))
            self._begin()

    def _follow(self, subscription: Subscription, listener: RebalanceListener | None) -> None:
        if isinstance(subscription, SubscriptionPattern):
            self._check_remote_pattern(subscription)
        self._listener = listener
        self._client.subscribe(subscription)

    def assign(self, partitions: Partitions) -> None:
        """Read exactly these partitions, without group membership; with a `group_id` offsets can still be committed.

        Replaces the previous assignment; partitions that stay keep their positions. Raise `ConfigError` after
        `subscribe()`.
        """
        with self._use():
            self._settle()
            wanted = as_partitions(partitions)
            topic_names(topic for topic, _ in wanted)
            if self._config.enable_auto_commit and self._client.subscription.mode is Mode.MANUAL:
                self._client.coordinator.commits.commit(self._client.positions(), None)
            self._client.assign(wanted)
            self._begin()

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        self._check_open()
        return set(self._client.subscription.assignment())

    def subscription(self) -> set[str]:
        """Return the subscribed topics; for a pattern those that match so far."""
        self._check_open()
        return set(self._client.subscription.topics)

    # ---- where to read

    def seek(self, partition: Partition, offset: int | OffsetAndMetadata, *, leader_epoch: int = -1) -> None:
        """Continue at `offset` with the next poll; an offset that does not exist is resolved by `auto_offset_reset`.

        An `OffsetAndMetadata`, as `committed()` returns, includes its leader epoch. Raise `NotAssigned` if the
        partition is not assigned.
        """
        if not isinstance(offset, OffsetAndMetadata):
            offset = OffsetAndMetadata(offset, "", leader_epoch)
        wanted, place = as_partition(partition), as_offset(offset, "an offset to seek")
        with self._use():
            self._settle()
            with self._client.lock:
                self._client.subscription.require(wanted).start_at(place.offset, place.leader_epoch)
            self._client.moved()

    def seek_to_beginning(self, *partitions: Partitions) -> None:
        """Continue at the first existing record with the next poll; without arguments in every assigned partition."""
        self._seek_to_end_of_log(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partitions) -> None:
        """Continue after the last record with the next poll; without arguments in every assigned partition."""
        self._seek_to_end_of_log(partitions, LATEST)

    def _seek_to_end_of_log(self, partitions: Sequence[Partitions], timestamp: int) -> None:
        with self._use():
            self._settle()
            with self._client.lock:
                subscription = self._client.subscription
                wanted = spread(partitions) if partitions else subscription.assignment()
                for state in [subscription.require(partition) for partition in wanted]:
                    state.reset(timestamp)
            self._client.moved()

    def pause(self, *partitions: Partitions) -> None:
        """Return no records of these partitions until `resume`; membership and fetched data are kept.

        `pause(consumer.assignment())` pauses all partitions. Raise `NotAssigned`, and pause none, if one is not
        assigned.
        """
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: Partitions) -> None:
        """Return records of these partitions again; without arguments, of every assigned partition."""
        self._set_paused(partitions or [self._client.subscription.assignment()], paused=False)

    def _set_paused(self, partitions: Sequence[Partitions], *, paused: bool) -> None:
        with self._use():
            self._settle()
            wanted = spread(partitions)
            with self._client.lock:
                subscription = self._client.subscription
                (subscription.pause if paused else subscription.resume)(wanted)
            self._client.moved()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        self._check_open()
        with self._client.lock:
            return {state.topic_partition for state in self._client.subscription if state.paused}

    def lag(self) -> dict[TopicPartition, int | None]:
        """Return each assigned partition's number of offsets up to its end, as of the last fetch; None if unknown."""
        with self._use():
            self._settle()
            with self._client.lock:
                committed = self._config.read_committed
                return {
                    state.topic_partition: state.lag(read_committed=committed) for state in self._client.subscription
                }

    def group_metadata(self) -> GroupMetadata:
        """Return the membership in the group, for `Producer.send_offsets_to_transaction`; ask for it after each poll.

        By it the group's coordinator refuses offsets of partitions that were given away since. Raise `CommitFailed`
        while the consumer is no member and has not assigned its partitions itself, `ConfigError` without a group, and
        for a consumer that commits by itself.
        """
        with self._use():
            return self._client.coordinator.group_metadata()

    # ---- asynchronous commits and wakeup

    @overload
    def commit_async(self, callback: CommitCallback | None = None, /) -> None: ...
    @overload
    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None: ...
    def commit_async(
        self, offsets: Offsets | CommitCallback | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit as `commit` does, without waiting: `commit_async(callback)` or `commit_async(offsets, callback)`.

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
            self._client.coordinator.commits.commit(self._to_commit(offsets), callback)

    def wakeup(self) -> None:
        """End the current wait in another thread, or the next one, with `Wakeup`. Thread-safe."""
        self._check_process()
        if not self._closed:
            self._client.wakeup()

    # ---- state

    def health(self) -> dict[str, Any]:
        """Return the consumer's state: cluster, group, assignment, lag, buffered bytes, and each part's last error."""
        self._check_process()
        return self._client.health()

    def metrics(self) -> dict[str, Any]:
        """Return counts since the consumer was created, as plain numbers; rates are those of the last 30 s.

        Records, bytes (as in the log), polls and the share of time they take (`poll_idle_ratio`, near 1 when the user
        waits for records); fetches, their bytes and seconds (waiting at the broker included); `fetched_bytes_by_node`
        (node id -> bytes); `buffered_bytes` fetched and not yet polled; `lag` by partition and `lag_max`; and the
        group's rebalances, heartbeats and commits.
        """
        self._check_process()
        return self._client.numbers()

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._closed

    def __repr__(self) -> str:
        name = type(self).__name__
        servers = ",".join(self._config.bootstrap_servers)
        client = self._client
        if not self._is_mine():
            return f"<{name} {servers} of another process>"
        if self._closed:
            return f"<{name} {servers} closed>"
        group = ""
        if client.coordinator.membership is not None:
            group = (
                f" group {client.coordinator.membership.group_id!r} {client.coordinator.membership.member.state.value}"
            )
        return f"<{name} {servers}{group} reading {client.subscription.describe()}>"

    # ---- inside

    def _is_mine(self) -> bool:
        return self._pid == os.getpid()

    def _use(self) -> GuardedCall:
        """Return a guarded call; raise for a closed consumer, a forked child, or a call by a deserializer."""
        self._check_open()
        if self._deserializing:
            raise ConcurrentUse(
                "the consumer was called by a deserializer or by on_deserialization_error, which run inside a poll() "
                "whose records are not returned yet"
            )
        return GuardedCall(self._guard)

    def _check_open(self) -> None:
        """Raise `ClosedError` after `close()`, `ForkError` in a forked child. Not for `health`, `metrics`, `wakeup`."""
        self._check_process()
        if self._closed:
            raise ClosedError("the consumer is closed: create a new one to read more")

    def _check_process(self) -> None:
        if not self._is_mine():
            raise ForkError(f"this consumer belongs to process {self._pid}: after fork(), create a new one")

    def _settle(self) -> None:
        """Give back the records that a `for` loop has not read or an interrupted poll has not returned.

        Each call does this first, so that positions are the user's.
        """
        if self._client.undelivered:
            self._client.take_back()
            self._chunk = None
        elif self._chunk is not None:
            self._chunk.settle()
            self._chunk = None

    def _stopped(self, work: PolledSlices, partition: TopicPartition) -> bool:
        """Stop at a record that may not be skipped; return True if the poll has to raise, having nothing to return.

        Then everything is given back, and the partition moves after the others, so that it does not block them.
        """
        first = not work.done
        if first:
            work.stop_all()
            self._client.give_back(work.unread, last=partition)
            self._client.undelivered = False
        else:
            work.stop()
        return first

    def _returnable(self, work: PolledSlices) -> list[BatchSlice]:
        """Return the slices to hand out, after giving back unread ones and counting skipped records."""
        if work.unread:
            self._client.give_back(work.unread)
        if not work.done:
            self._client.undelivered = False
        for partition, errors in work.skipped.items():
            self._note_skipped(partition, errors)
        return work.done

    def _note_skipped(self, partition: TopicPartition, errors: Sequence[DeserializationError]) -> None:
        """Count skipped records, and log them unless a user's function decided."""
        self._client.metrics.skipped += len(errors)
        if self._deserializers.on_error == "skip":
            text = "%s: skipped %d records that cannot be deserialized, the first: %s"
            log.warning(text, partition, len(errors), errors[0].message)

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._config.group_id is None:
            raise ConfigError("offsets are committed under a group: give the consumer a group_id")
        if offsets is None:
            return self._client.positions()
        return self._client.with_epochs(as_offsets(offsets))

    def _check_remote_pattern(self, pattern: SubscriptionPattern) -> None:
        if self._config.group_id is None or self._config.group_protocol != "consumer":
            raise ConfigError(
                f"{pattern!r} is matched by the broker, which needs a group_id and group_protocol='consumer'; "
                f"re.compile({pattern.pattern!r}) is matched in this client"
            )

    def _check_callback(self) -> None:
        if self._in_callback:
            raise ConcurrentUse("poll() was called by a rebalance callback, which runs inside a poll()")

    def _patience(self, timeout: float | None) -> float:
        return self._client.api_timeout if timeout is None else as_seconds(timeout)

    def _wanted(self, partitions: Partitions | None) -> list[TopicPartition]:
        return list(self._client.subscription.assignment()) if partitions is None else as_partitions(partitions)

    def _check_reached(self, timeout: float) -> None:
        """Raise if no broker was ever reached and the poll had a timeout to wait for one."""
        error = self._client.unreachable() if timeout > 0 else None
        if error is not None:
            raise error

    def _limit(self, max_records: int | None) -> int:
        return self._config.max_poll_records if max_records is None else as_limit(max_records)
