"""Compares the records, topics and offsets that a broker serves with those that it acknowledged."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field

from pyclient.types import TopicPartition


@dataclass
class TopicPromise:
    """A topic: `created` and `deleted` are what was acknowledged, `deletion_begun` what may have happened."""

    partitions: int
    topic_id: uuid.UUID | None = None
    created: bool = False
    deletion_begun: bool = False
    deleted: bool = False


@dataclass
class PartitionPromise:
    """`sent` are all values that may be there, `acknowledged` those that must be, by offset."""

    sent: set[bytes] = field(default_factory=set)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    start_offset: int = 0
    """The log's start may have been moved up to here by a DeleteRecords request."""


class PromiseBroken(AssertionError):
    """A promise was broken; the text says which."""


class Oracle:
    """Gets every request before it is sent and every answer."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicPromise] = {}
        self.partitions: dict[TopicPartition, PartitionPromise] = defaultdict(PartitionPromise)
        self.committed: dict[tuple[str, TopicPartition], int] = {}
        self.commits_sent: dict[tuple[str, TopicPartition], int] = {}

    @property
    def living(self) -> list[str]:
        """The topics that must be there."""
        return [name for name, topic in self.topics.items() if topic.created and not topic.deletion_begun]

    def records(self) -> int:
        """Return the number of acknowledged records."""
        return sum(len(each.acknowledged) for each in self.partitions.values())

    def check_topics(self, found: set[str]) -> None:
        """Compare the topics that are there."""
        for name, topic in self.topics.items():
            if topic.created and not topic.deletion_begun and name not in found:
                raise PromiseBroken(f"topic {name} was acknowledged and is gone")
            if topic.deleted and name in found:
                raise PromiseBroken(f"the deletion of topic {name} was acknowledged, and it is there")
        for name in found - self.topics.keys():
            if not name.startswith("__"):
                raise PromiseBroken(f"topic {name} was never created")

    def check_records(
        self, partition: TopicPartition, start: int, found: dict[int, bytes], *, lost_from: int | None = None
    ) -> None:
        """Compare what a partition has; from `lost_from` on records may be missing, but not be others."""
        promise = self.partitions[partition]
        if start > promise.start_offset and lost_from is None:
            raise PromiseBroken(
                f"{partition} begins at {start}, {promise.start_offset} was the most that was asked for"
            )
        for offset, value in found.items():
            if value not in promise.sent:
                raise PromiseBroken(f"{partition} offset {offset}: {value!r} was never sent")
        for offset, value in promise.acknowledged.items():
            if offset < promise.start_offset or (lost_from is not None and offset >= lost_from):
                continue
            if found.get(offset) != value:
                raise PromiseBroken(
                    f"{partition} offset {offset}: {value!r} was acknowledged, {found.get(offset)!r} is there"
                )

    def forget_from(self, partition: TopicPartition, offset: int) -> None:
        """Forget the records from `offset` on, which were damaged on purpose."""
        promise = self.partitions[partition]
        for each in [each for each in promise.acknowledged if each >= offset]:
            del promise.acknowledged[each]

    def check_commit(self, group: str, partition: TopicPartition, offset: int) -> None:
        """Compare a committed offset; they only grow in what is sent."""
        least = self.committed.get((group, partition), -1)
        most = self.commits_sent.get((group, partition), -1)
        if not least <= offset <= most:
            raise PromiseBroken(
                f"group {group} has {offset} for {partition}, between {least} and {most} were committed"
            )
