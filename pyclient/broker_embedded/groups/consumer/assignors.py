"""The server-side assignors `uniform` and `range`: compute target assignments from members and topics."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from pyclient.assignment import MemberSubscription, assign_range, assign_sticky
from pyclient.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from pyclient.assignment import Assignment, Members, PartitionCounts
    from pyclient.broker_embedded.groups.consumer.model import MemberMetadata, Target
    from pyclient.broker_embedded.groups.consumer.topics import TopicInfo, Topics

ASSIGNORS: Final[Mapping[str, Callable[[PartitionCounts, Members], Assignment]]] = {
    "uniform": assign_sticky,
    "range": assign_range,
}
"""By name. `uniform` assigns as evenly as the subscriptions allow and moves as few partitions as possible; `range`
assigns adjacent partitions of each topic. Both ignore racks, as Kafka's do from 4.0 on."""


def preferred(members: Iterable[MemberMetadata], available: tuple[str, ...]) -> str:
    """Return the assignor that most members request; the first configured one if none is requested."""
    votes = Counter(member.assignor for member in members if member.assignor is not None)
    return max(sorted(votes), key=lambda name: votes[name]) if votes else available[0]


def assign(
    assignor: str,
    members: Mapping[str, tuple[MemberMetadata, frozenset[str], Target]],
    topics: Topics,
) -> dict[str, Target]:
    """Return the target assignment of every member; a member is its metadata, its topics and its last target."""
    known: dict[str, TopicInfo] = {}
    for _, names, _ in members.values():
        known.update((name, info) for name in names - known.keys() if (info := topics.find(name)) is not None)
    by_id = {info.topic_id: name for name, info in known.items()}
    subscriptions = {
        member_id: MemberSubscription(
            topics=tuple(sorted(names & known.keys())),
            owned=tuple(_named(last, by_id)),
            instance_id=metadata.instance_id,
            rack=metadata.rack_id,
        )
        for member_id, (metadata, names, last) in sorted(members.items())
    }
    counts = {name: info.partitions for name, info in known.items()}
    assigned = ASSIGNORS[assignor](counts, subscriptions)
    return {member_id: _by_id(partitions, known) for member_id, partitions in assigned.items()}


def _named(target: Target, by_id: Mapping[UUID, str]) -> Iterable[TopicPartition]:
    for topic_id, partitions in target.items():
        name = by_id.get(topic_id)
        if name is not None:
            yield from (TopicPartition(name, partition) for partition in sorted(partitions))


def _by_id(partitions: Iterable[TopicPartition], known: Mapping[str, TopicInfo]) -> Target:
    target: dict[UUID, set[int]] = {}
    for name, partition in partitions:
        target.setdefault(known[name].topic_id, set()).add(partition)
    return {topic_id: frozenset(numbers) for topic_id, numbers in target.items()}
