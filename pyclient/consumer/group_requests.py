"""The requests of a group member: its connection, the classic protocol, and the consumer protocol (KIP-848)."""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyclient.assignment import TopicsWithRacks
from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import ClusterMetadata, TopicPartitionCounts
from pyclient.consumer.classic_member import ClassicMember
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.consumer_member import ConsumerMember
from pyclient.consumer.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_members,
    encode_assignment,
    encode_subscription,
    plan,
)
from pyclient.consumer.member import Member, State
from pyclient.consumer.member_events import (
    ConsumerHeartbeatAnswered,
    Event,
    HeartbeatAnswered,
    IdPartitions,
    InstanceReleased,
    Joined,
    PlanAssignment,
    Planned,
    Refused,
    ReleaseInstance,
    Request,
    ResolveTopics,
    SendConsumerHeartbeat,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Synced,
    TopicsResolved,
)
from pyclient.errors import (
    ClientError,
    ClosedError,
    ConnectionFailed,
    GroupIdNotFound,
    InvalidRegularExpression,
    KafkaError,
    KafkaTimeout,
    MalformedMessage,
    ProtocolError,
    UnknownTopicOrPartition,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
    for_code,
    from_code,
)
from pyclient.net.connection import Connection
from pyclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pyclient.types import TopicPartition

log = logging.getLogger(__name__)

_PURPOSE: Final = "group"  # JoinGroup occupies its connection until the whole group has joined
JOINS: Final = 0
LEAVES: Final = -1
WILL_BE_BACK: Final = -2  # a static member: its partitions stay reserved until its session times out

_MEMBER_LIST: Final = 3  # the first version of LeaveGroup with a list of members
_HEARTBEAT_REGEX: Final = 1  # the first version of ConsumerGroupHeartbeat with a regular expression
_METADATA_BY_ID: Final = 12  # the first version of Metadata with topic ids
_JOIN_GRACE_SECONDS: Final = 5.0
_MIN_TIMEOUT: Final = 5.0
_OTHER_PROTOCOL: Final = "set group_protocol='classic', or use Kafka 4.0 or later with the feature group.version=1"

_HINTS: Final[Mapping[type[KafkaError], str]] = {
    UnsupportedVersion: f"the cluster does not serve group_protocol='consumer' (KIP-848): {_OTHER_PROTOCOL}",
    GroupIdNotFound: "the group has members in the classic protocol, and the broker does not let it change "
    "(group.consumer.migration.policy): use another group_id, or group_protocol='classic'",
    UnreleasedInstanceId: "another consumer with this group_instance_id has not left the group: close it, or wait "
    "until its session times out (the broker's group.consumer.session.timeout.ms)",
    UnsupportedAssignor: "the broker does not have this group_remote_assignor (its group.consumer.assignors)",
    InvalidRegularExpression: "a SubscriptionPattern has the syntax of RE2, which knows no look-around and no back "
    "references; with re.compile(...) the pattern is matched in this client",
}


class GroupRequests(ABC):
    """Carries out the requests of one member; everything runs on the event loop."""

    def __init__(self, cluster: ClusterClient, config: ConsumerConfig, member: Member) -> None:
        self.member = member
        self._cluster = cluster
        self._config = config
        self._group_id = member.options.group_id

    @abstractmethod
    async def answer(self, action: Request) -> Event:
        """Carry out a request and return its event; the caller turns a `KafkaError` into a `Refused`."""

    @abstractmethod
    async def leave(self, leave: SendLeave) -> None:
        """Leave the group; raise if that fails."""

    def changed(self, metadata: ClusterMetadata) -> str | None:
        """Return why new metadata requires a rebalance; None if it does not."""
        return None

    async def _connection(self, node: int) -> Connection:
        try:
            return await self._cluster.connection(node, purpose=_PURPOSE)
        except ClosedError as error:
            raise ConnectionFailed(str(error)) from error

    async def _ask(self, node: int, request: Any, timeout: float | None = None, version: int | None = None) -> Any:
        connection = await self._connection(node)
        try:
            return await connection.request(request, timeout=timeout, version=version)
        except ClosedError as error:
            raise ConnectionFailed(str(error)) from error

    def _refusal(self, code: int, api: str, hint: str = "") -> KafkaError:
        return from_code(code, f"{api} was refused to {self.member.describe()}{f': {hint}' if hint else ''}", api)


