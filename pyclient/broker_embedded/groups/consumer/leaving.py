"""Removal of members: they leave, leave temporarily (static members), or miss a deadline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.consumer.events import ConsumerAnswer, Decision
from pyclient.broker_embedded.groups.consumer.membership import known_static
from pyclient.broker_embedded.groups.consumer.model import (
    JOINING,
    LEAVING_STATIC,
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    MemberState,
    RegexRecord,
    TargetRecord,
)
from pyclient.broker_embedded.groups.consumer.topics import metadata_hash
from pyclient.errors import UnknownMemberId

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyclient.broker_embedded.groups.consumer.events import ConsumerHeartbeat
    from pyclient.broker_embedded.groups.consumer.model import Member, Record
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
    from pyclient.broker_embedded.groups.consumer.topics import Topics


def leave(group: ConsumerGroup, event: ConsumerHeartbeat) -> Decision:
    """Handle a heartbeat with a leaving epoch.

    A static member that leaves temporarily keeps its assignment; it counts as made in epoch 0, in which it returns.
    """
    if event.instance_id is None:
        member = group.members.get(event.member_id)
        if member is None:
            raise UnknownMemberId(f"Member {event.member_id} is not a member of group {group.group_id}.")
    else:
        member = known_static(group, event.instance_id, event.member_id)
    answer = ConsumerAnswer(event.member_id, event.member_epoch)
    if event.instance_id is not None and event.member_epoch == LEAVING_STATIC:
        assigned = {topic: dict.fromkeys(partitions, JOINING) for topic, partitions in member.current.assigned.items()}
        current = replace(
            member.current, epoch=LEAVING_STATIC, state=MemberState.STABLE, assigned=assigned, revoking={}
        )
        return Decision(answer, [CurrentRecord(member.member_id, current)])
    return Decision(answer, removed=(member,))


def remove(group: ConsumerGroup, members: Collection[Member], topics: Topics) -> list[Record]:
    """Return the records that remove members and increment the group epoch."""
    records: list[Record] = []
    for member in members:
        records += [
            CurrentRecord(member.member_id, None),
            TargetRecord(member.member_id, None),
            MemberRecord(member.member_id, None),
        ]
    removed = {member.member_id for member in members}
    remaining = [member for name, member in group.members.items() if name not in removed]
    used = {member.metadata.regex for member in remaining}
    records += [RegexRecord(regex, None) for regex in group.regexes if regex not in used]
    names: frozenset[str] = frozenset().union(*(group.topics_of(member.metadata) for member in remaining))
    records.append(EpochRecord(group.epoch + 1, metadata_hash(names, topics)))
    return records


def expired_members(group: ConsumerGroup, now: float) -> list[tuple[Member, str]]:
    """Return the members whose deadlines have passed at `now`, with the reason."""
    found: list[tuple[Member, str]] = []
    for member_id, member in group.members.items():
        epoch, revocation_deadline = group.revocations.get(member_id, (0, now + 1))
        if group.sessions.get(member_id, now + 1) <= now:
            found.append((member, "its session expired without a heartbeat"))
        elif revocation_deadline <= now and member.current.epoch == epoch:
            found.append((member, "it did not revoke its partitions within its rebalance timeout"))
        elif group.rejoin_deadlines.get(member_id, now + 1) <= now:
            found.append((member, "it did not rejoin, or send SyncGroup, within its rebalance timeout"))
    return found
