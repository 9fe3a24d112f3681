"""Members of the classic protocol in a consumer group (KIP-848's online migration).

Such a member uses JoinGroup, SyncGroup and Heartbeat; a Heartbeat asks it to rejoin, and the rejoin reconciles its
assignment. Its generation is its member epoch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.consumer.membership import check_size, known_static, replace_static_member
from pyclient.broker_embedded.groups.consumer.model import ClassicProtocol, Member, MemberState
from pyclient.broker_embedded.groups.consumer.planning import Plan
from pyclient.errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    ProtocolError,
    RebalanceInProgress,
    UnknownMemberId,
    UnsupportedVersion,
)
from pyclient.protocol import codec
from pyclient.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.events import Limits
    from pyclient.broker_embedded.groups.consumer.model import CurrentAssignment, MemberMetadata, Record, Target
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.broker_embedded.groups.events import Join, Sync

CONSUMER: Final = "consumer"
_MAX_ASSIGNMENT_VERSION: Final = 3
_VERSION_BYTES: Final = 2


def join(
    group: ConsumerGroup, event: Join, topics: Topics, limits: Limits, now_ms: int, records: list[Record]
) -> tuple[Member, CurrentAssignment]:
    """Join or rejoin a classic member and append the records to `records`. Raise the `BrokerError` for the response."""
    check_size(group, event.member_id or event.fresh_id, limits)
    check_protocols(group, event)
    subscription = read_subscription(event.protocols[0].metadata)
    before = _admit(group, event, records)
    member = replace(before, metadata=_updated(before.metadata, event, subscription))
    plan = Plan(group, before, member, topics, limits, now_ms, records)
    plan.update_subscription()
    plan.update_target()
    return member, plan.reconcile(_owned(subscription, topics))


def check_protocols(group: ConsumerGroup, event: Join) -> None:
    """Raise InconsistentGroupProtocol unless all classic members have a protocol in common."""
    names = {protocol.name for protocol in event.protocols}
    for member_id, member in group.members.items():
        if member.metadata.classic is not None and member_id != event.member_id:
            names &= {name for name, _ in member.metadata.classic.protocols}
    if event.protocol_type != CONSUMER or not names:
        raise InconsistentGroupProtocol(f"group {group.group_id}: the member shares no protocol with the other members")


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode a classic consumer's subscription; raise InconsistentGroupProtocol for malformed bytes."""
    try:
        return codec.decode_versioned(ConsumerProtocolSubscription, metadata)
    except (ProtocolError, UnsupportedVersion) as error:
        raise InconsistentGroupProtocol(f"malformed subscription: {error}") from None


def _admit(group: ConsumerGroup, event: Join, records: list[Record]) -> Member:
    member_id = event.member_id or event.fresh_id
    if event.instance_id is None:
        return group.members.get(member_id) or Member(member_id)
    known = group.static_member(event.instance_id)
    if event.member_id:
        return known_static(group, event.instance_id, event.member_id)
    return Member(member_id) if known is None else replace_static_member(group, known, member_id, records)


def _updated(metadata: MemberMetadata, event: Join, subscription: ConsumerProtocolSubscription) -> MemberMetadata:
    protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in event.protocols)
    return replace(
        metadata,
        instance_id=metadata.instance_id if event.instance_id is None else event.instance_id,
        rack_id=metadata.rack_id if subscription.rack_id is None else subscription.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        regex="",
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        classic=ClassicProtocol(event.session_timeout_ms, protocols),
    )


def _owned(subscription: ConsumerProtocolSubscription, topics: Topics) -> Target:
    named = ((topics.find(topic.topic), topic.partitions) for topic in subscription.owned_partitions)
    return {info.topic_id: frozenset(partitions) for info, partitions in named if info is not None}


def require_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    """Return the classic member; raise UnknownMemberId, FencedInstanceId or IllegalGeneration."""
    if instance_id is not None:
        member = known_static(group, instance_id, member_id)
    elif (found := group.members.get(member_id)) is not None:
        member = found
    else:
        raise UnknownMemberId(f"Member {member_id} is not a member of group {group.group_id}.")
    if member.metadata.classic is None:
        raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
    if generation != member.current.epoch:
        raise IllegalGeneration(f"generation {generation} of member {member_id} is not {member.current.epoch}")
    return member


def must_rejoin(group: ConsumerGroup, member: Member) -> bool:
    """Return True if the member has a new target, partitions to revoke, or target partitions that are free now."""
    current = member.current
    if current.epoch < group.target_epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return current.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member)


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    missing = (
        (topic_id, partition)
        for topic_id, partitions in group.target_of(member).items()
        for partition in partitions
        if partition not in member.current.assigned.get(topic_id, {})
    )
    return any(partition in group.owners for partition in missing)


def synced(group: ConsumerGroup, member: Member, event: Sync, topics: Topics) -> bytes:
    """Return the member's assignment in the classic format; raise RebalanceInProgress if it has to rejoin first."""
    classic = member.metadata.classic
    assert classic is not None
    name, subscription = classic.protocols[0]
    if event.protocol_type not in (None, CONSUMER) or event.protocol_name not in (None, name):
        raise InconsistentGroupProtocol(
            f"member {member.member_id} uses protocol {name} of type {CONSUMER}, which the request does not name"
        )
    if group.target_epoch > member.current.epoch and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        raise RebalanceInProgress(f"group {group.group_id} has a new assignment: rejoin")
    held: Target = {topic_id: frozenset(partitions) for topic_id, partitions in member.current.assigned.items()}
    return encode_assignment(held, subscription, topics)


def encode_assignment(target: Target, subscription: bytes, topics: Topics) -> bytes:
    """Encode an assignment for a classic consumer, in the version of its subscription."""
    named = ((topics.name_of(topic_id), partitions) for topic_id, partitions in target.items())
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=sorted(partitions))
            for name, partitions in sorted((name, partitions) for name, partitions in named if name is not None)
        ]
    )
    return codec.encode_versioned(assignment, _version_for(subscription))


def _version_for(subscription: bytes) -> int:
    """Return the assignment version for a subscription; 0 if the subscription is too short to have a version.

    JoinGroup validates a member's first protocol only, and the group may elect another one.
    """
    if len(subscription) < _VERSION_BYTES:
        return 0
    return min(max(codec.peek_version(subscription), 0), _MAX_ASSIGNMENT_VERSION)


def decode_assignment(data: bytes, topics: Topics) -> tuple[Target, bytes]:
    """Return a classic consumer's assigned partitions, of topics that still exist, and the assignor's user data."""
    if not data:
        return {}, b""
    read = codec.decode_versioned(ConsumerProtocolAssignment, data)
    named = ((topics.find(part.topic), part.partitions) for part in read.assigned_partitions)
    target = {info.topic_id: frozenset(partitions) for info, partitions in named if info is not None and partitions}
    return target, bytes(read.user_data or b"")
