"""Removal of members: LeaveGroup, expired sessions, and members that never send SyncGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.events import NONE, Answer, JoinResult, LeaveResult, SyncResult
from pyclient.broker_embedded.groups.rebalancing import complete_if_all_joined, expire_join, prepare
from pyclient.broker_embedded.groups.state import COMPLETING, DEAD, STABLE, StoringRejoin
from pyclient.errors import CoordinatorNotAvailable, UnknownMemberId

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.events import Action, Leave, MemberIdentity
    from pyclient.broker_embedded.groups.state import ClassicGroup


def leave(group: ClassicGroup, event: Leave, now: float) -> list[Action]:
    """Remove each named member, then rebalance once."""
    if group.state is DEAD:
        return [Answer(event.reply, LeaveResult(CoordinatorNotAvailable.code))]
    actions: list[Action] = []
    results: list[tuple[MemberIdentity, int]] = []
    for identity in event.members:
        error, parked = _leave_one(group, identity)
        results.append((identity, error))
        actions += parked
    if any(error == NONE for _, error in results):
        actions += _after_removal(group, now)
    return [Answer(event.reply, LeaveResult(members=tuple(results))), *actions]


def _leave_one(group: ClassicGroup, identity: MemberIdentity) -> tuple[int, list[Action]]:
    member_id = identity.member_id
    if not member_id and identity.instance_id is not None:  # an administrator removes a static member by instance id
        member_id = group.static_ids.get(identity.instance_id, "")
    elif group.pending.pop(member_id, None) is not None:
        return NONE, []
    error = group.check(member_id, identity.instance_id)
    return (error, []) if error else (NONE, _remove(group, member_id))


def _remove(group: ClassicGroup, member_id: str) -> list[Action]:
    """Remove a member and answer its parked requests with UNKNOWN_MEMBER_ID."""
    member = group.remove(member_id)
    actions: list[Action] = []
    if member.join_reply is not None:
        actions.append(Answer(member.join_reply, JoinResult(error=UnknownMemberId.code, member_id=member_id)))
    if member.sync_reply is not None:
        actions.append(Answer(member.sync_reply, SyncResult(error=UnknownMemberId.code)))
    return actions


def _after_removal(group: ClassicGroup, now: float) -> list[Action]:
    if group.state in (STABLE, COMPLETING):
        return prepare(group, now)
    return complete_if_all_joined(group, now)


def tick(group: ClassicGroup, now: float) -> list[Action]:
    """Handle the deadlines that have passed: sessions, missing SyncGroup requests, the end of the join phase."""
    actions = _expire_sessions(group, now)
    if group.sync_deadline is not None and group.sync_deadline <= now:
        actions += _remove_unsynced(group, now)
    if group.join_deadline is not None and group.join_deadline <= now:
        actions += expire_join(group, now)
    return actions


def _expire_sessions(group: ClassicGroup, now: float) -> list[Action]:
    expired_pending = [member_id for member_id, deadline in group.pending.items() if deadline <= now]
    expired_members = [m.member_id for m in group.members.values() if m.deadline is not None and m.deadline <= now]
    actions: list[Action] = []
    for member_id in expired_pending:
        del group.pending[member_id]
    for member_id in expired_members:
        actions += _remove(group, member_id)
    if expired_members:
        return actions + _after_removal(group, now)
    return complete_if_all_joined(group, now) if expired_pending else []


def _remove_unsynced(group: ClassicGroup, now: float) -> list[Action]:
    """Remove members that joined the generation but sent no SyncGroup within the rebalance timeout."""
    group.sync_deadline = None
    actions: list[Action] = []
    for member_id in [name for name in group.members if name in group.unsynced]:
        actions += _remove(group, member_id)
    return actions + prepare(group, now)


def mark_dead(group: ClassicGroup, error: int) -> list[Action]:
    """Mark the group dead (deleted, or coordinated by another broker) and answer parked requests with `error`."""
    actions: list[Action] = []
    for member in group.members.values():
        if member.join_reply is not None:
            actions.append(Answer(member.join_reply, JoinResult(error=error, member_id=member.member_id)))
        if member.sync_reply is not None:
            actions.append(Answer(member.sync_reply, SyncResult(error=error)))
        group.hold_join(member, None)
        member.sync_reply = member.deadline = None
    actions += [
        Answer(waiting.reply, JoinResult(error=error, member_id=waiting.result.member_id))
        for waiting in group.storing.values()
        if isinstance(waiting, StoringRejoin)
    ]
    group.storing.clear()
    group.pending.clear()
    group.join_deadline = group.sync_deadline = None
    if group.state is not DEAD:
        group.transition_to(DEAD)
    return actions
