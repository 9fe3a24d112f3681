"""The partition assignors of classic consumer groups, as pure functions of members and partition counts."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from types import MappingProxyType
from typing import Final

from pyclient.types import TopicPartition

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

Assignment = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """A member's input to a rebalance.

    `owned` are the partitions it still owns and `generation` the generation in which it got them (-1: none);
    `instance_id` is its `group_instance_id`, which orders static members across restarts (KIP-345).
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


Members = Mapping[str, MemberSubscription]
PartitionCounts = Mapping[str, int]


class TopicsWithRacks(dict[str, int]):
    """Partition counts with the racks of each partition's replicas, for members that report their rack (KIP-881)."""

    def __init__(self, counts: Mapping[str, int], racks: Mapping[TopicPartition, frozenset[str]]) -> None:
        super().__init__(counts)
        self.racks = racks


@dataclass(frozen=True, slots=True)
class Assignor:
    """A named assignment strategy.

    `assign(partition_counts, members)` returns a list for every member, which may be empty; topics that are missing
    from `partition_counts` are ignored. With `cooperative`, members keep their partitions while they join (KIP-429).
    `user_data(partitions, generation)` returns what a member sends to the leader with its subscription, given its last
    assignment and the generation of that (-1: none yet); `assign` gets it as `MemberSubscription.user_data`.
    """

    name: str
    assign: Callable[[PartitionCounts, Members], Assignment]
    cooperative: bool = False
    user_data: Callable[[Sequence[TopicPartition], int], bytes | None] | None = None


def assign_range(counts: PartitionCounts, members: Members) -> Assignment:
    """Assign consecutive partitions of each topic to each member, one more to the first ones, as Java's RangeAssignor.

    Topics with the same number of partitions and the same members are co-partitioned, so that joins find both keys.
    With racks (`TopicsWithRacks`), partitions first go, within the same shares, to members in a rack that has a
    replica; co-partitioned where that is possible for all such topics (KIP-881).
    """
    assignment = _empty(members)
    subscribers = _subscribers(counts, members)
    shares = {topic: _Share(counts[topic], subscribers[topic]) for topic in subscribers}
    near = _Nearness(counts, members, subscribers)
    if near:
        alike: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        for topic in subscribers:
            alike.setdefault((counts[topic], tuple(subscribers[topic])), []).append(topic)
        groups = [topics for topics in alike.values() if len(topics) > 1] + [[topic] for topic in subscribers]
        for topics in groups:
            _give_near(topics, shares, near)
    for topic, share in shares.items():
        for member in subscribers[topic]:
            while share.unassigned and share.may_take(member):
                share.give(share.unassigned[0], member)
        for number, member in sorted(share.owner.items()):
            assignment[member].append(TopicPartition(topic, number))
    return assignment


class _Share:
    """The owners of one topic's partitions, with no more for a member than the range assignor allows."""

    def __init__(self, count: int, subscribers: Sequence[str]) -> None:
        self.unassigned = list(range(count))
        self.owner: dict[int, str] = {}
        self.subscribers = subscribers
        self._share, self._extra = divmod(count, len(subscribers))
        self._taken = dict.fromkeys(subscribers, 0)

    def may_take(self, member: str) -> bool:
        """Return True if the member may get one more; the extra partitions go to the first members that ask."""
        return self._taken[member] < self._share + (self._extra > 0)

    def give(self, number: int, member: str) -> None:
        """Assign the partition to the member."""
        self.unassigned.remove(number)
        self.owner[number] = member
        self._taken[member] += 1
        self._extra -= self._taken[member] > self._share


def _give_near(topics: Sequence[str], shares: Mapping[str, _Share], near: _Nearness) -> None:
    """Assign each partition number, of all these topics together, to a member that is near to all of them."""
    first = shares[topics[0]]
    for number in list(first.unassigned):
        for member in first.subscribers:
            if all(
                number in shares[topic].unassigned
                and shares[topic].may_take(member)
                and near(TopicPartition(topic, number), member)
                for topic in topics
            ):
                for topic in topics:
                    shares[topic].give(number, member)
                break


