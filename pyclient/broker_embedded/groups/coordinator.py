"""The group coordinator of a node: runs every group's state machine against the clock, the timers and the log."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from pyclient.broker_embedded.groups.classic import next_deadline, next_deadline_of, step
from pyclient.broker_embedded.groups.classic_in_consumer import ClassicInConsumer
from pyclient.broker_embedded.groups.consumer_groups import ConsumerGroups
from pyclient.broker_embedded.groups.events import (
    GroupSnapshot,
    Heartbeat,
    HeartbeatResult,
    Join,
    JoinResult,
    Leave,
    LeaveResult,
    Store,
    Stored,
    Sync,
    SyncResult,
    Tick,
)
from pyclient.broker_embedded.groups.leaving import disband
from pyclient.broker_embedded.groups.log_records import GroupRecord, encode_group
from pyclient.broker_embedded.groups.offset_metadata_manager import OffsetMetadataManager
from pyclient.broker_embedded.groups.registry import GroupEntry, GroupRegistry, group_tombstones, is_empty
from pyclient.broker_embedded.groups.state import ClassicGroup
from pyclient.errors import (
    BrokerError,
    GroupIdNotFound,
    InvalidGroupId,
    InvalidSessionTimeout,
    NonEmptyGroup,
    NotCoordinator,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyclient.broker_embedded.groups.consumer.events import ConsumerAnswer, ConsumerHeartbeat
    from pyclient.broker_embedded.groups.coordinator_runtime import CoordinatorRuntime, TimerHandle
    from pyclient.broker_embedded.groups.events import Action, Event

_log = logging.getLogger(__name__)

R = TypeVar("R")


_LONGEST_PREFIX: Final = 32_767 - len(f"-{uuid.UUID(int=0)}")


class GroupCoordinator:
    """Classic consumer groups and committed offsets; the handlers' only door to them. Not thread-safe: one loop."""

    def __init__(self, runtime: CoordinatorRuntime) -> None:
        self._runtime = runtime
        self.groups = GroupRegistry(runtime)
        self.offsets = OffsetMetadataManager(self.groups)
        self.consumers = ConsumerGroups(self.groups, self._perform)
        self._classic_in_consumer = ClassicInConsumer(self.consumers, runtime)
        self._cleaner: TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<GroupCoordinator groups={len(self.groups)} partitions={sorted(self.groups.loaded_partitions())}>"

    def load(self, partition: int) -> None:
        """Take over a partition of `__consumer_offsets` that this node leads now: replay it, start its sessions."""
        self.unload(partition)
        for entry in self.groups.load(partition):
            self._arm(entry)
        if self._cleaner is None and not self._closed:
            self._schedule_cleaning()

    def unload(self, partition: int) -> None:
        """Give a partition up; requests that wait for its groups are answered with NOT_COORDINATOR."""
        for entry in self.groups.unload(partition):
            if entry.classic is not None:
                self._perform(entry, disband(entry.classic, NotCoordinator.code))

    def close(self) -> None:
        """End all timers and answer whoever still waits; what the groups were is in the log."""
        self._closed = True
        if self._cleaner is not None:
            self._cleaner.cancel()
            self._cleaner = None
        for partition in self.groups.loaded_partitions():
            self.unload(partition)

    def fresh_member_id(self, prefix: str) -> str:
        """A member id as Kafka makes them: the client id or the group.instance.id, then a random UUID.

        A long prefix is cut: the id has to fit into 32,767 bytes, or no answer could carry it.
        """
        prefix = prefix.encode()[:_LONGEST_PREFIX].decode(errors="ignore")
        return f"{prefix}-{uuid.UUID(int=self._runtime.rng.getrandbits(128), version=4)}"

    async def join(self, group_id: str, event: Join) -> JoinResult:
        """JoinGroup; waits for the rebalance. (The `reply` in an event is the coordinator's to fill in.)"""
        config = self._runtime.group_config
        shortest, longest = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if group_id and not shortest <= event.session_timeout_ms <= longest:
            return JoinResult(error=InvalidSessionTimeout.code, member_id=event.member_id)
        try:
            entry = self._member_group(group_id, create=not event.member_id)
        except UnknownMemberId as error:
            return JoinResult(error=error.code, member_id=event.member_id)
        except BrokerError as error:
            return JoinResult(error=error.code, member_id=event.member_id if not group_id else "")
        if entry.consumer is not None:
            return self._armed(entry, self._classic_in_consumer.join(entry, entry.consumer, event))
        reply: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        self._step(entry, replace(event, reply=reply))
        return await reply

    async def sync(self, group_id: str, event: Sync) -> SyncResult:
        """SyncGroup; waits for the leader's assignment."""
        try:
            entry = self._member_group(group_id)
        except BrokerError as error:
            return SyncResult(error=error.code)
        if entry.consumer is not None:
            return self._armed(entry, self._classic_in_consumer.sync(entry.consumer, event))
        reply: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
        self._step(entry, replace(event, reply=reply))
        return await reply

    def heartbeat(self, group_id: str, event: Heartbeat) -> int:
        """Heartbeat: an error code."""
        try:
            entry = self._member_group(group_id)
        except BrokerError as error:
            return error.code
        if entry.consumer is not None:
            return self._armed(entry, self._classic_in_consumer.heartbeat(entry.consumer, event))
        reply: asyncio.Future[HeartbeatResult] = asyncio.get_running_loop().create_future()
        self._step(entry, replace(event, reply=reply))
        return reply.result().error  # a group never parks it

    def leave(self, group_id: str, event: Leave) -> LeaveResult:
        """LeaveGroup, for each of the members named."""
        try:
            entry = self._member_group(group_id)
        except UnknownMemberId as error:  # the group does not exist
            return LeaveResult(members=tuple((identity, error.code) for identity in event.members))
        except BrokerError as error:
            return LeaveResult(error=error.code)
        if entry.consumer is not None:
            return self._armed(entry, self._classic_in_consumer.leave(entry, entry.consumer, event))
        reply: asyncio.Future[LeaveResult] = asyncio.get_running_loop().create_future()
        self._step(entry, replace(event, reply=reply))
        return reply.result()

    def delete(self, group_id: str) -> int:
        """DeleteGroups for one group: an error code."""
        try:
            entry = self.groups.find(group_id)
            if entry is None:
                return GroupIdNotFound.code
            if not is_empty(entry):
                return NonEmptyGroup.code
            self.groups.write_tombstones(entry, list(entry.offsets), group=True)
        except BrokerError as error:
            return error.code
        if entry.classic is not None:
            self._perform(entry, disband(entry.classic, NotCoordinator.code))
        return 0

    def _member_group(self, group_id: str, *, create: bool = False) -> GroupEntry:
        if not group_id:
            raise InvalidGroupId("a group has a name")
        entry = self.groups.find_or_create(group_id) if create else self.groups.find(group_id)
        if entry is None:
            raise UnknownMemberId(f"there is no group {group_id!r}")
        if create and entry.consumer is not None and is_empty(entry):
            self._to_classic(entry)
        if create and entry.classic is not None and not entry.in_log:
            self._write_new(entry)
        return entry

    def _write_new(self, entry: GroupEntry) -> None:
        """Write a classic group that a member is about to create, as Kafka does, also if the member is refused."""
        entry.state_ms = self._runtime.clock.time_ms()
        new = GroupSnapshot(protocol_type="", generation=0, protocol_name=None, leader=None, members=())
        try:
            self.groups.write(entry.partition, [encode_group(GroupRecord(entry.group_id, new, entry.state_ms))])
        except BrokerError:
            if not entry.offsets:
                self.groups.forget(entry)
            raise
        entry.in_log = True

    def _to_classic(self, entry: GroupEntry) -> None:
        """A consumer group without members becomes a classic one when a classic member comes."""
        self.groups.write(entry.partition, group_tombstones(entry.group))
        entry.stop_timer()
        entry.group = self.groups.new_classic(entry.group_id)
        entry.in_log = False

    def _armed(self, entry: GroupEntry, result: R) -> R:
        """A consumer group's answer, with the timers set that it needs."""
        self._arm(entry)
        return result

    def consumer_heartbeat(self, group_id: str, event: ConsumerHeartbeat, *, makes_own_id: bool) -> ConsumerAnswer:
        """ConsumerGroupHeartbeat; raises the `BrokerError` that the member is told."""
        entry, answer, changed = self.consumers.heartbeat(group_id, event, makes_own_id=makes_own_id)
        return self._armed(entry, answer) if changed or entry.timer is None else answer  # else deadlines were put off

    def _step(self, entry: GroupEntry, event: Event) -> None:
        group = entry.classic
        assert group is not None, f"{entry.group_id} is no classic group"
        before = group.state
        actions = step(group, event, self._runtime.clock.monotonic())
        if group.state is not before:
            entry.state_ms = self._runtime.clock.time_ms()
        self._perform(entry, actions)
        if isinstance(event, Heartbeat):  # which only puts deadlines off
            return
        if group.state is before and isinstance(event, Join | Sync):  # the deadlines of others are where they were
            self._arm_at(entry, self._runtime.clock.monotonic(), next_deadline_of(group, event))
        else:
            self._arm(entry)

    def _perform(self, entry: GroupEntry, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Store):
                self._step(entry, Stored(action.serial, self._write(entry, action)))
                continue
            assert isinstance(action.reply, asyncio.Future)
            if not action.reply.done():  # done: the connection is gone, and with it whoever waited
                action.reply.set_result(action.result)

    def _write(self, entry: GroupEntry, action: Store) -> int:
        record = encode_group(GroupRecord(entry.group_id, action.snapshot, entry.state_ms))
        try:
            self.groups.write(entry.partition, [record])
        except BrokerError as error:
            generation = action.snapshot.generation
            _log.warning("group %.200r: generation %d was not written: %s", entry.group_id, generation, error)
            return error.code
        entry.in_log = True
        return 0

    def _arm(self, entry: GroupEntry) -> None:
        """See that a tick comes no later than the group's next deadline; one that comes too early does no harm."""
        group = entry.group
        deadline = next_deadline(group) if isinstance(group, ClassicGroup) else group.next_deadline()
        if deadline is None:
            entry.stop_timer()
        else:
            self._arm_at(entry, self._runtime.clock.monotonic(), deadline)

    def _arm_at(self, entry: GroupEntry, now: float, deadline: float | None) -> None:
        if deadline is None:
            return
        if entry.timer is not None:
            if entry.timer_at <= deadline:
                return
            entry.stop_timer()
        delay = max(deadline - now, 0.0)
        entry.timer_at = deadline
        entry.timer = self._runtime.schedule(delay, lambda: self._tick(entry))

    def _tick(self, entry: GroupEntry) -> None:
        entry.timer = None
        if entry.consumer is None:
            self._step(entry, Tick())
        else:
            self.consumers.tick(entry, entry.consumer)
            self._arm(entry)

    def _schedule_cleaning(self) -> None:
        interval = self._runtime.group_config.offsets_retention_check_interval_ms / 1000
        self._cleaner = self._runtime.schedule(interval, self._clean)

    def _clean(self) -> None:
        self._schedule_cleaning()
        self.offsets.expire()
