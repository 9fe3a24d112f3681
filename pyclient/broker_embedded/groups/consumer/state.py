"""A consumer group's state: what its records say when they are applied in order."""

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
    """One group. `apply` is the only thing that changes what the log keeps; the timers are not in the log."""

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
    """Who has each partition now, or still has to give it up."""
    topics_seen: int | None = None
    """The version of the cluster's topics that `metadata_hash` was last compared with, or None: look at once."""
    sessions: dict[str, float] = field(default_factory=dict)
    """When (seconds) each member is given up unless it is heard of."""
    revocations: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Members that have to give partitions up, with their epoch and until when (seconds)."""
    calls: dict[str, float] = field(default_factory=dict)
    """Until when (seconds) members of the classic protocol have to join again, or to ask for their assignment."""
    resolving: bool = False
    """A task that resolves the regular expressions is scheduled."""
    deleted: bool = False

    @property
    def phase(self) -> GroupPhase:
        """The group's state, which follows from its members."""
        if self.deleted:
            return GroupPhase.DEAD
        if not self.members:
            return GroupPhase.EMPTY
        if self.epoch > self.target_epoch:
            return GroupPhase.ASSIGNING
        settled = all(member.current.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return GroupPhase.STABLE if settled else GroupPhase.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        """The member with that group.instance.id."""
        member_id = self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: Member) -> Target:
        """A member's target assignment; a static member that was replaced leaves its own to who took its place."""
        found = self.targets.get(member.member_id)
        if found is None and member.metadata.instance_id is not None:
            found = self.targets.get(self.static_ids.get(member.metadata.instance_id, ""))
        return found or {}

    def topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        """The topics that a member reads, those of its regular expression among them."""
        resolved = self.regexes.get(metadata.regex)
        return frozenset(metadata.topics if resolved is None else (*metadata.topics, *resolved.topics))

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that any member reads."""
        return frozenset().union(*(self.topics_of(member.metadata) for member in self.members.values()))

    def regex_users(self) -> Counter[str]:
        """How many members subscribe with each regular expression."""
        return Counter(member.metadata.regex for member in self.members.values() if member.metadata.regex)

    def apply(self, record: Record) -> None:
        """Change the group as the record says."""
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
        """Change the group as the records say, in their order."""
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
            for timers in (self.sessions, self.revocations, self.calls):
                timers.pop(member_id, None)
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
        """Take the member's partitions off the table, unless they have gone to somebody else already."""
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
        """After a replay: every member has a whole session, and those that revoke a whole rebalance timeout."""
        for member in self.members.values():
            classic = member.metadata.classic
            wanted = session_ms if classic is None else classic.session_timeout_ms
            self.sessions[member.member_id] = now + min(wanted, cap_ms) / 1000
            self.watch_revocation(member, now)

    def watch_revocation(self, member: Member, now: float) -> None:
        """Give a member that has to give partitions up its rebalance timeout for that; the others need none."""
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and member.metadata.classic is None:
            deadline = now + member.metadata.rebalance_timeout_ms / 1000
            self.revocations[member.member_id] = (member.current.epoch, deadline)
        else:
            self.revocations.pop(member.member_id, None)

    def next_deadline(self) -> float | None:
        """When (seconds) something is due if nobody is heard of; None while nothing can happen by itself."""
        revocations = (deadline for _, deadline in self.revocations.values())
        due = [*self.sessions.values(), *self.calls.values(), *revocations]
        return min(due, default=None)


def _put(table: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
