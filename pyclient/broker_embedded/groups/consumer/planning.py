"""The effect of one member's request on its group: group epoch, target assignment, and reconciliation.

A plan describes the group as it will be when the collected records are applied.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.consumer.assignors import assign, preferred
from pyclient.broker_embedded.groups.consumer.events import ConsumerAnswer, Decision
from pyclient.broker_embedded.groups.consumer.membership import admit
from pyclient.broker_embedded.groups.consumer.model import (
    JOINING,
    CurrentRecord,
    EpochRecord,
    MemberRecord,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    owned,
)
from pyclient.broker_embedded.groups.consumer.patterns import compile_regex, resolve
from pyclient.broker_embedded.groups.consumer.reconcile import reconcile
from pyclient.broker_embedded.groups.consumer.topics import metadata_hash

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.broker_embedded.groups.consumer.events import ConsumerHeartbeat, Limits
    from pyclient.broker_embedded.groups.consumer.model import (
        CurrentAssignment,
        Member,
        MemberMetadata,
        Record,
        ResolvedRegex,
        Target,
    )
    from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
    from pyclient.broker_embedded.groups.consumer.topics import Topics


FIRST_EPOCH: Final = 1
"""The epoch of a group whose first member has no subscription; a subscription increments it."""


class Plan:
    """The effect of one request, in three steps: `update_subscription`, `update_target`, `reconcile`."""

    def __init__(
        self,
        group: ConsumerGroup,
        before: Member,
        member: Member,
        topics: Topics,
        limits: Limits,
        now_ms: int,
        records: list[Record],
    ) -> None:
        self._group = group
        self._before = before
        self._member = member
        self._topics = topics
        self._limits = limits
        self._now_ms = now_ms
        self._records = records
        replaced = group.static_ids.get(member.metadata.instance_id or "", member.member_id)
        self._replaced = None if replaced == member.member_id else replaced
        self._regexes: dict[str, ResolvedRegex] = dict(group.regexes)
        self._target: Target = group.target_of(member)
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self.subscription_changed = False
        self.must_resolve = False
        """True if `resolve_regexes` has to be called after the records are applied."""

    def update_subscription(self) -> None:
        """Update the member's metadata; increment the group epoch if its subscription or a subscribed topic changed."""
        old, new = self._before.metadata, self._member.metadata
        if old != new or self._member.member_id not in self._group.members:
            self._records.append(MemberRecord(self._member.member_id, new))
        self._update_regexes(old.regex, new.regex)
        self.subscription_changed = old.topics != new.topics or old.regex != new.regex
        self.epoch = max(self._group.epoch, FIRST_EPOCH)
        is_resolved = not new.regex or new.regex in self._regexes
        bump = old.topics != new.topics or (old.regex != new.regex and is_resolved)
        if not bump and self._group.topics_seen == self._topics.version and self._group.epoch:
            return
        seen = metadata_hash(self._subscribed_topics(), self._topics)
        if bump or seen != self._group.metadata_hash:
            self.epoch += 1
        if self.epoch != self._group.epoch:
            self._records.append(EpochRecord(self.epoch, seen))

    def _update_regexes(self, old: str, new: str) -> None:
        """Validate a new regular expression, and delete one that no member uses; none is resolved here."""
        if old != new:
            users = self._group.regex_users()
            if new and not users[new]:
                compile_regex(new)  # an invalid one is refused before any other check
            if users[old] <= 1 and self._regexes.pop(old, None) is not None:
                self._records.append(RegexRecord(old, None))
        self.must_resolve = (new != "" and new not in self._regexes) or any(
            is_outdated(known, self._topics, self._limits, self._now_ms) for known in self._regexes.values()
        )

    def _members(self) -> dict[str, Member]:
        """Return the members after the request."""
        members = {name: member for name, member in self._group.members.items() if name != self._replaced}
        members[self._member.member_id] = self._member
        return members

    def _topics_of(self, metadata: MemberMetadata) -> frozenset[str]:
        resolved = self._regexes.get(metadata.regex)
        return frozenset(metadata.topics if resolved is None else (*metadata.topics, *resolved.topics))

    def _subscribed_topics(self) -> frozenset[str]:
        return frozenset().union(*(self._topics_of(member.metadata) for member in self._members().values()))

    def update_target(self) -> None:
        """Compute the target assignment of a new epoch, unless the last one is younger than the assignment interval."""
        group = self._group
        if self.epoch <= self.target_epoch:
            return
        if group.target_made_ms and self._now_ms < group.target_made_ms + self._limits.assignment_interval_ms:
            return
        members = self._members()
        assignor = preferred((member.metadata for member in members.values()), self._limits.assignors)
        targets = assign(
            assignor,
            {
                name: (member.metadata, self._topics_of(member.metadata), self._last_target(member))
                for name, member in members.items()
            },
            self._topics,
        )
        self._records += [
            TargetRecord(name, target) for name, target in targets.items() if group.targets.get(name) != target
        ]
        self._records.append(TargetEpochRecord(self.epoch, self._now_ms))
        self.target_epoch = self.epoch
        self._target = targets[self._member.member_id]

    def _last_target(self, member: Member) -> Target:
        return self._target if member is self._member else self._group.target_of(member)

    def reconcile(self, member_owns: Target | None) -> CurrentAssignment:
        """Return the member's assignment, reconciled with its target."""
        member = self._member
        known = (self._topics.find(name) for name in self._topics_of(member.metadata))
        current = reconcile(
            member.current,
            target=self._target,
            target_epoch=self.target_epoch,
            owned=member_owns,
            subscribed={info.topic_id for info in known if info is not None},
            subscription_changed=self.subscription_changed,
            is_free=self._is_free,
        )
        if current is not member.current and current != member.current:
            self._records.append(CurrentRecord(member.member_id, current))
        return current

    def _is_free(self, topic_id: UUID, partition: int) -> bool:
        return (topic_id, partition) not in self._group.owners


