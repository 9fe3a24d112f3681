"""What a consumer group needs to know of the cluster's topics."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class TopicInfo(NamedTuple):
    """A topic's id and how many partitions it has."""

    topic_id: UUID
    partitions: int


class Topics(Protocol):
    """The topics of the cluster."""

    @property
    def version(self) -> int:
        """A number that rises when a topic comes, goes or grows."""

    def find(self, name: str) -> TopicInfo | None:
        """The topic of that name, if it exists."""

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id, if it exists."""

    def names(self) -> Iterable[str]:
        """All topics that clients may read by pattern."""


@dataclass(slots=True)
class KnownTopics:
    """Topics that are written down."""

    by_name: Mapping[str, TopicInfo]
    version: int = 0

    def find(self, name: str) -> TopicInfo | None:
        """The topic of that name, if it is known."""
        return self.by_name.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id, if it is known."""
        return next((name for name, info in self.by_name.items() if info.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        """All of them."""
        return self.by_name


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """A signed 64-bit number that changes when one of the topics comes, goes or grows; 0 while none exists.

    Only the broker that wrote it compares it with its own. Kafka's is another function of the same things, so a group
    that moves from one to the other rebalances once.
    """
    known = [(name, info) for name in sorted(names) if (info := topics.find(name)) is not None]
    if not known:
        return 0
    text = "\n".join(f"{name} {info.topic_id} {info.partitions}" for name, info in known)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
