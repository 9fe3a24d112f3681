"""Subscriptions and assignments as the bytes that members of a classic group exchange (protocol type "consumer")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyclient.assignment import Assignor, MemberSubscription
from pyclient.consumer.group_events import Partitions, SendJoin
from pyclient.consumer.subscription import split_by_topic
from pyclient.errors import InconsistentGroupProtocol, MalformedMessage, ProtocolError
from pyclient.protocol.codec import decode_versioned, encode_versioned
from pyclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from pyclient.protocol.messages.join_group import JoinGroupResponseMember
from pyclient.types import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = 3
_MAX_PARTITION: Final = 2**31 - 1


def encode_subscription(join: SendJoin, assignor: Assignor, rack: str) -> bytes:
    """What this member tells the leader, if that uses `assignor`."""
    owned = [
        ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in split_by_topic(join.owned).items()
    ]
    subscription = ConsumerProtocolSubscription(
        topics=sorted(join.topics),
        user_data=None if assignor.user_data is None else assignor.user_data(join.last, join.last_generation),
        owned_partitions=owned,
        generation_id=join.generation,
        rack_id=rack or None,
    )
    return encode_versioned(subscription, _VERSION)


def decode_members(members: Iterable[JoinGroupResponseMember]) -> dict[str, MemberSubscription]:
    """What the leader is told of every member; `MalformedMessage` names one whose bytes make no sense."""
    return {member.member_id: _decode_member(member) for member in members}


def _decode_member(member: JoinGroupResponseMember) -> MemberSubscription:
    try:
        told = decode_versioned(ConsumerProtocolSubscription, member.metadata)
    except ProtocolError as error:
        raise MalformedMessage(
            f"the subscription of group member {member.member_id!r} makes no sense: {error}"
        ) from error
    return MemberSubscription(
        topics=tuple(told.topics),
        owned=_partitions((owned.topic, owned.partitions) for owned in told.owned_partitions),
        generation=told.generation_id,
        instance_id=member.group_instance_id,
        rack=told.rack_id,
        user_data=told.user_data,
    )


def encode_assignment(partitions: Partitions) -> bytes:
    """What the leader tells one member."""
    assigned = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in split_by_topic(partitions).items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), _VERSION)


def decode_assignment(data: bytes) -> Partitions:
    """What this member was given; nothing if the leader left it out. `MalformedMessage` for bytes that are none."""
    if not data:
        return ()
    try:
        told = decode_versioned(ConsumerProtocolAssignment, data)
    except ProtocolError as error:
        raise MalformedMessage(f"the group leader's assignment makes no sense: {error}") from error
    return _partitions((given.topic, given.partitions) for given in told.assigned_partitions)


def _partitions(topics: Iterable[tuple[str, list[int]]]) -> Partitions:
    """In order, each once."""
    pairs = dict.fromkeys(TopicPartition(topic, number) for topic, numbers in topics for number in numbers)
    if any(not 0 <= partition.partition <= _MAX_PARTITION for partition in pairs):
        raise MalformedMessage("a group member speaks of a partition with a negative number")
    return tuple(pairs)


def plan(
    protocol: str,
    assignors: Iterable[Assignor],
    counts: Mapping[str, int],
    members: Mapping[str, MemberSubscription],
) -> dict[str, Partitions]:
    """The leader's work: every member's partitions by the assignor that the group agreed on.

    Raises `InconsistentGroupProtocol` for an assignor this member does not have, `ValueError` from one that gives a
    partition twice, or to a stranger, or something that is no assignment.
    """
    chosen = next((assignor for assignor in assignors if assignor.name == protocol), None)
    if chosen is None:
        raise InconsistentGroupProtocol(f"the group chose the assignor {protocol!r}, which this member did not offer")
    assignment = chosen.assign(counts, members)
    if not isinstance(assignment, Mapping):
        raise ValueError(f"the assignor {protocol!r} gave {assignment!r}: it gives a mapping, member id to partitions")
    shares = {member: tuple(held) for member, held in assignment.items()}
    given_out = [partition for held in shares.values() for partition in held]
    if len(set(given_out)) != len(given_out) or not shares.keys() <= members.keys():
        raise ValueError(f"the assignor {protocol!r} gave a partition twice, or to a member that is not in the group")
    return shares
