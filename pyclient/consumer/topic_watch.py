"""Problems of wanted topics and partitions: logged once each, kept for `health()`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from pyclient.cluster.metadata import ClusterMetadata, TopicInfo
from pyclient.errors import TopicAuthorizationFailed, UnknownTopicOrPartition, for_code
from pyclient.types import TopicPartition

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

    def look(
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
            f"topic {info.name!r} may not be read: grant this client's principal Describe and Read on it, "
            "or leave it out"
        )
    return f"topic {info.name!r} cannot be read"
