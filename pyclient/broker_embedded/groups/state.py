"""A classic group's data: its members, its state and its deadlines, with the moves between states that are allowed."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.events import GroupSnapshot, JoinedMember, MemberSnapshot, Protocol
from pyclient.errors import FencedInstanceId, UnknownMemberId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyclient.broker_embedded.groups.events import JoinResult, Reply

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
SHORTEST_REBALANCE: Final = 0.1
NEW_MEMBER_JOIN_TIMEOUT: Final = 300.0
"""Seconds that a new member's first JoinGroup may be parked: it cannot send heartbeats before it knows its id."""


class GroupState(Enum):
    """The states, under the names that DescribeGroups and ListGroups give them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

MOVES: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}
"""From a state to the states that may follow it:

Empty               no members; offsets may still be there
PreparingRebalance  members are asked (by their heartbeats) to join again; JoinGroup requests are parked
CompletingRebalance the generation is known; SyncGroup requests are parked until the leader's assignment is stored
Stable              every member has, or can fetch, its assignment
Dead                deleted; whoever still holds it is told to look for the group again
"""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of the group. `deadline` (seconds) is when its session ends, None while it waits for an answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    deadline: float | None = None
    join_reply: Reply | None = None
    sync_reply: Reply | None = None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member said under that protocol; nothing if it does not support it."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")


@dataclass(frozen=True, slots=True)
class StoringAssignment:
    """The leader's assignment for `generation` is on its way into the log."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StoringRejoin:
    """A static member's new id is on its way into the log; `result` is its answer when it is there."""

    reply: Reply
    result: JoinResult


@dataclass(slots=True)
class ClassicGroup:
    """One group. It decides nothing: `classic.step` and the files by phase do, through the small moves here."""

    group_id: str
    initial_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    session_cap_ms: int = 2_147_483_647
    """A silent member is given up after so long, even if it asked for a longer session."""
    state: GroupState = EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    supported: Counter[str] = field(default_factory=Counter)
    """How many members support each protocol."""
    joining: int = 0
    """How many members wait for an answer to JoinGroup."""
    static_ids: dict[str, str] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    """Ids given out with MEMBER_ID_REQUIRED (KIP-394) that did not join yet, with the moment they are forgotten."""
    join_deadline: float | None = None
    initial_remaining: float | None = None
    """While an empty group collects its first members: for how long (seconds) newcomers may still put it off."""
    new_member_added: bool = False
    sync_deadline: float | None = None
    unsynced: set[str] = field(default_factory=set)
    storing: dict[int, StoringAssignment | StoringRejoin] = field(default_factory=dict)
    last_serial: int = 0

    def move(self, state: GroupState) -> None:
        """Enter `state`; a move that the table does not have is a bug."""
        assert state in MOVES[self.state], f"{self.group_id}: no move from {self.state} to {state}"
        self.state = state

    @property
    def rebalance_timeout(self) -> float:
        """Seconds that the slowest member may take to join again; never so few that the timers would spin."""
        longest = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        return max(longest / 1000, SHORTEST_REBALANCE)

    def hold_join(self, member: Member, reply: Reply | None) -> None:
        """Hold the member's JoinGroup request, or (None) none any more."""
        self.joining += (reply is not None) - (member.join_reply is not None)
        member.join_reply = reply

    def check(self, member_id: str, instance_id: str | None) -> int:
        """0, or the error code for somebody who says to be that member (KIP-345: or no longer is)."""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is not None and known != member_id:
                return FencedInstanceId.code
            if known is None:
                return UnknownMemberId.code
        return 0 if member_id in self.members else UnknownMemberId.code

    def add(self, member: Member, protocol_type: str) -> None:
        """Take a member in; the first one leads and decides the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.joining += member.join_reply is not None
        self.supported.update(_names(member.protocols))
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member:
        """Let a member go; if it led, the oldest of the others leads."""
        member = self.members.pop(member_id)
        self.joining -= member.join_reply is not None
        self.supported.subtract(_names(member.protocols))
        self.unsynced.discard(member_id)
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id, in its old place."""
        old_id = member.member_id
        member.member_id = member_id
        self.members = {kept.member_id: kept for kept in self.members.values()}
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(member_id)

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Take note of what a member supports now."""
        self.supported.subtract(_names(member.protocols))
        member.protocols = protocols
        self.supported.update(_names(protocols))

    def refresh(self, member: Member, now: float) -> None:
        """A sign of life: the session starts again, unless the member waits for an answer of ours."""
        if member.join_reply is None and member.sync_reply is None:
            member.deadline = now + self.session_seconds(member.session_timeout_ms)

    def session_seconds(self, session_timeout_ms: int) -> float:
        """How long a member that asked for that session may be silent."""
        return min(session_timeout_ms, self.session_cap_ms) / 1000

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Whether somebody with these protocols can be in the group."""
        if not self.members:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self.supported[p.name] == everybody for p in protocols)

    def elect_protocol(self) -> str | None:
        """The protocol with most votes; a member votes for the first of its protocols that all support."""
        everybody = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes.update(itertools.islice((p.name for p in member.protocols if self.supported[p.name] == everybody), 1))
        return max(votes, key=lambda name: votes[name], default=None)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """The members as the leader is told them."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def snapshot(self, assignments: Mapping[str, bytes] | None = None) -> GroupSnapshot:
        """What the log keeps; `assignments` stands for the members' own when it is given."""
        return GroupSnapshot(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.leader,
            members=tuple(
                MemberSnapshot(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def restore(self, snapshot: GroupSnapshot, now: float) -> None:
        """Make a new group what the log says; every session starts again at `now`."""
        self.generation = snapshot.generation
        self.protocol_type = snapshot.protocol_type or None
        self.protocol_name = snapshot.protocol_name
        known = {kept.member_id for kept in snapshot.members}
        self.leader = snapshot.leader if snapshot.leader in known else None
        for kept in snapshot.members:
            session, rebalance = kept.session_timeout_ms, kept.rebalance_timeout_ms
            member = Member(
                member_id=kept.member_id,
                instance_id=kept.instance_id,
                client_id=kept.client_id,
                client_host=kept.client_host,
                session_timeout_ms=session,
                rebalance_timeout_ms=rebalance if rebalance >= 0 else session,
                protocols=(Protocol(snapshot.protocol_name or "", kept.subscription),),
                assignment=kept.assignment,
                deadline=now + self.session_seconds(session),
            )
            self.add(member, snapshot.protocol_type)
        if self.members:
            self.state = STABLE


def _names(protocols: tuple[Protocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}
