"""The state of a consumer group, built by applying its records in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar, assert_never

from pyclient.broker_embedded.groups.consumer.model import (
    CurrentAssignment,
    CurrentRecord,
    EpochRecord,
    GroupPhase,
    Member,
    MemberRecord,
    MemberState,
    RegexRecord,
    ResolvedRegex,
    Target,
    TargetEpochRecord,
    TargetRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from pyclient.broker_embedded.groups.consumer.model import MemberMetadata, Record


V = TypeVar("V")


@dataclass(slots=True)
class ConsumerGroup:
    """One group. Only `apply` changes the state that is in the log; timers and connections are not in the log."""

    group_id: str
    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_made_ms: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    regexes: dict[str, ResolvedRegex] = field(default_factory=dict)
    static_ids: dict[str, str] = field(default_factory=dict)
    """group.instance.id to member id."""
    owners: dict[tuple[UUID, int], str] = field(default_factory=dict)
    """The member that owns each partition, or has not revoked it yet."""
    topics_seen: int | None = None
    """The version of the cluster's topics at the last comparison of `metadata_hash`; None forces a comparison."""
    sessions: dict[str, float] = field(default_factory=dict)
    """The end (seconds) of each member's session."""
    informed_on: dict[str, int] = field(default_factory=dict)
    """The connection on which each member was last sent its assignment."""
    revocations: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Members that have to revoke partitions, with their epoch and deadline (seconds)."""
    rejoin_deadlines: dict[str, float] = field(default_factory=dict)
    """Deadlines (seconds) for classic members to rejoin, or to send SyncGroup."""
    resolving: bool = False
    """A task that resolves the regular expressions is scheduled."""
    deleted: bool = False

    @property
    def phase(self) -> GroupPhase:
        """The group's state, derived from its members."""
        if self.deleted:
            return GroupPhase.DEAD
        if not self.members:
            return GroupPhase.EMPTY
        if self.epoch > self.target_epoch:
            return GroupPhase.ASSIGNING
        reconciled = all(member.current.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return GroupPhase.STABLE if reconciled else GroupPhase.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        """Return the member with that group.instance.id, None if there is none."""
        member_id = self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: Member) -> Target:
        """Return a member's target assignment; a static member inherits that of the member it replaced."""
        found = self.targets.get(member.member_id)
        if found is None and member.metadata.instance_id is not None:
            found = self.targets.get(self.static_ids.get(member.metadata.instance_id, ""))
        return found or {}

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name or by regular expression."""
        resolved = self.regexes.get(metadata.regex)
        return frozenset(metadata.topics if resolved is None else (*metadata.topics, *resolved.topics))

    def subscribed_topics(self) -> frozenset[str]:
        """Return the topics that any member subscribes to."""
        return frozenset().union(*(self.topics_of(member.metadata) for member in self.members.values()))

    def regex_users(self) -> Counter[str]:
        """Return the number of members that subscribe with each regular expression."""
        return Counter(member.metadata.regex for member in self.members.values() if member.metadata.regex)

    def apply(self, record: Record) -> None:
        """Apply a record."""
        match record:
            case EpochRecord(epoch, metadata_hash):
                self.deleted = epoch is None
                self.epoch, self.metadata_hash = epoch or 0, metadata_hash
            case MemberRecord(member_id, metadata):
                self._set_metadata(member_id, metadata)
            case TargetEpochRecord(epoch, made_ms):
                self.target_epoch, self.target_made_ms = epoch or 0, made_ms
            case TargetRecord(member_id, partitions):
                _put(self.targets, member_id, partitions)
            case CurrentRecord(member_id, current):
                self._set_current(member_id, current)
            case RegexRecord(regex, resolved):
                _put(self.regexes, regex, resolved)
            case _:
                assert_never(record)

    def apply_all(self, records: Iterable[Record]) -> None:
        """Apply the records in order."""
        for record in records:
            self.apply(record)

    def _set_metadata(self, member_id: str, metadata: MemberMetadata | None) -> None:
        known = self.members.get(member_id)
        if known is not None:
            self._forget_instance(known)
        if metadata is None:
            if known is not None:
                self._release(known)
                del self.members[member_id]
            for table in (self.sessions, self.informed_on, self.revocations, self.rejoin_deadlines):
                table.pop(member_id, None)
            return
        self.members[member_id] = replace(known or Member(member_id), metadata=metadata)
        if metadata.instance_id is not None:
            self.static_ids[metadata.instance_id] = member_id

    def _set_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        known = self.members.get(member_id)
        if known is None and current is None:
            return
        if known is not None:
            self._release(known)
        member = replace(known or Member(member_id), current=current or CurrentAssignment())
        self.members[member_id] = member
        for held in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in held.items():
                self.owners.update(((topic_id, partition), member_id) for partition in partitions)

    def _release(self, member: Member) -> None:
        """Remove the member as owner of its partitions, unless they already have another owner."""
        for held in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    if self.owners.get((topic_id, partition)) == member.member_id:
                        del self.owners[topic_id, partition]

    def _forget_instance(self, member: Member) -> None:
        instance_id = member.metadata.instance_id
        if instance_id is not None and self.static_ids.get(instance_id) == member.member_id:
            del self.static_ids[instance_id]

    def start_timers(self, now: float, session_ms: int, cap_ms: int) -> None:
        """Start all sessions and revocation timeouts at `now`, after a replay."""
        for member in self.members.values():
            classic = member.metadata.classic
            timeout_ms = session_ms if classic is None else classic.session_timeout_ms
            self.sessions[member.member_id] = now + min(timeout_ms, cap_ms) / 1000
            self.watch_revocation(member, now)

    def watch_revocation(self, member: Member, now: float) -> None:
        """Start the rebalance timeout of a member that has to revoke partitions; stop it for other members."""
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and member.metadata.classic is None:
            deadline = now + member.metadata.rebalance_timeout_ms / 1000
            self.revocations[member.member_id] = (member.current.epoch, deadline)
        else:
            self.revocations.pop(member.member_id, None)

    def next_deadline(self) -> float | None:
        """Return the earliest deadline (seconds), None if there is none."""
        revocations = (deadline for _, deadline in self.revocations.values())
        due = [*self.sessions.values(), *self.rejoin_deadlines.values(), *revocations]
        return min(due, default=None)


def _put(table: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
