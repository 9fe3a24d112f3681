"""State of a classic group: members, deadlines, and the allowed state transitions."""

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
MIN_REBALANCE_TIMEOUT: Final = 0.1
NEW_MEMBER_JOIN_TIMEOUT: Final = 300.0
"""Seconds that a new member's first JoinGroup may be parked; without a member id it cannot send heartbeats."""


class GroupState(Enum):
    """The states, with the names used by DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

TRANSITIONS: Final[dict[GroupState, frozenset[GroupState]]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}
"""The states that may follow each state:

Empty               no members; committed offsets may remain
PreparingRebalance  heartbeats ask the members to rejoin; JoinGroup requests are parked
CompletingRebalance the generation is known; SyncGroup requests are parked until the leader's assignment is stored
Stable              every member has, or can fetch, its assignment
Dead                deleted; requests are answered with an error that makes clients look up the coordinator
"""


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of the group. `deadline` (seconds) is the end of its session, None while a request is parked."""

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
        """Return the member's metadata for that protocol; empty if it does not support the protocol."""
        return next((protocol.metadata for protocol in self.protocols if protocol.name == protocol_name), b"")


@dataclass(frozen=True, slots=True)
class StoringAssignment:
    """The leader's assignment for `generation` is being written to the log."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StoringRejoin:
    """A static member's new id is being written to the log; `result` is the answer once it is written."""

    reply: Reply
    result: JoinResult


@dataclass(slots=True)
class ClassicGroup:
    """The data of one group; the decisions are in `classic.step` and the modules of its phases."""

    group_id: str
    initial_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    session_cap_ms: int = 2_147_483_647
    """Upper bound of the session timeouts that members request."""
    state: GroupState = EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    supported: Counter[str] = field(default_factory=Counter)
    """Number of members that support each protocol."""
    joining: int = 0
    """Number of members with a parked JoinGroup request."""
    static_ids: dict[str, str] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    """Ids returned with MEMBER_ID_REQUIRED (KIP-394) that have not joined yet, with their deadlines (seconds)."""
    join_deadline: float | None = None
    initial_remaining: float | None = None
    """Seconds by which new members may still extend the initial delay; None outside of it."""
    new_member_added: bool = False
    sync_deadline: float | None = None
    unsynced: set[str] = field(default_factory=set)
    storing: dict[int, StoringAssignment | StoringRejoin] = field(default_factory=dict)
    last_serial: int = 0

    def transition_to(self, state: GroupState) -> None:
        """Enter `state`; a transition that is not in the table is a bug."""
        assert state in TRANSITIONS[self.state], f"{self.group_id}: no transition from {self.state} to {state}"
        self.state = state

    @property
    def rebalance_timeout(self) -> float:
        """The longest rebalance timeout of the members, in seconds; bounded below so that timers do not spin."""
        longest = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        return max(longest / 1000, MIN_REBALANCE_TIMEOUT)

    def hold_join(self, member: Member, reply: Reply | None) -> None:
        """Park the member's JoinGroup request; None removes the parked one."""
        self.joining += (reply is not None) - (member.join_reply is not None)
        member.join_reply = reply

    def check(self, member_id: str, instance_id: str | None) -> int:
        """Return 0 if the ids are those of a member, else the error code (KIP-345 for a fenced instance id)."""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is not None and known != member_id:
                return FencedInstanceId.code
            if known is None:
                return UnknownMemberId.code
        return 0 if member_id in self.members else UnknownMemberId.code

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a member; the first one becomes leader and sets the protocol type."""
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
        """Remove a member; if it was the leader, the oldest remaining member becomes leader."""
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
        """Give a static member a new id; it keeps its position in the order of members."""
        old_id = member.member_id
        member.member_id = member_id
        self.members = {each.member_id: each for each in self.members.values()}
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(member_id)

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Set the protocols that a member supports."""
        self.supported.subtract(_names(member.protocols))
        member.protocols = protocols
        self.supported.update(_names(protocols))

    def refresh(self, member: Member, now: float) -> None:
        """Restart the member's session, unless one of its requests is parked."""
        if member.join_reply is None and member.sync_reply is None:
            member.deadline = now + self.session_seconds(member.session_timeout_ms)

    def session_seconds(self, session_timeout_ms: int) -> float:
        """Return the session timeout in seconds, limited by the cap."""
        return min(session_timeout_ms, self.session_cap_ms) / 1000

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Return True if a member with these protocols can join the group."""
        if not self.members:
            return bool(protocol_type and protocols)
        members = len(self.members)
        return protocol_type == self.protocol_type and any(self.supported[p.name] == members for p in protocols)

    def elect_protocol(self) -> str | None:
        """Return the protocol with most votes; a member votes for the first of its protocols that all support."""
        members = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes.update(itertools.islice((p.name for p in member.protocols if self.supported[p.name] == members), 1))
        return max(votes, key=lambda name: votes[name], default=None)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Return the members as sent to the leader."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def snapshot(self, assignments: Mapping[str, bytes] | None = None) -> GroupSnapshot:
        """Return the group as written to the log; `assignments` overrides the members' own."""
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
        """Restore a new group from the log; every session starts at `now`."""
        self.generation = snapshot.generation
        self.protocol_type = snapshot.protocol_type or None
        self.protocol_name = snapshot.protocol_name
        known = {each.member_id for each in snapshot.members}
        self.leader = snapshot.leader if snapshot.leader in known else None
        for each in snapshot.members:
            session, rebalance = each.session_timeout_ms, each.rebalance_timeout_ms
            member = Member(
                member_id=each.member_id,
                instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                session_timeout_ms=session,
                rebalance_timeout_ms=rebalance if rebalance >= 0 else session,
                protocols=(Protocol(snapshot.protocol_name or "", each.subscription),),
                assignment=each.assignment,
                deadline=now + self.session_seconds(session),
            )
            self.add(member, snapshot.protocol_type)
        if self.members:
            self.state = STABLE


def _names(protocols: tuple[Protocol, ...]) -> set[str]:
    return {protocol.name for protocol in protocols}
