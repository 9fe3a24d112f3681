"""Encode and decode the subscriptions and assignments of classic groups (protocol type "consumer")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pyclient.assignment import Assignor, MemberSubscription
from pyclient.consumer.member_events import Partitions, SendJoin
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
    """Return this member's subscription for the leader, for `assignor`."""
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
    """Return every member's subscription; raise `MalformedMessage` with the member whose bytes are malformed."""
    return {member.member_id: _decode_member(member) for member in members}


def _decode_member(member: JoinGroupResponseMember) -> MemberSubscription:
    try:
        decoded = decode_versioned(ConsumerProtocolSubscription, member.metadata)
    except ProtocolError as error:
        raise MalformedMessage(f"malformed subscription of group member {member.member_id!r}: {error}") from error
    return MemberSubscription(
        topics=tuple(decoded.topics),
        owned=_partitions((owned.topic, owned.partitions) for owned in decoded.owned_partitions),
        generation=decoded.generation_id,
        instance_id=member.group_instance_id,
        rack=decoded.rack_id,
        user_data=decoded.user_data,
    )


def encode_assignment(partitions: Partitions) -> bytes:
    """Return one member's encoded assignment."""
    assigned = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in split_by_topic(partitions).items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), _VERSION)


def decode_assignment(data: bytes) -> Partitions:
    """Return the decoded assignment, empty for no bytes; raise `MalformedMessage` for malformed ones."""
    if not data:
        return ()
    try:
        decoded = decode_versioned(ConsumerProtocolAssignment, data)
    except ProtocolError as error:
        raise MalformedMessage(f"malformed assignment of the group leader: {error}") from error
    return _partitions((given.topic, given.partitions) for given in decoded.assigned_partitions)


def _partitions(topics: Iterable[tuple[str, list[int]]]) -> Partitions:
    """Return the partitions in order, without duplicates."""
    pairs = dict.fromkeys(TopicPartition(topic, number) for topic, numbers in topics for number in numbers)
    if any(not 0 <= partition.partition <= _MAX_PARTITION for partition in pairs):
        raise MalformedMessage("a group member sent a partition with a negative number")
    return tuple(pairs)


def plan(
    protocol: str,
    assignors: Iterable[Assignor],
    counts: Mapping[str, int],
    members: Mapping[str, MemberSubscription],
) -> dict[str, Partitions]:
    """Return every member's partitions by the assignor that the group agreed on; runs in the leader.

    Raise `InconsistentGroupProtocol` for an assignor that this member does not have, `ValueError` for one that returns
    no mapping, assigns a partition twice, or assigns to an unknown member.
    """
    chosen = next((assignor for assignor in assignors if assignor.name == protocol), None)
    if chosen is None:
        raise InconsistentGroupProtocol(f"the group chose the assignor {protocol!r}, which this member did not offer")
    assignment = chosen.assign(counts, members)
    if not isinstance(assignment, Mapping):
        raise ValueError(
            f"the assignor {protocol!r} returned {assignment!r}: it must return a mapping, member id to partitions"
        )
    shares = {member: tuple(held) for member, held in assignment.items()}
    assigned = [partition for held in shares.values() for partition in held]
    if len(set(assigned)) != len(assigned) or not shares.keys() <= members.keys():
        raise ValueError(
            f"the assignor {protocol!r} assigned a partition twice, or to a member that is not in the group"
        )
    return shares
