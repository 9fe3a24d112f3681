"""The values that a consumer group (KIP-848) is made of, and the records that change it one by one.

A group changes only by applying records: the log is replayed with the same function, so what is there after a restart
is what was there before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from uuid import UUID

Target = Mapping[UUID, frozenset[int]]
"""Partitions by topic id."""

Assigned = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id, each with the epoch it was assigned in."""

JOINING = 0
LEAVING = -1
LEAVING_STATIC = -2
"""Member epochs that a request says something with: join, leave, leave for a short while (static members)."""


class GroupPhase(Enum):
    """The states of a group, under the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """How far a member is on the way to its target assignment; the numbers are those of the log.

    STABLE                 it was told all of the target assignment of its epoch
    UNREVOKED_PARTITIONS   it was told to give partitions up, and has not confirmed that
    UNRELEASED_PARTITIONS  partitions of its target are still with other members
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """What a member that speaks the classic protocol says of itself: its session and its protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member said about itself. `topics` are sorted; `regex` is "" when it subscribes by names only."""

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
    """Where a member stands: its epoch, what it has, and what it was told to give up."""

    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has the whole target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def held(self) -> Target:
        """What the member may be reading: what it has, and what it has not given up yet."""
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
    """The topics that a regular expression matched when the cluster's topics were at `version`."""

    topics: tuple[str, ...]
    version: int
    resolved_ms: int


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The group's epoch and the hash of what it knows of its topics; `epoch` None: the group was deleted."""

    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member's metadata; None: it is gone."""

    member_id: str
    metadata: MemberMetadata | None


@dataclass(frozen=True, slots=True)
class TargetEpochRecord:
    """The epoch of the target assignment, and when it was made (epoch ms; 0: unknown); None: deleted."""

    epoch: int | None
    made_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A member's part of the target assignment; None: deleted."""

    member_id: str
    partitions: Target | None


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """Where a member stands; None: deleted."""

    member_id: str
    current: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class RegexRecord:
    """A regular expression's topics; None: nobody subscribes with it any more."""

    regex: str
    resolved: ResolvedRegex | None


Record = EpochRecord | MemberRecord | TargetEpochRecord | TargetRecord | CurrentRecord | RegexRecord


def owned(assigned: Assigned) -> Target:
    """The partitions without their epochs."""
    return {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items()}
