"""What the controller decides about topics: whether a request is allowed, and which metadata records it takes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.controller.image import TOPIC_RESOURCE
from pyclient.broker_embedded.log.config import LogConfig, check_asked
from pyclient.protocol.messages.metadata_log import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import MetadataImage, TopicImage

LONGEST_NAME: Final = 249
MOST_PARTITIONS: Final = 10_000
"""The most partitions that one request may ask for, as in Kafka."""

MOST_RECORDS: Final = 10_000
"""The most metadata records that one request may make, as in Kafka."""

METADATA_TOPIC: Final = "__cluster_metadata"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as asked for: -1 stands for the broker's default; `assignments` lists each partition's replicas."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a topic gets that does not say how many."""

    partitions: int
    replication_factor: int


def check_name(name: str) -> None:
    """Raise `InvalidTopic` for a name that Kafka refuses."""
    if not name:
        raise errors.InvalidTopic("a topic name must not be empty")
    if name in (".", ".."):
        raise errors.InvalidTopic(f"a topic must not be named {name!r}")
    if len(name) > LONGEST_NAME:
        raise errors.InvalidTopic(f"a topic name has at most {LONGEST_NAME} characters, this one has {len(name)}")
    if _NAME.fullmatch(name) is None:
        raise errors.InvalidTopic(f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed")


def check_new_name(image: MetadataImage, name: str) -> None:
    """Raise the error that forbids making a topic of that name now."""
    check_name(name)
    if name == METADATA_TOPIC:
        raise errors.InvalidRequest(f"{name} is the controller's own log: it cannot be created")
    if name in image.topics:
        raise errors.TopicAlreadyExists(f"topic {name!r} exists")
    other = image.colliding_topic(name)
    if other is not None:
        raise errors.InvalidTopic(f"topic {name!r} collides with {other!r}: '.' and '_' are the same in metric names")


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The topic options, checked. Raises `InvalidConfig` with what is allowed."""
    checked: dict[str, str] = {}
    for name, value in configs.items():
        if value is None:
            raise errors.InvalidConfig(f"{name}: a new topic's option needs a value")
        checked[name] = value
    check_asked(checked)
    LogConfig.from_topic(checked)
    return checked


def replicas_of(plan: TopicPlan, brokers: Sequence[int], defaults: Defaults, first: int = 0) -> list[list[int]]:
    """Each partition's replicas: those asked for, or spread over the brokers. Raises what is wrong with the numbers."""
    if plan.assignments:
        if plan.partitions != -1 or plan.replication_factor != -1:
            raise errors.InvalidRequest(
                f"topic {plan.name!r} has a replica assignment: its partitions and replication factor must be -1"
            )
        return _assigned(plan.assignments, brokers)
    count = defaults.partitions if plan.partitions == -1 else plan.partitions
    factor = defaults.replication_factor if plan.replication_factor == -1 else plan.replication_factor
    if count < 1:
        raise errors.InvalidPartitions(f"topic {plan.name!r} with {count} partitions: it must be at least 1")
    if count > MOST_PARTITIONS:
        raise errors.PolicyViolation(
            f"topic {plan.name!r} with {count} partitions: one request may ask for {MOST_PARTITIONS}"
        )
    return spread(count, factor, brokers, first)


def spread(count: int, factor: int, brokers: Sequence[int], first: int = 0) -> list[list[int]]:
    """Replicas for `count` partitions, each starting at the next broker. Raises `InvalidReplicationFactor`."""
    if not 1 <= factor <= len(brokers):
        raise errors.InvalidReplicationFactor(
            f"replication factor {factor}: it must be from 1 to {len(brokers)}, the number of brokers"
        )
    return [[brokers[(first + index + step) % len(brokers)] for step in range(factor)] for index in range(count)]


def _assigned(assignments: Mapping[int, Sequence[int]], brokers: Sequence[int]) -> list[list[int]]:
    if sorted(assignments) != list(range(len(assignments))):
        raise errors.InvalidReplicaAssignment("the partitions of an assignment must be 0, 1, 2 ... without a gap")
    chosen = [list(assignments[index]) for index in range(len(assignments))]
    check_assignment(chosen, brokers)
    return chosen


def check_assignment(chosen: Sequence[Sequence[int]], brokers: Sequence[int], factor: int | None = None) -> None:
    """Raise `InvalidReplicaAssignment` for replicas that are repeated, unknown, none, or of differing number."""
    for index, replicas in enumerate(chosen):
        expected = factor if factor is not None else len(chosen[0])
        if not replicas:
            raise errors.InvalidReplicaAssignment(f"partition {index} of the assignment has no replica")
        if len(set(replicas)) != len(replicas):
            raise errors.InvalidReplicaAssignment(f"partition {index} of the assignment names a broker twice")
        if len(replicas) != expected:
            raise errors.InvalidReplicaAssignment(
                f"partition {index} of the assignment has {len(replicas)} replicas, not {expected}"
            )
        unknown = [broker for broker in replicas if broker not in brokers]
        if unknown:
            raise errors.InvalidReplicaAssignment(f"the assignment names broker {unknown[0]}, which is not there")


def directories_for(
    count: int, online: Sequence[tuple[UUID, bool]], sizes: Mapping[UUID, int], *, assigned: bool, replicas: int
) -> list[UUID]:
    """The log directories of `count` new partitions: each in the one with the fewest, in the order of log.dirs.

    `online` are their ids, and whether they are cordoned: those get no partitions but ones that a client `assigned`.
    Raises `InvalidReplicationFactor`, with Kafka's words, if all are; `replicas` is for its text, 0: partitions that
    are added.
    """
    usable = [directory for directory, cordoned in online if assigned or not cordoned]
    if not usable:
        reason = "All brokers are currently fenced, or have all their log directories cordoned."
        what = f"Unable to replicate the partition {replicas} time(s): " if replicas else ""
        raise errors.InvalidReplicationFactor(what + reason)
    if len(usable) == 1:
        return usable * count
    load = {directory: sizes.get(directory, 0) for directory in usable}
    chosen = []
    for _ in range(count):
        emptiest = min(usable, key=load.__getitem__)
        load[emptiest] += 1
        chosen.append(emptiest)
    return chosen


def records_for_new_topic(
    name: str,
    topic_id: UUID,
    replicas: Sequence[Sequence[int]],
    configs: Mapping[str, str],
    directories: Sequence[UUID],
) -> list[Any]:
    """The records that make a topic; `directories` are those of its partitions."""
    records: list[Any] = [TopicRecord(name=name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=option, value=value)
        for option, value in configs.items()
    ]
    return records + records_for_partitions(topic_id, 0, replicas, directories)


def records_for_partitions(
    topic_id: UUID, first: int, replicas: Sequence[Sequence[int]], directories: Sequence[UUID]
) -> list[Any]:
    """The records that add partitions `first`, `first + 1`, ...; the first replica leads."""
    return [
        PartitionRecord(
            partition_id=first + index,
            topic_id=topic_id,
            replicas=list(chosen),
            isr=list(chosen),
            removing_replicas=[],
            adding_replicas=[],
            leader=chosen[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[directory] * len(chosen),
        )
        for index, (chosen, directory) in enumerate(zip(replicas, directories, strict=True))
    ]


def replicas_to_add(
    topic: TopicImage, count: int, assignments: Sequence[Sequence[int]] | None, brokers: Sequence[int]
) -> list[list[int]]:
    """The replicas of the partitions that bring `topic` to `count`. Raises why it cannot be."""
    current = len(topic.partitions)
    if count <= current:
        raise errors.InvalidPartitions(
            f"topic {topic.name!r} has {current} partitions: {count} would not be more (partitions cannot be removed)"
        )
    added = count - current
    if added > MOST_PARTITIONS:
        raise errors.PolicyViolation(f"{added} more partitions: one request may ask for {MOST_PARTITIONS}")
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        return spread(added, factor, brokers, current)
    if len(assignments) != added:
        raise errors.InvalidReplicaAssignment(
            f"{added} partitions would be added, but the assignment is for {len(assignments)}"
        )
    check_assignment(assignments, brokers, factor)
    return [list(replicas) for replicas in assignments]


def record_for_removal(topic: TopicImage) -> RemoveTopicRecord:
    """The record that removes a topic with its partitions and options."""
    return RemoveTopicRecord(topic_id=topic.topic_id)
