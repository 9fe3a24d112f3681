"""The rebalance: ask the members to rejoin, wait for them, and start the next generation."""

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
    """Start a rebalance after a membership change, or complete the current one if all members have joined."""
    if group.state in (EMPTY, STABLE, COMPLETING):
        return prepare(group, now)
    return complete_if_all_joined(group, now)


def prepare(group: ClassicGroup, now: float) -> list[Action]:
    """Start a rebalance. An empty group first waits group.initial.rebalance.delay.ms for more members."""
    actions = fail_syncs(group, RebalanceInProgress.code, now) if group.state is COMPLETING else []
    first_members = group.state is EMPTY
    group.sync_deadline = None
    group.unsynced.clear()
    group.transition_to(PREPARING)
    if not first_members:
        group.join_deadline = now + group.rebalance_timeout
        return actions + complete_if_all_joined(group, now)
    delay = group.initial_delay_ms / 1000
    group.new_member_added = False
    group.initial_remaining = max(group.rebalance_timeout - delay, 0.0)
    group.join_deadline = now + delay
    return actions + (complete_join(group, now) if delay == 0 else [])


def complete_if_all_joined(group: ClassicGroup, now: float) -> list[Action]:
    """Complete the join phase if all members have joined; the initial delay of an empty group always elapses."""
    if group.state is not PREPARING or group.initial_remaining is not None or group.pending:
        return []
    if group.joining < len(group.members):
        return []
    return complete_join(group, now)


def expire_join(group: ClassicGroup, now: float) -> list[Action]:
    """Complete the join phase at its deadline; new members extend the initial delay up to the rebalance timeout."""
    if group.initial_remaining and group.new_member_added:
        delay = min(group.initial_delay_ms / 1000, group.initial_remaining)
        group.new_member_added = False
        group.initial_remaining -= delay
        group.join_deadline = now + delay
        return []
    return complete_join(group, now)


def complete_join(group: ClassicGroup, now: float) -> list[Action]:
    """Remove the dynamic members that did not rejoin and start the next generation with the others."""
    group.join_deadline = group.initial_remaining = None
    for member in [m for m in group.members.values() if m.join_reply is None and m.instance_id is None]:
        group.remove(member.member_id)
    if not group.members:
        return _start_empty_generation(group)
    if not _elect_leader(group):  # only static members are left, and none of them has rejoined yet
        group.join_deadline = now + group.rebalance_timeout
        return []
    return _start_generation(group, now)


def _elect_leader(group: ClassicGroup) -> bool:
    """Ensure that the leader is a member that has rejoined; return False if there is none."""
    if group.leader is not None and group.members[group.leader].join_reply is not None:
        return True
    rejoined = next((member for member in group.members.values() if member.join_reply is not None), None)
    if rejoined is None:
        return False
    group.leader = rejoined.member_id
    return True


def _start_empty_generation(group: ClassicGroup) -> list[Action]:
    group.generation += 1
    group.protocol_name = None
    group.transition_to(EMPTY)
    return [store(group, None)]


def _start_generation(group: ClassicGroup, now: float) -> list[Action]:
    group.generation += 1
    group.protocol_name = group.elect_protocol()
    group.transition_to(COMPLETING)
    group.unsynced = set(group.members)
    group.sync_deadline = now + group.rebalance_timeout
    actions: list[Action] = []
    for member in group.members.values():
        if member.join_reply is not None:
            actions.append(Answer(member.join_reply, join_result(group, member)))
            group.hold_join(member, None)
        group.refresh(member, now)
    return actions


def join_result(group: ClassicGroup, member: Member) -> JoinResult:
    """Return the JoinGroup answer of a member for the current generation."""
    return JoinResult(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=group.joined_members() if member.member_id == group.leader else (),
    )


def fail_syncs(group: ClassicGroup, error: int, now: float) -> list[Action]:
    """Answer every parked SyncGroup with an error and discard the generation's assignment."""
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
    """Return the action that writes the group to the log; `waiting` is completed once it is written."""
    group.last_serial += 1
    if waiting is not None:
        group.storing[group.last_serial] = waiting
    return Store(group.last_serial, group.snapshot(assignments))
