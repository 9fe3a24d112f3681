"""What both faces of a consumer have in common: everything that does not wait."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, overload

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import resolve
from pyclient.consumer.commit_desk import CommitCallback
from pyclient.consumer.config import EARLIEST, LATEST, ConsumerConfig
from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.iteration import Chunk
from pyclient.consumer.listener import RebalanceListener
from pyclient.consumer.records import Deserializer, Deserializers
from pyclient.consumer.subscription import Mode, SubscriptionPattern
from pyclient.consumer.typevars import K, V
from pyclient.errors import ClosedError, ConcurrentUse, ConfigError, ForkError, InvalidTopic
from pyclient.types import OffsetAndMetadata, TopicPartition

Partition = TopicPartition | tuple[str, int]
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)
_NOBODY: Final = object()


class Guard:
    """Lets one thread, or task, at a time use a consumer; from inside a callback the same one may use it again."""

    __slots__ = ("_depth", "_identify", "_lock", "_owner")

    def __init__(self, identify: Callable[[], object]) -> None:
        self._identify = identify
        self._lock = threading.Lock()
        self._owner: object = _NOBODY
        self._depth = 0

    def __enter__(self) -> None:
        me = self._identify()
        if self._owner != me:
            if not self._lock.acquire(blocking=False):
                raise ConcurrentUse(
                    f"the consumer is in use by {self._owner} and was called from {me}: a consumer serves one thread "
                    "or task at a time; only wakeup() may be called from another one"
                )
            self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = _NOBODY
            self._lock.release()


class ConsumerFace(Generic[K, V]):
    """Options, subscription, positions and state. Nothing here waits for a broker."""

    def __init__(
        self,
        topics: Sequence[str],
        given: Mapping[str, Any],
        config: Mapping[str, Any] | None,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        notify: Callable[[], None],
        identify: Callable[[], object],
    ) -> None:
        options = {name: value for name, value in given.items() if value is not None}
        self._config: ConsumerConfig = resolve(ConsumerConfig, options, config)
        self._deserializers = _deserializers(key_deserializer, value_deserializer)
        self._listener: RebalanceListener | None = None
        self._in_callback = False
        self._chunk: Chunk | None = None
        self._closed = False
        self._closing = False
        self._pid = os.getpid()
        self._guard = Guard(identify)
        self._core = ConsumerCore(self._config, clock=SYSTEM_CLOCK, notify=notify)
        if topics:
            self._core.subscribe(_topic_names(topics))

    # ---- what to read

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str] | SubscriptionPattern,
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics; with a `group_id` as a member of that group, which shares them out.

        A compiled pattern means every topic whose whole name it matches, also those created later; a
        `SubscriptionPattern` is matched by the broker, with `group_protocol="consumer"` only. Replaces the
        subscription before. `listener` is told when partitions come and go; see `RebalanceListener`. Without a
        `group_id` all partitions of the topics are this consumer's. Raises `ConfigError` after `assign()`.
        """
        with self._use():
            if isinstance(topics, SubscriptionPattern):
                self._check_remote_pattern(topics)
                self._core.subscribe(topics)
            elif isinstance(topics, re.Pattern):
                self._core.subscribe(topics)
            else:
                self._core.subscribe(_topic_names([topics] if isinstance(topics, str) else topics))
            self._listener = listener
            self._begin()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Reads exactly these partitions, in no group; with a `group_id` offsets can still be committed under it.

        Replaces the assignment before; partitions that stay keep their positions. Raises `ConfigError` after
        `subscribe()`.
        """
        with self._use():
            self._settle()
            wanted = [as_partition(partition) for partition in partitions]
            _topic_names(topic for topic, _ in wanted)
            if self._config.enable_auto_commit and self._core.subscription.mode is Mode.MANUAL:
                self._core.desk.commit(self._core.positions(), None)
            self._core.assign(wanted)
            self._begin()

    def assignment(self) -> set[TopicPartition]:
        """The partitions this consumer reads now."""
        self._check_process()
        return set(self._core.subscription.assignment())

    def subscription(self) -> set[str]:
        """The topics subscribed to; for a pattern those that match it so far."""
        self._check_process()
        return set(self._core.subscription.topics)

    # ---- where to read

    def seek(self, partition: Partition, offset: int, *, leader_epoch: int = -1) -> None:
        """The next poll goes on at `offset`, which need not exist: a wrong one is for `auto_offset_reset` to settle.

        Raises `NotAssigned` if the partition is not this consumer's.
        """
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError(f"an offset is a number from 0, not {offset!r}")
        with self._use():
            self._settle()
            with self._core.lock:
                self._core.subscription.require(as_partition(partition)).start_at(offset, leader_epoch)
            self._core.moved()

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """The next poll goes on at the first record there is; without arguments in every assigned partition."""
        self._seek_to_end_of_log(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """The next poll goes on behind the last record there is; without arguments in every assigned partition."""
        self._seek_to_end_of_log(partitions, LATEST)

    def _seek_to_end_of_log(self, partitions: Sequence[Partition], timestamp: int) -> None:
        with self._use():
            self._settle()
            with self._core.lock:
                subscription = self._core.subscription
                wanted = [as_partition(partition) for partition in partitions] or subscription.assignment()
                for state in [subscription.require(partition) for partition in wanted]:
                    state.reset(timestamp)
            self._core.moved()

    def pause(self, *partitions: Partition) -> None:
        """Polls return nothing of these until `resume`; the consumer stays in its group and keeps what is fetched."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: Partition) -> None:
        """Polls return records of these again; without arguments of every assigned partition."""
        self._set_paused(partitions or tuple(self._core.subscription.assignment()), paused=False)

    def _set_paused(self, partitions: Sequence[Partition], *, paused: bool) -> None:
        with self._use():
            self._settle()
            wanted = [as_partition(partition) for partition in partitions]
            with self._core.lock:
                subscription = self._core.subscription
                (subscription.pause if paused else subscription.resume)(wanted)
            self._core.moved()

    def paused(self) -> set[TopicPartition]:
        """The partitions that `pause` stopped."""
        self._check_process()
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

    def _use(self) -> Guard:
        """The guard, for an open consumer in the process that made it."""
        if self._closed:
            raise ClosedError("the consumer is closed: make a new one to read more")
        self._check_process()
        return self._guard

    def _check_process(self) -> None:
        if not self._is_mine():
            raise ForkError(f"this consumer belongs to process {self._pid}: after fork() make one of your own")

    def _settle(self) -> None:
        """Gives back what a `for` loop has not read yet, so that positions say where the user stands."""
        chunk, self._chunk = self._chunk, None
        if chunk is not None:
            chunk.settle()

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._config.group_id is None:
            raise ConfigError("offsets are committed under a group: give the consumer a group_id")
        if offsets is None:
            return self._core.positions()
        if not isinstance(offsets, Mapping):
            raise TypeError(f"offsets to commit are a mapping, partition to offset, not {offsets!r}")
        return {as_partition(partition): as_offset(offset) for partition, offset in offsets.items()}

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
        return self._core.api_timeout if timeout is None else timeout

    def _wanted(self, partitions: Iterable[Partition] | None) -> list[TopicPartition]:
        if partitions is None:
            return list(self._core.subscription.assignment())
        return [as_partition(partition) for partition in partitions]

    def _check_reached(self, timeout: float) -> None:
        """A poll that waited in vain for a cluster that never answered says so."""
        error = self._core.unreachable() if timeout > 0 else None
        if error is not None:
            raise error

    def _limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self._config.max_poll_records
        if max_records < 1:
            raise ValueError(f"max_records={max_records!r} is not possible: it must be at least 1")
        return max_records