class ClassicRequests(GroupRequests):
    """See `GroupRequests`."""

    member: ClassicMember

    def __init__(self, cluster: ClusterClient, config: ConsumerConfig, member: ClassicMember) -> None:
        super().__init__(cluster, config, member)
        assert config.session_timeout_ms is not None
        assert config.partition_assignment_strategy is not None
        self._assignors = config.partition_assignment_strategy
        self._session_timeout_ms = config.session_timeout_ms
        self._join_timeout = max(config.request_timeout_ms, config.max_poll_interval_ms) / 1000 + _JOIN_GRACE_SECONDS
        self._planned: dict[str, int] = {}
        self._counts = TopicPartitionCounts()

    async def answer(self, action: Request) -> Event:
        """See `GroupRequests.answer`."""
        match action:
            case SendJoin():
                return await self._join(action)
            case PlanAssignment():
                return Planned(action.attempt, await self._plan(action))
            case SendSync():
                return await self._sync(action)
            case SendHeartbeat():
                return await self._heartbeat(action)
            case _:
                raise TypeError(f"{action!r} is not a request of the classic protocol")

    def changed(self, metadata: ClusterMetadata) -> str | None:
        """Return why the leader should rebalance: the partition count of a topic has changed; else None."""
        if not self.member.leader or self.member.state is not State.STABLE:
            return None
        self._counts.update(metadata, self._planned.keys())
        for topic, count in self._planned.items():
            now = self._partition_count(metadata, topic)
            if now != count:
                return f"topic {topic!r} has {now} partitions now, not {count}"
        return None

    def _partition_count(self, metadata: ClusterMetadata, topic: str) -> int:
        """Return how many partitions to assign: 0 for a deleted topic; other errors do not change the count."""
        info = metadata.topics.get(topic)
        deleted = info is not None and info.error_code == UnknownTopicOrPartition.code
        return 0 if deleted else self._counts.count(topic)

    async def _join(self, join: SendJoin) -> Event:
        config = self._config
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=join.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name, metadata=encode_subscription(join, assignor, config.client_rack)
                )
                for assignor in self._assignors
            ],
            reason=join.reason[:255],
        )
        response = await self._ask(join.node, request, self._join_timeout)
        if response.error_code:
            return Refused(join.attempt, self._refusal(response.error_code, "JoinGroup"), response.member_id)
        leader = response.leader == response.member_id
        if response.generation_id < 0:
            raise self._malformed(join.node, "JoinGroup", f"generation_id is {response.generation_id}")
        try:
            members = decode_members(response.members) if leader else {}
        except (ProtocolError, UnsupportedVersion) as error:
            raise self._malformed(join.node, "JoinGroup", f"the metadata of a member: {error}") from error
        return Joined(
            join.attempt,
            response.member_id,
            response.generation_id,
            response.protocol_name or "",
            leader,
            members,
            response.skip_assignment,
        )

    async def _plan(self, action: PlanAssignment) -> dict[str, tuple[Any, ...]]:
        topics = {topic for member in action.members.values() for topic in member.topics}
        self._cluster.add_topics(topics)
        try:
            metadata = await self._cluster.wait_metadata(
                lambda metadata: topics <= metadata.topics.keys(), self._config.request_timeout_ms / 1000
            )
        except KafkaTimeout as error:
            log.warning("%s: metadata is incomplete, assigning the known topics: %s", self.member.describe(), error)
            metadata = self._cluster.metadata
        self._counts.update(metadata, topics)
        self._planned = {topic: self._partition_count(metadata, topic) for topic in topics}
        counts = _with_racks(metadata, {topic: count for topic, count in self._planned.items() if count})
        try:
            return plan(action.protocol, self._assignors, counts, action.members)
        except KafkaError:
            raise
        except Exception as error:  # a user's assignor may raise anything
            identity = f"{self.member.describe()}: the assignor {action.protocol!r}"
            log.exception("%s failed", identity)
            raise ClientError(f"{identity} failed: {error!r}. No partitions are assigned until it is fixed") from error

    async def _sync(self, sync: SendSync) -> Event:
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=sync.generation,
            member_id=sync.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=sync.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
                for member, partitions in sync.assignments.items()
            ],
        )
        response = await self._ask(sync.node, request, self._join_timeout)
        if response.error_code:
            return Refused(sync.attempt, self._refusal(response.error_code, "SyncGroup"))
        try:
            assignment = decode_assignment(response.assignment)
        except (ProtocolError, UnsupportedVersion) as error:
            raise self._malformed(sync.node, "SyncGroup", f"assignment: {error}") from error
        return Synced(sync.attempt, assignment)

    def _malformed(self, node: int, api: str, what: str) -> MalformedMessage:
        return MalformedMessage(f"{self.member.describe()}: malformed {api} response of node {node}: {what}")

    async def _heartbeat(self, heartbeat: SendHeartbeat) -> Event:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=heartbeat.generation,
            member_id=heartbeat.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        timeout = min(self._config.request_timeout_ms, self._session_timeout_ms) / 1000
        response = await self._ask(heartbeat.node, request, timeout)
        if response.error_code:
            return Refused(heartbeat.attempt, self._refusal(response.error_code, "Heartbeat"))
        return HeartbeatAnswered(heartbeat.attempt)

    async def leave(self, leave: SendLeave) -> None:
        """See `GroupRequests.leave`; on the shared connection: the group's own may be waiting in a JoinGroup."""
        connection = await self._cluster.connection(leave.node)
        version = connection.version_for(LeaveGroupRequest)
        if version >= _MEMBER_LIST:
            identity = MemberIdentity(member_id=leave.member_id, reason=leave.reason[:255])
            request = LeaveGroupRequest(group_id=self._group_id, members=[identity])
        else:
            request = LeaveGroupRequest(group_id=self._group_id, member_id=leave.member_id)
        response = await connection.request(request, version=version)
        if response.error_code:
            raise self._refusal(response.error_code, "LeaveGroup")


