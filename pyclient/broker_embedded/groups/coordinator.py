"""The group coordinator of a broker: runs the state machine of every group with the clock, the timers and the log."""

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
from pyclient.broker_embedded.groups.leaving import mark_dead
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


_MAX_PREFIX: Final = 32_767 - len(f"-{uuid.UUID(int=0)}")


class GroupCoordinator:
    """Groups and committed offsets, as the request handlers use them. Not thread-safe: one event loop."""

    def __init__(self, runtime: CoordinatorRuntime) -> None:
        self._runtime = runtime
        self.groups = GroupRegistry(runtime)
        self.offsets = OffsetMetadataManager(self.groups)
        self.consumers = ConsumerGroups(self.groups, self._perform)
        self._classic_in_consumer = ClassicInConsumer(self.consumers, runtime)
        self._expiration_timer: TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<GroupCoordinator groups={len(self.groups)} partitions={sorted(self.groups.loaded_partitions())}>"

    def load(self, partition: int) -> None:
        """Replay a partition of `__consumer_offsets` that this broker now leads, and start its members' sessions."""
        self.unload(partition)
        for entry in self.groups.load(partition):
            self._set_timer(entry)
        if self._expiration_timer is None and not self._closed:
            self._schedule_expiration()

    def unload(self, partition: int) -> None:
        """Stop coordinating a partition; parked requests to its groups are answered with NOT_COORDINATOR."""
        for entry in self.groups.unload(partition):
            if entry.classic is not None:
                self._perform(entry, mark_dead(entry.classic, NotCoordinator.code))

    def close(self) -> None:
        """Cancel all timers and answer parked requests with NOT_COORDINATOR."""
        self._closed = True
        if self._expiration_timer is not None:
            self._expiration_timer.cancel()
            self._expiration_timer = None
        for partition in self.groups.loaded_partitions():
            self.unload(partition)

    def fresh_member_id(self, prefix: str) -> str:
        """Return a new member id as in Kafka: the client id or group.instance.id, then a random UUID.

        A long prefix is truncated: the id has to fit into the 32,767 bytes of a string in a response.
        """
        prefix = prefix.encode()[:_MAX_PREFIX].decode(errors="ignore")
        return f"{prefix}-{uuid.UUID(int=self._runtime.rng.getrandbits(128), version=4)}"

    async def join(self, group_id: str, event: Join) -> JoinResult:
        """Serve JoinGroup; wait for the rebalance. The coordinator sets the `reply` of the event."""
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
            return self._with_timer(entry, self._classic_in_consumer.join(entry, entry.consumer, event))
        reply: asyncio.Future[JoinResult] = asyncio.get_running_loop().create_future()
        self._step(entry, replace(event, reply=reply))
        return await reply

    async def sync(self, group_id: str, event: Sync) -> SyncResult:
        """Serve SyncGroup; wait for the leader's assignment."""
        try:
            entry = self._member_group(group_id)
        except BrokerError as error:
            return SyncResult(error=error.code)
        if entry.consumer is not None:
            return self._with_timer(entry, self._classic_in_consumer.sync(entry.consumer, event))
        reply: asyncio.Future[SyncResult] = asyncio.get_running_loop().create_future()
        self._step(entry, replace(event, reply=reply))
        return await reply

    def heartbeat(self, group_id: str, event: Heartbeat) -> int:
        """Serve Heartbeat; return an error code."""
        try:
            entry = self._member_group(group_id)
        except BrokerError as error:
            return error.code
        if entry.consumer is not None:
            return self._with_timer(entry, self._classic_in_consumer.heartbeat(entry.consumer, event))
        reply: asyncio.Future[HeartbeatResult] = asyncio.get_running_loop().create_future()
        self._step(entry, replace(event, reply=reply))
        return reply.result().error  # a Heartbeat is never parked

    def leave(self, group_id: str, event: Leave) -> LeaveResult:
        """Serve LeaveGroup for the named members."""
        try:
            entry = self._member_group(group_id)
        except UnknownMemberId as error:  # the group does not exist
            return LeaveResult(members=tuple((identity, error.code) for identity in event.members))
        except BrokerError as error:
            return LeaveResult(error=error.code)
        if entry.consumer is not None:
            return self._with_timer(entry, self._classic_in_consumer.leave(entry, entry.consumer, event))
        reply: asyncio.Future[LeaveResult] = asyncio.get_running_loop().create_future()
        self._step(entry, replace(event, reply=reply))
        return reply.result()

    def delete(self, group_id: str) -> int:
        """Delete a group that has no members; return an error code."""
        try:
            entry = self.groups.find(group_id)
            if entry is None:
                return GroupIdNotFound.code
            if not is_empty(entry):
                return NonEmptyGroup.code
            partitions = dict.fromkeys([*entry.offsets, *entry.pending.partitions])
            self.groups.write_tombstones(entry, partitions, group=True)
        except BrokerError as error:
            return error.code
        if entry.classic is not None:
            self._perform(entry, mark_dead(entry.classic, NotCoordinator.code))
        return 0

    def transaction_ended(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """Decide the offsets that a producer's transaction wrote to a partition of `__consumer_offsets`."""
        self.groups.transaction_ended(partition, producer_id, commit=commit)

    def _member_group(self, group_id: str, *, create: bool = False) -> GroupEntry:
        if not group_id:
            raise InvalidGroupId("the group id must not be empty")
        entry = self.groups.find_or_create(group_id) if create else self.groups.find(group_id)
        if entry is None:
            raise UnknownMemberId(f"group {group_id!r} does not exist")
        if create and entry.consumer is not None and is_empty(entry):
            self._to_classic(entry)
        if create and entry.classic is not None and not entry.in_log:
            self._write_empty(entry)
        return entry

    def _write_empty(self, entry: GroupEntry) -> None:
        """Write the empty classic group that a JoinGroup creates; as in Kafka even if the member is refused."""
        entry.state_ms = self._runtime.clock.time_ms()
        empty = GroupSnapshot(protocol_type="", generation=0, protocol_name=None, leader=None, members=())
        try:
            self.groups.write(entry.partition, [encode_group(GroupRecord(entry.group_id, empty, entry.state_ms))])
        except BrokerError:
            if not entry.offsets:
                self.groups.forget(entry)
            raise
        entry.in_log = True

    def _to_classic(self, entry: GroupEntry) -> None:
        """Replace a consumer group without members by a classic group, because a classic member joins."""
        self.groups.write(entry.partition, group_tombstones(entry.group))
        entry.stop_timer()
        entry.group = self.groups.new_classic(entry.group_id)
        entry.in_log = False

    def _with_timer(self, entry: GroupEntry, result: R) -> R:
        """Set the group's timer, then return its answer."""
        self._set_timer(entry)
        return result

    def consumer_heartbeat(self, group_id: str, event: ConsumerHeartbeat, *, makes_own_id: bool) -> ConsumerAnswer:
        """Serve ConsumerGroupHeartbeat; raise the `BrokerError` for the response."""
        entry, answer, changed = self.consumers.heartbeat(group_id, event, makes_own_id=makes_own_id)
        # an unchanged group only has later deadlines than before
        return self._with_timer(entry, answer) if changed or entry.timer is None else answer

    def _step(self, entry: GroupEntry, event: Event) -> None:
        group = entry.classic
        assert group is not None, f"{entry.group_id} is no classic group"
        before = group.state
        actions = step(group, event, self._runtime.clock.monotonic())
        if group.state is not before:
            entry.state_ms = self._runtime.clock.time_ms()
        self._perform(entry, actions)
        if isinstance(event, Heartbeat):  # a Heartbeat only extends deadlines
            return
        if group.state is before and isinstance(event, Join | Sync):  # other members' deadlines are unchanged
            self._set_timer_at(entry, self._runtime.clock.monotonic(), next_deadline_of(group, event))
        else:
            self._set_timer(entry)

    def _perform(self, entry: GroupEntry, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Store):
                self._step(entry, Stored(action.serial, self._write(entry, action)))
                continue
            assert isinstance(action.reply, asyncio.Future)
            if not action.reply.done():  # a closed connection cancels the future
                action.reply.set_result(action.result)

    def _write(self, entry: GroupEntry, action: Store) -> int:
        record = encode_group(GroupRecord(entry.group_id, action.snapshot, entry.state_ms))
        try:
            self.groups.write(entry.partition, [record])
        except BrokerError as error:
            generation = action.snapshot.generation
            _log.warning("group %.200r: could not write generation %d: %s", entry.group_id, generation, error)
            return error.code
        entry.in_log = True
        return 0

    def _set_timer(self, entry: GroupEntry) -> None:
        """Schedule a tick no later than the group's next deadline; an early tick is harmless."""
        group = entry.group
        deadline = next_deadline(group) if isinstance(group, ClassicGroup) else group.next_deadline()
        if deadline is None:
            entry.stop_timer()
        else:
            self._set_timer_at(entry, self._runtime.clock.monotonic(), deadline)

    def _set_timer_at(self, entry: GroupEntry, now: float, deadline: float | None) -> None:
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
            self._set_timer(entry)

    def _schedule_expiration(self) -> None:
        interval = self._runtime.group_config.offsets_retention_check_interval_ms / 1000
        self._expiration_timer = self._runtime.schedule(interval, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._schedule_expiration()
        self.offsets.expire()
