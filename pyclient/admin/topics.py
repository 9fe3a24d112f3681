"""The admin client's values for topics, their requests, and the errors of calls on several topics."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pyclient.cluster.metadata import PartitionInfo, TopicInfo
from pyclient.errors import BrokerError, MalformedMessage, for_code, from_code
from pyclient.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from pyclient.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Without `partitions` or `replication_factor`, the broker's defaults apply.

    `configs` are topic options by Kafka's names ("retention.ms"). `assignments` gives each partition's replicas by
    node id, the preferred leader first, instead of the two numbers.
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `TypeError` or `ValueError` for arguments that no broker could accept."""
        if not isinstance(self.name, str):
            raise TypeError(f"a topic's name is a string, not {self.name!r}")
        if self.assignments and (self.partitions, self.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
            raise ValueError(f"topic {self.name!r}: give either assignments, or partitions and replication_factor")


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic that exists. `partitions` are in order of their number; a leader of -1 means that there is none."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[PartitionInfo, ...]
    internal: bool


class ItemResult(NamedTuple):
    """The result of a call for one topic, or another item with a name; code 0 is success."""

    topic: str
    error_code: int
    message: str | None


def raise_errors(
    doing: str,
    api: str,
    answers: Iterable[ItemResult],
    *,
    what: str = "topic",
    asked: Iterable[str] | None = None,
) -> None:
    """Raise the first error in the answers to a request, if any, like `DeleteTopics`.

    Its text names the other topics that failed and those that succeeded.

    Its `results` has every topic's own error, or None where it succeeded. With `asked`, the names in the request, raise
    `MalformedMessage` if the answers are about other names.
    """
    answers = list(answers)
    if asked is not None:
        check_names(doing, (answer.topic for answer in answers), asked, what=what)
    results: dict[str, BrokerError | None] = {}
    for answer in answers:
        results[answer.topic] = None
        if answer.error_code:
            detail = f": {answer.message}" if answer.message else ""
            name = for_code(answer.error_code).__name__
            text = f"{doing} {what} {answer.topic!r}: {name}{detail}"
            results[answer.topic] = from_code(answer.error_code, text, api)
    failures = [error for error in results.values() if error is not None]
    if not failures:
        return
    first = failures[0]
    text = "; also ".join(str(error) for error in failures)
    succeeded = [topic for topic, error in results.items() if error is None]
    if succeeded:
        text += f"; done for: {', '.join(succeeded)}"
    first.args = (text,)
    first.results = results
    raise first


def check_names(doing: str, answered: Iterable[str], asked: Iterable[str], *, what: str) -> None:
    """Raise `MalformedMessage` unless a response has exactly the names of the request."""
    differ = sorted(set(answered) ^ set(asked))
    if differ:
        raise MalformedMessage(
            f"{doing}: the broker's response and the request do not name the same {what}s; they differ in "
            f"{', '.join(f'{name:.100}' for name in differ[:5])}"
        )


def description(info: TopicInfo) -> TopicDescription:
    """Return a topic of a metadata snapshot for the user."""
    return TopicDescription(info.name, info.topic_id, info.partitions, info.internal)


def new_topics(topics: Iterable[NewTopic]) -> list[NewTopic]:
    """Return the topics as a list; raise `TypeError` for anything that is not a `NewTopic`."""
    found = [] if isinstance(topics, (str, NewTopic)) else list(topics)
    wrong = [topics] if isinstance(topics, (str, NewTopic)) else [one for one in found if not isinstance(one, NewTopic)]
    if wrong:
        raise TypeError(f"topics to create are a list such as [NewTopic('orders', partitions=3)], not {wrong[0]!r}")
    return found


def unique_names(names: Iterable[str]) -> list[str]:
    """Return the names without repetitions, in their order; raise `TypeError` for a single string."""
    if isinstance(names, str):
        raise TypeError(f"names are a list; for one give [{names!r}]")
    return list(dict.fromkeys(names))


def create_topics_request(topics: Iterable[NewTopic], *, timeout_ms: int, validate_only: bool) -> CreateTopicsRequest:
    """Return the request that creates topics."""
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
                    for partition, replicas in topic.assignments.items()
                ],
                configs=[CreatableTopicConfig(name=name, value=str(value)) for name, value in topic.configs.items()],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )


def create_partitions_request(
    totals: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]], *, timeout_ms: int
) -> CreatePartitionsRequest:
    """Return the request that adds partitions to topics."""
    return CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=total,
                assignments=[CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignments[name]]
                if name in assignments
                else None,
            )
            for name, total in totals.items()
        ],
        timeout_ms=timeout_ms,
        validate_only=False,
    )