def _with_racks(metadata: ClusterMetadata, counts: Mapping[str, int]) -> TopicsWithRacks:
    """Return the partition counts with the racks of each partition's replicas."""
    racks: dict[TopicPartition, frozenset[str]] = {}
    for topic in counts:
        for info in known.partitions if (known := metadata.topics.get(topic)) is not None else ():
            nodes = (metadata.nodes.get(node) for node in info.replicas)
            racks[TopicPartition(topic, info.partition)] = frozenset(node.rack for node in nodes if node and node.rack)
    return TopicsWithRacks(counts, racks)


class ConsumerRequests(GroupRequests):
    """See `GroupRequests`."""

    member: ConsumerMember
    _interval = 0.0

    async def answer(self, action: Request) -> Event:
        """See `GroupRequests.answer`."""
        match action:
            case SendConsumerHeartbeat():
                return await self._heartbeat(action)
            case ResolveTopics():
                return TopicsResolved(action.attempt, await self._resolve(action.topic_ids))
            case ReleaseInstance():
                await self._depart(action.node, action.member_id)
                return InstanceReleased(action.attempt)
            case _:
                raise TypeError(f"{action!r} is not a request of the consumer protocol")

    async def _heartbeat(self, action: SendConsumerHeartbeat) -> Event:
        connection = await self._connection(action.node)
        try:
            version = connection.version_for(ConsumerGroupHeartbeatRequest)
        except UnsupportedVersion as error:
            raise UnsupportedVersion(f"{error}: {_HINTS[UnsupportedVersion]}") from error
        if version < _HEARTBEAT_REGEX and action.pattern:
            raise UnsupportedVersion(
                f"{connection.address} does not support regular expressions in ConsumerGroupHeartbeat {version}: use "
                "Kafka 4.0 or later; with re.compile(...) the pattern is matched in this client"
            )
        timeout = self._config.request_timeout_ms / 1000
        if self._interval:
            timeout = min(timeout, max(_MIN_TIMEOUT, 3 * self._interval))
        request = self._request(action, has_regex=version >= _HEARTBEAT_REGEX)
        response: ConsumerGroupHeartbeatResponse = await self._ask(action.node, request, timeout, version)
        if response.error_code:
            raise self._heartbeat_error(response)
        if response.member_epoch <= 0 or response.heartbeat_interval_ms <= 0:
            raise MalformedMessage(
                f"{connection.address}: ConsumerGroupHeartbeat gave member epoch {response.member_epoch} and "
                f"heartbeat interval {response.heartbeat_interval_ms} ms; both must be positive"
            )
        self._interval = response.heartbeat_interval_ms / 1000
        return ConsumerHeartbeatAnswered(action.attempt, response.member_epoch, self._interval, _assigned(response))

    def _request(self, action: SendConsumerHeartbeat, *, has_regex: bool) -> ConsumerGroupHeartbeatRequest:
        config, complete = self._config, action.complete
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=action.member_id,
            member_epoch=action.epoch,
            instance_id=config.group_instance_id if complete else None,
            rack_id=(config.client_rack or None) if complete else None,
            rebalance_timeout_ms=config.max_poll_interval_ms if complete else -1,
            subscribed_topic_names=None if action.topics is None else list(action.topics),
            subscribed_topic_regex=action.pattern if has_regex else None,
            server_assignor=config.group_remote_assignor if complete else None,
            topic_partitions=None if action.owned is None else _by_topic(action.owned),
        )

    def _heartbeat_error(self, response: ConsumerGroupHeartbeatResponse) -> KafkaError:
        message = (response.error_message or "").rstrip(".")
        hint = _HINTS.get(for_code(response.error_code), "")
        return self._refusal(response.error_code, "ConsumerGroupHeartbeat", "; ".join(filter(None, (message, hint))))

    async def _resolve(self, topic_ids: tuple[uuid.UUID, ...]) -> dict[uuid.UUID, str]:
        """Return topic names by id, from the known metadata or from a node. Missing topics are left out."""
        known = {info.topic_id: name for name, info in self._cluster.metadata.topics.items()}
        found = {topic: known[topic] for topic in topic_ids if topic in known}
        missing = [topic for topic in topic_ids if topic not in known]
        if missing:
            connection = await self._cluster.any_connection()
            version = connection.version_for(MetadataRequest)
            if version < _METADATA_BY_ID:
                raise UnsupportedVersion(f"{connection.address} cannot resolve topic ids (Metadata {version})")
            topics = [MetadataRequestTopic(topic_id=topic, name=None) for topic in missing]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            response = await connection.request(request, version=version)
            found |= {topic.topic_id: topic.name for topic in response.topics if topic.name and not topic.error_code}
        return {topic: found[topic] for topic in topic_ids if topic in found}

    async def leave(self, leave: SendLeave) -> None:
        """See `GroupRequests.leave`; on the heartbeats' connection, so that it comes after them."""
        await self._depart(leave.node, leave.member_id)

    async def _depart(self, node: int, member_id: str) -> None:
        static = self._config.group_instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=WILL_BE_BACK if static else LEAVES,
            instance_id=self._config.group_instance_id,
        )
        response = await self._ask(node, request)
        if response.error_code:
            raise self._heartbeat_error(response)


def _assigned(response: ConsumerGroupHeartbeatResponse) -> IdPartitions | None:
    if response.assignment is None:
        return None
    pairs = [(topic.topic_id, number) for topic in response.assignment.topic_partitions for number in topic.partitions]
    if any(number < 0 for _, number in pairs):
        raise MalformedMessage("ConsumerGroupHeartbeat assigns a partition with a negative number")
    return tuple(dict.fromkeys(pairs))


def _by_topic(owned: Iterable[tuple[uuid.UUID, int]]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    numbers: dict[uuid.UUID, list[int]] = {}
    for topic, number in owned:
        numbers.setdefault(topic, []).append(number)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=partitions)
        for topic, partitions in numbers.items()
    ]
