"""A consumer's group: its member, driven against the broker, its commits and its rebalances."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any, Final

from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import ClusterMetadata
from pyclient.consumer.classic_member import ClassicMember
from pyclient.consumer.commit_request_manager import CommitRequestManager, Committer
from pyclient.consumer.config import ConsumerConfig
from pyclient.consumer.consumer_member import ConsumerMember
from pyclient.consumer.context import ConsumerContext
from pyclient.consumer.group_requests import ClassicRequests, ConsumerRequests, GroupRequests
from pyclient.consumer.member import COORDINATOR_GONE, Member, MemberOptions, State
from pyclient.consumer.member_events import (
    Action,
    ApplyAssignment,
    AssignmentApplied,
    CoordinatorFound,
    CoordinatorLost,
    Departing,
    Event,
    Fail,
    FindCoordinator,
    PartitionsLost,
    Polled,
    RecheckMembership,
    Refused,
    RejoinWanted,
    Request,
    Revoke,
    SendConsumerHeartbeat,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    Subscribed,
    ThreadTask,
    Ticked,
)
from pyclient.consumer.metrics import GroupMetrics
from pyclient.consumer.rebalance_listener import Notice, RebalanceListenerInvoker
from pyclient.consumer.subscription import Mode
from pyclient.errors import ClientError, CommitFailed, ConfigError, KafkaError, KafkaTimeout, MemberIdRequired
from pyclient.types import GroupMetadata, TopicPartition

log = logging.getLogger(__name__)

_NAMED_PARTITIONS: Final = 20
_FIRST_HEARTBEAT: Final = 5.0  # seconds, in the consumer protocol until the coordinator sets the interval


class MembershipManager:
    """One member and its requests. Everything but `note_poll` runs on the event loop.

    `on_task` receives the polling thread's tasks, `on_error` the errors that the next poll raises.
    """

    def __init__(
        self,
        context: ConsumerContext,
        metrics: GroupMetrics,
        *,
        on_task: Callable[[ThreadTask], None],
        on_error: Callable[[KafkaError], None],
    ) -> None:
        config, rng, backoff = context.config, context.rng, context.backoff
        assert config.group_id is not None
        self.group_id = config.group_id
        self._cluster = context.cluster
        self._config = config
        self._subscription = context.subscription
        self._clock = context.clock
        self._on_task = on_task
        self._on_error = on_error
        self._metrics = metrics
        self._requests = _requests(context.cluster, config, lambda failures: backoff.delay(failures, rng), rng)
        self.member: Member = self._requests.member
        self.last_error: KafkaError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._recheck: asyncio.Handle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._leave_task: asyncio.Task[None] | None = None

    # ---- events
    def feed(self, event: Event) -> None:
        """Process an event, and start the actions that the member returns."""
        now = self._clock.monotonic()
        if isinstance(event, AssignmentApplied):
            self._metrics.rebalance_done(now)
        elif isinstance(event, Departing):
            self._metrics.rebalance_given_up(lost=False)
        before = self.member.generation
        actions = self.member.step(event, now)
        if before != self.member.generation > 0:
            log.info("%s: joined", self.member.describe())
        for action in actions:
            self._count(action, now)
            self._carry_out(action)
        self._set_timer()

    def _count(self, action: Action, now: float) -> None:
        match action:
            case SendJoin() | Revoke() | ApplyAssignment() | SendConsumerHeartbeat(epoch=0):
                self._metrics.rebalance_begun(now)
            case PartitionsLost():
                self._metrics.rebalance_given_up(lost=True)

    def note_poll(self, now: float) -> bool:
        """Note a poll, in any thread; return True if the member is at rest and needs `feed(Polled())`."""
        self.member.polled_at = now
        return self.member.state in (State.OVERDUE, State.FAILED)

    def note_metadata(self, metadata: ClusterMetadata) -> None:
        """Rebalance if the new metadata requires it."""
        reason = self._requests.changed(metadata)
        if reason is not None:
            self.feed(RejoinWanted(reason))

    def lost_coordinator(self) -> None:
        """Forget the coordinator: a request found that it has moved."""
        self._cluster.forget_coordinator(self.group_id)
        self.feed(CoordinatorLost())

    def recheck(self) -> None:
        """Send a heartbeat soon: a commit was refused because of the membership."""
        self._recheck = asyncio.get_running_loop().call_soon(self.feed, RecheckMembership())

    def commit_identity(self, partitions: Iterable[TopicPartition]) -> tuple[int, str]:
        """Return the identity to commit with; raise `CommitFailed` for a partition that the member does not own."""
        if self._subscription.mode is Mode.MANUAL:
            return -1, ""
        identity = self.member.commit_identity()
        unassigned = [partition for partition in partitions if partition not in self._subscription]
        if unassigned:
            raise CommitFailed(
                f"{self.member.describe()}: {', '.join(map(str, unassigned[:5]))} cannot be committed, "
                "because the group may have assigned it to another member; this one has "
                f"{self._subscription.describe()}"
            )
        return identity

    def has_left(self, generation: int) -> bool:
        """See `Member.has_left`."""
        return self.member.has_left(generation)

    async def depart(self, reason: str, timeout: float) -> None:
        """Leave the group; wait at most `timeout` seconds for the broker's confirmation."""
        self.feed(Departing(reason))
        if self._leave_task is not None:
            _, waiting = await asyncio.wait([self._leave_task], timeout=timeout)
            if waiting:
                text = "leaving group %r: not confirmed within %.3g s; if it was lost, the session has to time out"
                log.info(text, self.group_id, timeout)

    def stop(self) -> None:
        for handle in (self._timer, self._recheck):
            if handle is not None:
                handle.cancel()
        for task in self._tasks:
            task.cancel()

    # ---- actions
    def _carry_out(self, action: Action) -> None:
        match action:
            case Revoke() | ApplyAssignment() | PartitionsLost():
                self._log(action)
                self._on_task(action)
            case Fail(error):
                self.last_error = error
                self._on_error(error)
            case SendLeave():
                self._leave_task = self._spawn(self._leave(action))
            case _:
                self._spawn(self._answer(action))

    def _log(self, task: ThreadTask) -> None:
        match task:
            case ApplyAssignment():
                assigned, added, revoked = map(_describe_partitions, (task.assigned, task.added, task.revoked))
                text = f"assigned {assigned}; added {added}, revoked {revoked}"
            case Revoke():
                text = f"revoked {_describe_partitions(task.partitions)}"
            case PartitionsLost():
                text = f"lost {_describe_partitions(task.partitions)}"
        log.info("%s: %s", self.member.describe(), text)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self.member.deadline()
        if due is None:
            self._timer = None
        else:
            delay = max(0.0, due - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self.feed, Ticked())

    async def _answer(self, action: Request) -> None:
        begun = self._clock.monotonic()
        try:
            if isinstance(action, FindCoordinator):
                event: Event = CoordinatorFound(await self._find())
            else:
                event = await self._requests.answer(action)
        except KafkaError as error:
            log.info("%s: %s", self.member.describe(), error)
            event = Refused(action.attempt, error)
        except Exception as error:  # any other error must not leave the member waiting
            log.exception("%s: %s failed unexpectedly", self.member.describe(), type(action).__name__)
            failure = ClientError(f"{self.member.describe()}: {type(action).__name__} failed: {error!r}")
            failure.__cause__ = error
            event = Refused(action.attempt, failure)
        if isinstance(event, Refused) and not isinstance(event.error, MemberIdRequired):
            self.last_error = event.error
            if isinstance(event.error, COORDINATOR_GONE):
                self._cluster.forget_coordinator(self.group_id)
        if isinstance(action, (SendHeartbeat, SendConsumerHeartbeat)):
            now, failed = self._clock.monotonic(), isinstance(event, Refused)
            self._metrics.heartbeat(now - begun, now, failed=failed)
            self.last_error = self.last_error if failed else None
        self.feed(event)

    async def _find(self) -> int:
        while True:
            try:
                return await self._cluster.find_coordinator(
                    self.group_id, timeout=self._config.default_api_timeout_ms / 1000
                )
            except KafkaTimeout as error:
                self.last_error = error
                log.warning("group %s: the coordinator was not found, looking again: %s", self.group_id, error)

    async def _leave(self, leave: SendLeave) -> None:
        try:
            await self._requests.leave(leave)
        except KafkaError as error:
            log.info("leaving group %r failed, so the session has to time out: %s", self.group_id, error)


