"""Events and actions of the group members' state machines, for both protocols."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pyclient.assignment import MemberSubscription
from pyclient.errors import KafkaError
from pyclient.types import TopicPartition

Partitions = tuple[TopicPartition, ...]
IdPartitions = tuple[tuple[uuid.UUID, int], ...]
"""Partitions by topic id (KIP-848)."""


# ---- events


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The user subscribed to these topics; the member joins, or joins again if they changed.

    `pattern` is a regular expression that the coordinator matches (KIP-848); empty for none.
    """

    topics: tuple[str, ...]
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class RejoinWanted:
    """The leader saw partitions appear or vanish, or the user asked for a rebalance."""

    reason: str


@dataclass(frozen=True, slots=True)
class Departing:
    """The user unsubscribed or closed the consumer; callbacks and commits are done."""

    reason: str


@dataclass(frozen=True, slots=True)
class Polled:
    """The user called `poll`."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """The time returned by `deadline()` has come."""


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """The group's coordinator is this node."""

    node: int


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """A request, for example a commit, found that the coordinator has moved."""


@dataclass(frozen=True, slots=True)
class RecheckMembership:
    """A request, for example a commit, was refused because of the membership or a rebalance."""


@dataclass(frozen=True, slots=True)
class Joined:
    """JoinGroup succeeded. `members` is filled for the leader only, unless the group `keeps` its assignment."""

    attempt: int
    member_id: str
    generation: int
    protocol: str
    leader: bool
    members: Mapping[str, MemberSubscription]
    keeps_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """The leader has computed the assignment."""

    attempt: int
    assignments: Mapping[str, Partitions]


@dataclass(frozen=True, slots=True)
class Synced:
    """SyncGroup returned this member's partitions."""

    attempt: int
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class HeartbeatAnswered:
    """The coordinator knows the member and its generation."""

    attempt: int


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswered:
    """ConsumerGroupHeartbeat succeeded: the member epoch, the heartbeat `interval` (seconds), and a new target
    assignment, if any."""

    attempt: int
    epoch: int
    interval: float
    assigned: IdPartitions | None


@dataclass(frozen=True, slots=True)
class TopicsResolved:
    """The names of those topic ids that the cluster knows."""

    attempt: int
    names: Mapping[uuid.UUID, str]


@dataclass(frozen=True, slots=True)
class InstanceReleased:
    """The coordinator has released the group_instance_id that this member owned."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A request failed. `member_id` is the one of MEMBER_ID_REQUIRED (KIP-394)."""

    attempt: int
    error: KafkaError
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """The polling thread has revoked the partitions of `Revoke`."""


@dataclass(frozen=True, slots=True)
class AssignmentApplied:
    """The polling thread has applied the `ApplyAssignment` of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class LossAcknowledged:
    """The polling thread has acknowledged the loss of its partitions."""


Event = (
    Subscribed
    | RejoinWanted
    | Departing
    | Polled
    | Ticked
    | CoordinatorFound
    | CoordinatorLost
    | RecheckMembership
    | Joined
    | Planned
    | Synced
    | HeartbeatAnswered
    | ConsumerHeartbeatAnswered
    | TopicsResolved
    | InstanceReleased
    | Refused
    | Released
    | AssignmentApplied
    | LossAcknowledged
)


# ---- actions for the loop


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Find the coordinator, without a time limit; then `CoordinatorFound`, or `Refused` by a permanent error."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SendJoin:
    """JoinGroup; then `Joined` or `Refused`. `last` is what was assigned last, in the generation `last_generation`."""

    attempt: int
    node: int
    member_id: str
    topics: tuple[str, ...]
    owned: Partitions
    generation: int
    reason: str
    last: Partitions = ()
    last_generation: int = -1


@dataclass(frozen=True, slots=True)
class PlanAssignment:
    """Run the assignor `protocol` over the members; then `Planned` or `Refused`."""

    attempt: int
    protocol: str
    members: Mapping[str, MemberSubscription]


@dataclass(frozen=True, slots=True)
class SendSync:
    """SyncGroup; then `Synced` or `Refused`."""

    attempt: int
    node: int
    member_id: str
    generation: int
    protocol: str
    assignments: Mapping[str, Partitions]


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Heartbeat; then `HeartbeatAnswered` or `Refused`."""

    attempt: int
    node: int
    member_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class SendConsumerHeartbeat:
    """ConsumerGroupHeartbeat; then `ConsumerHeartbeatAnswered` or `Refused`.

    `epoch` 0 joins. Fields that are None have not changed since the last report; a `complete` one has all fields.
    """

    attempt: int
    node: int
    member_id: str
    epoch: int
    complete: bool
    topics: tuple[str, ...] | None
    pattern: str | None
    owned: IdPartitions | None


@dataclass(frozen=True, slots=True)
class ResolveTopics:
    """Find the names of these topic ids; then `TopicsResolved` or `Refused`."""

    attempt: int
    topic_ids: tuple[uuid.UUID, ...]


@dataclass(frozen=True, slots=True)
class ReleaseInstance:
    """Leave as a static member that returns (epoch -2), to join again; then `InstanceReleased` or `Refused`."""

    attempt: int
    node: int
    member_id: str


@dataclass(frozen=True, slots=True)
class SendLeave:
    """LeaveGroup, or the heartbeat that leaves; no event follows."""

    node: int
    member_id: str
    reason: str


# ---- actions for the polling thread


@dataclass(frozen=True, slots=True)
class Revoke:
    """Commit, call `on_revoked`, revoke these partitions; then `Released`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ApplyAssignment:
    """Revoke `revoked`, apply `assigned` and call `on_assigned` with `added`; then `AssignmentApplied(number)`."""

    number: int
    assigned: Partitions
    added: Partitions
    revoked: Partitions


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """Call `on_lost` and revoke the whole assignment, which others own now; then `LossAcknowledged`.

    `Revoke` and `ApplyAssignment` actions that were not started before it are dropped.
    """

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Fail:
    """The next poll raises `error`."""

    error: KafkaError


Request = (
    FindCoordinator
    | SendJoin
    | PlanAssignment
    | SendSync
    | SendHeartbeat
    | SendConsumerHeartbeat
    | ResolveTopics
    | ReleaseInstance
)
"""Actions that end in an event: their result, or `Refused`."""

Action = Request | SendLeave | Revoke | ApplyAssignment | PartitionsLost | Fail

ThreadTask = Revoke | ApplyAssignment | PartitionsLost
"""A task that only the polling thread may carry out."""
