"""Commit offsets to the group's coordinator, in the order of the calls, and fetch committed ones."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from pyclient.cluster.metadata import ClusterMetadata
from pyclient.cluster.retry import RetryPolicy
from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.member import COORDINATOR_GONE
from pyclient.consumer.metrics import GroupMetrics
from pyclient.consumer.subscription import split_by_topic
from pyclient.errors import (
    ClosedError,
    CommitFailed,
    ConfigError,
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    KafkaTimeout,
    MalformedMessage,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    from_code,
)
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from pyclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object]
"""`callback(offsets, error)`; the error is None if they were committed."""

TopicIds = Mapping[str, uuid.UUID]

log = logging.getLogger("pyclient.consumer")

_COMMIT_BY_ID: Final = 10  # the first version of OffsetCommit with topic ids
_FETCH_BY_GROUP: Final = 8  # the first version of OffsetFetch with several groups
_FETCH_STABLE: Final = 7  # the first version of OffsetFetch with require_stable
_NAMED_PARTITIONS: Final = 5
_NO_MEMBER: Final = (-1, "")
_MEMBER_GONE: Final = (UnknownMemberId, IllegalGeneration, FencedMemberEpoch, FencedInstanceId)
"""Errors after which the membership is over."""
_GENERATION_ERRORS: Final = (IllegalGeneration, RebalanceInProgress)
_MEMBERSHIP_ERRORS: Final = (*_MEMBER_GONE, RebalanceInProgress, StaleMemberEpoch)


@dataclass(eq=False, slots=True)
class _AsyncCommit:
    """A `commit_async` without an outcome."""

    offsets: Offsets
    callback: CommitCallback | None
    task: asyncio.Task[None] | None = None


class CommitRequestManager:
    """Runs the polling thread's commits on the loop and returns their callbacks to the polling thread.

    Commits run in the order of their calls. Those without a waiter are queued until the loop starts them, or until a
    commit that waits, or a close, on the loop starts them first. Each commit is a task; tasks acquire the committer's
    lock in the order they were created.

    `call(function, *arguments)` schedules a function on the loop.
    """

    def __init__(self, context: ConsumerContext, committer: Committer, call: Callable[..., None]) -> None:
        config, clock = context.config, context.clock
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


class CommittingMember(Protocol):
    """The group's member, as far as commits need it."""

    def commit_identity(self, partitions: Iterable[TopicPartition]) -> tuple[int, str]:
        """Return the generation and member id to commit with; raise `CommitFailed` if the partitions are not owned."""

    def has_left(self, generation: int) -> bool:
        """Return True if the member keeps its partitions in another generation than this one."""

    def lost_coordinator(self) -> None:
        """Look the coordinator up again: it has moved."""

    def recheck(self) -> None:
        """Send a heartbeat soon: a commit was refused because of the membership."""


