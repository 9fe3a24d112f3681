"""Runs the consumer groups (KIP-848) of a node: each request is decided, written, applied, and then answered."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.groups.consumer.events import Limits
from pyclient.broker_embedded.groups.consumer.heartbeat import heartbeat
from pyclient.broker_embedded.groups.consumer.leaving import leave, overdue, remove
from pyclient.broker_embedded.groups.consumer.log_format import encode
from pyclient.broker_embedded.groups.consumer.membership import check_form
from pyclient.broker_embedded.groups.consumer.model import JOINING, CurrentRecord
from pyclient.broker_embedded.groups.consumer.planning import resolve_regexes
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.leaving import disband
from pyclient.broker_embedded.groups.log_records import GroupRecord, encode_group
from pyclient.broker_embedded.groups.migration import check_upgrade, downgrade, give_protocols, may_downgrade, upgrade
from pyclient.broker_embedded.groups.rebalancing import prepare
from pyclient.broker_embedded.groups.registry import GroupEntry, group_tombstones, is_deserted
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
    """The consumer groups in a registry. What a call changes is in the log when it returns."""

    def __init__(self, groups: GroupRegistry, perform: Callable[[GroupEntry, Iterable[Action]], None]) -> None:
        """`perform` does what a classic group wants done."""
        self._groups = groups
        self._runtime = groups.runtime
        self._perform = perform

    @property
    def topics(self) -> Topics:
        """The topics of the cluster."""
        return self._runtime.topics

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often members of the group are told to send a heartbeat."""
        default = self._runtime.group_config.group_consumer_heartbeat_interval_ms
        return self._own(group_id, "consumer.heartbeat.interval.ms", default)

    def _session_ms(self, group_id: str) -> int:
        default = self._runtime.group_config.group_consumer_session_timeout_ms
        return self._own(group_id, "consumer.session.timeout.ms", default)

    def _own(self, group_id: str, name: str, default: int) -> int:
        """The group's own option, or what the broker has for it."""
        return int(self._runtime.group_options(group_id).get(name, default))

    def limits(self, group_id: str) -> Limits:
        """The options that a group obeys now."""
        config = self._runtime.group_config
        interval = config.group_consumer_assignment_interval_ms
        return Limits(
            assignors=tuple(name.strip() for name in config.group_consumer_assignors.split(",")),
            max_size=config.group_consumer_max_size,
            assignment_interval_ms=self._own(group_id, "consumer.assignment.interval.ms", interval),
        )

    def heartbeat(
        self, group_id: str, event: ConsumerHeartbeat, *, makes_own_id: bool
    ) -> tuple[GroupEntry, ConsumerAnswer, bool]:
        """ConsumerGroupHeartbeat, and whether it changed the group; raises the error that the member is told."""
        limits = self.limits(group_id)
        check_form(group_id, event, limits, makes_own_id=makes_own_id)
        if event.member_epoch < JOINING:
            return (*self._leave(group_id, event), True)
        if not event.member_id:
            event = replace(event, member_id=str(uuid.UUID(int=self._runtime.rng.getrandbits(128), version=4)))
        entry, group, before = self._entered(group_id, event, limits)
        topics = self._runtime.topics
        decision = heartbeat(group, event, topics, limits, self._runtime.clock.time_ms())
        self.write(entry, group, decision.records, before)
        group.topics_seen = topics.version
        group.calls.pop(decision.answer.member_id, None)
        self.start_session(group, decision.answer.member_id, self._session_ms(group_id))
        if decision.must_resolve and not group.resolving:
            group.resolving = True
            self._runtime.schedule(0, lambda: self._resolve_regexes(entry, group))
        return entry, decision.answer, bool(decision.records or before)

    def _resolve_regexes(self, entry: GroupEntry, group: ConsumerGroup) -> None:
        """Resolve the group's regular expressions after the heartbeat that asked for it; the next ones tell members."""
        group.resolving = False
        if entry.group is not group or not self._groups.is_current(entry):
            return
        limits, now_ms = self.limits(group.group_id), self._runtime.clock.time_ms()
        try:
            self.write(entry, group, resolve_regexes(group, self._runtime.topics, limits, now_ms))
        except BrokerError as error:  # the next heartbeat asks again
            _log.warning("group %.200r: its regular expressions were not resolved: %s", group.group_id, error)

    def _leave(self, group_id: str, event: ConsumerHeartbeat) -> tuple[GroupEntry, ConsumerAnswer]:
        entry = self._groups.find(group_id)
        if entry is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        group = _consumer(entry)
        decision = leave(group, event)
        if decision.gone:
            self.remove(entry, group, decision.gone)
        else:
            self.write(entry, group, decision.records)
        return entry, decision.answer

    def _entered(
        self, group_id: str, event: ConsumerHeartbeat, limits: Limits
    ) -> tuple[GroupEntry, ConsumerGroup, list[KeyValue]]:
        """The group that the member is in, or enters: a new one, or one that was a classic group.

        What stands in the log of the latter has to be written over by the records that are returned.
        """
        entry = self._groups.find(group_id)
        if event.member_epoch != JOINING:
            if entry is None:
                raise GroupIdNotFound(f"Consumer group {group_id} not found.")
            return entry, _consumer(entry), []
        if entry is None:  # it is known when its first records are in the log
            entry = GroupEntry(self._groups.new_classic(group_id), self._groups.partition_of(group_id))
        if entry.classic is None:
            return entry, _consumer(entry), []
        group = ConsumerGroup(group_id)
        records: list[Record] = []
        if not is_deserted(entry):
            check_upgrade(entry.classic, self._runtime.group_config.group_consumer_migration_policy, limits)
            records = upgrade(entry.classic, self._runtime.topics)
            group.apply_all(records)
        tombstones = group_tombstones(entry.group) if entry.in_log else []
        return entry, group, [*tombstones, *(encode(group_id, record) for record in records)]

    def write(
        self, entry: GroupEntry, group: ConsumerGroup, records: Sequence[Record], before: Sequence[KeyValue] = ()
    ) -> None:
        """Put the records into the log, then apply them: the group is as the log says, whatever fails."""
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
        """The group is another one from here on; whoever waits for the old one joins the new one."""
        old, entry.group = entry.group, group
        entry.stop_timer()
        self._groups.add(entry)
        if isinstance(old, ClassicGroup):
            self._perform(entry, disband(old, RebalanceInProgress.code))

    def start_session(self, group: ConsumerGroup, member_id: str, session_ms: int) -> None:
        """The member was heard of."""
        cap = self._runtime.group_config.internal_group_session_cap_ms
        group.sessions[member_id] = self._runtime.clock.monotonic() + min(session_ms, cap) / 1000

    def remove(self, entry: GroupEntry, group: ConsumerGroup, members: Sequence[Member]) -> None:
        """Take members out; a group of which only classic members are left becomes a classic one, and rebalances."""
        classic = self.downgrade(entry, group, {member.member_id for member in members})
        if classic is None:
            self.write(entry, group, remove(group, members, self._runtime.topics))
        else:
            self._perform(entry, prepare(classic, self._runtime.clock.monotonic()))

    def downgrade(self, entry: GroupEntry, group: ConsumerGroup, gone: Collection[str]) -> ClassicGroup | None:
        """Make a stable classic group of the members that are left without those in `gone`.

        Return None if others than classic members are left, or if group.consumer.migration.policy forbids it.
        """
        config = self._runtime.group_config
        if not may_downgrade(group, gone, config.group_consumer_migration_policy, config.group_max_size):
            return None
        records, snapshot = downgrade(group, gone, self._runtime.topics)
        now_ms = self._runtime.clock.time_ms()
        written = [encode(group.group_id, record) for record in records]
        self._groups.write(entry.partition, [*written, encode_group(GroupRecord(group.group_id, snapshot, now_ms))])
        classic = self._groups.new_classic(group.group_id)
        now = self._runtime.clock.monotonic()
        classic.restore(snapshot, now)
        give_protocols(classic, group)
        entry.state_ms = now_ms
        self._replace(entry, classic)
        return classic

    def tick(self, entry: GroupEntry, group: ConsumerGroup) -> None:
        """Give up the members whose time is over."""
        now = self._runtime.clock.monotonic()
        gone = overdue(group, now)
        if not gone:
            return
        for member, reason in gone:
            _log.info("group %.200r: member %.200r is given up: %s", group.group_id, member.member_id, reason)
        try:
            self.remove(entry, group, [member for member, _ in gone])
        except BrokerError as error:  # nobody is there to be told: it is tried again
            _log.warning("group %.200r: members could not be removed: %s", group.group_id, error)
            for member, _ in gone:
                group.sessions[member.member_id] = now + _RETRY_SECONDS
                group.revocations.pop(member.member_id, None)
                group.calls.pop(member.member_id, None)


def _consumer(entry: GroupEntry) -> ConsumerGroup:
    if entry.consumer is None:
        raise GroupIdNotFound(f"Group {entry.group_id} is not a consumer group.")
    return entry.consumer