class _Nearness:
    """Return True if a member's rack has a replica. Its truth value is False if racks make no difference at all."""

    def __init__(self, counts: PartitionCounts, members: Members, subscribers: Mapping[str, Sequence[str]]) -> None:
        known = counts.racks if isinstance(counts, TopicsWithRacks) else {}
        self._racks = {
            partition: known.get(partition, frozenset())
            for topic in subscribers
            for partition in (TopicPartition(topic, number) for number in range(counts[topic]))
        }
        self._rack = {member: subscription.rack for member, subscription in members.items() if subscription.rack}
        of_replicas = frozenset[str]().union(*self._racks.values())
        of_members = set(self._rack.values())
        self._matters = bool(of_members & of_replicas) and any(racks != of_replicas for racks in self._racks.values())

    def __bool__(self) -> bool:
        return self._matters

    def __call__(self, partition: TopicPartition, member: str) -> bool:
        return self._rack.get(member) in self._racks[partition]


def assign_round_robin(counts: PartitionCounts, members: Members) -> Assignment:
    """Assign all partitions in turn, skipping members that are not subscribed, as Java's RoundRobinAssignor."""
    assignment = _empty(members)
    turn = cycle(_in_order(members))
    for topic in sorted(_subscribers(counts, members)):
        for partition in range(counts[topic]):
            member = next(turn)
            while topic not in members[member].topics:
                member = next(turn)
            assignment[member].append(TopicPartition(topic, partition))
    return assignment


def assign_sticky(counts: PartitionCounts, members: Members) -> Assignment:
    """Assign as evenly as subscriptions allow, moving as few partitions as possible.

    With racks (`TopicsWithRacks`), partitions without an owner go to members in a rack that has a replica, as long as
    that does not make loads uneven (KIP-881); other partitions are not moved for it.
    """
    subscribers = _subscribers(counts, members)
    assignment = _still_owned(counts, members)
    taken = {partition for held in assignment.values() for partition in held}
    free = list(_unassigned(counts, subscribers, taken))
    near = _Nearness(counts, members, subscribers)
    if near:
        limit = sum(counts[topic] for topic in subscribers) // max(
            1, len({m for each in subscribers.values() for m in each})
        )
        free = [partition for partition in free if not _give_to_near(partition, assignment, subscribers, near, limit)]
    for partition in free:
        candidates = subscribers[partition.topic]
        assignment[min(candidates, key=lambda member: len(assignment[member]))].append(partition)
    _even_out(assignment, subscribers)
    for held in assignment.values():
        held.sort()
    return assignment


def _give_to_near(
    partition: TopicPartition,
    assignment: Assignment,
    subscribers: Mapping[str, Sequence[str]],
    near: _Nearness,
    limit: int,
) -> bool:
    """Assign it to the least loaded member that is near and below the limit; return False if there is none."""
    candidates = [
        member for member in subscribers[partition.topic] if len(assignment[member]) < limit and near(partition, member)
    ]
    if not candidates:
        return False
    assignment[min(candidates, key=lambda member: len(assignment[member]))].append(partition)
    return True


def assign_cooperative_sticky(counts: PartitionCounts, members: Members) -> Assignment:
    """As `assign_sticky`, but leave out partitions that move until their owner has revoked them (KIP-429).

    The owner revokes them and joins again; that second rebalance assigns them to the new owner.
    """
    assignment = assign_sticky(counts, members)
    owner = {partition: member for member, held in _still_owned(counts, members).items() for partition in held}
    return {
        member: [partition for partition in held if owner.get(partition, member) == member]
        for member, held in assignment.items()
    }


def assign_eager_sticky(counts: PartitionCounts, members: Members) -> Assignment:
    """As `assign_sticky`, for members that revoked everything before they joined and list it in `user_data`.

    Invalid user data, which may be another assignor's, counts as none.
    """
    remembered: dict[str, MemberSubscription] = {}
    for member, subscription in members.items():
        try:
            owned, generation = decode_sticky_data(subscription.user_data or b"")
        except ValueError:
            owned, generation = (), -1
        remembered[member] = replace(subscription, owned=owned, generation=generation)
    return assign_sticky(counts, remembered)


