"""The implementation of the admin clients: send requests and wait until their effect is visible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar
from uuid import UUID

from pyclient.acls import AclBinding, AclFilter
from pyclient.admin.acl_calls import AclCalls
from pyclient.admin.config import AdminConfig
from pyclient.admin.delegation_token_calls import DelegationToken, DelegationTokenCalls
from pyclient.admin.group_calls import Deadline, GroupCalls
from pyclient.admin.groups import GroupDescription, GroupListing
from pyclient.admin.quorum_calls import QuorumCalls, QuorumDescription
from pyclient.admin.topics import (
    ItemResult,
    NewTopic,
    TopicDescription,
    create_partitions_request,
    create_topics_request,
    description,
    raise_errors,
)
from pyclient.admin.transaction_calls import (
    ProducerDescription,
    TransactionCalls,
    TransactionDescription,
    TransactionListing,
)
from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient, ClusterHealth
from pyclient.cluster.metadata import EMPTY, TopicInfo, snapshot
from pyclient.cluster.retry import RetryPolicy
from pyclient.errors import LeaderNotAvailable, UnknownTopicOrPartition, for_code, from_code
from pyclient.net.connect import Connector
from pyclient.net.connection import Connection
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.types import OffsetAndMetadata, TopicPartition

T = TypeVar("T")
Condition = Callable[[TopicInfo | None], bool]

_BY_NAME: Final = 5  # DeleteTopics 6 takes ids
_POLL_SECONDS: Final = 0.02  # until the next check; changes are visible on all nodes within a few of these
_SPREADING_SECONDS: Final = 10.0  # after which all nodes that take part in the cluster show a change


class AdminClient:
    """Implementation of `Admin` and `AsyncAdmin`, which document the calls; runs on one event loop."""

    def __init__(
        self,
        config: AdminConfig,
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        connector: Connector | None = None,
    ) -> None:
        surroundings = SURROUNDINGS.get()
        clock = clock or surroundings.clock
        rng = rng or surroundings.new_rng()
        self._config = config
        self._clock = clock
        self._cluster = ClusterClient(
            config, clock=clock, rng=rng, connector=connector, allow_auto_topic_creation=False
        )
        self._retry_policy = RetryPolicy(
            Backoff(min(_POLL_SECONDS, config.retry_backoff_ms / 1000), config.retry_backoff_max_ms / 1000),
            rng,
            before_retry=self._cluster.check_reachable,
        )
        self._groups = GroupCalls(self._cluster, self._retry_policy)
        self._transactions = TransactionCalls(self._cluster, self._retry_policy)
        self._quorum = QuorumCalls(self._cluster)
        self._acls = AclCalls(self._cluster)
        self._tokens = DelegationTokenCalls(self._cluster)
        self._started = False
        self._shows_changes: Connection | None = None  # to a node that shows all changes this client made
        self._shown_at = 0.0

    async def create_topics(
        self, topics: Sequence[NewTopic], validate_only: bool, timeout: float | None
    ) -> dict[str, TopicDescription]:
        deadline = await self._start_call(timeout)
        request = create_topics_request(topics, timeout_ms=deadline.milliseconds, validate_only=validate_only)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        raise_errors(
            "creating",
            request.name,
            [ItemResult(topic.name, topic.error_code, topic.error_message) for topic in response.topics],
            asked=[topic.name for topic in topics],
        )
        if validate_only:
            return {}
        found = await self._wait_for_topics({topic.name: _has_leaders for topic in topics}, "created", deadline)
        return {name: description(info) for name, info in found.items()}

    async def delete_topics(self, names: list[str], timeout: float | None) -> None:
        deadline = await self._start_call(timeout)
        before = await self._retry(lambda: self._fetch(names), "looking topics up", deadline)
        request = DeleteTopicsRequest(topic_names=names, timeout_ms=deadline.milliseconds)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds, maximum=_BY_NAME)
        raise_errors(
            "deleting",
            request.name,
            [ItemResult(topic.name or "", topic.error_code, topic.error_message) for topic in response.responses],
            asked=names,
        )
        await self._wait_for_topics({name: _is_gone(before.get(name)) for name in names}, "deleted", deadline)

    async def create_partitions(
        self, totals: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]], timeout: float | None
    ) -> dict[str, TopicDescription]:
        deadline = await self._start_call(timeout)
        request = create_partitions_request(totals, assignments, timeout_ms=deadline.milliseconds)
        response = await self._cluster.request_controller(request, timeout=deadline.seconds)
        raise_errors(
            "growing",
            request.name,
            [ItemResult(topic.name, topic.error_code, topic.error_message) for topic in response.results],
            asked=totals,
        )
        found = await self._wait_for_topics(
            {name: _has_leaders_for(total) for name, total in totals.items()}, "grown", deadline
        )
        return {name: description(info) for name, info in found.items()}

    async def list_topics(self, include_internal: bool, timeout: float | None) -> list[str]:
        deadline = await self._start_call(timeout)
        found = await self._retry(lambda: self._fetch(None), "listing topics", deadline)
        return sorted(name for name, info in found.items() if include_internal or not info.internal)

    async def describe_topics(self, names: Sequence[str], timeout: float | None) -> dict[str, TopicDescription]:
        deadline = await self._start_call(timeout)

        async def attempt() -> dict[str, TopicInfo]:
            found = await self._fetch(names)
            for info in found.values():
                if info.error_code != UnknownTopicOrPartition.code and for_code(info.error_code).retriable:
                    raise from_code(info.error_code, f"topic {info.name!r}: {for_code(info.error_code).__name__}")
            return found

        found = await self._retry(attempt, "describing topics", deadline)
        codes = {name: found[name].error_code if name in found else UnknownTopicOrPartition.code for name in names}
        raise_errors("describing", "Metadata", [ItemResult(name, code, None) for name, code in codes.items()])
        return {name: description(found[name]) for name in names}

    async def list_groups(self, states: Iterable[str], timeout: float | None) -> list[GroupListing]:
        deadline = await self._start_call(timeout)
        return await self._groups.list(states, deadline)

    async def describe_groups(self, group_ids: Sequence[str], timeout: float | None) -> dict[str, GroupDescription]:
        deadline = await self._start_call(timeout)
        return await self._groups.describe(group_ids, deadline)

    async def delete_groups(self, group_ids: Sequence[str], timeout: float | None) -> None:
        deadline = await self._start_call(timeout)
        await self._groups.delete(group_ids, deadline)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool, timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        deadline = await self._start_call(timeout)
        return await self._groups.offsets(group_id, partitions, require_stable, deadline)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], timeout: float | None
    ) -> None:
        deadline = await self._start_call(timeout)
        await self._groups.alter_offsets(group_id, offsets, deadline)

    async def list_transactions(
        self,
        states: Iterable[str],
        producer_ids: Iterable[int],
        longer_than_ms: int | None,
        pattern: str | None,
        timeout: float | None,
    ) -> list[TransactionListing]:
        deadline = await self._start_call(timeout)
        return await self._transactions.listings(states, producer_ids, longer_than_ms, pattern, deadline)

    async def describe_transactions(
        self, transactional_ids: Sequence[str], timeout: float | None
    ) -> dict[str, TransactionDescription]:
        deadline = await self._start_call(timeout)
        return await self._transactions.describe(transactional_ids, deadline)

    async def fence_producers(self, transactional_ids: Sequence[str], timeout: float | None) -> None:
        deadline = await self._start_call(timeout)
        await self._transactions.fence(transactional_ids, deadline)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        deadline = await self._start_call(timeout)
        return await self._transactions.producers(partitions, deadline)

    async def abort_transaction(
        self, partition: TopicPartition, producer: ProducerDescription, timeout: float | None
    ) -> None:
        deadline = await self._start_call(timeout)
        await self._transactions.abort(
            TopicPartition(*partition),
            producer.producer_id,
            producer.producer_epoch,
            max(0, producer.coordinator_epoch),
            deadline,
        )

    async def describe_metadata_quorum(self, timeout: float | None) -> QuorumDescription:
        deadline = await self._start_call(timeout)
        return await self._quorum.describe(deadline)

    async def add_raft_voter(
        self, voter_id: int, directory_id: UUID, endpoints: Mapping[str, str], timeout: float | None
    ) -> None:
        deadline = await self._start_call(timeout)
        await self._quorum.add(voter_id, directory_id, endpoints, deadline)

    async def remove_raft_voter(self, voter_id: int, directory_id: UUID, timeout: float | None) -> None:
        deadline = await self._start_call(timeout)
        await self._quorum.remove(voter_id, directory_id, deadline)

    async def create_acls(self, acls: Sequence[AclBinding], timeout: float | None) -> None:
        deadline = await self._start_call(timeout)
        await self._acls.create(acls, deadline)

    async def describe_acls(self, wanted: AclFilter, timeout: float | None) -> list[AclBinding]:
        deadline = await self._start_call(timeout)
        return await self._acls.describe(wanted, deadline)

    async def delete_acls(self, filters: Sequence[AclFilter], timeout: float | None) -> list[AclBinding]:
        deadline = await self._start_call(timeout)
        return await self._acls.delete(filters, deadline)

    async def create_delegation_token(
        self, renewers: Sequence[str], owner: str | None, max_lifetime_ms: int | None, timeout: float | None
    ) -> DelegationToken:
        deadline = await self._start_call(timeout)
        return await self._tokens.create(renewers, owner, max_lifetime_ms, deadline)

    async def renew_delegation_token(self, hmac: bytes, renew_period_ms: int | None, timeout: float | None) -> int:
        deadline = await self._start_call(timeout)
        return await self._tokens.renew(hmac, renew_period_ms, deadline)

    async def expire_delegation_token(self, hmac: bytes, expiry_period_ms: int | None, timeout: float | None) -> int:
        deadline = await self._start_call(timeout)
        return await self._tokens.expire(hmac, expiry_period_ms, deadline)

    async def describe_delegation_tokens(
        self, owners: Sequence[str] | None, timeout: float | None
    ) -> list[DelegationToken]:
        deadline = await self._start_call(timeout)
        return await self._tokens.describe(owners, deadline)

    def health(self) -> ClusterHealth:
        return self._cluster.health()

    async def close(self) -> None:
        await self._cluster.close()

    def abandon(self) -> None:
        """Close the connections without waiting."""
        self._cluster.abandon()

    async def _start_call(self, timeout: float | None) -> Deadline:
        if not self._started:
            self._started = True
            await self._cluster.start()
        return Deadline(self._config.default_api_timeout_ms / 1000 if timeout is None else timeout)

    async def _retry(self, attempt: Callable[[], Awaitable[T]], what: str, deadline: Deadline) -> T:
        return await self._retry_policy.call(
            attempt, timeout=deadline.seconds, what=what, details=self._cluster.describe_failures
        )

    async def _fetch(self, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Return topics as one node sees them; all topics if `names` is None.

        Nodes learn of a change one after another. For some time after a change of topics that this client has waited
        for, the node is the one that showed it, so that what was created is also described and listed.
        """
        connection = self._shows_changes
        if connection and (connection.closed or self._clock.monotonic() > self._shown_at + _SPREADING_SECONDS):
            connection = self._shows_changes = None
        return await self._fetch_from(connection or await self._cluster.any_connection(), names)

    async def _fetch_from(self, connection: Connection, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        response = await connection.request(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        if response.error_code:
            raise from_code(response.error_code, "Metadata was refused")
        return dict(snapshot(EMPTY, response, 0.0).topics)

    async def _wait_for_topics(
        self, conditions: Mapping[str, Condition], done: str, deadline: Deadline
    ) -> dict[str, TopicInfo]:
        """Fetch the topics until each satisfies its condition."""

        async def attempt() -> dict[str, TopicInfo]:
            connection = await self._cluster.any_connection()
            found = await self._fetch_from(connection, conditions)
            for name, satisfied in conditions.items():
                if not satisfied(found.get(name)):
                    raise LeaderNotAvailable(f"topic {name!r} was {done}, but not all nodes show it yet")
            self._shows_changes, self._shown_at = connection, self._clock.monotonic()
            return found

        return await self._retry(attempt, f"waiting until topics are {done}", deadline)


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