def is_outdated(known: ResolvedRegex | None, topics: Topics, limits: Limits, now_ms: int) -> bool:
    """Return True if an expression was never resolved, or topics changed and the assignment interval has passed."""
    if known is None:
        return True
    return known.version != topics.version and now_ms - known.resolved_ms >= limits.assignment_interval_ms


def resolve_regexes(group: ConsumerGroup, topics: Topics, limits: Limits, now_ms: int) -> list[Record]:
    """Return the records that resolve a group's outdated expressions, with a new epoch if they match other topics.

    As in Kafka this is independent of heartbeats: a member that joins with a new expression gets its partitions later.
    """
    records: list[Record] = []
    regexes = dict(group.regexes)
    changed = False
    for regex in sorted(group.regex_users()):
        known = regexes.get(regex)
        if is_outdated(known, topics, limits, now_ms):
            found = regexes[regex] = resolve(regex, topics, now_ms)
            records.append(RegexRecord(regex, found))
            changed = changed or (() if known is None else known.topics) != found.topics
    subscribed = {topic for member in group.members.values() for topic in member.metadata.topics}
    subscribed.update(topic for regex in regexes.values() for topic in regex.topics)
    seen = metadata_hash(subscribed, topics)
    if records and (changed or seen != group.metadata_hash):
        records.append(EpochRecord(group.epoch + 1, seen))
    return records


def heartbeat(group: ConsumerGroup, event: ConsumerHeartbeat, topics: Topics, limits: Limits, now_ms: int) -> Decision:
    """Decide on one heartbeat. Raise the `BrokerError` for the response."""
    records: list[Record] = []
    before = admit(group, event, limits, records)
    member = replace(before, metadata=_updated(before.metadata, event))
    plan = Plan(group, before, member, topics, limits, now_ms, records)
    plan.update_subscription()
    plan.update_target()
    current = plan.reconcile(event.owned)
    # A heartbeat of a connection that the client has closed can be processed after a full heartbeat on its next
    # connection; the client never sees the response. The next one has the assignment again (in Kafka it has not).
    is_uninformed = group.informed_on.get(member.member_id) != event.connection_id
    has_changed = owned(current.assigned) != owned(before.current.assigned)
    assignment = None
    if event.member_epoch == JOINING or event.is_full or is_uninformed or has_changed:
        assignment = owned(current.assigned)
    answer = ConsumerAnswer(member.member_id, current.epoch, assignment)
    return Decision(answer, records, must_resolve=plan.must_resolve)


def _updated(metadata: MemberMetadata, event: ConsumerHeartbeat) -> MemberMetadata:
    """Return the member's metadata after this heartbeat. The sender uses the consumer protocol from now on."""
    topics = metadata.topics if event.topics is None else tuple(sorted(set(event.topics)))
    return replace(
        metadata,
        instance_id=metadata.instance_id if event.instance_id is None else event.instance_id,
        rack_id=metadata.rack_id if event.rack_id is None else event.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        topics=topics,
        regex=metadata.regex if event.regex is None else event.regex,
        rebalance_timeout_ms=_given(event.rebalance_timeout_ms, metadata.rebalance_timeout_ms),
        assignor=metadata.assignor if event.assignor is None else event.assignor,
        classic=None,
    )


def _given(value: int, otherwise: int) -> int:
    return otherwise if value == -1 else value
