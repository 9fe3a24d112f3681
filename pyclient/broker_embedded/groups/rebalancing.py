"""The rebalance itself: asking everybody to join again, waiting for them, and starting the next generation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.broker_embedded.groups.events import Answer, JoinResult, Store, SyncResult
from pyclient.broker_embedded.groups.state import COMPLETING, EMPTY, PREPARING, STABLE
from pyclient.errors import RebalanceInProgress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.groups.events import Action
    from pyclient.broker_embedded.groups.state import ClassicGroup, Member, StoringAssignment, StoringRejoin


def rebalance(group: ClassicGroup, now: float) -> list[Action]:
    """Somebody came, went or changed: begin a rebalance, or see whether the one that goes on is complete."""
    if group.state in (EMPTY, STABLE, COMPLETING):
        return prepare(group, now)
    return complete_if_all_joined(group, now)


def prepare(group: ClassicGroup, now: float) -> list[Action]:
    """Begin a rebalance. An empty group first waits group.initial.rebalance.delay.ms for more members to come."""
    actions = fail_syncs(group, RebalanceInProgress.code, now) if group.state is COMPLETING else []
    first_members = group.state is EMPTY
    group.sync_deadline = None
    group.unsynced.clear()
    group.move(PREPARING)
    if not first_members:
        group.join_deadline = now + group.rebalance_timeout
        return actions + complete_if_all_joined(group, now)
    delay = group.initial_delay_ms / 1000
    group.new_member_added = False
    group.initial_remaining = max(group.rebalance_timeout - delay, 0.0)
    group.join_deadline = now + delay
    return actions + (complete_join(group, now) if delay == 0 else [])


def complete_if_all_joined(group: ClassicGroup, now: float) -> list[Action]:
    """End the waiting early when everybody is here; an empty group's initial delay is waited for in full."""
    if group.state is not PREPARING or group.initial_remaining is not None or group.pending:
        return []
    if group.joining < len(group.members):
        return []
    return complete_join(group, now)


def join_time_is_up(group: ClassicGroup, now: float) -> list[Action]:
    """The time for joining is up; newcomers of the initial delay put that off, within the rebalance timeout."""
    if group.initial_remaining and group.new_member_added:
        delay = min(group.initial_delay_ms / 1000, group.initial_remaining)
        group.new_member_added = False
        group.initial_remaining -= delay
        group.join_deadline = now + delay
        return []
    return complete_join(group, now)


def complete_join(group: ClassicGroup, now: float) -> list[Action]:
    """Drop the dynamic members that did not come back and start the next generation with the others."""
    group.join_deadline = group.initial_remaining = None
    for member in [m for m in group.members.values() if m.join_reply is None and m.instance_id is None]:
        group.remove(member.member_id)
    if not group.members:
        return _start_empty_generation(group)
    if not _elect_leader(group):  # static members are all that is left, and none of them is back yet
        group.join_deadline = now + group.rebalance_timeout
        return []
    return _start_generation(group, now)


def _elect_leader(group: ClassicGroup) -> bool:
    """See that the leader is one who came back."""
    if group.leader is not None and group.members[group.leader].join_reply is not None:
        return True
    back = next((member for member in group.members.values() if member.join_reply is not None), None)
    if back is None:
        return False
    group.leader = back.member_id
    return True


def _start_empty_generation(group: ClassicGroup) -> list[Action]:
    group.generation += 1
    group.protocol_name = None
    group.move(EMPTY)
    return [store(group, None)]


def _start_generation(group: ClassicGroup, now: float) -> list[Action]:
    group.generation += 1
    group.protocol_name = group.elect_protocol()
    group.move(COMPLETING)
    group.unsynced = set(group.members)
    group.sync_deadline = now + group.rebalance_timeout
    actions: list[Action] = []
    for member in group.members.values():
        if member.join_reply is not None:
            actions.append(Answer(member.join_reply, joined(group, member)))
            group.hold_join(member, None)
        group.refresh(member, now)
    return actions


def joined(group: ClassicGroup, member: Member) -> JoinResult:
    """What a member is told about the current generation."""
    return JoinResult(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=group.joined_members() if member.member_id == group.leader else (),
    )


def fail_syncs(group: ClassicGroup, error: int, now: float) -> list[Action]:
    """Answer every parked SyncGroup with an error; the generation's assignment is void."""
    actions: list[Action] = []
    for member in group.members.values():
        member.assignment = b""
        if member.sync_reply is not None:
            actions.append(Answer(member.sync_reply, SyncResult(error=error)))
            member.sync_reply = None
            group.refresh(member, now)
    return actions


def store(
    group: ClassicGroup,
    waiting: StoringAssignment | StoringRejoin | None,
    assignments: Mapping[str, bytes] | None = None,
) -> Store:
    """Have the group written; `waiting` says what goes on when it is."""
    group.last_serial += 1
    if waiting is not None:
        group.storing[group.last_serial] = waiting
    return Store(group.last_serial, group.snapshot(assignments))
