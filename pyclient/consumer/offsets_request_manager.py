"""Find offsets in logs, and positions for partitions: committed, by a reset policy, validated (KIP-320)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from pyclient.cluster.metadata import ClusterMetadata
from pyclient.consumer.config import LATEST, reset_timestamp
from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.subscription import AssignedPartition, Phase, split_by_topic
from pyclient.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaTimeout,
    LeaderNotAvailable,
    LogTruncation,
    MalformedMessage,
    NoOffsetForPartition,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
    from_code,
)
from pyclient.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pyclient.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from pyclient.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

log = logging.getLogger(__name__)

Found = OffsetAndTimestamp | KafkaError
"""An offset (-1: there is none), or the error of the search."""

_CONSUMER: Final = -1
_NO_LEADER: Final = -1
_NAMED_PARTITIONS: Final = 5


@dataclass(slots=True)
class _Search:
    """The state of a search: partitions `left` and `done`, requests in flight by leader, and the last error."""

    left: dict[TopicPartition, int]
    done: dict[TopicPartition, OffsetAndTimestamp] = field(default_factory=dict)
    asking: dict[int, Mapping[TopicPartition, int]] = field(default_factory=dict)
    last: KafkaError | None = None

    def take(self, found: Mapping[TopicPartition, Found]) -> None:
        """Add the results of a round; raise an error that cannot be retried."""
        for partition, result in found.items():
            if isinstance(result, OffsetAndTimestamp):
                self.done[partition] = result
                del self.left[partition]
            elif result.retriable:
                self.last = result
            else:
                raise result


class OffsetFinder:
    """ListOffsets, once or with retries."""

    def __init__(self, context: ConsumerContext) -> None:
        self._cluster = context.cluster
        self._config = context.config
        self._clock = context.clock
        self._rng = context.rng
        self._backoff = context.backoff

    async def once(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Found]:
        """Return each partition's result of one round, by timestamp (epoch ms, -1 latest, -2 earliest)."""
        return await self._round(wanted, {})

    async def all(
        self, wanted: Mapping[TopicPartition, int], timeout: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return every offset, retrying for `timeout` seconds; raise a permanent error, or `KafkaTimeout`.

        The latter names the missing partitions, the nodes that have not responded, and the last error.
        """
        search, deadline = _Search(dict(wanted)), self._clock.monotonic() + timeout
        await self._wait_for_topics(wanted, deadline)
        try:
            async with asyncio.timeout(deadline - self._clock.monotonic()) as limit:
                await self._search(search)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._not_found(search, timeout) from search.last
        return {partition: search.done[partition] for partition in wanted}

    async def _search(self, search: _Search) -> None:
        attempt = 0
        while search.left:
            search.take(await self._round(search.left, search.asking))
            if search.left:
                await asyncio.sleep(self._backoff.delay(attempt, self._rng))
                attempt += 1

    async def _round(
        self, wanted: Mapping[TopicPartition, int], asking: dict[int, Mapping[TopicPartition, int]]
    ) -> dict[TopicPartition, Found]:
        """Send a request to every leader; `asking` holds those in flight."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        found: dict[TopicPartition, Found] = {}
        for partition, timestamp in wanted.items():
            leader = self._cluster.metadata.leader(*partition)
            if leader < 0:
                found[partition] = LeaderNotAvailable(f"{partition} has no known leader")
            else:
                by_leader.setdefault(leader, {})[partition] = timestamp
        answers = await asyncio.gather(*(self._ask(leader, mine, asking) for leader, mine in by_leader.items()))
        for answer in answers:
            found.update(answer)
        if any(isinstance(result, KafkaError) and result.retriable for result in found.values()):
            self._cluster.request_refresh()
        return found

    async def _wait_for_topics(self, partitions: Iterable[TopicPartition], deadline: float) -> None:
        """Wait for the topics' metadata; raise `UnknownTopicOrPartition` for a partition number that does not exist."""
        for topic, numbers in split_by_topic(partitions).items():
            left = max(0.0, deadline - self._clock.monotonic())
            count = len((await self._cluster.topic_partitions(topic, left)).partitions)
            for number in numbers:
                if not 0 <= number < count:
                    raise UnknownTopicOrPartition(f"topic {topic!r} has {count} partitions and no number {number}")

    def _not_found(self, search: _Search, timeout: float) -> KafkaTimeout:
        reasons = [
            f"{self._cluster.name_of(leader)} has not responded to ListOffsets for {_names(mine)}"
            for leader, mine in search.asking.items()
        ]
        failures, last = self._cluster.describe_failures(), str(search.last or "")
        reasons += [failures] if last in failures else [f"last failure: {last}", failures]
        why = "; ".join(filter(None, reasons))
        return KafkaTimeout(f"offsets of {_names(search.left)}: not found within {timeout:g} s: {why}")

    async def _ask(
        self,
        leader: int,
        wanted: Mapping[TopicPartition, int],
        asking: dict[int, Mapping[TopicPartition, int]],
    ) -> Mapping[TopicPartition, Found]:
        asking[leader] = wanted
        try:
            response = await self._cluster.request(self._request(wanted), node_id=leader)
            found: Mapping[TopicPartition, Found] = _read(leader, wanted, response)
        except KafkaError as error:
            found = dict.fromkeys(wanted, error)
        del asking[leader]
        return found

    def _request(self, wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    self._entry(TopicPartition(topic, number), wanted[TopicPartition(topic, number)])
                    for number in numbers
                ],
            )
            for topic, numbers in split_by_topic(wanted).items()
        ]
        return ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=int(self._config.read_committed),
            topics=topics,
            timeout_ms=self._config.request_timeout_ms,
        )

    def _entry(self, partition: TopicPartition, timestamp: int) -> ListOffsetsPartition:
        known = self._cluster.metadata.partition(*partition)
        epoch = known.leader_epoch if known is not None else -1
        return ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=epoch, timestamp=timestamp
        )


