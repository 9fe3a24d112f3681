"""Immutable snapshots of cluster metadata: nodes, topics, leaders. Metadata responses are validated here."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pyclient.config import format_address
from pyclient.errors import LeaderNotAvailable
from pyclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_LEADER: Final = -1
_NO_ID: Final = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker's id and address. Ids below 0 are bootstrap addresses, whose broker is not known yet."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """The address as host:port, with brackets around an IPv6 address."""
        return format_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition and its replicas. `leader` is -1 while there is none; each new leader has a higher epoch."""

    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; `partitions` are in order of their number. Without partitions, `error_code` is the reason."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionInfo, ...]
    internal: bool = False
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """One snapshot; `controller_id` is -1 while there is none.

    `fetched_at` is the time of the last response about all topics, in the clock's monotonic seconds. `updated` names
    the topics of the last request if it was only for some: all others are unchanged.
    """

    cluster_id: str | None
    controller_id: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicInfo]
    fetched_at: float
    updated: frozenset[str] | None = None

    def leader(self, topic: str, partition: int) -> int:
        """Return the node id of a partition's leader; -1 if it is not known."""
        info = self.partition(topic, partition)
        return NO_LEADER if info is None else info.leader

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """Return a partition's entry; None if it is not known."""
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        return info.partitions[partition]

    def partition_count(self, topic: str) -> int | None:
        """Return the number of a topic's partitions; None if it is not known."""
        info = self.topics.get(topic)
        return len(info.partitions) if info is not None and info.partitions else None


EMPTY: Final = ClusterMetadata(None, -1, MappingProxyType({}), MappingProxyType({}), float("-inf"))
"""The snapshot before the first response."""


def snapshot(
    previous: ClusterMetadata, response: MetadataResponse, now: float, asked: frozenset[str] | None = None
) -> ClusterMetadata:
    """Return the snapshot after a response to a request for the topics `asked` (None: all), which it replaces.

    Nodes with an impossible id, host or port are dropped, and so are leaders that are none of the nodes. A partition
    whose leader epoch is lower than the known one is left unchanged: that broker's metadata is stale (KIP-320).
    """
    nodes: dict[int, Node] = {}
    for broker in response.brokers:
        if _is_possible(broker) and broker.node_id not in nodes:
            nodes[broker.node_id] = Node(broker.node_id, broker.host, broker.port, broker.rack)
    answered: dict[str, TopicInfo] = {}
    for topic in response.topics:
        if topic.name and topic.name not in answered:
            answered[topic.name] = _topic(topic, topic.name, nodes, previous.topics.get(topic.name))
    topics, fetched_at = answered, now
    if asked is not None:
        topics, fetched_at = _copy_of(previous.topics), previous.fetched_at
        for name in asked:
            topics.pop(name, None)
        topics.update((name, info) for name, info in answered.items() if name in asked)
    controller = response.controller_id if response.controller_id in nodes else -1
    return ClusterMetadata(
        response.cluster_id, controller, MappingProxyType(nodes), MappingProxyType(topics), fetched_at, asked
    )


def _copy_of(topics: Mapping[str, TopicInfo]) -> dict[str, TopicInfo]:
    """Return a dictionary with the same entries; a proxy's own `copy` is 20 times as fast as `dict(proxy)`."""
    return topics.copy() if isinstance(topics, MappingProxyType) else dict(topics)


def _is_possible(broker: MetadataResponseBroker) -> bool:
    return broker.node_id >= 0 and 0 < broker.port <= 65535 and bool(broker.host.strip())


def _topic(topic: MetadataResponseTopic, name: str, nodes: Mapping[int, Node], known: TopicInfo | None) -> TopicInfo:
    partitions = {partition.partition_index: partition for partition in reversed(topic.partitions)}
    error_code = topic.error_code
    if set(partitions) != set(range(len(partitions))):
        # The number of partitions determines the partition of a key, so an incomplete list is requested again.
        partitions = {}
        error_code = error_code or LeaderNotAvailable.code
    comparable = known is not None and known.topic_id == topic.topic_id != _NO_ID
    earlier = known.partitions if known is not None and comparable else ()
    return TopicInfo(
        name,
        topic.topic_id,
        tuple(_partition(partitions[number], nodes, earlier) for number in range(len(partitions))),
        topic.is_internal,
        error_code,
    )


def _partition(
    partition: MetadataResponsePartition, nodes: Mapping[int, Node], earlier: tuple[PartitionInfo, ...]
) -> PartitionInfo:
    number = partition.partition_index
    if number < len(earlier) and 0 <= partition.leader_epoch < earlier[number].leader_epoch:
        known = earlier[number]
        return known if known.leader in nodes else replace(known, leader=NO_LEADER)
    return PartitionInfo(
        number,
        partition.leader_id if partition.leader_id in nodes else NO_LEADER,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
        partition.error_code,
    )


@dataclass(slots=True)
class _KnownTopic:
    topic_id: uuid.UUID = _NO_ID
    count: int = 0
    replaced: set[uuid.UUID] = field(default_factory=set)  # ids that the topic had before it was recreated


class TopicPartitionCounts:
    """Partition counts of topics, kept across incomplete metadata.

    An entry with an error, without partitions, or missing changes nothing: a broker that has just started, an ACL that
    was taken away for a moment or a leader election are no reason to revoke partitions. Under one topic id the count
    only grows, as Kafka never removes partitions. Another topic id is a recreated topic, whose count replaces the old
    one; an id that was replaced before comes from a broker with older metadata, and is ignored.
    """

    def __init__(self) -> None:
        self._known: dict[str, _KnownTopic] = {}

    def update(self, metadata: ClusterMetadata, topics: Collection[str]) -> None:
        """Take in new metadata; forget every topic that is not among `topics`."""
        for topic in self._known.keys() - topics:
            del self._known[topic]
        for topic in topics:
            info = metadata.topics.get(topic)
            if info is None or info.error_code or not info.partitions:
                continue
            known = self._known.setdefault(topic, _KnownTopic())
            if info.topic_id in known.replaced:
                continue
            if _NO_ID not in (info.topic_id, known.topic_id) and info.topic_id != known.topic_id:
                known.replaced.add(known.topic_id)
                known.count = 0
            if info.topic_id != _NO_ID:
                known.topic_id = info.topic_id
            known.count = max(known.count, len(info.partitions))

    def count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if unknown."""
        known = self._known.get(topic)
        return known.count if known is not None else 0

    def is_outdated(self, info: TopicInfo) -> bool:
        """Return True if an entry is that of a topic that was recreated since."""
        known = self._known.get(info.name)
        return known is not None and info.topic_id in known.replaced

    def counts(self) -> Mapping[str, int]:
        """Return every known topic with its partition count."""
        return {topic: known.count for topic, known in self._known.items()}
