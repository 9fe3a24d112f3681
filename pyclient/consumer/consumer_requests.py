"""The requests of a member in the consumer protocol (KIP-848): ConsumerGroupHeartbeat, and topic names by id."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Final

from pyclient.consumer.group_consumer import ConsumerMember
from pyclient.consumer.group_events import (
    ConsumerHeartbeatAnswered,
    Event,
    IdPartitions,
    Request,
    ResolveTopics,
    SendConsumerHeartbeat,
    SendLeave,
    TopicsResolved,
)
from pyclient.consumer.group_requests import GroupRequests
from pyclient.errors import (
    GroupIdNotFound,
    InvalidRegularExpression,
    KafkaError,
    MalformedMessage,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
    for_code,
)
from pyclient.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

JOINS: Final = 0
LEAVES: Final = -1
WILL_BE_BACK: Final = -2  # a static member: its partitions stay reserved until its session times out

_HEARTBEAT_REGEX: Final = 1  # the first version of ConsumerGroupHeartbeat with a regular expression
_METADATA_BY_ID: Final = 12  # the first version of Metadata with topic ids
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
        static = self._config.group_instance_id is not None
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=leave.member_id,
            member_epoch=WILL_BE_BACK if static else LEAVES,
            instance_id=self._config.group_instance_id,
        )
        response = await self._ask(leave.node, request)
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
