"""Drives a group member against the broker: carries out what `group.py` decides, and tells it what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from pyclient.backoff import Backoff
from pyclient.clock import Clock
from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import ClusterMetadata
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.group import COORDINATOR_GONE, GroupMember, MemberOptions, State
from pyclient.consumer.group_events import (
    Action,
    Adopt,
    CoordinatorFound,
    CoordinatorLost,
    Departing,
    Event,
    Fail,
    FindCoordinator,
    HeartbeatAnswered,
    Joined,
    Lose,
    PlanAssignment,
    Planned,
    Refused,
    RejoinWanted,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Synced,
    Ticked,
)
from pyclient.consumer.membership import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_members,
    encode_assignment,
    encode_subscription,
    plan,
)
from pyclient.errors import (
    ClientError,
    ClosedError,
    ConnectionFailed,
    KafkaError,
    KafkaTimeout,
    MemberIdRequired,
    from_code,
)
from pyclient.protocol.messages.heartbeat import HeartbeatRequest
from pyclient.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pyclient.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from pyclient.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

log = logging.getLogger(__name__)

ThreadTask = Revoke | Adopt | Lose
"""What only the polling thread may do."""

_PURPOSE: Final = "group"  # JoinGroup parks its connection until the whole group has joined
_JOIN_GRACE: Final = 5.0
_MANY_MEMBERS: Final = 3  # from this version on LeaveGroup names members in a list


class Coordinator:
    """One member and its requests. Everything but `note_poll` runs on the event loop.

    `on_task` gets what the polling thread has to do, `on_error` what the next poll raises.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        *,
        clock: Clock,
        rng: Random,
        on_task: Callable[[ThreadTask], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._on_task = on_task
        self._on_error = on_error
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self.member = GroupMember(
            MemberOptions(
                group_id=config.group_id,
                heartbeat_interval=config.heartbeat_interval_ms / 1000,
                max_poll_interval=config.max_poll_interval_ms / 1000,
                backoff=lambda failures: backoff.delay(failures, rng),
                instance_id=config.group_instance_id,
                cooperative=config.cooperative,
            )
        )
        self.last_error: KafkaError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: asyncio.Task[None] | None = None
        self._planned: dict[str, int | None] = {}

    # ---- in

    def feed(self, event: Event) -> None:
        """Takes in an event, and begins what the member decides."""
        for action in self.member.step(event, self._clock.monotonic()):
            self._carry_out(action)
        self._arm()

    def note_poll(self, now: float) -> bool:
        """The user polls, in whatever thread; whether `feed(Polled())` is needed, because the member is at rest."""
        self.member.polled_at = now
        return self.member.state in (State.OVERDUE, State.FAILED)

    def note_metadata(self, metadata: ClusterMetadata) -> None:
        """The leader has the group rebalance when partitions of its topics appear or vanish."""
        if not self.member.leader or self.member.state is not State.STABLE:
            return
        for topic, count in self._planned.items():
            now = metadata.partition_count(topic)
            if now != count:
                self.feed(RejoinWanted(f"topic {topic!r} has {now or 0} partitions now, not {count or 0}"))
                return

    def lost_coordinator(self) -> None:
        """Somebody learnt that the coordinator has moved."""
        self._cluster.forget_coordinator(self.group_id)
        self.feed(CoordinatorLost())

    async def depart(self, reason: str, timeout: float) -> None:
        """Leaves the group; waits for the broker to know, but no longer than `timeout` seconds."""
        self.feed(Departing(reason))
        if self._leaving is not None:
            await asyncio.wait([self._leaving], timeout=timeout)

    def stop(self) -> None:
        """Ends every request."""
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    # ---- out

    def _carry_out(self, action: Action) -> None:
        match action:
            case Revoke() | Adopt() | Lose():
                self._on_task(action)
            case Fail(error):
                self.last_error = error
                self._on_error(error)
            case SendLeave():
                self._leaving = self._spawn(self._leave(action))
            case _:
                self._spawn(self._answer(action))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self.member.deadline()
        if due is None:
            self._timer = None
        else:
            delay = max(0.0, due - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self.feed, Ticked())

    async def _answer(self, action: FindCoordinator | SendJoin | PlanAssignment | SendSync | SendHeartbeat) -> None:
        try:
            match action:
                case FindCoordinator():
                    event: Event = CoordinatorFound(await self._find())
                case SendJoin():
                    event = await self._join(action)
                case PlanAssignment():
                    event = Planned(action.attempt, await self._plan(action))
                case SendSync():
                    event = await self._sync(action)
                case SendHeartbeat():
                    event = await self._heartbeat(action)
        except KafkaError as error:
            log.info("%s: %s", self.member.describe(), error)
            event = Refused(action.attempt, error)
        except Exception as error:  # an assignor of the user's own
            log.exception("%s: assigning partitions failed", self.member.describe())
            failure = ClientError(f"{self.member.describe()}: assigning partitions failed: {error!r}")
            failure.__cause__ = error
            event = Refused(action.attempt, failure)
        if isinstance(event, Refused) and not isinstance(event.error, MemberIdRequired):
            self.last_error = event.error
            if isinstance(event.error, COORDINATOR_GONE):
                self._cluster.forget_coordinator(self.group_id)
        self.feed(event)

    async def _find(self) -> int:
        while True:
            try:
                return await self._cluster.find_coordinator(
                    self.group_id, timeout=self._config.default_api_timeout_ms / 1000
                )
            except KafkaTimeout as error:
                self.last_error = error
                log.warning("%s", error)

    async def _join(self, join: SendJoin) -> Event:
        config = self._config
        metadata = encode_subscription(join, config.client_rack)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=join.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=assignor.name, metadata=metadata)
                for assignor in config.partition_assignment_strategy
            ],
            reason=join.reason[:255],
        )
        patience = max(config.request_timeout_ms, config.max_poll_interval_ms) / 1000 + _JOIN_GRACE
        response = await self._ask(join.node, request, patience)
        if response.error_code:
            return Refused(join.attempt, self._refusal(response.error_code, "JoinGroup"), response.member_id)
        leader = response.leader == response.member_id
        members = decode_members(response.members) if leader else {}
        return Joined(
            join.attempt,
            response.member_id,
            response.generation_id,
            response.protocol_name or "",
            leader,
            members,
            response.skip_assignment,
        )

    async def _plan(self, action: PlanAssignment) -> dict[str, tuple[Any, ...]]:
        topics = {topic for member in action.members.values() for topic in member.topics}
        self._cluster.add_topics(topics)
        try:
            metadata = await self._cluster.wait_metadata(
                lambda metadata: topics <= metadata.topics.keys(), self._config.request_timeout_ms / 1000
            )
        except KafkaTimeout as error:
            log.warning("%s: assigns what is known: %s", self.member.describe(), error)
            metadata = self._cluster.metadata
        self._planned = {topic: metadata.partition_count(topic) for topic in topics}
        counts = {topic: count for topic, count in self._planned.items() if count}
        return plan(action.protocol, self._config.partition_assignment_strategy, counts, action.members)

    async def _sync(self, sync: SendSync) -> Event:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=sync.generation,
            member_id=sync.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=sync.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
                for member, partitions in sync.assignments.items()
            ],
        )
        patience = max(self._config.request_timeout_ms, self._config.max_poll_interval_ms) / 1000 + _JOIN_GRACE
        response = await self._ask(sync.node, request, patience)
        if response.error_code:
            return Refused(sync.attempt, self._refusal(response.error_code, "SyncGroup"))
        return Synced(sync.attempt, decode_assignment(response.assignment))

    async def _heartbeat(self, heartbeat: SendHeartbeat) -> Event:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=heartbeat.generation,
            member_id=heartbeat.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        patience = min(self._config.request_timeout_ms, self._config.session_timeout_ms) / 1000
        response = await self._ask(heartbeat.node, request, patience)
        if response.error_code:
            return Refused(heartbeat.attempt, self._refusal(response.error_code, "Heartbeat"))
        return HeartbeatAnswered(heartbeat.attempt)

    async def _leave(self, leave: SendLeave) -> None:
        """On the ordinary connection: the group's own may be parked in a JoinGroup."""
        try:
            connection = await self._cluster.connection(leave.node)
            version = connection.version_for(LeaveGroupRequest)
            if version >= _MANY_MEMBERS:
                who = MemberIdentity(member_id=leave.member_id, reason=leave.reason[:255])
                request = LeaveGroupRequest(group_id=self.group_id, members=[who])
            else:
                request = LeaveGroupRequest(group_id=self.group_id, member_id=leave.member_id)
            response = await connection.request(request, version=version)
            if response.error_code:
                raise self._refusal(response.error_code, "LeaveGroup")
        except KafkaError as error:
            log.info("leaving group %r did not work, so its session has to time out: %s", self.group_id, error)

    async def _ask(self, node: int, request: Any, timeout: float) -> Any:
        try:
            connection = await self._cluster.connection(node, purpose=_PURPOSE)
            return await connection.request(request, timeout=timeout)
        except ClosedError as error:
            raise ConnectionFailed(str(error)) from error

    def _refusal(self, code: int, what: str) -> KafkaError:
        return from_code(code, f"{what} was refused to {self.member.describe()}")
