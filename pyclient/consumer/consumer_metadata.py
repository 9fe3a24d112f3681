"""A consumer's topics: the metadata to request, their problems, and the assignment without a group."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from pyclient.cluster.metadata import EMPTY, ClusterMetadata, TopicInfo, TopicPartitionCounts
from pyclient.consumer.consumer_coordinator import ConsumerCoordinator
from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.member_events import ApplyAssignment
from pyclient.consumer.subscription import Mode
from pyclient.errors import KafkaError, TopicAuthorizationFailed, UnknownTopicOrPartition, for_code, from_code
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.consumer")

_MAY_BE_CREATED: Final = 1.0  # seconds: a broker that creates topics on demand reports them as unknown meanwhile


class TopicWatch:
    """The problems of wanted topics, by the latest metadata.

    A missing topic is not an error of a poll, since it may be created at any time; it is logged, because its name may
    be mistyped. With `may_be_created` a topic has a second to be created before that. Times are monotonic seconds.
    """

    def __init__(self, *, may_be_created: bool) -> None:
        self.problems: Mapping[str, str] = MappingProxyType({})
        """Current problems, by the name of a topic or partition."""
        self._patience = _MAY_BE_CREATED if may_be_created else 0.0
        self._missing_since: dict[str, float] = {}
        self._logged: set[str] = set()
        self._raised: set[str] = set()  # by the poll, so not logged

    def check(
        self,
        metadata: ClusterMetadata,
        topics: Collection[str],
        partitions: Iterable[TopicPartition],
        now: float,
        *,
        pattern: str | None = None,
    ) -> list[str]:
        """Compare new metadata with the wanted topics and assigned partitions; return new texts to log.

        `topics` may be those that a `pattern` matches.
        """
        problems = {**self._of_topics(metadata, topics, now), **_of_partitions(metadata, partitions)}
        if pattern is not None:
            unlisted = (name for name in topics if name not in metadata.topics)
            problems.update((name, _describe_unlisted(name)) for name in unlisted)
        if pattern is not None and not topics:
            problems[f"pattern {pattern}"] = (
                f"no topic matches the pattern {pattern!r}, which has to match a whole name; the cluster shows "
                f"{len(metadata.topics)} topics"
            )
        existing = {
            name for name in self._logged if (info := metadata.topics.get(name)) is not None and info.partitions
        }
        new = [
            text for name, text in problems.items() if name not in self._logged - existing and name not in self._raised
        ]
        self._logged = (self._logged - existing) | problems.keys()
        self.problems = MappingProxyType(problems)
        return new

    def _of_topics(self, metadata: ClusterMetadata, topics: Iterable[str], now: float) -> dict[str, str]:
        problems: dict[str, str] = {}
        missing_since: dict[str, float] = {}
        self._raised = set()
        for name in topics:
            info = metadata.topics.get(name)
            if info is None or not info.error_code:
                continue
            if info.error_code == UnknownTopicOrPartition.code:
                missing_since[name] = self._missing_since.get(name, now)
                if now - missing_since[name] >= self._patience:
                    problems[name] = describe_missing(name)
            elif not for_code(info.error_code).retriable:
                problems[name] = describe_refusal(info)
                self._raised.add(name)
        self._missing_since = missing_since
        return problems


def _of_partitions(metadata: ClusterMetadata, partitions: Iterable[TopicPartition]) -> dict[str, str]:
    problems = {}
    for partition in partitions:
        count = metadata.partition_count(partition.topic)
        if count is not None and partition.partition >= count:
            problems[str(partition)] = (
                f"topic {partition.topic!r} has {count} partitions and no number {partition.partition}: nothing can be "
                "read from it until there are more"
            )
    return problems


def describe_missing(name: str) -> str:
    """Return the text for a topic that does not exist."""
    return (
        f"topic {name!r} does not exist in the cluster: check its name, or create it; it is read as soon as it exists"
    )


def _describe_unlisted(name: str) -> str:
    return (
        f"topic {name!r} matches the pattern and is not listed by the cluster any more: it was deleted, or this "
        "client's principal lost Describe on it. Its positions are kept, and it is read as soon as it is listed again"
    )


def describe_refusal(info: TopicInfo) -> str:
    """Return the text for a topic that cannot be read, however long the client waits."""
    if info.error_code == TopicAuthorizationFailed.code:
        return (
            f"topic {info.name!r} may not be read: grant this client's principal DESCRIBE and READ on it, "
            "or leave it out"
        )
    return f"topic {info.name!r} cannot be read"


class ConsumerMetadata:
    """Follows the metadata of subscribed and assigned topics; everything runs on the loop.

    Without a group it assigns all partitions. `on_change` is called after new metadata, with the errors
    that the user has to know.
    """

    def __init__(
        self,
        context: ConsumerContext,
        coordinator: ConsumerCoordinator,
        on_change: Callable[[Iterable[KafkaError]], None],
    ) -> None:
        self._cluster = context.cluster
        self._config = context.config
        self._subscription = context.subscription
        self._lock = context.lock
        self._clock = context.clock
        self._coordinator = coordinator
        self._on_change = on_change
        self._counts = TopicPartitionCounts()
        self._watch = TopicWatch(may_be_created=context.config.allow_auto_create_topics)

    @property
    def problems(self) -> Mapping[str, str]:
        """Return the problems of wanted topics and partitions, by their names."""
        return self._watch.problems

    def follow(self) -> None:
        """Request the metadata of the topics that are wanted now."""
        subscription = self._subscription
        if subscription.mode is Mode.PATTERN:
            self._cluster.set_topics(None)
        else:
            self._cluster.set_topics(self._wanted())
        if self._cluster.metadata is not EMPTY:
            self.note(self._cluster.metadata)

    def note(self, metadata: ClusterMetadata) -> None:
        """Process new metadata."""
        internal_too = not self._config.exclude_internal_topics
        names = [
            info.name for info in metadata.topics.values() if info.partitions and (internal_too or not info.internal)
        ]
        with self._lock:
            if self._coordinator.membership is None:  # a topic that is not listed for a moment is kept
                names += self._subscription.topics
            matched = self._subscription.match(names)
            self._counts.update(metadata, self._wanted())
            self.note_leaders(metadata)
        if self._coordinator.membership is None:
            self._assign_everything()
        else:
            self._coordinator.note_metadata(metadata, matched=matched)
        self._watch_topics(metadata)
        self._on_change(self._topic_errors(metadata))

    def note_leaders(self, metadata: ClusterMetadata) -> None:
        """Note the leaders of the assigned partitions; the caller holds the lock."""
        outdated = {
            topic
            for topic in {partition.topic for partition in self._subscription.assignment()}
            if (entry := metadata.topics.get(topic)) is not None and self._counts.is_outdated(entry)
        }
        for partition in self._subscription.assignment():
            info = metadata.partition(*partition)
            if info is not None and partition.topic not in outdated:
                topic_id = metadata.topics[partition.topic].topic_id
                self._subscription.note_leader(partition, info.leader_epoch, topic_id)

    def _wanted(self) -> set[str]:
        """Return the topics that are subscribed to or assigned."""
        return {*self._subscription.topics, *(topic for topic, _ in self._subscription.assignment())}

    def _topic_errors(self, metadata: ClusterMetadata) -> list[KafkaError]:
        """Return permanent errors: topics that may not be read, or cannot exist."""
        infos = [metadata.topics[topic] for topic in self._wanted() if topic in metadata.topics]
        return [
            from_code(info.error_code, describe_refusal(info))
            for info in infos
            if info.error_code and not for_code(info.error_code).retriable
        ]

    def _watch_topics(self, metadata: ClusterMetadata) -> None:
        """Log each missing topic once: it is not an error, but its name may be mistyped."""
        assigned = self._subscription.assignment()
        wanted = dict.fromkeys([*self._subscription.topics, *(topic for topic, _ in assigned)])
        pattern = self._subscription.pattern.pattern if self._subscription.pattern is not None else None
        for text in self._watch.check(metadata, wanted, assigned, self._clock.monotonic(), pattern=pattern):
            log.warning("%s", text)

    def describe_failures(self) -> str:
        """Return the failures of topics and cluster for an error's text; empty if there are none."""
        return "; ".join(filter(None, [*self._watch.problems.values(), self._cluster.describe_failures()]))

    def _assign_everything(self) -> None:
        """Without a group, assign every partition of the subscribed topics.

        A topic is removed only when it is unsubscribed from; see `TopicPartitionCounts` for a partition.
        """
        if self._subscription.mode not in (Mode.TOPICS, Mode.PATTERN):
            return
        wanted = [
            TopicPartition(topic, number)
            for topic in self._subscription.topics
            for number in range(self._counts.count(topic))
        ]
        held = dict.fromkeys(self._coordinator.rebalances.expected())
        added = tuple(partition for partition in wanted if partition not in held)
        kept = set(wanted)
        revoked = tuple(partition for partition in held if partition not in kept)
        if added or revoked:
            self._coordinator.rebalance(ApplyAssignment(0, tuple(wanted), added, revoked))
