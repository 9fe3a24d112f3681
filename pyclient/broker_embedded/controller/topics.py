"""Validation of topic requests, replica placement, and the metadata records of topics. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.controller.image import TOPIC_RESOURCE
from pyclient.broker_embedded.controller.placement import NONE_USABLE, StripedReplicaPlacer, UsableBroker
from pyclient.broker_embedded.log.config import LogConfig, check_asked
from pyclient.protocol.fields import ZERO_UUID
from pyclient.protocol.messages.metadata_log import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from random import Random
    from uuid import UUID

    from pyclient.broker_embedded.controller.image import MetadataImage, TopicImage
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask

MAX_NAME_LENGTH: Final = 249
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""Maximum number of new partitions in a request, as in Kafka."""

MAX_RECORDS_PER_REQUEST: Final = 10_000
"""Maximum number of metadata records of a request, as in Kafka."""

_AT_ONCE: Final = 50
"""Partitions that are placed in one step."""

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


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers as topics see them.

    `active` may lead and be in sync. `directories` are the ids of a broker's online log directories, each with True if
    it is cordoned; brokers whose directories are all cordoned get replicas only by an assignment. `usable` are those
    that other replicas are placed on.
    """

    registered: frozenset[int]
    active: frozenset[int]
    usable: tuple[UsableBroker, ...]
    directories: Mapping[int, Sequence[tuple[UUID, bool]]]

    @classmethod
    def of(cls, image: MetadataImage, own: Mapping[int, Sequence[tuple[UUID, bool]]]) -> Brokers:
        """Return the brokers of an image; `own` are the directories of this node, which it knows best."""
        directories: dict[int, Sequence[tuple[UUID, bool]]] = {}
        for node, broker in image.brokers.items():
            known = own.get(node)
            if known is None:
                known = [(each, each in broker.cordoned) for each in broker.log_dirs] or [(ZERO_UUID, False)]
            directories[node] = known
        return cls(
            frozenset(image.brokers),
            frozenset(node for node, broker in image.brokers.items() if broker.active),
            tuple(
                UsableBroker(node, broker.rack, broker.fenced)
                for node, broker in sorted(image.brokers.items())
                if broker.usable and not all(cordoned for _, cordoned in directories[node])
            ),
            directories,
        )


class Assigned(NamedTuple):
    """A new partition: its replicas, those that are in sync, the first of them the leader, and their directories."""

    replicas: Sequence[int]
    isr: Sequence[int]
    directories: Sequence[UUID]


def replicas_of(plan: TopicPlan, brokers: Brokers, defaults: Defaults, rng: Random) -> IncrementalTask[list[list[int]]]:
    """Return each partition's replicas, as requested or spread over the brokers. Raise `BrokerError` if invalid.

    Many partitions take steps, unless there is one broker.
    """
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
    try:
        spread_evenly = yield from spread(count, factor, brokers, rng)
    except errors.InvalidReplicationFactor as error:
        raise errors.InvalidReplicationFactor(f"Unable to replicate the partition {factor} time(s): {error}") from None
    return spread_evenly


def spread(count: int, factor: int, brokers: Brokers, rng: Random) -> IncrementalTask[list[list[int]]]:
    """Return the replicas of `count` partitions, spread over racks and brokers. Raise `InvalidReplicationFactor`.

    Partitions on a single broker share a list.
    """
    placer = StripedReplicaPlacer(brokers.usable, rng)
    placer.check(factor)
    if len(brokers.usable) == 1:
        return [[brokers.usable[0].node_id]] * count
    rows = []
    for index in range(count):
        if index and not index % _AT_ONCE:
            yield None
        rows.append(placer.place(factor))
    return rows


def _assigned(assignments: Mapping[int, Sequence[int]], brokers: Brokers) -> list[list[int]]:
    if sorted(assignments) != list(range(len(assignments))):
        raise errors.InvalidReplicaAssignment("the partitions of an assignment must be 0, 1, 2 ... without a gap")
    chosen = [list(assignments[index]) for index in range(len(assignments))]
    check_assignment(chosen, brokers.registered)
    return chosen


def check_assignment(chosen: Sequence[Sequence[int]], registered: Iterable[int], factor: int | None = None) -> None:
    """Raise `InvalidReplicaAssignment` for duplicate, unknown or missing replicas, or differing replica counts."""
    known = frozenset(registered)
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
        unknown = [broker for broker in replicas if broker not in known]
        if unknown:
            raise errors.InvalidReplicaAssignment(f"the assignment names broker {unknown[0]}, which is not registered")


def assigned_partitions(
    replicas: Sequence[Sequence[int]], brokers: Brokers, sizes: Mapping[UUID, int], *, by_hand: bool, factor: int
) -> IncrementalTask[list[Assigned]]:
    """Return the new partitions with their in-sync replicas and log directories; `factor` is for the message.

    Each replica goes to the directory of its broker with the fewest. Raise `InvalidReplicaAssignment` or
    `InvalidReplicationFactor` if no replica of a partition is on an active broker. Many partitions take steps, unless
    they are all in the only directory of one broker.
    """
    first = replicas[0]
    if len(first) == 1 and first[0] in brokers.active and len(set(map(id, replicas))) == 1:
        directories = directories_for(
            len(replicas), brokers.directories[first[0]], sizes, assigned=by_hand, replicas=factor
        )
        if len(brokers.directories[first[0]]) == 1:
            return [Assigned(first, first, directories[:1])] * len(replicas)
    on_broker: dict[int, int] = {}
    for row in replicas:
        for broker in row:
            on_broker[broker] = on_broker.get(broker, 0) + 1
    chosen = {
        broker: iter(directories_for(count, brokers.directories[broker], sizes, assigned=by_hand, replicas=factor))
        for broker, count in on_broker.items()
    }
    assigned = []
    for index, row in enumerate(replicas):
        if index and not index % _AT_ONCE:
            yield None
        isr = [broker for broker in row if broker in brokers.active]
        if not isr:
            reason = "fenced or in controlled shutdown."
            if by_hand:
                raise errors.InvalidReplicaAssignment(
                    f"All brokers specified in the manual partition assignment for partition {index} are {reason}"
                )
            raise errors.InvalidReplicationFactor(
                f"Unable to replicate the partition {factor} time(s): All brokers are currently {reason}"
            )
        assigned.append(Assigned(row, isr, [next(chosen[broker]) for broker in row]))
    return assigned


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
        failure = f"Unable to replicate the partition {replicas} time(s): " if replicas else ""
        raise errors.InvalidReplicationFactor(failure + NONE_USABLE)
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
    name: str, topic_id: UUID, assigned: Sequence[Assigned], configs: Mapping[str, str]
) -> Iterator[Any]:
    """Yield the records that create a topic."""
    yield TopicRecord(name=name, topic_id=topic_id)
    for option, value in configs.items():
        yield ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=option, value=value)
    yield from records_for_partitions(topic_id, 0, assigned)


def records_for_partitions(topic_id: UUID, first: int, assigned: Sequence[Assigned]) -> Iterator[Any]:
    """Yield the records that add partitions `first`, `first + 1`, ..."""
    for index, each in enumerate(assigned):
        yield PartitionRecord(
            partition_id=first + index,
            topic_id=topic_id,
            replicas=list(each.replicas),
            isr=list(each.isr),
            removing_replicas=[],
            adding_replicas=[],
            leader=each.isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=list(each.directories),
        )


def replicas_to_add(
    topic: TopicImage, count: int, assignments: Sequence[Sequence[int]] | None, brokers: Brokers, rng: Random
) -> IncrementalTask[list[list[int]]]:
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
        return (yield from spread(added, factor, brokers, rng))
    if len(assignments) != added:
        raise errors.InvalidReplicaAssignment(
            f"{added} partitions are added, but the assignment has {len(assignments)}"
        )
    check_assignment(assignments, brokers.registered, factor)
    return [list(replicas) for replicas in assignments]


def record_for_removal(topic: TopicImage) -> RemoveTopicRecord:
    """Return the record that removes a topic with its partitions and options."""
    return RemoveTopicRecord(topic_id=topic.topic_id)
