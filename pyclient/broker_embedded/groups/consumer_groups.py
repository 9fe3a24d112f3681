"""The consumer groups (KIP-848) of a broker: each request is decided, written to the log, applied, and answered."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.consumer.events import Limits
from pyclient.broker_embedded.groups.consumer.leaving import expired_members, leave, remove
from pyclient.broker_embedded.groups.consumer.log_format import encode
from pyclient.broker_embedded.groups.consumer.membership import check_request
from pyclient.broker_embedded.groups.consumer.model import JOINING, CurrentRecord
from pyclient.broker_embedded.groups.consumer.planning import heartbeat, resolve_regexes
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.leaving import mark_dead
from pyclient.broker_embedded.groups.log_records import GroupRecord, encode_group
from pyclient.broker_embedded.groups.migration import (
    check_upgrade,
    downgrade,
    may_downgrade,
    restore_protocols,
    upgrade,
)
from pyclient.broker_embedded.groups.rebalancing import prepare
from pyclient.broker_embedded.groups.registry import GroupEntry, group_tombstones, is_unused
from pyclient.broker_embedded.groups.state import ClassicGroup
from pyclient.errors import BrokerError, GroupIdNotFound, RebalanceInProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyclient.broker_embedded.groups.consumer.events import ConsumerAnswer, ConsumerHeartbeat
    from pyclient.broker_embedded.groups.consumer.model import Member, Record
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.broker_embedded.groups.events import Action
    from pyclient.broker_embedded.groups.log_records import KeyValue
    from pyclient.broker_embedded.groups.registry import GroupRegistry

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class ConsumerGroups:
    """The consumer groups in a registry. A call's changes are in the log when it returns."""

    def __init__(self, groups: GroupRegistry, perform: Callable[[GroupEntry, Iterable[Action]], None]) -> None:
        """`perform` executes the actions of a classic group."""
        self._groups = groups
        self._runtime = groups.runtime
        self._perform = perform

    @property
    def topics(self) -> Topics:
        """The current topics of the cluster."""
        return self._runtime.topics

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval of the group's members."""
        default = self._runtime.group_config.group_consumer_heartbeat_interval_ms
        return self._group_option(group_id, "consumer.heartbeat.interval.ms", default)

    def _session_ms(self, group_id: str) -> int:
        default = self._runtime.group_config.group_consumer_session_timeout_ms
        return self._group_option(group_id, "consumer.session.timeout.ms", default)

    def _group_option(self, group_id: str, name: str, default: int) -> int:
        """Return the group's own option, or the broker's default."""
        return int(self._runtime.group_options(group_id).get(name, default))

    def limits(self, group_id: str) -> Limits:
        """Return the options currently in force for a group."""
        config = self._runtime.group_config
        interval = config.group_consumer_assignment_interval_ms
        return Limits(
            assignors=tuple(name.strip() for name in config.group_consumer_assignors.split(",")),
            max_size=config.group_consumer_max_size,
            assignment_interval_ms=self._group_option(group_id, "consumer.assignment.interval.ms", interval),
        )

    def heartbeat(
        self, group_id: str, event: ConsumerHeartbeat, *, makes_own_id: bool
    ) -> tuple[GroupEntry, ConsumerAnswer, bool]:
        """Serve ConsumerGroupHeartbeat; return True with the answer if it changed the group.

        Raise the `BrokerError` for the response.
        """
        limits = self.limits(group_id)
        check_request(group_id, event, limits, makes_own_id=makes_own_id)
        if event.member_epoch < JOINING:
            return (*self._leave(group_id, event), True)
        if not event.member_id:
            event = replace(event, member_id=str(uuid.UUID(int=self._runtime.rng.getrandbits(128), version=4)))
        entry, group, before = self._find_or_convert(group_id, event, limits)
        topics = self._runtime.topics
        decision = heartbeat(group, event, topics, limits, self._runtime.clock.time_ms())
        self.write(entry, group, decision.records, before)
        group.topics_seen = topics.version
        group.rejoin_deadlines.pop(decision.answer.member_id, None)
        self.start_session(group, decision.answer.member_id, self._session_ms(group_id))
        if decision.answer.assignment is not None:
            group.informed_on[decision.answer.member_id] = event.connection_id
        if decision.must_resolve and not group.resolving:
            group.resolving = True
            self._runtime.schedule(0, lambda: self._resolve_regexes(entry, group))
        return entry, decision.answer, bool(decision.records or before)

    def _resolve_regexes(self, entry: GroupEntry, group: ConsumerGroup) -> None:
        """Resolve the group's regular expressions after a heartbeat; members learn of it by their next heartbeats."""
        group.resolving = False
        if entry.group is not group or not self._groups.is_current(entry):
            return
        limits, now_ms = self.limits(group.group_id), self._runtime.clock.time_ms()
        try:
            self.write(entry, group, resolve_regexes(group, self._runtime.topics, limits, now_ms))
        except BrokerError as error:  # the next heartbeat retries
            _log.warning("group %.200r: could not resolve its regular expressions: %s", group.group_id, error)

    def _leave(self, group_id: str, event: ConsumerHeartbeat) -> tuple[GroupEntry, ConsumerAnswer]:
        entry = self._groups.find(group_id)
        if entry is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        group = _consumer(entry)
        decision = leave(group, event)
        if decision.removed:
            self.remove(entry, group, decision.removed)
        else:
            self.write(entry, group, decision.records)
        return entry, decision.answer

    def _find_or_convert(
        self, group_id: str, event: ConsumerHeartbeat, limits: Limits
    ) -> tuple[GroupEntry, ConsumerGroup, list[KeyValue]]:
        """Return the member's group: existing, new, or converted from a classic group.

        The returned records must be written first: they replace the classic group in the log.
        """
        entry = self._groups.find(group_id)
        if event.member_epoch != JOINING:
            if entry is None:
                raise GroupIdNotFound(f"Consumer group {group_id} not found.")
            return entry, _consumer(entry), []
        if entry is None:  # it is registered once its first records are in the log
            entry = GroupEntry(self._groups.new_classic(group_id), self._groups.partition_of(group_id))
        if entry.classic is None:
            return entry, _consumer(entry), []
        group = ConsumerGroup(group_id)
        records: list[Record] = []
        if not is_unused(entry):
            check_upgrade(entry.classic, self._runtime.group_config.group_consumer_migration_policy, limits)
            records = upgrade(entry.classic, self._runtime.topics)
            group.apply_all(records)
        tombstones = group_tombstones(entry.group) if entry.in_log else []
        return entry, group, [*tombstones, *(encode(group_id, record) for record in records)]

    def write(
        self, entry: GroupEntry, group: ConsumerGroup, records: Sequence[Record], before: Sequence[KeyValue] = ()
    ) -> None:
        """Write the records to the log, then apply them, so that the group always equals the log."""
        if not records and not before:
            return
        self._groups.write(entry.partition, [*before, *(encode(group.group_id, record) for record in records)])
        group.apply_all(records)
        now = self._runtime.clock.monotonic()
        if entry.group is not group:
            cap = self._runtime.group_config.internal_group_session_cap_ms
            group.start_timers(now, self._session_ms(group.group_id), cap)
            self._replace(entry, group)
        entry.in_log = True
        for record in records:
            member = group.members.get(record.member_id) if isinstance(record, CurrentRecord) else None
            if member is not None:
                group.watch_revocation(member, now)

    def _replace(self, entry: GroupEntry, group: ClassicGroup | ConsumerGroup) -> None:
        """Replace the entry's group; requests parked in the old one fail with REBALANCE_IN_PROGRESS and are retried."""
        old, entry.group = entry.group, group
        entry.stop_timer()
        self._groups.add(entry)
        if isinstance(old, ClassicGroup):
            self._perform(entry, mark_dead(old, RebalanceInProgress.code))

    def start_session(self, group: ConsumerGroup, member_id: str, session_ms: int) -> None:
        """Restart the member's session."""
        cap = self._runtime.group_config.internal_group_session_cap_ms
        group.sessions[member_id] = self._runtime.clock.monotonic() + min(session_ms, cap) / 1000

    def remove(self, entry: GroupEntry, group: ConsumerGroup, members: Sequence[Member]) -> None:
        """Remove members; if only classic members remain, convert to a classic group and rebalance it."""
        classic = self.downgrade(entry, group, {member.member_id for member in members})
        if classic is None:
            self.write(entry, group, remove(group, members, self._runtime.topics))
        else:
            self._perform(entry, prepare(classic, self._runtime.clock.monotonic()))

    def downgrade(self, entry: GroupEntry, group: ConsumerGroup, removed: Collection[str]) -> ClassicGroup | None:
        """Convert to a stable classic group of all members except those in `removed`.

        Return None if any of them is not a classic member, or if group.consumer.migration.policy forbids it.
        """
        config = self._runtime.group_config
        if not may_downgrade(group, removed, config.group_consumer_migration_policy, config.group_max_size):
            return None
        records, snapshot = downgrade(group, removed, self._runtime.topics)
        now_ms = self._runtime.clock.time_ms()
        encoded = [encode(group.group_id, record) for record in records]
        self._groups.write(entry.partition, [*encoded, encode_group(GroupRecord(group.group_id, snapshot, now_ms))])
        classic = self._groups.new_classic(group.group_id)
        now = self._runtime.clock.monotonic()
        classic.restore(snapshot, now)
        restore_protocols(classic, group)
        entry.state_ms = now_ms
        self._replace(entry, classic)
        return classic

    def tick(self, entry: GroupEntry, group: ConsumerGroup) -> None:
        """Remove the members whose deadlines have passed."""
        now = self._runtime.clock.monotonic()
        expired = expired_members(group, now)
        if not expired:
            return
        for member, reason in expired:
            _log.info("group %.200r: removing member %.200r: %s", group.group_id, member.member_id, reason)
        try:
            self.remove(entry, group, [member for member, _ in expired])
        except BrokerError as error:  # no request carries the error: retry later
            _log.warning("group %.200r: could not remove members: %s", group.group_id, error)
            for member, _ in expired:
                group.sessions[member.member_id] = now + _RETRY_SECONDS
                group.revocations.pop(member.member_id, None)
                group.rejoin_deadlines.pop(member.member_id, None)


def _consumer(entry: GroupEntry) -> ConsumerGroup:
    if entry.consumer is None:
        raise GroupIdNotFound(f"Group {entry.group_id} is not a consumer group.")
    return entry.consumer