class Committer:
    """OffsetCommit and OffsetFetch, retried when the coordinator moves.

    Commits run one after the other, in the order of their calls, so that a retried one never overwrites a later one.
    Everything runs on the event loop.
    """

    def __init__(self, context: ConsumerContext, member: CommittingMember | None, metrics: GroupMetrics) -> None:
        self.last_error: KafkaError | None = None
        self._cluster = context.cluster
        self._config = context.config
        self._subscription = context.subscription
        self._clock = context.clock
        self._member = member
        self._metrics = metrics
        self._policy = RetryPolicy(context.backoff, context.rng, before_retry=self._before_retry)
        self._lock = asyncio.Lock()

    async def commit(self, offsets: Offsets, timeout: float) -> None:
        """Commit, and return when the coordinator has stored the offsets.

        Raise `CommitFailed` if the member no longer owns the partitions, `KafkaTimeout` after `timeout` seconds, or
        another error of the coordinator.
        """
        group = self._require_group()
        if not offsets:
            return
        topic_ids, what = self._topic_ids(offsets), f"committing offsets of group {group!r}"

        async def attempt() -> None:
            await self._commit_once(group, offsets, topic_ids)

        started, failed = self._clock.monotonic(), True
        try:
            left = await self._acquire_lock(timeout, what)
            try:
                started = self._clock.monotonic()  # the time spent waiting for earlier commits is not counted
                await self._retry(attempt, left, what)
                failed, self.last_error = False, None
            finally:
                self._lock.release()
        finally:
            self._metrics.commit(self._clock.monotonic() - started, failed=failed)

    async def _acquire_lock(self, timeout: float, what: str) -> float:
        """Wait for earlier commits; return the rest of `timeout` (seconds)."""
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(timeout):
                await self._lock.acquire()
        except TimeoutError:
            text = f"{what}: not done within {round(timeout, 2):g} s, because an earlier commit has no response yet"
            failures = self._cluster.describe_failures()
            self.last_error = KafkaTimeout(f"{text}: {failures}" if failures else text)
            raise self.last_error from None
        return max(0.0, timeout - (self._clock.monotonic() - started))

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return each partition's committed offset, None where there is none; wait for pending transactions."""
        group = self._require_group()
        if not partitions:
            return {}

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            return await self._fetch_once(group, partitions)

        return await self._retry(attempt, timeout, f"reading committed offsets of group {group!r}")

    async def _retry(self, attempt: Callable[[], Awaitable[T]], timeout: float, what: str) -> T:
        try:
            return await self._policy.call(attempt, timeout=timeout, what=what, details=self._cluster.describe_failures)
        except KafkaError as error:
            self.last_error = error
            raise

    def _require_group(self) -> str:
        if self._config.group_id is None:
            raise ConfigError("committed offsets belong to a group: give the consumer a group_id")
        return self._config.group_id

    def _before_retry(self, error: BaseException) -> None:
        if isinstance(error, COORDINATOR_GONE) and self._member is not None:
            self._member.lost_coordinator()

    # ---- OffsetCommit

    async def _commit_once(self, group: str, offsets: Offsets, topic_ids: TopicIds) -> None:
        generation, member_id = self._member.commit_identity(offsets) if self._member is not None else _NO_MEMBER
        node = await self._cluster.find_coordinator(group, timeout=self._config.default_api_timeout_ms / 1000)
        connection = await self._cluster.connection(node)
        version = connection.version_for(OffsetCommitRequest, _COMMIT_BY_ID if topic_ids else None)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=self._config.group_instance_id if member_id else None,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_ids.get(topic, ZERO_UUID),
                    partitions=[_entry(number, offsets[TopicPartition(topic, number)]) for number in numbers],
                )
                for topic, numbers in split_by_topic(offsets).items()
            ],
        )
        response = await connection.request(request, version=version)
        names = {topic_id: topic for topic, topic_id in topic_ids.items()} if version >= _COMMIT_BY_ID else {}
        codes = {
            TopicPartition(names.get(topic.topic_id, topic.name), entry.partition_index): entry.error_code
            for topic in response.topics
            for entry in topic.partitions
        }
        if codes.keys() != offsets.keys():
            raise MalformedMessage("OffsetCommit response partitions do not match the request")
        refused = {partition: code for partition, code in codes.items() if code}
        if refused:
            error = self._commit_error(refused, generation, member_id)
            if isinstance(error.__cause__ or error, _GENERATION_ERRORS) and self._has_left(generation):
                raise StaleMemberEpoch(str(error)) from error  # the next attempt is made in the next generation
            if isinstance(error.__cause__ or error, _MEMBERSHIP_ERRORS) and self._member is not None:
                self._member.recheck()
            if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)):
                await self._check_existence(refused, topic_ids, error)
            raise error

    def _has_left(self, generation: int) -> bool:
        return self._member is not None and self._member.has_left(generation)

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> TopicIds:
        """Return the id of every topic, as of its positions; empty if one is not known.

        Only the id distinguishes a topic from one that was recreated under its name, where these offsets mean nothing.
        """
        found = {}
        for partition in partitions:
            info = self._cluster.metadata.topics.get(partition.topic)
            state = self._subscription.find(partition)
            read = state.topic_id if state is not None and state.topic_id != ZERO_UUID else None
            found[partition.topic] = read or (info.topic_id if info is not None else ZERO_UUID)
        return {} if ZERO_UUID in found.values() else found

    async def _check_existence(self, refused: Iterable[TopicPartition], topic_ids: TopicIds, error: KafkaError) -> None:
        """Raise `CommitFailed` if newer metadata does not have the topic either: retries cannot help."""
        requested_at = self._cluster.metadata.fetched_at
        timeout = self._config.request_timeout_ms / 1000
        metadata = await self._cluster.wait_metadata(lambda metadata: metadata.fetched_at > requested_at, timeout)
        deleted = sorted({topic for topic, _ in refused if _is_deleted(metadata, topic, topic_ids)})
        if deleted:
            raise CommitFailed(f"{error}: topic {', '.join(deleted)} does not exist, or was recreated since") from error

    def _commit_error(self, codes: Mapping[TopicPartition, int], generation: int, member_id: str) -> KafkaError:
        """Return one error for all partitions: one that cannot be retried, if there is any."""
        epoch_name = "member epoch" if self._config.group_protocol == "consumer" else "generation"
        place = f"group {self._config.group_id!r}, {member_id or 'no member'}, {epoch_name} {generation}"
        found = [
            from_code(code, f"{place}: {partition} was not committed", "OffsetCommit")
            for partition, code in codes.items()
        ]
        error = next((error for error in found if not error.retriable), found[0])
        if isinstance(error, _MEMBER_GONE):
            failed = CommitFailed(
                f"{error}, because the group removed this member and assigned its partitions to others "
                f"({type(error).__name__}). Call poll() to join again; poll more often if this happens often"
            )
            failed.__cause__ = error
            return failed
        if isinstance(error, RebalanceInProgress):
            return RebalanceInProgress(
                f"{error}: the group is rebalancing. Call poll() to take part, then commit again"
            )
        if isinstance(error, UnsupportedVersion):
            return UnsupportedVersion(
                f"{error}: this broker is too old to commit for a group in the consumer protocol (KIP-848)"
            )
        return error

    # ---- OffsetFetch

    def _fetch_identity(self) -> tuple[int, str]:
        """Return the epoch and member id for OffsetFetch; a member of the consumer protocol can be fenced by them."""
        if self._member is None or self._config.group_protocol != "consumer":
            return _NO_MEMBER
        try:
            return self._member.commit_identity(())
        except CommitFailed:
            return _NO_MEMBER

    async def _fetch_once(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        node = await self._cluster.find_coordinator(group, timeout=self._config.default_api_timeout_ms / 1000)
        connection = await self._cluster.connection(node)
        version = connection.version_for(OffsetFetchRequest)
        epoch, member_id = self._fetch_identity()
        request = _offset_fetch_request(group, partitions, version, epoch, member_id)
        response = await connection.request(request, version=version)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition, entry in _fetched_offsets(group, response, version):
            if entry.error_code:
                text = f"group {group!r}: the committed offset of {partition}"
                raise from_code(entry.error_code, text, request.name)
            offset = OffsetAndMetadata(
                entry.committed_offset,
                entry.metadata or "",
                entry.committed_leader_epoch,
            )
            found[partition] = offset if entry.committed_offset >= 0 else None
        if found.keys() != set(partitions):
            raise MalformedMessage("OffsetFetch response partitions do not match the request")
        return {partition: found[partition] for partition in partitions}


def _is_deleted(metadata: ClusterMetadata, topic: str, topic_ids: TopicIds) -> bool:
    info = metadata.topics.get(topic)
    if info is None:
        return False
    if not info.partitions:
        return info.error_code == UnknownTopicOrPartition.code
    return info.topic_id != topic_ids.get(topic, info.topic_id)


def _entry(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _offset_fetch_request(
    group: str, partitions: Sequence[TopicPartition], version: int, epoch: int, member_id: str
) -> OffsetFetchRequest:
    """Return the request in this version; members of the consumer protocol send their id and epoch (KIP-848)."""
    by_topic = split_by_topic(partitions).items()
    if version >= _FETCH_BY_GROUP:
        topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=numbers) for topic, numbers in by_topic]
        request_group = OffsetFetchRequestGroup(
            group_id=group, member_id=member_id or None, member_epoch=epoch, topics=topics
        )
        return OffsetFetchRequest(groups=[request_group], require_stable=True)
    return OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=numbers) for topic, numbers in by_topic],
        require_stable=version >= _FETCH_STABLE,
    )


def _fetched_offsets(
    group: str, response: OffsetFetchResponse, version: int
) -> Iterable[tuple[TopicPartition, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]:
    """Yield the partitions of a response; raise the error of the whole group."""
    if version < _FETCH_BY_GROUP:
        _check_group(response.error_code, group)
        for topic in response.topics:
            for old in topic.partitions:
                yield TopicPartition(topic.name, old.partition_index), old
        return
    for answer in response.groups:
        if answer.group_id == group:
            _check_group(answer.error_code, group)
            for topic_result in answer.topics:
                for new in topic_result.partitions:
                    yield TopicPartition(topic_result.name, new.partition_index), new


def _check_group(error_code: int, group: str) -> None:
    if error_code:
        error = from_code(error_code, f"reading committed offsets of group {group!r}", "OffsetFetch")
        # retriable: a member that was removed learns it from its heartbeat, and the retry has its new identity
        raise StaleMemberEpoch(str(error)) if isinstance(error, _MEMBER_GONE) else error
