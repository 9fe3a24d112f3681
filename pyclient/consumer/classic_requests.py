"""The requests of a member in the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pyclient.assignment import TopicsWithRacks
from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import ClusterMetadata
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.group import State
from pyclient.consumer.group_classic import ClassicMember
from pyclient.consumer.group_events import (
    Event,
    HeartbeatAnswered,
    Joined,
    PlanAssignment,
    Planned,
    Refused,
    Request,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Synced,
)
from pyclient.consumer.group_requests import GroupRequests
from pyclient.consumer.membership import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_members,
    encode_assignment,
    encode_subscription,
    plan,
)
from pyclient.consumer.topic_partitions import TopicPartitionCounts
from pyclient.errors import (
    ClientError,
    KafkaError,
    KafkaTimeout,
    MalformedMessage,
    ProtocolError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from pyclient.types import TopicPartition

log = logging.getLogger(__name__)

_JOIN_GRACE_SECONDS: Final = 5.0
_MEMBER_LIST: Final = 3  # the first version of LeaveGroup with a list of members


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