def _describe_partitions(partitions: Collection[TopicPartition]) -> str:
    """Return partitions for a log line, the first ones by name."""
    names = ", ".join(map(str, islice(partitions, _NAMED_PARTITIONS)))
    more = len(partitions) - _NAMED_PARTITIONS
    return f"{names} and {more} more" if more > 0 else names or "none"


def _requests(
    cluster: ClusterClient, config: ConsumerConfig, backoff: Callable[[int], float], rng: Random
) -> GroupRequests:
    """Return a member of the configured protocol with its requests."""
    assert config.group_id is not None
    options = MemberOptions(
        group_id=config.group_id,
        heartbeat_interval=_FIRST_HEARTBEAT,
        max_poll_interval=config.max_poll_interval_ms / 1000,
        backoff=backoff,
        instance_id=config.group_instance_id,
        cooperative=config.cooperative,
    )
    if config.group_protocol == "consumer":
        member_id = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        return ConsumerRequests(cluster, config, ConsumerMember(options, member_id))
    assert config.heartbeat_interval_ms is not None
    options = replace(options, heartbeat_interval=config.heartbeat_interval_ms / 1000)
    return ClassicRequests(cluster, config, ClassicMember(options))


class ConsumerCoordinator:
    """Membership, commits and rebalances: a group member, if there is a `group_id`, and what goes with it.

    `call(function, *arguments)` schedules a function on the loop. `wake` is called when the polling thread has a task,
    `on_error` with the errors that the next poll raises, `on_assignment` when the assignment has changed.
    """

    def __init__(
        self,
        context: ConsumerContext,
        *,
        call: Callable[..., None],
        wake: Callable[[], None],
        on_error: Callable[[KafkaError], None],
        on_assignment: Callable[[], None],
    ) -> None:
        self._config = context.config
        self._subscription = context.subscription
        self._clock = context.clock
        self._call = call
        self._wake = wake
        self._metrics = GroupMetrics()
        self.membership: MembershipManager | None = None
        if context.config.group_id is not None:
            self.membership = MembershipManager(context, self._metrics, on_task=self.rebalance, on_error=on_error)
        self.committer = Committer(context, self.membership, self._metrics)
        self.commits = CommitRequestManager(context, self.committer, call)
        self.rebalances = RebalanceListenerInvoker(context, notify=self._notify, on_assignment=on_assignment)

    def rebalance(self, task: ThreadTask) -> None:
        """Give the polling thread a task."""
        self.rebalances.add(task)
        self._wake()

    def feed(self, event: Event) -> None:
        """Feed the group member an event, from any thread."""
        if self.membership is not None:
            self._call(self.membership.feed, event)

    def _notify(self, notice: Notice) -> None:
        self._call(self._deliver, notice)

    def _deliver(self, notice: Notice) -> None:
        if self.membership is not None and not notice.delivered:
            notice.delivered = True
            self.membership.feed(notice.event)

    def note_poll(self, now: float) -> None:
        if self.membership is not None and self.membership.note_poll(now):
            self.feed(Polled())

    def note_metadata(self, metadata: ClusterMetadata, *, matched: bool) -> None:
        """Feed the member new metadata; `matched` is True if a pattern matches other topics now. On the loop."""
        if self.membership is not None:
            if matched:
                self.membership.feed(Subscribed(self._subscription.topics))
            self.membership.note_metadata(metadata)

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group, if any; wait at most `timeout` seconds for the broker's confirmation.

        Commits of `commit_async` in progress are abandoned: their callbacks get a `KafkaTimeout`.
        """
        self.commits.give_up(reason)
        if self.membership is not None:
            await self.membership.depart(reason, timeout)

    def stop(self) -> None:
        if self.membership is not None:
            self.membership.stop()
        self.commits.stop()

    # ---- state

    def group_metadata(self) -> GroupMetadata:
        """Return what identifies this member to the group's coordinator; raise `CommitFailed` if it is no member."""
        if self.membership is None:
            raise ConfigError("offsets are committed under a group: give the consumer a group_id")
        if self._config.enable_auto_commit:
            raise ConfigError(
                "the consumer commits offsets by itself, also those of an aborted transaction: give it "
                "enable_auto_commit=False"
            )
        generation, member_id = self.membership.commit_identity(())
        instance = self._config.group_instance_id if member_id else None
        return GroupMetadata(self.membership.group_id, generation, member_id, instance)

    def health(self) -> dict[str, Any]:
        """Return the group's part of `Consumer.health`.

        `generation` is the member epoch in the consumer protocol. `group_waits_for_poll` is True while partitions are
        to be revoked or applied, which only a poll does; `last_poll_age` is in seconds.
        """
        member = self.membership.member if self.membership is not None else None
        in_group = member is not None and self._subscription.mode not in (Mode.NONE, Mode.MANUAL)
        return {
            "group_id": self._config.group_id,
            "group_protocol": self._config.group_protocol if member is not None else None,
            "group_state": member.state.value if member is not None else None,
            "group_waits_for_poll": self.rebalances.waiting > 0,
            "last_poll_age": self._clock.monotonic() - member.polled_at if member is not None and in_group else None,
            "member_id": member.member_id if member is not None else None,
            "group_instance_id": self._config.group_instance_id,
            "generation": member.generation if member is not None else None,
            "coordinator": member.coordinator if member is not None else None,
        }

    def metrics(self) -> dict[str, float]:
        """Return plain numbers, see `GroupMetrics.snapshot`."""
        return self._metrics.snapshot(self._clock.monotonic(), assigned=len(self._subscription))
