"""The asyncio admin client."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import UUID

from pyclient.acls import AclBinding, AclFilter
from pyclient.admin.acl_calls import acls_in
from pyclient.admin.client import AdminClient
from pyclient.admin.config import AdminConfig, AdminOptions
from pyclient.admin.delegation_token_calls import DelegationToken, hmac_in, principals_in
from pyclient.admin.groups import GroupDescription, GroupListing
from pyclient.admin.quorum_calls import QuorumDescription
from pyclient.admin.runners import AsyncRunner
from pyclient.admin.topics import NewTopic, TopicDescription, new_topics, unique_names
from pyclient.admin.transaction_calls import ProducerDescription, TransactionDescription, TransactionListing
from pyclient.cluster.client import ClusterHealth
from pyclient.config import resolve
from pyclient.config.reference import document
from pyclient.types import OffsetAndMetadata, TopicPartition


class AsyncAdmin:
    """Creates, lists, describes, grows and deletes topics; lists, describes and deletes groups.

    It also lists, describes and fences transactional producers.

    >>> async with AsyncAdmin("localhost:9092") as admin:  # doctest: +SKIP
    ...     await admin.create_topics([NewTopic("orders", partitions=6)])

    Options are keyword arguments (`AdminConfig`); `config` takes a Kafka-style dictionary as well. Every `timeout`
    is in seconds, `default_api_timeout_ms` by default; after it `KafkaTimeout` is raised with the last failure. If a
    call on several topics fails for some, the first one's error is raised, and its `results` has each topic's error.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[AdminOptions],
    ) -> None:
        self._config = resolve(AdminConfig, {"bootstrap_servers": bootstrap_servers, **options}, config)
        self._client = AdminClient(self._config)
        self._runner = AsyncRunner(self._client)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Create topics and wait until each partition has a leader; with `validate_only`, only validate the request.

        Raise `TopicAlreadyExists`, `InvalidTopic`, `InvalidPartitions`, `InvalidReplicationFactor`, `InvalidConfig` or
        another error of the broker.
        """
        return await self._runner.run(self._client.create_topics, new_topics(topics), validate_only, timeout)

    async def delete_topics(self, names: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics and wait until they are gone; raise `UnknownTopicOrPartition` if one does not exist.

        A topic that is recreated meanwhile, as a cluster may do for a client that keeps sending, counts as deleted.
        """
        await self._runner.run(self._client.delete_topics, unique_names(names), timeout)

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
        return await self._runner.run(self._client.create_partitions, totals, assignments or {}, timeout)

    async def list_topics(self, *, include_internal: bool = False, timeout: float | None = None) -> list[str]:
        """Return the sorted names of all topics, internal ones (`__consumer_offsets`) only if `include_internal`."""
        return await self._runner.run(self._client.list_topics, include_internal, timeout)

    async def describe_topics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Return topics, partitions, leaders and replicas; raise `UnknownTopicOrPartition` if a topic is missing."""
        return await self._runner.run(self._client.describe_topics, unique_names(names), timeout)

    async def list_groups(self, *, states: Iterable[str] = (), timeout: float | None = None) -> list[GroupListing]:
        """Return the groups of all brokers by id, optionally only those in `states` (`Stable`, `Empty`, ...)."""
        return await self._runner.run(self._client.list_groups, states, timeout)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, GroupDescription]:
        """Return groups, classic or of the consumer protocol, with their members and assignments.

        Raise `GroupIdNotFound` if one does not exist.
        """
        return await self._runner.run(self._client.describe_groups, unique_names(group_ids), timeout)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups and their offsets; raise `NonEmptyGroup` or `GroupIdNotFound` if one cannot be deleted."""
        await self._runner.run(self._client.delete_groups, unique_names(group_ids), timeout)

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, of some partitions or of all; uncommitted partitions are left out.

        With `require_stable` wait until no open transaction commits one of these offsets (KIP-447; Kafka 2.5 or newer,
        an older one does not wait). Among all offsets a broker sees that for partitions that have one already; name
        the partition if it may be the first.
        """
        return await self._runner.run(self._client.list_group_offsets, group_id, partitions, require_stable, timeout)

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
        await self._runner.run(self._client.alter_group_offsets, group_id, offsets, timeout)

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, optionally only some (KIP-664).

        Those in `states` (`Ongoing`, `CompleteCommit`, ...), of `producer_ids`, with a transaction open for
        `longer_than_ms` (KIP-994), or whose id matches the RE2 `pattern` (KIP-1152).
        """
        return await self._runner.run(
            self._client.list_transactions, states, producer_ids, longer_than_ms, pattern, timeout
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return the state, producer and partitions of transactional ids.

        Raise `TransactionalIdNotFound` if one does not exist.
        """
        return await self._runner.run(self._client.describe_transactions, unique_names(transactional_ids), timeout)

    async def fence_producers(self, transactional_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Shut out the present producers with these transactional ids, and abort their transactions."""
        await self._runner.run(self._client.fence_producers, unique_names(transactional_ids), timeout)

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Return the producers that the leaders of partitions know, with the open transaction of each."""
        return await self._runner.run(self._client.describe_producers, partitions, timeout)

    async def abort_transaction(
        self, partition: TopicPartition, producer: ProducerDescription, *, timeout: float | None = None
    ) -> None:
        """End a hanging transaction in one partition, of which no coordinator knows.

        `producer` is what `describe_producers` found there. If its coordinator knows the transaction, use
        `fence_producers`: this one would end a part of it.
        """
        await self._runner.run(self._client.abort_transaction, partition, producer, timeout)

    async def describe_metadata_quorum(self, *, timeout: float | None = None) -> QuorumDescription:
        """Return the quorum of the controllers: leader, voters and observers, and how far each has the metadata log."""
        return await self._runner.run(self._client.describe_metadata_quorum, timeout)

    async def add_raft_voter(
        self, voter_id: int, directory_id: UUID, endpoints: Mapping[str, str], *, timeout: float | None = None
    ) -> None:
        """Make a controller that follows a voter of the metadata quorum (KIP-853).

        `directory_id` is that of its metadata directory, which `describe_metadata_quorum` shows among the observers;
        `endpoints` are its addresses by listener, as in `{"CONTROLLER": "host:port"}`. Raise `RequestTimedOut` while it
        lags behind or another change is under way, `DuplicateVoter`, and `UnsupportedVersion` if the voters are those
        of the configuration (kraft.version 0).
        """
        await self._runner.run(self._client.add_raft_voter, voter_id, directory_id, endpoints, timeout)

    async def remove_raft_voter(self, voter_id: int, directory_id: UUID, *, timeout: float | None = None) -> None:
        """Make a voter of the metadata quorum an observer (KIP-853). Raise `VoterNotFound`, and as `add_raft_voter`."""
        await self._runner.run(self._client.remove_raft_voter, voter_id, directory_id, timeout)

    async def create_acls(self, acls: Iterable[AclBinding | tuple[Any, ...]], *, timeout: float | None = None) -> None:
        """Create ACLs; one that is there already stays.

        A tuple like `("topic", "orders", "User:alice", "read")` is taken as an `AclBinding`.
        """
        await self._runner.run(self._client.create_acls, acls_in(acls), timeout)

    async def describe_acls(self, wanted: AclFilter | None = None, *, timeout: float | None = None) -> list[AclBinding]:
        """Return the ACLs that a filter selects; by default all."""
        return await self._runner.run(self._client.describe_acls, wanted or AclFilter(), timeout)

    async def delete_acls(self, filters: Iterable[AclFilter], *, timeout: float | None = None) -> list[AclBinding]:
        """Delete the ACLs that any of the filters selects. Return them."""
        return await self._runner.run(self._client.delete_acls, list(filters), timeout)

    async def create_delegation_token(
        self,
        renewers: Iterable[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int | None = None,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Create a delegation token, with which other clients can log in as its owner (KIP-48).

        `renewers` and `owner` are principals like `User:alice`; the owner is this client, or another if ACLs allow it
        (KIP-373). The token lives for `max_lifetime_ms` at most, and for `delegation.token.max.lifetime.ms` of the
        brokers; it has to be renewed within their `delegation.token.expiry.time.ms`. Brokers learn of it one after the
        other, soon afterwards. Raise `DelegationTokenAuthDisabled` if the brokers have no
        `delegation.token.secret.key`, `DelegationTokenRequestNotAllowed` for a client that is not authenticated, or is
        so by a token itself, `DelegationTokenAuthorizationFailed`, `InvalidPrincipalType`.
        """
        named = principals_in("renewers", renewers)
        if owner is not None:
            principals_in("owner", [owner])
        return await self._runner.run(self._client.create_delegation_token, named, owner, max_lifetime_ms, timeout)

    async def renew_delegation_token(
        self, hmac: bytes | str, *, renew_period_ms: int | None = None, timeout: float | None = None
    ) -> int:
        """Renew a delegation token; its owner and its renewers may. Return when it expires, in ms since 1970.

        `hmac` is that of the token: bytes, or their base64 text, which is the password of its logins.
        It expires after `renew_period_ms`, at most after the brokers' `delegation.token.expiry.time.ms`, which is the
        default, and never after its maximum lifetime. Raise `DelegationTokenNotFound`, `DelegationTokenExpired`,
        `DelegationTokenOwnerMismatch`, and as `create_delegation_token`.
        """
        return await self._runner.run(self._client.renew_delegation_token, hmac_in(hmac), renew_period_ms, timeout)

    async def expire_delegation_token(
        self, hmac: bytes | str, *, expiry_period_ms: int | None = None, timeout: float | None = None
    ) -> int:
        """Let a delegation token expire after `expiry_period_ms`; without it, or if it is negative, remove it at once.

        `hmac` is as for `renew_delegation_token`. Return when it expires, in ms since 1970. Raise as it.
        """
        return await self._runner.run(self._client.expire_delegation_token, hmac_in(hmac), expiry_period_ms, timeout)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Return the delegation tokens that this client may see.

        These are its own, those that it has requested or may renew, and others by ACLs. With `owners`, principals like
        `User:alice`, only tokens that one of them owns, has requested or may renew. Raise
        `DelegationTokenAuthDisabled` or `DelegationTokenRequestNotAllowed`.
        """
        named = None if owners is None else principals_in("owners", owners)
        return await self._runner.run(self._client.describe_delegation_tokens, named, timeout)

    def health(self) -> ClusterHealth:
        """Return the known and the connected nodes, the age of the metadata, and the last failure of each address."""
        return self._runner.health()

    async def close(self) -> None:
        """Close the connections. Idempotent; a no-op in a forked child."""
        await self._runner.close()

    async def __aenter__(self) -> Self:
        self._runner.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        runner: AsyncRunner | None = getattr(self, "_runner", None)
        if runner is not None and runner.in_use:
            text = f"{self!r} was not closed: use it in `async with`, or await close()"
            warnings.warn(text, ResourceWarning, stacklevel=2, source=self)
            runner.abandon()

    def __repr__(self) -> str:
        return f"<AsyncAdmin {','.join(self._config.bootstrap_servers)} {self._runner.state}>"


document(AsyncAdmin, AdminConfig)
