"""The values of a consumer group (KIP-848), and the records that change it.

A group changes only by applying records. A replay of the log applies the same records, so a restart restores the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from uuid import UUID

Target = Mapping[UUID, frozenset[int]]
"""Partitions by topic id."""

Assigned = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the member epoch in which it was assigned."""

JOINING = 0
LEAVING = -1
LEAVING_STATIC = -2
"""Special member epochs of a request: join, leave, leave temporarily (static members)."""


class GroupPhase(Enum):
    """The states of a group, with the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """Progress of a member towards its target assignment; the numbers are those in the log.

    STABLE                 it was sent the whole target assignment of its epoch
    UNREVOKED_PARTITIONS   it was asked to revoke partitions, and has not confirmed that
    UNRELEASED_PARTITIONS  partitions of its target are still owned by other members
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """The session timeout and protocols of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """A member's metadata. `topics` are sorted; `regex` is "" if it subscribes by names only."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocol | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """A member's epoch, its assigned partitions, and those it was asked to revoke."""

    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Return True if the member has the whole target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def held(self) -> Target:
        """Return the partitions that the member may still consume: assigned and not yet revoked ones."""
        topics = {*self.assigned, *self.revoking}
        return {topic: frozenset({*self.assigned.get(topic, ()), *self.revoking.get(topic, ())}) for topic in topics}


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the group."""

    member_id: str
    metadata: MemberMetadata = MemberMetadata()
    current: CurrentAssignment = CurrentAssignment()


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    """The topics that a regular expression matched at `version` of the cluster's topics."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The group's epoch and the hash of its topics' metadata; `epoch` None is a tombstone."""

    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member's metadata; None is a tombstone."""

    member_id: str
    metadata: MemberMetadata | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    """The epoch and time (epoch ms, 0 if unknown) of the target assignment; `epoch` None is a tombstone."""

    epoch: int | None
    made_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A member's target assignment; None is a tombstone."""

    member_id: str
    partitions: Target | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """A member's current assignment; None is a tombstone."""

    member_id: str
    current: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class RegexRecord:
    """The topics of a regular expression; None is a tombstone."""

    regex: str
    resolved: ResolvedRegex | None


Record = EpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | RegexRecord


def owned(assigned: Assigned) -> Target:
    """Return the partitions without their epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items()}
