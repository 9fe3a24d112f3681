"""Checks of a heartbeat: its fields, the group's size, member epochs, and static members (KIP-345)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.consumer.model import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    CurrentRecord,
    Member,
    MemberRecord,
    TargetRecord,
)
from pyclient.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.consumer.events import ConsumerHeartbeat, Limits
    from pyclient.broker_embedded.groups.consumer.model import Assigned, Record, Target
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup


def check_request(group_id: str, event: ConsumerHeartbeat, limits: Limits, *, makes_own_id: bool) -> None:
    """Raise InvalidRequest or UnsupportedAssignor, with Kafka's message, for a request that is never valid.

    With `makes_own_id` (version 1) a member always has an id; in version 0 the coordinator generates it.
    """
    epoch = event.member_epoch
    if not event.member_id and (makes_own_id or epoch > JOINING or epoch == LEAVING):
        raise InvalidRequest("MemberId can't be empty.")
    for name, text in (("GroupId", group_id), ("InstanceId", event.instance_id), ("RackId", event.rack_id)):
        if text is not None and not text.strip():
            raise InvalidRequest(f"{name} can't be empty.")
    if epoch == JOINING:
        _check_join(event)
    elif epoch == LEAVING_STATIC and event.instance_id is None:
        raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC:
        raise InvalidRequest("MemberEpoch is invalid.")
    if event.assignor is not None and event.assignor not in limits.assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {event.assignor} is not supported. Supported assignors: {', '.join(limits.assignors)}."
        )


def _check_join(event: ConsumerHeartbeat) -> None:
    if event.rebalance_timeout_ms == -1:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    if event.owned is None or event.owned:
        raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
    if event.topics is None and event.regex is None:
        raise InvalidRequest("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def admit(group: ConsumerGroup, event: ConsumerHeartbeat, limits: Limits, records: list[Record]) -> Member:
    """Return the member of the request, which may be new; a static member that returns replaces its old id."""
    check_size(group, event.member_id, limits)
    if event.instance_id is not None:
        return _admit_static(group, event, event.instance_id, records)
    member = group.members.get(event.member_id)
    if member is None:
        if event.member_epoch != JOINING:
            raise UnknownMemberId(f"Member {event.member_id} is not a member of group {group.group_id}.")
        return Member(event.member_id)
    check_epoch(member, event.member_epoch, event.owned)
    return member


def check_size(group: ConsumerGroup, member_id: str, limits: Limits) -> None:
    """Raise GroupMaxSizeReached if a new member would exceed group.consumer.max.size."""
    if len(group.members) >= limits.max_size and member_id not in group.members:
        raise GroupMaxSizeReached(f"The consumer group has reached its maximum capacity of {limits.max_size} members.")


def _admit_static(group: ConsumerGroup, event: ConsumerHeartbeat, instance_id: str, records: list[Record]) -> Member:
    member = group.static_member(instance_id)
    if event.member_epoch != JOINING:
        member = known_static(group, instance_id, event.member_id)
        check_epoch(member, event.member_epoch, event.owned)
        return member
    if member is None:
        return group.members.get(event.member_id) or Member(event.member_id)
    if member.metadata.classic is None and member.current.epoch != LEAVING_STATIC:
        raise UnreleasedInstanceId(
            f"Static member {event.member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {member.member_id} member."
        )
    return replace_static_member(group, member, event.member_id, records)


def known_static(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """Return the static member; raise UnknownMemberId or FencedInstanceId unless it has that member id."""
    member = group.static_member(instance_id)
    if member is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        )
    return member


def replace_static_member(group: ConsumerGroup, old: Member, member_id: str, records: list[Record]) -> Member:
    """Replace a static member's id: the new member inherits its metadata and assignments."""
    new = Member(member_id, old.metadata, replace(old.current, epoch=JOINING, previous_epoch=JOINING))
    records += [
        CurrentRecord(old.member_id, None),
        TargetRecord(old.member_id, None),
        MemberRecord(old.member_id, None),
        MemberRecord(member_id, new.metadata),
        TargetRecord(member_id, group.targets.get(old.member_id, {})),
        CurrentRecord(member_id, new.current),
    ]
    return new


def check_epoch(member: Member, epoch: int, owned: Target | None) -> None:
    """Raise FencedMemberEpoch unless the epoch is the member's current one, or it rejoins.

    The previous epoch is accepted if the member owns only assigned partitions: it missed the answer with the new epoch.
    """
    known = member.current
    if epoch in (known.epoch, JOINING):
        return
    if epoch == known.previous_epoch and epoch < known.epoch and _is_subset(owned, known.assigned):
        return
    relation = "greater" if epoch > known.epoch else "smaller"
    raise FencedMemberEpoch(
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known.epoch}). The member must abandon all its partitions and rejoin."
    )


def _is_subset(owned: Target | None, assigned: Assigned) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in owned.items())
