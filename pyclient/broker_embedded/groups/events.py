"""Events and actions of a classic group: the input and output of `classic.step`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

NONE = 0
"""Kafka's code for no error."""

Reply = object
"""Identifies a waiting request; the state machine only returns it in an `Answer`."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """An assignment protocol that a member supports, with the member's metadata (its subscription)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request. `fresh_id` is the member id for a member that has none yet."""

    reply: Reply = None
    member_id: str
    fresh_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    needs_known_id: bool = False
    can_skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup request; `protocol_type` and `protocol_name` are None when its version does not carry them."""

    reply: Reply = None
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A Heartbeat request."""

    reply: Reply = None
    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """A member by its id, or (with an empty id) by its group.instance.id."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """A LeaveGroup request."""

    reply: Reply = None
    members: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """The `Store` with that serial is in the log (`error` 0) or was not written (a Kafka error code)."""

    serial: int
    error: int = NONE


@dataclass(frozen=True, slots=True)
class Tick:
    """A deadline may have passed."""


Event = Join | Sync | Heartbeat | Leave | Stored | Tick


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as sent to the group's leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """The answer to a `Join`; `members` is set for the leader only."""

    error: int = NONE
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """The answer to a `Sync`."""

    error: int = NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The answer to a `Heartbeat`."""

    error: int = NONE


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """The answer to a `Leave`: an error code for the group and one for each member, in request order."""

    error: int = NONE
    members: tuple[tuple[MemberIdentity, int], ...] = ()


Result = JoinResult | SyncResult | HeartbeatResult | LeaveResult


@dataclass(frozen=True, slots=True)
class Answer:
    """Complete the waiting request `reply` with `result`."""

    reply: Reply
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSnapshot:
    """A member as written to the log."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """A group as written to the log."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    members: tuple[MemberSnapshot, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Write the group to the log, then pass a `Stored` with the same serial to the group."""

    serial: int
    snapshot: GroupSnapshot


Action = Answer | Store
