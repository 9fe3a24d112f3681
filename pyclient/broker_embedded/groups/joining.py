"""JoinGroup: new members, members that come back, and static members that take their old place (KIP-345, KIP-394)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.events import Answer, JoinResult, SyncResult
from pyclient.broker_embedded.groups.rebalancing import joined, rebalance, store
from pyclient.broker_embedded.groups.state import (
    COMPLETING,
    DEAD,
    NEW_MEMBER_JOIN_TIMEOUT,
    PREPARING,
    STABLE,
    Member,
    StoringRejoin,
)
from pyclient.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    MemberIdRequired,
    RebalanceInProgress,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.events import Action, Join
    from pyclient.broker_embedded.groups.state import ClassicGroup


def join(group: ClassicGroup, event: Join, now: float) -> list[Action]:
    """Take a member in, or back; the answer comes when the rebalance is complete, or at once if there is none."""
    if group.state is DEAD:
        return _refuse(event, CoordinatorNotAvailable.code)
    if not _has_room(group, event):
        return _refuse(event, GroupMaxSizeReached.code)
    if not group.supports(event.protocol_type, event.protocols):
        return _refuse(event, InconsistentGroupProtocol.code)
    if event.member_id:
        return _join_known(group, event, now)
    if event.instance_id is not None:
        known = group.static_ids.get(event.instance_id)
        return _add(group, event, now) if known is None else _take_place(group, event, group.members[known], now)
    if event.needs_known_id:
        group.pending[event.fresh_id] = now + group.session_seconds(event.session_timeout_ms)
        return _refuse(event, MemberIdRequired.code, event.fresh_id)
    return _add(group, event, now)


def _refuse(event: Join, error: int, member_id: str | None = None) -> list[Action]:
    return [Answer(event.reply, JoinResult(error=error, member_id=event.member_id if member_id is None else member_id))]


def _has_room(group: ClassicGroup, event: Join) -> bool:
    """group.max.size; while members gather, the first to join again have the places."""
    if event.instance_id in group.static_ids and not event.member_id:
        return True
    member = group.members.get(event.member_id)
    if group.state is PREPARING:
        return (member is not None and member.join_reply is not None) or group.joining < group.max_size
    return member is not None or len(group.members) < group.max_size


def _join_known(group: ClassicGroup, event: Join, now: float) -> list[Action]:
    if event.member_id in group.pending and event.instance_id is None:
        del group.pending[event.member_id]
        return _add(group, event, now)
    error = group.check(event.member_id, event.instance_id)
    if error:
        return _refuse(event, error)
    member = group.members[event.member_id]
    unchanged = member.protocols == event.protocols
    # A member of this generation that asks again lost our answer. In a stable group the leader's JoinGroup always
    # starts a rebalance: it joins again because what it bases the assignment on has changed.
    if unchanged and (group.state is COMPLETING or (group.state is STABLE and member.member_id != group.leader)):
        group.refresh(member, now)
        return [Answer(event.reply, joined(group, member))]
    return _park(group, member, event) + rebalance(group, now)


def _add(group: ClassicGroup, event: Join, now: float) -> list[Action]:
    member = Member(
        member_id=event.member_id or event.fresh_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        deadline=now + NEW_MEMBER_JOIN_TIMEOUT,
        join_reply=event.reply,
    )
    group.add(member, event.protocol_type)
    group.new_member_added = group.generation == 0
    return rebalance(group, now)


def _park(group: ClassicGroup, member: Member, event: Join) -> list[Action]:
    """Take note of what the member says now, and hold its request; one that it sent before is told to try again."""
    lost: list[Action] = []
    if member.join_reply is not None:
        lost.append(Answer(member.join_reply, JoinResult(error=RebalanceInProgress.code, member_id=member.member_id)))
    group.set_protocols(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    group.hold_join(member, event.reply)
    member.deadline = None
    return lost


def _take_place(group: ClassicGroup, event: Join, member: Member, now: float) -> list[Action]:
    """A static member came back without its member id: the place is its own, whoever held it until now is fenced."""
    old_leader = group.leader
    actions = _fence(group, member)
    group.rename(member, event.fresh_id)
    if group.state is not STABLE:
        return actions + _park(group, member, event) + rebalance(group, now)
    group.set_protocols(member, event.protocols)
    if group.elect_protocol() != group.protocol_name:
        return actions + _park(group, member, event) + rebalance(group, now)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    group.refresh(member, now)
    result = joined(group, member)
    if event.can_skip_assignment:
        result = replace(result, skip_assignment=member.member_id == group.leader)
    else:  # an older client takes itself for a follower, and so asks for its assignment instead of making one
        result = replace(result, leader=old_leader or "", members=())
    return [*actions, store(group, StoringRejoin(event.reply, result))]


def _fence(group: ClassicGroup, member: Member) -> list[Action]:
    code = FencedInstanceId.code
    actions: list[Action] = []
    if member.join_reply is not None:
        actions.append(Answer(member.join_reply, JoinResult(error=code, member_id=member.member_id)))
    if member.sync_reply is not None:
        actions.append(Answer(member.sync_reply, SyncResult(error=code)))
    group.hold_join(member, None)
    member.sync_reply = None
    return actions
