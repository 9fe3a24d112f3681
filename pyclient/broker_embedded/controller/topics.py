"""Validation of topic requests, replica placement, and the metadata records of topics. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyclient import errors
from pyclient.broker_embedded.controller.image import TOPIC_RESOURCE
from pyclient.broker_embedded.log.config import LogConfig, check_asked
from pyclient.protocol.messages.metadata_log import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import MetadataImage, TopicImage

MAX_NAME_LENGTH: Final = 249
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Maximum number of new partitions in a request, as in Kafka."""

MAX_RECORDS_PER_REQUEST: Final = 10_000
"""Maximum number of metadata records of a request, as in Kafka."""

METADATA_TOPIC: Final = "__cluster_metadata"
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A requested topic: -1 is the broker's default; `assignments` lists the replicas of each partition."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Defaults:
    """The broker's defaults for new topics."""

    partitions: int
    replication_factor: int


def check_name(name: str) -> None:
    """Raise `InvalidTopic` for a name that Kafka rejects."""
    if not name:
        raise errors.InvalidTopic("a topic name must not be empty")
    if name in (".", ".."):
        raise errors.InvalidTopic(f"a topic must not be named {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise errors.InvalidTopic(f"a topic name has at most {MAX_NAME_LENGTH} characters, this one has {len(name)}")
    if _NAME.fullmatch(name) is None:
        raise errors.InvalidTopic(f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed")


def check_new_name(image: MetadataImage, name: str) -> None:
    """Raise `BrokerError` if a topic with that name cannot be created."""
    check_name(name)
    if name == METADATA_TOPIC:
        raise errors.InvalidRequest(f"{name} is the controller's log and cannot be created")
    if name in image.topics:
        raise errors.TopicAlreadyExists(f"topic {name!r} exists")
    other = image.colliding_topic(name)
    if other is not None:
        raise errors.InvalidTopic(f"topic {name!r} collides with {other!r}: '.' and '_' are the same in metric names")


def check_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the validated topic options. Raise `InvalidConfig` with the allowed values."""
    checked: dict[str, str] = {}
    for name, value in configs.items():
        if value is None:
            raise errors.InvalidConfig(f"{name}: a new topic's option needs a value")
        checked[name] = value
    check_asked(checked)
    LogConfig.from_topic(checked)
    return checked


def replicas_of(plan: TopicPlan, brokers: Sequence[int], defaults: Defaults, first: int = 0) -> list[list[int]]:
    """Return each partition's replicas, as requested or spread over the brokers. Raise `BrokerError` if invalid."""
    if plan.assignments:
        if plan.partitions != -1 or plan.replication_factor != -1:
            raise errors.InvalidRequest(
                f"topic {plan.name!r} has a replica assignment: its partitions and replication factor must be -1"
            )
        return _assigned(plan.assignments, brokers)
    count = defaults.partitions if plan.partitions == -1 else plan.partitions
    factor = defaults.replication_factor if plan.replication_factor == -1 else plan.replication_factor
    if count < 1:
        raise errors.InvalidPartitions(f"topic {plan.name!r} with {count} partitions: must be at least 1")
    if count > MAX_PARTITIONS_PER_REQUEST:
        raise errors.PolicyViolation(
            f"topic {plan.name!r} with {count} partitions: a request may create {MAX_PARTITIONS_PER_REQUEST}"
        )
    return spread(count, factor, brokers, first)


def spread(count: int, factor: int, brokers: Sequence[int], first: int = 0) -> list[list[int]]:
    """Return the replicas of `count` partitions, each starting at the next broker. Raise `InvalidReplicationFactor`.

    Partitions with the same replicas share a list.
    """
    if not 1 <= factor <= len(brokers):
        raise errors.InvalidReplicationFactor(
            f"replication factor {factor}: must be between 1 and {len(brokers)}, the number of brokers"
        )
    size = len(brokers)
    rows = [[brokers[(start + step) % size] for step in range(factor)] for start in range(size)]
    return [rows[(first + index) % size] for index in range(count)]


def _assigned(assignments: Mapping[int, Sequence[int]], brokers: Sequence[int]) -> list[list[int]]:
    if sorted(assignments) != list(range(len(assignments))):
        raise errors.InvalidReplicaAssignment("the partitions of an assignment must be 0, 1, 2 ... without a gap")
    chosen = [list(assignments[index]) for index in range(len(assignments))]
    check_assignment(chosen, brokers)
    return chosen


def check_assignment(chosen: Sequence[Sequence[int]], brokers: Sequence[int], factor: int | None = None) -> None:
    """Raise `InvalidReplicaAssignment` for duplicate, unknown or missing replicas, or differing replica counts."""
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
            raise errors.InvalidReplicaAssignment(f"the assignment names broker {unknown[0]}, which is not registered")


def directories_for(
    count: int, online: Sequence[tuple[UUID, bool]], sizes: Mapping[UUID, int], *, assigned: bool, replicas: int
) -> list[UUID]:
    """Return the log directories of `count` new partitions: each the one with the fewest replicas, in log.dirs order.

    `online` are the directory ids, each with True if it is cordoned: only partitions that a client `assigned` go there.
    Raise `InvalidReplicationFactor`, with Kafka's message, if all are cordoned; `replicas` is the count in the
    message, 0 for added partitions.
    """
    usable = [directory for directory, cordoned in online if assigned or not cordoned]
    if not usable:
        reason = "All brokers are currently fenced, or have all their log directories cordoned."
        failure = f"Unable to replicate the partition {replicas} time(s): " if replicas else ""
        raise errors.InvalidReplicationFactor(failure + reason)
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
) -> Iterator[Any]:
    """Yield the records that create a topic; `directories` are the log directories of its partitions."""
    yield TopicRecord(name=name, topic_id=topic_id)
    for option, value in configs.items():
        yield ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=option, value=value)
    yield from records_for_partitions(topic_id, 0, replicas, directories)


def records_for_partitions(
    topic_id: UUID, first: int, replicas: Sequence[Sequence[int]], directories: Sequence[UUID]
) -> Iterator[Any]:
    """Yield the records that add partitions `first`, `first + 1`, ...; the first replica is the leader."""
    for index, (chosen, directory) in enumerate(zip(replicas, directories, strict=True)):
        yield PartitionRecord(
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


def replicas_to_add(
    topic: TopicImage, count: int, assignments: Sequence[Sequence[int]] | None, brokers: Sequence[int]
) -> list[list[int]]:
    """Return the replicas of the new partitions that increase `topic` to `count`. Raise `BrokerError` if invalid."""
    current = len(topic.partitions)
    if count <= current:
        raise errors.InvalidPartitions(
            f"topic {topic.name!r} has {current} partitions: {count} must be more (partitions cannot be removed)"
        )
    added = count - current
    if added > MAX_PARTITIONS_PER_REQUEST:
        raise errors.PolicyViolation(f"{added} more partitions: a request may create {MAX_PARTITIONS_PER_REQUEST}")
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        return spread(added, factor, brokers, current)
    if len(assignments) != added:
        raise errors.InvalidReplicaAssignment(
            f"{added} partitions are added, but the assignment has {len(assignments)}"
        )
    check_assignment(assignments, brokers, factor)
    return [list(replicas) for replicas in assignments]


def record_for_removal(topic: TopicImage) -> RemoveTopicRecord:
    """Return the record that removes a topic with its partitions and options."""
    return RemoveTopicRecord(topic_id=topic.topic_id)
