"""The implementation shared by Admin and AsyncAdmin: send requests and wait until their effect is visible."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Final, TypeVar

from pyclient.admin.config import AdminConfig
from pyclient.admin.group_calls import GroupCalls
from pyclient.admin.groups import GroupDescription, GroupListing
from pyclient.admin.topics import (
    ItemResult,
    NewTopic,
    TopicDescription,
    create_partitions_request,
    create_topics_request,
    description,
    new_topics,
    raise_errors,
)
from pyclient.backoff import Backoff
from pyclient.clock import SYSTEM_CLOCK, Clock, Rng
from pyclient.cluster.client import ClusterClient, ClusterHealth
from pyclient.cluster.metadata import EMPTY, TopicInfo, snapshot
from pyclient.cluster.retry import RetryPolicy
from pyclient.errors import ClosedError, ForkError, LeaderNotAvailable, UnknownTopicOrPartition, for_code, from_code
from pyclient.net.connect import Connector
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")
Condition = Callable[[TopicInfo | None], bool]

_BY_NAME: Final = 5  # DeleteTopics 6 takes ids
_POLL_SECONDS: Final = 0.02  # until the next check; changes are visible on all nodes within a few of these


class AdminCore:
    """Creates, lists, describes, grows and deletes topics; lists, describes and deletes groups, and sets their offsets.

    Every `timeout` is in seconds, `default_api_timeout_ms` by default; after it `KafkaTimeout` is raised with the last
    failure. If a call on several topics fails for some, the first one's error is raised, and its `results` has each
    topic's error.
    """

    def __init__(
        self,
        config: AdminConfig,
        *,
        clock: Clock = SYSTEM_CLOCK,
        rng: Rng | None = None,
        connector: Connector | None = None,
    ) -> None:
        rng = rng or random.Random()
        self._config = config
        self._cluster = ClusterClient(
            config, clock=clock, rng=rng, connector=connector, allow_auto_topic_creation=False
        )
        self._retry_policy = RetryPolicy(
            Backoff(min(_POLL_SECONDS, config.retry_backoff_ms / 1000), config.retry_backoff_max_ms / 1000),
            rng,
            before_retry=self._cluster.check_reachable,
        )
        self._groups = GroupCalls(self._cluster, self._retry_policy)
        self._pid = os.getpid()
        self._started = False
        self._closed = False

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Create topics and wait until each partition has a leader; with `validate_only`, only validate the request.

        Raise `TopicAlreadyExists`, `InvalidTopic`, `InvalidPartitions`, `InvalidReplicationFactor`, `InvalidConfig` or
        another error of the broker.
        """
        topics = new_topics(topics)
        deadline = await self._start_call(timeout)
        request = create_topics_request(topics, timeout_ms=deadline.milliseconds, validate_only=validate_only)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        raise_errors(
            "creating",
            [ItemResult(topic.name, topic.error_code, topic.error_message) for topic in response.topics],
            asked=[topic.name for topic in topics],
        )
        if validate_only:
            return {}
        found = await self._wait_for_topics({topic.name: _has_leaders for topic in topics}, "created", deadline)
        return {name: description(info) for name, info in found.items()}

    async def delete_topics(self, names: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics and wait until they are gone; raise `UnknownTopicOrPartition` if one does not exist.

        A topic that is recreated meanwhile, as a cluster may do for a client that keeps sending, counts as deleted.
        """
        names = _names(names)
        deadline = await self._start_call(timeout)
        before = await self._retry(lambda: self._fetch(names), "looking topics up", deadline)
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=deadline.milliseconds)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds, maximum=_BY_NAME)
        raise_errors(
            "deleting",
            [ItemResult(topic.name or "", topic.error_code, topic.error_message) for topic in response.responses],
            asked=names,
        )
        await self._wait_for_topics({name: _is_gone(before.get(name)) for name in names}, "deleted", deadline)

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        timeout: float | None = None,
    ) -> dict[str, TopicDescription]:
        """Grow topics to a total number of partitions and wait until the new ones have leaders.

        `assignments` gives, by topic, the replicas of each new partition. Raise `InvalidPartitions` for a total that
        is not larger than before. The partition of a key depends on the number of partitions, so it may change.
        """
        deadline = await self._start_call(timeout)
        request = create_partitions_request(totals, assignments or {}, timeout_ms=deadline.milliseconds)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        raise_errors(
            "growing",
            [ItemResult(topic.name, topic.error_code, topic.error_message) for topic in response.results],
            asked=totals,
        )
        found = await self._wait_for_topics(
            {name: _has_leaders_for(total) for name, total in totals.items()}, "grown", deadline
        )
        return {name: description(info) for name, info in found.items()}

    async def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """Return the sorted names of all topics, internal ones (`__consumer_offsets`) only if `include_internal`."""
        deadline = await self._start_call(timeout)
        found = await self._retry(lambda: self._fetch(None), "listing topics", deadline)
        return sorted(name for name, info in found.items() if include_internal or not info.internal)

    async def describe_topics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Return topics, partitions, leaders and replicas; raise `UnknownTopicOrPartition` if a topic is missing."""
        names = _names(names)
        deadline = await self._start_call(timeout)

        async def attempt() -> dict[str, TopicInfo]:
            found = await self._fetch(names)
            for info in found.values():
                if info.error_code != UnknownTopicOrPartition.code and for_code(info.error_code).retriable:
                    raise from_code(info.error_code, f"topic {info.name!r}: {for_code(info.error_code).__name__}")
            return found

        found = await self._retry(attempt, "describing topics", deadline)
        codes = {name: found[name].error_code if name in found else UnknownTopicOrPartition.code for name in names}
        raise_errors("describing", [ItemResult(name, code, None) for name, code in codes.items()])
        return {name: description(found[name]) for name in names}

    async def list_groups(self, *, states: Iterable[str] = (), timeout: float | None = None) -> list[GroupListing]:
        """Return the groups of all brokers by id, optionally only those in `states` (`Stable`, `Empty`, ...)."""
        deadline = await self._start_call(timeout)
        return await self._groups.list(states, deadline)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Return groups, classic or of the consumer protocol, with their members and assignments.

        Raise `GroupIdNotFound` if one does not exist.
        """
        group_ids = _names(group_ids)
        deadline = await self._start_call(timeout)
        return await self._groups.describe(group_ids, deadline)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups and their offsets; raise `NonEmptyGroup` or `GroupIdNotFound` if one cannot be deleted."""
        group_ids = _names(group_ids)
        deadline = await self._start_call(timeout)
        await self._groups.delete(group_ids, deadline)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, of some partitions or of all; uncommitted partitions are left out."""
        deadline = await self._start_call(timeout)
        return await self._groups.offsets(group_id, partitions, deadline)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Set a group's committed offsets, and create the group if it does not exist.

        Raise `UnknownMemberId` if the group has members, `UnknownTopicOrPartition` for a missing topic or partition.
        """
        deadline = await self._start_call(timeout)
        await self._groups.alter_offsets(group_id, offsets, deadline)

    def health(self) -> ClusterHealth:
        """Return the known and the connected nodes, the age of the metadata, and the last failure of each address."""
        return self._cluster.health()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        if not self._closed and self._pid == os.getpid():
            self._closed = True
            await self._cluster.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the admin client is closed")

    async def _start_call(self, timeout: float | None) -> _Deadline:
        if self._pid != os.getpid():
            raise ForkError(f"this admin client belongs to process {self._pid}: after fork() create a new one")
        self._check_open()
        if not self._started:
            self._started = True
            await self._cluster.start()
        return _Deadline(self._config.default_api_timeout_ms / 1000 if timeout is None else timeout)

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str, deadline: _Deadline) -> T:
        return await self._retry_policy.call(
            attempt, timeout=deadline.seconds, what=what, details=self._cluster.describe_failures
        )

    async def _fetch(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Return topics as one node sees them now; all topics if `names` is None."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        response = await self._cluster.request(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        if response.error_code:
            raise from_code(response.error_code, "Metadata was refused")
        return dict(snapshot(EMPTY, response, 0.0).topics)

    async def _wait_for_topics(
        self, conditions: Mapping[str, Condition], done: str, deadline: _Deadline
    ) -> dict[str, TopicInfo]:
        """Fetch the topics until each satisfies its condition."""

        async def attempt() -> dict[str, TopicInfo]:
            found = await self._fetch(conditions)
            for name, satisfied in conditions.items():
                if not satisfied(found.get(name)):
                    raise LeaderNotAvailable(f"topic {name!r} was {done}, but not all nodes show it yet")
            return found

        return await self._retry(attempt, f"waiting until topics are {done}", deadline)


class _Deadline:
    """The time left for a call."""

    def __init__(self, seconds: Any) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, Real):
            raise TypeError(f"timeout={seconds!r} is not possible: it takes seconds, as a number")
        if not float(seconds) >= 0:
            raise ValueError(f"timeout={seconds!r} is not possible: it takes seconds from 0")
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + float(seconds)

    @property
    def seconds(self) -> float:
        return max(0.0, self._deadline - self._loop.time())

    @property
    def milliseconds(self) -> int:
        return min(max(1, round(self.seconds * 1000)), 2**31 - 1)


def _names(names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise TypeError(f"names are a list; for one give [{names!r}]")
    return list(dict.fromkeys(names))


def _is_gone(before: TopicInfo | None) -> Condition:
    old = None if before is None or not before.topic_id.int else before.topic_id

    def is_gone(info: TopicInfo | None) -> bool:
        if info is None or info.error_code == UnknownTopicOrPartition.code:
            return True
        return old is not None and info.topic_id.int != 0 and info.topic_id != old

    return is_gone


def _has_leaders(info: TopicInfo | None) -> bool:
    return info is not None and bool(info.partitions) and all(each.leader >= 0 for each in info.partitions)


def _has_leaders_for(total: int) -> Condition:
    return lambda info: info is not None and len(info.partitions) >= total and _has_leaders(info)
