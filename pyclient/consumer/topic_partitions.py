"""Partition counts of a consumer's topics, from reliable metadata only."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyclient.cluster.metadata import ClusterMetadata, TopicInfo

_NO_TOPIC_ID: Final = uuid.UUID(int=0)


@dataclass(slots=True)
class _KnownTopic:
    topic_id: uuid.UUID = _NO_TOPIC_ID
    count: int = 0
    replaced: set[uuid.UUID] = field(default_factory=set)  # ids that the topic had before it was recreated


class TopicPartitionCounts:
    """Partition counts of the topics that are read, kept across incomplete metadata.

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
            if _NO_TOPIC_ID not in (info.topic_id, known.topic_id) and info.topic_id != known.topic_id:
                known.replaced.add(known.topic_id)
                known.count = 0
            if info.topic_id != _NO_TOPIC_ID:
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
