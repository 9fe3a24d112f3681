"""JoinGroup: new members, members that rejoin, and static members that return (KIP-345, KIP-394)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.events import Answer, JoinResult, SyncResult
from pyclient.broker_embedded.groups.rebalancing import join_result, rebalance, store
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
    """Add or rejoin a member; answer when the rebalance is complete, or immediately if there is none."""
    if group.state is DEAD:
        return _refuse(event, CoordinatorNotAvailable.code)
    if not _has_capacity(group, event):
        return _refuse(event, GroupMaxSizeReached.code)
    if not group.supports(event.protocol_type, event.protocols):
        return _refuse(event, InconsistentGroupProtocol.code)
    if event.member_id:
        return _rejoin(group, event, now)
    if event.instance_id is not None:
        known = group.static_ids.get(event.instance_id)
        if known is None:
            return _add(group, event, now)
        return _replace_static_member(group, event, group.members[known], now)
    if event.needs_known_id:
        group.pending[event.fresh_id] = now + group.session_seconds(event.session_timeout_ms)
        return _refuse(event, MemberIdRequired.code, event.fresh_id)
    return _add(group, event, now)


def _refuse(event: Join, error: int, member_id: str | None = None) -> list[Action]:
    return [Answer(event.reply, JoinResult(error=error, member_id=event.member_id if member_id is None else member_id))]


def _has_capacity(group: ClassicGroup, event: Join) -> bool:
    """Return True if group.max.size admits the member; during a rebalance the first members to rejoin are admitted."""
    if event.instance_id in group.static_ids and not event.member_id:
        return True
    member = group.members.get(event.member_id)
    if group.state is PREPARING:
        return (member is not None and member.join_reply is not None) or group.joining < group.max_size
    return member is not None or len(group.members) < group.max_size


def _rejoin(group: ClassicGroup, event: Join, now: float) -> list[Action]:
    if event.member_id in group.pending and event.instance_id is None:
        del group.pending[event.member_id]
        return _add(group, event, now)
    error = group.check(event.member_id, event.instance_id)
    if error:
        return _refuse(event, error)
    member = group.members[event.member_id]
    unchanged = member.protocols == event.protocols
    # A member of this generation that repeats its request did not receive the answer. In a stable group the leader's
    # JoinGroup always starts a rebalance: it rejoins because its input to the assignment has changed.
    if unchanged and (group.state is COMPLETING or (group.state is STABLE and member.member_id != group.leader)):
        group.refresh(member, now)
        return [Answer(event.reply, join_result(group, member))]
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
    """Update the member and park its request; a request parked before is answered with REBALANCE_IN_PROGRESS."""
    actions: list[Action] = []
    if member.join_reply is not None:
        result = JoinResult(error=RebalanceInProgress.code, member_id=member.member_id)
        actions.append(Answer(member.join_reply, result))
    group.set_protocols(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    group.hold_join(member, event.reply)
    member.deadline = None
    return actions


def _replace_static_member(group: ClassicGroup, event: Join, member: Member, now: float) -> list[Action]:
    """Replace a static member that returns without its member id by a new id; requests of the old id are fenced."""
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
    result = join_result(group, member)
    if event.can_skip_assignment:
        result = replace(result, skip_assignment=member.member_id == group.leader)
    else:  # an older client must take itself for a follower, so that it fetches its assignment with SyncGroup
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