def _read(
    leader: int, wanted: Mapping[TopicPartition, int], response: ListOffsetsResponse
) -> dict[TopicPartition, Found]:
    found: dict[TopicPartition, Found] = {}
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                found[partition] = from_code(answer.error_code, f"finding an offset of {partition}", "ListOffsets")
            else:
                found[partition] = OffsetAndTimestamp(answer.offset, answer.timestamp, answer.leader_epoch)
    if found.keys() != wanted.keys():
        differing = ", ".join(map(str, sorted(found.keys() ^ wanted.keys())[:5]))
        raise MalformedMessage(f"node {leader}: ListOffsets response partitions do not match the request: {differing}")
    return found


def _names(partitions: Iterable[TopicPartition]) -> str:
    names = [str(partition) for partition in partitions]
    more = f" and {len(names) - _NAMED_PARTITIONS} more" if len(names) > _NAMED_PARTITIONS else ""
    return ", ".join(names[:_NAMED_PARTITIONS]) + more


Asked = Mapping[TopicPartition, tuple[AssignedPartition, int]]
"""Partitions with their state and its version at the time of the request."""
Committed = Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]]]


class OffsetsRequestManager:
    """Moves partitions through their phases to FETCH. Transient errors are retried and never reset a position.

    `look_up_committed` returns committed offsets (None where there is none). `on_change(errors)` is called when
    positions were found, or errors are to be raised.
    """

    def __init__(
        self,
        context: ConsumerContext,
        finder: OffsetFinder,
        *,
        look_up_committed: Committed,
        on_change: Callable[[list[KafkaError]], None],
    ) -> None:
        self.last_error: KafkaError | None = None
        self._cluster = context.cluster
        self._subscription = context.subscription
        self._lock = context.lock
        self._config = context.config
        self._finder = finder
        self._clock = context.clock
        self._look_up_committed = look_up_committed
        self._on_change = on_change
        self._backoff = context.backoff.initial
        self._event = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start; on the event loop."""
        self._loop_task = self._spawn(self._run())

    def wake(self) -> None:
        """Check for partitions without positions again; on the event loop only."""
        self._event.set()

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self) -> None:
        work: tuple[tuple[Phase, Callable[[Asked], Coroutine[Any, Any, None]]], ...] = (
            (Phase.COMMITTED, self._find_committed),
            (Phase.RESET, self._reset),
            (Phase.OUTDATED, self._await_metadata),
            (Phase.REFUSED, self._confirm_leader),
            (Phase.VALIDATE, self._validate),
        )
        while True:
            self._event.clear()
            now = self._clock.monotonic()
            for phase, find in work:
                for asked in self._claim(phase, now):
                    self._spawn(self._attempt(find, asked))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause(now)):
                    await self._event.wait()

    def _claim(self, phase: Phase, now: float) -> list[Asked]:
        """Return the partitions to request now, by destination, so that a slow leader does not delay others.

        A partition is not requested again before there is a response. One without a leader waits for new metadata.
        """
        by_leader: dict[int, dict[TopicPartition, tuple[AssignedPartition, int]]] = {}
        with self._lock:
            for state in self._subscription.waiting_for(phase, now):
                leader = _NO_LEADER
                if phase in (Phase.RESET, Phase.VALIDATE, Phase.REFUSED):
                    leader = self._cluster.metadata.leader(*state.topic_partition)
                    if leader < 0:
                        continue
                state.retry_at = inf
                by_leader.setdefault(leader, {})[state.topic_partition] = (state, state.version)
        return list(by_leader.values())

    def _pause(self, now: float) -> float | None:
        with self._lock:
            due = min(
                (
                    state.retry_at
                    for state in self._subscription
                    if state.phase is not Phase.FETCH and state.error is None and state.retry_at > now
                ),
                default=inf,
            )
        return None if due == inf else due - now

    async def _attempt(self, find: Callable[[Asked], Coroutine[Any, Any, None]], asked: Asked) -> None:
        errors: list[KafkaError] = []
        try:
            await find(asked)
        except KafkaError as error:
            self.last_error = error
            log.info("finding positions of %s: %s", ", ".join(map(str, asked)), error)
            if not error.retriable:
                errors.append(error)
        except Exception:  # a bug must not end the loop that finds positions
            log.exception("finding positions failed unexpectedly")
        finally:
            self._release(asked)
        self._on_change(errors)
        self.wake()

    def _release(self, asked: Asked) -> None:
        """Retry partitions without a result after a pause."""
        later = self._clock.monotonic() + self._backoff
        with self._lock:
            for state, version in asked.values():
                if self._subscription.holds(state, version) and state.retry_at == inf:
                    state.retry_at = later

    # ---- committed offsets

    async def _find_committed(self, asked: Asked) -> None:
        committed = await self._look_up_committed(list(asked))
        with self._lock:
            for partition, (state, version) in asked.items():
                if not self._subscription.holds(state, version):
                    continue
                offset = committed.get(partition)
                if offset is not None:
                    state.start_at(offset.offset, offset.leader_epoch)
                elif self._config.auto_offset_reset == "none":
                    state.stop(self._no_offset(partition))
                else:
                    state.reset(None)

    def _no_offset(self, partition: TopicPartition) -> NoOffsetForPartition:
        group = self._config.group_id
        why = "there is no group" if group is None else f"group {group!r} has committed no offset"
        return NoOffsetForPartition(
            f"{partition}: {why}, and auto_offset_reset is 'none': seek to the offset to start at, or set a policy"
        )

    # ---- reset policies

    async def _reset(self, asked: Asked) -> None:
        wanted: dict[TopicPartition, int] = {}
        for partition, (state, version) in asked.items():
            timestamp = state.reset_to
            if timestamp is None:
                timestamp = reset_timestamp(self._config.auto_offset_reset, self._clock.time_ms())
            if timestamp is None:
                self._stop(state, version, self._no_offset(partition))
            else:
                wanted[partition] = timestamp
        refused: list[KafkaError] = []
        for partition, found in (await self._finder.once(wanted)).items():
            state, version = asked[partition]
            if isinstance(found, KafkaError):
                refused.append(found)
                continue
            with self._lock:
                if not self._subscription.holds(state, version):
                    continue
                if found.offset >= 0:
                    log.debug("%s starts at offset %d", partition, found.offset)
                    state.start_at(found.offset, found.leader_epoch)
                else:
                    state.reset(LATEST)  # no record is as recent as the policy requires
        if refused:
            raise next((error for error in refused if not error.retriable), refused[0])

    def _stop(self, state: AssignedPartition, version: int, error: KafkaError) -> None:
        with self._lock:
            if self._subscription.holds(state, version):
                state.stop(error)

    # ---- outdated metadata

    async def _await_metadata(self, asked: Asked) -> None:
        """Wait until the metadata have the leader epochs of the positions.

        The leader in older ones may have been replaced without knowing it, and refuse the position as out of range.
        The first response after `default_api_timeout_ms` ends the wait, so that an epoch which this log never had
        (committed for another cluster, or damaged) does not stop the partition for good, as it does in Kafka's client.
        """
        timeout = self._config.default_api_timeout_ms / 1000
        deadline = self._clock.monotonic() + timeout

        def is_over(_metadata: ClusterMetadata) -> bool:
            with self._lock:
                return self._clock.monotonic() >= deadline or not self._still(Phase.OUTDATED, asked)

        def request() -> None:
            with self._lock:
                topics = {state.topic_partition.topic for state in self._still(Phase.OUTDATED, asked)}
            for topic in topics:
                self._cluster.request_topic(topic)

        log.info("%s: the position has a newer leader epoch than the metadata", ", ".join(map(str, asked)))
        await self._cluster.wait_metadata(is_over, 2 * timeout, request)
        with self._lock:
            for state in self._still(Phase.OUTDATED, asked):
                log.warning(
                    "%s: no broker knows leader epoch %d of offset %d after %g s, only %d: reading without it",
                    state.topic_partition,
                    state.position_epoch,
                    state.position,
                    timeout,
                    state.leader_epoch,
                )
                state.forget_epoch()

    async def _confirm_leader(self, asked: Asked) -> None:
        """Apply the policy to positions that the leader refuses, unless another broker names a newer leader.

        These positions have no leader epoch: nothing else shows that the leader was replaced without knowing it, and
        that its log ends before the position. Kafka's client resets at once. If no other broker answers within
        `default_api_timeout_ms`, the policy is applied, too.
        """
        timeout = self._config.default_api_timeout_ms / 1000
        deadline = self._clock.monotonic() + timeout
        leader = self._cluster.metadata.leader(*next(iter(asked)))
        names = ", ".join(map(str, asked))
        log.info("%s: node %d refuses the position: asking another broker for the leader", names, leader)
        while True:
            with self._lock:
                topics = {state.topic_partition.topic for state in self._still(Phase.REFUSED, asked)}
            try:
                await self._cluster.refresh_elsewhere(topics, leader)
                break
            except KafkaError as error:
                if self._clock.monotonic() >= deadline:
                    text = "%s: node %d refuses the position, and no other broker confirms in %g s that it leads: %s"
                    log.warning(text, names, leader, timeout, error)
                    break
                self.last_error = error
            await asyncio.sleep(self._backoff)
        with self._lock:
            for state in self._still(Phase.REFUSED, asked):
                if self._cluster.metadata.leader(*state.topic_partition) == leader:
                    state.confirm_refusal(resets=self._config.auto_offset_reset != "none")
                else:
                    state.validated()

    def _still(self, phase: Phase, asked: Asked) -> list[AssignedPartition]:
        """Return the partitions that are in this phase since they were asked for."""
        return [
            state
            for state, version in asked.values()
            if self._subscription.holds(state, version) and state.phase is phase
        ]

    # ---- truncation

    async def _validate(self, asked: Asked) -> None:
        leader = self._cluster.metadata.leader(*next(iter(asked)))
        topics = [
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[self._epoch_request(asked[TopicPartition(topic, number)][0], number) for number in numbers],
            )
            for topic, numbers in split_by_topic(asked).items()
        ]
        response: OffsetForLeaderEpochResponse | None = None
        try:
            response = await self._cluster.request(
                OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=topics), node_id=leader
            )
        except UnsupportedVersion as error:  # a broker without this API cannot validate
            log.info("node %d cannot validate positions: %s", leader, error)
        answers = {} if response is None else _by_partition(response)
        missing = response is not None and asked.keys() - answers.keys()
        with self._lock:
            for partition, (state, version) in asked.items():
                if not self._subscription.holds(state, version) or state.phase is not Phase.VALIDATE:
                    continue
                if response is None:
                    state.validated()
                elif partition in answers:
                    self._check_truncation(state, answers[partition])
        if missing:
            names = ", ".join(map(str, sorted(missing)[:5]))
            raise MalformedMessage(f"node {leader}: the OffsetForLeaderEpoch response lacks {names}")

    def _epoch_request(self, state: AssignedPartition, number: int) -> OffsetForLeaderPartition:
        return OffsetForLeaderPartition(
            partition=number, current_leader_epoch=state.leader_epoch, leader_epoch=state.position_epoch
        )

    def _check_truncation(self, state: AssignedPartition, answer: EpochEndOffset) -> None:
        """Check that the new leader's log still holds what was read, by its end offset of that epoch."""
        partition = state.topic_partition
        if answer.error_code:
            error = from_code(answer.error_code, f"validating the position of {partition}", "OffsetForLeaderEpoch")
            self.last_error = error
            if error.retriable or isinstance(error, (FencedLeaderEpoch, UnknownServerError)):
                self._cluster.request_refresh()  # retried after the pause
            else:
                state.stop(error)
        elif answer.leader_epoch >= 0 and answer.end_offset >= state.position:
            state.validated()
        elif self._config.auto_offset_reset == "none":
            state.stop(
                LogTruncation(
                    f"{partition}: the log was truncated: epoch {state.position_epoch} ends at offset "
                    f"{answer.end_offset} and this consumer is at {state.position}. auto_offset_reset is 'none': seek"
                )
            )
        elif answer.leader_epoch < 0 or answer.end_offset < 0:
            log.warning(
                "%s: the log has no epoch %d any more: applying auto_offset_reset", partition, state.position_epoch
            )
            state.reset(None)
        else:
            log.warning("%s: the log was truncated to offset %d: continuing there", partition, answer.end_offset)
            state.start_at(answer.end_offset)
            state.position_epoch = answer.leader_epoch


def _by_partition(response: OffsetForLeaderEpochResponse) -> dict[TopicPartition, EpochEndOffset]:
    return {
        TopicPartition(topic.topic, answer.partition): answer
        for topic in response.topics
        for answer in topic.partitions
    }