def as_partition(partition: Partition) -> TopicPartition:
    """A `TopicPartition` of one, or of a (topic, number) pair; `ValueError` for anything else."""
    if isinstance(partition, tuple) and len(partition) == 2:
        topic, number = partition
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return TopicPartition(topic, number)
    raise ValueError(f"{partition!r} is no partition: give TopicPartition(topic, number)")


def as_offset(offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """What to commit; `ValueError` for what cannot be an offset."""
    made = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    if isinstance(made.offset, bool) or not isinstance(made.offset, int) or made.offset < 0:
        raise ValueError(f"an offset to commit is a number from 0, not {offset!r}")
    return made


def _topic_names(topics: Iterable[str]) -> list[str]:
    names = list(topics)
    for name in names:
        if not isinstance(name, str) or name in (".", "..") or not _TOPIC_NAME.fullmatch(name):
            raise InvalidTopic(
                f"{name!r} cannot be a topic's name: it takes 1 to 249 letters, digits, '.', '_' and '-', and is "
                "neither '.' nor '..'. To subscribe to a pattern, give a compiled one: re.compile(...)"
            )
    return names


def _deserializers(key: Deserializer | None, value: Deserializer | None) -> Deserializers:
    key, value = (getattr(given, "deserialize", given) for given in (key, value))
    for name, function in (("key_deserializer", key), ("value_deserializer", value)):
        if function is not None and not callable(function):
            raise ConfigError(
                f"{name}={function!r} is not possible: it takes a callable from bytes, for example "
                "pyclient.serialization.json.deserialize"
            )
    return Deserializers(key, value)
