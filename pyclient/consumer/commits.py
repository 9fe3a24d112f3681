"""Commit offsets to the group's coordinator, and fetch committed ones."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import ClusterMetadata
from pyclient.cluster.retry import RetryPolicy
from pyclient.consumer.committed import MEMBER_GONE, answers, question
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.group import COORDINATOR_GONE
from pyclient.consumer.group_metrics import GroupMetrics
from pyclient.consumer.subscription import split_by_topic
from pyclient.errors import (
    CommitFailed,
    ConfigError,
    IllegalGeneration,
    KafkaError,
    KafkaTimeout,
    MalformedMessage,
    RebalanceInProgress,
    StaleMemberEpoch,
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
from pyclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pyclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Identity = Callable[[Iterable[TopicPartition]], tuple[int, str]]
"""Returns the generation and member id to commit these partitions with; raises `CommitFailed` if they are not owned."""

LeftBehind = Callable[[int], bool]
"""Returns True if the member keeps its partitions in another generation than this one."""

TopicIds = Mapping[str, uuid.UUID]

log = logging.getLogger(__name__)

_COMMIT_BY_ID: Final = 10  # the first version of OffsetCommit with topic ids
_NO_MEMBER: Final = (-1, "")
_GENERATION_ERRORS: Final = (IllegalGeneration, RebalanceInProgress)
_MEMBERSHIP_ERRORS: Final = (*MEMBER_GONE, RebalanceInProgress, StaleMemberEpoch)


class Committer:
    """OffsetCommit and OffsetFetch, retried when the coordinator moves.

    Commits run one after the other, in the order of their calls, so that a retried one never overwrites a later one.
    Everything runs on the event loop.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        *,
        rng: Rng,
        identity: Identity | None,
        left_behind: LeftBehind | None,
        on_moved: Callable[[], None],
        on_doubt: Callable[[], None],
        clock: Clock,
        metrics: GroupMetrics,
        id_of: Callable[[TopicPartition], uuid.UUID | None] | None = None,
    ) -> None:
        self.last_error: KafkaError | None = None
        self._cluster = cluster
        self._config = config
        self._identity = identity
        self._left_behind = left_behind
        self._on_moved = on_moved
        self._on_doubt = on_doubt
        self._clock = clock
        self._metrics = metrics
        self._id_of = id_of
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._policy = RetryPolicy(backoff, rng, before_retry=self._before_retry)
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
        if isinstance(error, COORDINATOR_GONE):
            self._on_moved()

    # ---- OffsetCommit

    async def _commit_once(self, group: str, offsets: Offsets, topic_ids: TopicIds) -> None:
        generation, member_id = self._identity(offsets) if self._identity is not None else _NO_MEMBER
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
            if isinstance(error.__cause__ or error, _GENERATION_ERRORS) and self._has_left_behind(generation):
                raise StaleMemberEpoch(str(error)) from error  # the next attempt is made in the next generation
            if isinstance(error.__cause__ or error, _MEMBERSHIP_ERRORS):
                self._on_doubt()
            if isinstance(error, (UnknownTopicOrPartition, UnknownTopicId)):
                await self._check_existence(refused, topic_ids, error)
            raise error

    def _has_left_behind(self, generation: int) -> bool:
        return self._left_behind is not None and self._left_behind(generation)

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> TopicIds:
        """Return the id of every topic, as of its positions; empty if one is not known.

        Only the id distinguishes a topic from one that was recreated under its name, where these offsets mean nothing.
        """
        found = {}
        for partition in partitions:
            info = self._cluster.metadata.topics.get(partition.topic)
            read = self._id_of(partition) if self._id_of is not None else None
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
        found = [from_code(code, f"{place}: {partition} was not committed") for partition, code in codes.items()]
        error = next((error for error in found if not error.retriable), found[0])
        if isinstance(error, MEMBER_GONE):
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
        if self._identity is None or self._config.group_protocol != "consumer":
            return _NO_MEMBER
        try:
            return self._identity(())
        except CommitFailed:
            return _NO_MEMBER

    async def _fetch_once(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        node = await self._cluster.find_coordinator(group, timeout=self._config.default_api_timeout_ms / 1000)
        connection = await self._cluster.connection(node)
        version = connection.version_for(OffsetFetchRequest)
        epoch, member_id = self._fetch_identity()
        request = question(group, partitions, version, epoch, member_id)
        response = await connection.request(request, version=version)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        for partition, entry in answers(group, response, version):
            if entry.error_code:
                raise from_code(entry.error_code, f"group {group!r}: the committed offset of {partition}")
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
