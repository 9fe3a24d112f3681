"""What an admin client does, on an event loop: requests to the cluster, and waiting until their effect is seen."""

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
    NewTopic,
    Refusal,
    TopicDescription,
    create_request,
    description,
    grow_request,
    new_topics,
    raise_refusals,
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
_LOOK_AGAIN: Final = 0.02  # seconds; what was done is seen by all nodes very soon after


class AdminCore:
    """Creates, lists, describes, grows and deletes topics; lists, describes and deletes groups, and sets their offsets.

    Every `timeout` is in seconds, `default_api_timeout_ms` if not given; after it `KafkaTimeout` tells the last
    failure. When a call on several topics fails for some, the first one's error is raised, and its `results` has what
    became of each.
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
        self._retrying = RetryPolicy(
            Backoff(min(_LOOK_AGAIN, config.retry_backoff_ms / 1000), config.retry_backoff_max_ms / 1000),
            rng,
            before_retry=self._cluster.check_reachable,
        )
        self._groups = GroupCalls(self._cluster, self._retrying)
        self._pid = os.getpid()
        self._started = False
        self._closed = False

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Creates topics and waits until each partition has a leader; with `validate_only`, only asks if it could.

        Raises `TopicAlreadyExists`, `InvalidTopic`, `InvalidPartitions`, `InvalidReplicationFactor`, `InvalidConfig`
        and what else the broker refuses.
        """
        topics = new_topics(topics)
        left = await self._begin(timeout)
        request = create_request(topics, timeout_ms=left.milliseconds, validate_only=validate_only)
        response = await self._cluster.request_controller(request, timeout=left.seconds)
        raise_refusals(
            "creating",
            [Refusal(topic.name, topic.error_code, topic.error_message) for topic in response.topics],
            asked=[topic.name for topic in topics],
        )
        if validate_only:
            return {}
        found = await self._until({topic.name: _has_leaders for topic in topics}, "created", left)
        return {name: description(info) for name, info in found.items()}

    async def delete_topics(self, names: Iterable[str], *, timeout: float | None = None) -> None:
        """Deletes topics with their records and waits until they are gone; `UnknownTopicOrPartition` if one is not.

        One that somebody makes anew meanwhile, as a cluster may for a client that goes on sending, is gone, too.
        """
        names = _names(names)
        left = await self._begin(timeout)
        before = await self._retried(lambda: self._fetch(names), "looking topics up", left)
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=left.milliseconds)
        response = await self._cluster.request_controller(request, timeout=left.seconds, maximum=_BY_NAME)
        raise_refusals(
            "deleting",
            [Refusal(topic.name or "", topic.error_code, topic.error_message) for topic in response.responses],
            asked=names,
        )
        await self._until({name: _is_gone(before.get(name)) for name in names}, "deleted", left)

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        timeout: float | None = None,
    ) -> dict[str, TopicDescription]:
        """Grows topics to a total number of partitions and waits until the new ones have leaders.

        `assignments` gives, by topic, the replicas of each new partition. Raises `InvalidPartitions` for a total that
        is not larger than before. Mind the keys: which partition a key goes to depends on how many there are.
        """
        left = await self._begin(timeout)
        request = grow_request(totals, assignments or {}, timeout_ms=left.milliseconds)
        response = await self._cluster.request_controller(request, timeout=left.seconds)
        raise_refusals(
            "growing",
            [Refusal(topic.name, topic.error_code, topic.error_message) for topic in response.results],
            asked=totals,
        )
        found = await self._until({name: _has_leaders_for(total) for name, total in totals.items()}, "grown", left)
        return {name: description(info) for name, info in found.items()}

    async def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """The names of the topics there are, sorted; the cluster's own (`__consumer_offsets`) only if asked for."""
        left = await self._begin(timeout)
        found = await self._retried(lambda: self._fetch(None), "listing topics", left)
        return sorted(name for name, info in found.items() if include_internal or not info.internal)

    async def describe_topics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Topics with their partitions, leaders and replicas; `UnknownTopicOrPartition` if one is not there."""
        names = _names(names)
        left = await self._begin(timeout)

        async def attempt() -> dict[str, TopicInfo]:
            found = await self._fetch(names)
            for info in found.values():
                if info.error_code != UnknownTopicOrPartition.code and for_code(info.error_code).retriable:
                    raise from_code(info.error_code, f"topic {info.name!r}: {for_code(info.error_code).__name__}")
            return found

        found = await self._retried(attempt, "describing topics", left)
        codes = {name: found[name].error_code if name in found else UnknownTopicOrPartition.code for name in names}
        raise_refusals("describing", [Refusal(name, code, None) for name, code in codes.items()])
        return {name: description(found[name]) for name in names}

    async def list_groups(self, *, states: Iterable[str] = (), timeout: float | None = None) -> list[GroupListing]:
        """The groups of all brokers, by their ids; only those in one of `states` (`Stable`, `Empty`, ...) if given."""
        left = await self._begin(timeout)
        return await self._groups.list(states, left)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Groups, classic or of the new protocol, with members and what they are assigned.

        `GroupIdNotFound` if one does not exist.
        """
        group_ids = _names(group_ids)
        left = await self._begin(timeout)
        return await self._groups.describe(group_ids, left)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Deletes groups with their offsets; `NonEmptyGroup` if one has members, `GroupIdNotFound` if there is none."""
        group_ids = _names(group_ids)
        left = await self._begin(timeout)
        await self._groups.delete(group_ids, left)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, for some partitions or for all; partitions without a commit are left out."""
        left = await self._begin(timeout)
        return await self._groups.offsets(group_id, partitions, left)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Sets what a group has committed, and makes the group if need be.

        A group that has members refuses it (`UnknownMemberId`); `UnknownTopicOrPartition` for what does not exist.
        """
        left = await self._begin(timeout)
        await self._groups.alter_offsets(group_id, offsets, left)

    def health(self) -> ClusterHealth:
        """Which nodes are known and connected, how old the metadata is, and the last failure by address."""
        return self._cluster.health()

    async def close(self) -> None:
        """Closes the connections; a second close is nothing."""
        if not self._closed and self._pid == os.getpid():
            self._closed = True
            await self._cluster.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the admin client is closed")

    async def _begin(self, timeout: float | None) -> _Left:
        if self._pid != os.getpid():
            raise ForkError(f"this admin client belongs to process {self._pid}: after fork() make one of your own")
        self._check_open()
        if not self._started:
            self._started = True
            await self._cluster.start()
        return _Left(self._config.default_api_timeout_ms / 1000 if timeout is None else timeout)

    async def _retried(self, attempt: Callable[[], Awaitable[T]], what: str, left: _Left) -> T:
        return await self._retrying.call(
            attempt, timeout=left.seconds, what=what, details=self._cluster.describe_failures
        )

    async def _fetch(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Topics as some node sees them now; all there are if `names` is None."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        response = await self._cluster.request(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        if response.error_code:
            raise from_code(response.error_code, "Metadata was refused")
        return dict(snapshot(EMPTY, response, 0.0).topics)

    async def _until(self, conditions: Mapping[str, Condition], done: str, left: _Left) -> dict[str, TopicInfo]:
        """Looks at the topics until each fulfils its condition."""

        async def attempt() -> dict[str, TopicInfo]:
            found = await self._fetch(conditions)
            for name, fulfilled in conditions.items():
                if not fulfilled(found.get(name)):
                    raise LeaderNotAvailable(f"topic {name!r} was {done}, but not all nodes have done it yet")
            return found

        return await self._retried(attempt, f"waiting until topics are {done}", left)


class _Left:
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