def encode_sticky_data(partitions: Sequence[TopicPartition], generation: int) -> bytes:
    """Encode the user data of Java's StickyAssignor: an array of topic and partition numbers, then the generation."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    data = bytearray(_INT32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        name = topic.encode()
        data += _INT16.pack(len(name)) + name + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return bytes(data + _INT32.pack(generation))


def decode_sticky_data(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    """Decode partitions and generation (-1 if an old member leaves it out); raise `ValueError` for invalid bytes."""
    try:
        (topics,), position = _INT32.unpack_from(data), _INT32.size
        found: list[TopicPartition] = []
        for _ in _checked(topics, data, position):
            (length,) = _INT16.unpack_from(data, position)
            position += _INT16.size
            name = data[position : position + len(_checked(length, data, position))].decode()
            position += length
            (count,) = _INT32.unpack_from(data, position)
            position += _INT32.size
            numbers = struct.unpack_from(f">{len(_checked(count, data, position))}i", data, position)
            position += _INT32.size * count
            found += [TopicPartition(name, number) for number in numbers]
        generation = _INT32.unpack_from(data, position)[0] if len(data) > position else -1
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"user data of the sticky assignor is truncated or invalid: {error}") from error
    return tuple(dict.fromkeys(found)), generation


def _checked(count: int, data: bytes, position: int) -> range:
    """Return `range(count)`; raise `ValueError` if fewer than `count` bytes are left."""
    if not 0 <= count <= len(data) - position:
        raise ValueError(f"user data of the sticky assignor: {count} entries in {len(data) - position} bytes")
    return range(count)


ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType(
    {
        assignor.name: assignor
        for assignor in (
            Assignor("range", assign_range),
            Assignor("roundrobin", assign_round_robin),
            Assignor("sticky", assign_eager_sticky, user_data=encode_sticky_data),
            Assignor("cooperative-sticky", assign_cooperative_sticky, cooperative=True),
        )
    }
)
"""The built-in assignors, by their names on the wire (Java's names)."""


def _empty(members: Members) -> Assignment:
    return {member: [] for member in members}


def _in_order(members: Members) -> list[str]:
    """Return static members by instance id, then the others by member id: the order of Java's MemberInfo."""

    def rank(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return (instance_id is None, member if instance_id is None else instance_id)

    return sorted(members, key=rank)


def _subscribers(counts: PartitionCounts, members: Members) -> dict[str, list[str]]:
    """Return the members subscribed to each existing topic, in order."""
    subscribers: dict[str, list[str]] = {}
    for member in _in_order(members):
        for topic in dict.fromkeys(members[member].topics):
            if counts.get(topic, 0) > 0:
                subscribers.setdefault(topic, []).append(member)
    return subscribers


def _still_owned(counts: PartitionCounts, members: Members) -> Assignment:
    """Return the owned partitions that a member may keep: existing, subscribed, not claimed in a newer generation."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member, subscription in members.items():
        topics = set(subscription.topics)
        for partition in dict.fromkeys(subscription.owned):
            if partition.topic in topics and 0 <= partition.partition < counts.get(partition.topic, 0):
                claims.setdefault(partition, []).append((subscription.generation, member))
    held = _empty(members)
    for partition, claimants in claims.items():
        newest = max(generation for generation, _ in claimants)
        winners = [member for generation, member in claimants if generation == newest]
        if len(winners) == 1:  # two claims of one generation contradict each other, so neither counts
            held[winners[0]].append(partition)
    return held


def _unassigned(
    counts: PartitionCounts, subscribers: Mapping[str, Sequence[str]], taken: set[TopicPartition]
) -> Iterable[TopicPartition]:
    """Yield the partitions without an owner, those with the fewest subscribers first."""
    for topic in sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic)):
        for number in range(counts[topic]):
            partition = TopicPartition(topic, number)
            if partition not in taken:
                yield partition


def _even_out(assignment: Assignment, subscribers: Mapping[str, Sequence[str]]) -> None:
    """Move partitions from more to less loaded members until no single move makes loads more even."""
    moved = True
    while moved:
        moved = False
        for giver in sorted(assignment, key=lambda member: -len(assignment[member])):
            moved = _give_away(giver, assignment, subscribers) or moved


def _give_away(giver: str, assignment: Assignment, subscribers: Mapping[str, Sequence[str]]) -> bool:
    """Move partitions of one member to members with at least two fewer; return True if any moved."""
    kept: list[TopicPartition] = []
    held = assignment[giver]
    load = len(held)
    for partition in reversed(held):
        taker = min(subscribers[partition.topic], key=lambda member: len(assignment[member]))
        if taker != giver and len(assignment[taker]) + 1 < load:
            assignment[taker].append(partition)
            load -= 1
        else:
            kept.append(partition)
    kept.reverse()
    assignment[giver] = kept
    return len(kept) < len(held)
