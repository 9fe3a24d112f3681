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
from pyclient.broker_embedded.groups.consumer.state import ConsumerGroup
from pyclient.broker_embedded.groups.registry import GroupEntry, group_tombstones, is_deserted
from pyclient.errors import BrokerError, GroupIdNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyclient.broker_embedded.groups.consumer.events import ConsumerAnswer, ConsumerHeartbeat
    from pyclient.broker_embedded.groups.consumer.model import Record
    from pyclient.broker_embedded.groups.consumer.topics import Topics
    from pyclient.broker_embedded.groups.log_records import KeyValue
    from pyclient.broker_embedded.groups.registry import GroupRegistry

_log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class ConsumerGroups:
    """The consumer groups in a registry. What a call changes is in the log when it returns."""

    def __init__(self, groups: GroupRegistry) -> None:
        self._groups = groups
        self._seams = groups.seams

    @property
    def topics(self) -> Topics:
        """The topics of the cluster."""
        return self._seams.topics

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often members are told to send a heartbeat."""
        return self._seams.group_config.group_consumer_heartbeat_interval_ms

    def limits(self) -> Limits:
        """The options that a group obeys now."""
        config = self._seams.group_config
        return Limits(
            assignors=tuple(name.strip() for name in config.group_consumer_assignors.split(",")),
            max_size=config.group_consumer_max_size,
            assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        )

    def heartbeat(
        self, group_id: str, event: ConsumerHeartbeat, *, makes_own_id: bool
    ) -> tuple[GroupEntry, ConsumerAnswer]:
        """ConsumerGroupHeartbeat; raises the error that the member is told."""
        limits = self.limits()
        check_form(group_id, event, limits, makes_own_id=makes_own_id)
        if event.member_epoch < JOINING:
            entry, group = self._existing(group_id)
            decision = leave(group, event, self._seams.topics)
            self._write(entry, group, decision.records, [])
            return entry, decision.answer
        if not event.member_id:
            event = replace(event, member_id=str(uuid.UUID(int=self._seams.rng.getrandbits(128), version=4)))
        entry, group, before = self._joined(group_id, event)
        topics = self._seams.topics
        decision = heartbeat(group, event, topics, limits, self._seams.clock.time_ms())
        self._write(entry, group, decision.records, before)
        group.topics_seen = topics.version
        session = self._seams.group_config.group_consumer_session_timeout_ms
        group.sessions[decision.answer.member_id] = self._seams.clock.monotonic() + session / 1000
        return entry, decision.answer

    def _existing(self, group_id: str) -> tuple[GroupEntry, ConsumerGroup]:
        entry = self._groups.find(group_id)
        if entry is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if entry.consumer is None:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return entry, entry.consumer

    def _joined(self, group_id: str, event: ConsumerHeartbeat) -> tuple[GroupEntry, ConsumerGroup, list[KeyValue]]:
        """The group that the member is in, or enters: a new one, or one without members that was a classic group."""
        entry = self._groups.find(group_id)
        if entry is None and event.member_epoch == JOINING:
            group = ConsumerGroup(group_id)
            return GroupEntry(group, self._groups.partition_of(group_id)), group, []
        if entry is not None and entry.consumer is None and event.member_epoch == JOINING and is_deserted(entry):
            return entry, ConsumerGroup(group_id), group_tombstones(entry.group) if entry.in_log else []
        if entry is None:
            raise GroupIdNotFound(f"Consumer group {group_id} not found.")
        return (*self._existing(group_id), [])

    def _write(
        self, entry: GroupEntry, group: ConsumerGroup, records: Sequence[Record], before: Sequence[KeyValue]
    ) -> None:
        """Put the records into the log, then apply them: the group is as the log says, whatever fails."""
        if not records and not before:
            return
        self._groups.write(entry.partition, [*before, *(encode(group.group_id, record) for record in records)])
        group.apply_all(records)
        entry.group = group
        entry.in_log = True
        self._groups.add(entry)
        now = self._seams.clock.monotonic()
        for record in records:
            member = group.members.get(record.member_id) if isinstance(record, CurrentRecord) else None
            if member is not None:
                group.watch_revocation(member, now)

    def tick(self, entry: GroupEntry, group: ConsumerGroup) -> None:
        """Give up the members whose time is over."""
        now = self._seams.clock.monotonic()
        gone = overdue(group, now)
        if not gone:
            return
        for member, reason in gone:
            _log.info("group %s: member %s is given up: %s", group.group_id, member.member_id, reason)
        try:
            self._write(entry, group, remove(group, [member for member, _ in gone], self._seams.topics), [])
        except BrokerError as error:  # nobody is there to be told: it is tried again
            _log.warning("group %s: members could not be removed: %s", group.group_id, error)
            group.sessions.update((member.member_id, now + _RETRY_SECONDS) for member, _ in gone)
            for member, _ in gone:
                group.revocations.pop(member.member_id, None)
