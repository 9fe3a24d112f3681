"""SyncGroup: the leader sends the assignment, it is stored, and each member receives its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.events import Answer, JoinResult, SyncResult
from pyclient.broker_embedded.groups.rebalancing import fail_syncs, prepare, store
from pyclient.broker_embedded.groups.state import COMPLETING, DEAD, PREPARING, STABLE, StoringAssignment, StoringRejoin
from pyclient.errors import (
    CoordinatorNotAvailable,
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
)

if TYPE_CHECKING:
    from pyclient.broker_embedded.groups.events import Action, Stored, Sync
    from pyclient.broker_embedded.groups.state import ClassicGroup, Member


def sync(group: ClassicGroup, event: Sync, now: float) -> list[Action]:
    """Answer with the member's assignment, immediately or once the leader's assignment is stored."""
    error = _check(group, event)
    if error:
        return [Answer(event.reply, SyncResult(error=error))]
    member = group.members[event.member_id]
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        group.sync_deadline = None
    if group.state is STABLE:
        group.refresh(member, now)
        return [Answer(event.reply, _sync_result(group, member))]
    actions: list[Action] = []
    if member.sync_reply is not None:
        actions.append(Answer(member.sync_reply, SyncResult(error=RebalanceInProgress.code)))
    member.sync_reply = event.reply
    member.deadline = None
    if member.member_id == group.leader and not _is_storing(group):
        assignments = {name: event.assignments.get(name, b"") for name in group.members}
        waiting = StoringAssignment(group.generation, assignments)
        actions.append(store(group, waiting, assignments))
    return actions


def _check(group: ClassicGroup, event: Sync) -> int:
    if group.state is DEAD:
        return CoordinatorNotAvailable.code
    error = group.check(event.member_id, event.instance_id)
    if error:
        return error
    if event.generation != group.generation:
        return IllegalGeneration.code
    if event.protocol_type not in (None, group.protocol_type) or event.protocol_name not in (None, group.protocol_name):
        return InconsistentGroupProtocol.code
    return RebalanceInProgress.code if group.state is PREPARING else 0


def _is_storing(group: ClassicGroup) -> bool:
    return any(
        isinstance(waiting, StoringAssignment) and waiting.generation == group.generation
        for waiting in group.storing.values()
    )


def _sync_result(group: ClassicGroup, member: Member) -> SyncResult:
    return SyncResult(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def stored(group: ClassicGroup, event: Stored, now: float) -> list[Action]:
    """Complete a write: send the assignments, or the static member's JoinGroup answer; on failure send the error."""
    waiting = group.storing.pop(event.serial, None)
    if isinstance(waiting, StoringRejoin):
        result = waiting.result
        if event.error:
            result = JoinResult(error=event.error, member_id=result.member_id)
        return [Answer(waiting.reply, result)]
    if waiting is None or group.state is not COMPLETING or waiting.generation != group.generation:
        return []  # the group has changed since the write started
    if event.error:
        return fail_syncs(group, event.error, now) + prepare(group, now)
    return _send_assignments(group, waiting, now)


def _send_assignments(group: ClassicGroup, stored_assignment: StoringAssignment, now: float) -> list[Action]:
    group.transition_to(STABLE)
    actions: list[Action] = []
    for member in group.members.values():
        member.assignment = stored_assignment.assignments.get(member.member_id, b"")
        if member.sync_reply is not None:
            actions.append(Answer(member.sync_reply, _sync_result(group, member)))
            member.sync_reply = None
            group.refresh(member, now)
    return actions
