"""The cluster's topics as seen by consumer groups."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class TopicInfo(NamedTuple):
    """A topic's id and its number of partitions."""

    topic_id: UUID
    partitions: int


class Topics(Protocol):
    """The topics of the cluster."""

    @property
    def version(self) -> int:
        """A number that rises when a topic is created, deleted or gets more partitions."""

    def find(self, name: str) -> TopicInfo | None:
        """Return the topic with that name, None if it does not exist."""

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with that id, None if it does not exist."""

    def names(self) -> Iterable[str]:
        """Return the names of all topics that patterns may match."""


@dataclass(slots=True)
class KnownTopics:
    """A fixed set of topics."""

    by_name: Mapping[str, TopicInfo]
    version: int = 0

    def find(self, name: str) -> TopicInfo | None:
        """Return the topic with that name, None if it is not in the set."""
        return self.by_name.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with that id, None if it is not in the set."""
        return next((name for name, info in self.by_name.items() if info.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self.by_name


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a signed 64-bit hash of the topics' ids and partition counts; 0 if none exists.

    The value is compared with earlier values of this function only. Kafka hashes the same data differently, so a group
    that moves between Kafka and this broker rebalances once.
    """
    known = [(name, info) for name in sorted(names) if (info := topics.find(name)) is not None]
    if not known:
        return 0
    text = "\n".join(f"{name} {info.topic_id} {info.partitions}" for name, info in known)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
