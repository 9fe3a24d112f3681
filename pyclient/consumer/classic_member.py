"""A member in the classic protocol: JoinGroup and SyncGroup, eager or cooperative (KIP-429)."""

from __future__ import annotations

from typing import Final

from pyclient.consumer.member import AT_REST, COORDINATOR_GONE, NO_GENERATION, Member, MemberOptions, State
from pyclient.consumer.member_events import (
    Action,
    ApplyAssignment,
    AssignmentApplied,
    Event,
    HeartbeatAnswered,
    Joined,
    Partitions,
    PlanAssignment,
    Planned,
    Refused,
    RejoinWanted,
    Released,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendSync,
    Subscribed,
    Synced,
)
from pyclient.errors import (
    CoordinatorLoadInProgress,
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)

_FIRST_INTERVAL: Final = 0.05
"""Seconds until the first heartbeat of a generation; each interval is twice as long, up to the configured one.

A group that has just changed often changes again, and a member learns it only from a heartbeat
(docs/measurements.md, "Heartbeats of a new generation").
"""


class ClassicMember(Member):
    """A state machine, see `Member`. Transitions:

    IDLE      -> SEEKING | REVOKING | JOINING     subscribed
    SEEKING   -> REVOKING | JOINING               the coordinator was found
    REVOKING  -> JOINING                          the polling thread has revoked its partitions
    JOINING   -> SYNCING | WAITING                JoinGroup answered
    SYNCING   -> STABLE | WAITING                 SyncGroup answered
    STABLE    -> REVOKING | JOINING | WAITING     rebalance; lost
    STABLE, REVOKING -> OVERDUE                   max_poll_interval_ms passed; the next poll joins again
    WAITING   -> SEEKING | REVOKING | JOINING     the backoff is over
    any       -> FAILED                           an error only the user can resolve; the next poll tries again
    any       -> FENCED                           another consumer has the same group_instance_id; final
    any       -> IDLE                             unsubscribed, closed
    """

    def __init__(self, options: MemberOptions) -> None:
        super().__init__(options)
        self.protocol = ""
        self.leader = False
        self._rejoin: str | None = None
        self._last: tuple[Partitions, int] = ((), NO_GENERATION)
        self._heartbeat_pause = _FIRST_INTERVAL

    def _protocol_step(self, event: Event, now: float) -> list[Action]:
        match event:
            case Subscribed(topics):
                return self._subscribed(topics, now)
            case RejoinWanted(reason):
                return self._rebalance(reason) if self.state is State.STABLE else []
            case Joined() | Planned() | Synced() | HeartbeatAnswered() | Refused():
                return self._answered(event, now)
            case Released():
                return self._released()
            case AssignmentApplied(number):
                return self._applied(number)
            case _:
                return []

    def _subscribed(self, topics: tuple[str, ...], now: float) -> list[Action]:
        changed, self.topics = topics != self.topics, topics
        if self.state is State.IDLE:
            self.polled_at = now
        if self.state in AT_REST:
            return self._begin("subscribed")
        return self._rebalance("the subscription changed") if changed else []

    # ---- joining

    def _prepare_join(self) -> list[Action]:
        revoked = self.owned
        if self.options.cooperative:
            revoked = tuple(partition for partition in self.owned if partition.topic not in self.topics)
        if revoked:
            self.state = State.REVOKING
            return [Revoke(revoked)]
        return self._join()

    def _released(self) -> list[Action]:
        if self.state is not State.REVOKING:
            return []
        kept = [partition for partition in self.owned if partition.topic in self.topics]
        self.owned = tuple(kept) if self.options.cooperative else ()
        if self.coordinator is None:
            self.state = State.SEEKING
            return self._search()
        return self._join()

    def _join(self) -> list[Action]:
        assert self.coordinator is not None
        self.state = State.JOINING
        self._rejoin = None
        join = SendJoin(
            self._next_attempt(),
            self.coordinator,
            self.member_id,
            self.topics,
            self.owned,
            self.generation if self.owned else NO_GENERATION,
            self._reason,
            *self._last,
        )
        return [join]

    def _joined(self, event: Joined) -> list[Action]:
        assert self.coordinator is not None
        self.state = State.SYNCING
        self.member_id, self.generation, self.protocol = event.member_id, event.generation, event.protocol
        self.leader = event.leader
        if event.leader and not event.keeps_assignment:
            return [PlanAssignment(self._next_attempt(), event.protocol, event.members)]
        return self._sync({})

    def _sync(self, assignments: dict[str, Partitions]) -> list[Action]:
        assert self.coordinator is not None
        sync = SendSync(
            self._next_attempt(), self.coordinator, self.member_id, self.generation, self.protocol, assignments
        )
        return [sync]

    def _synced(self, partitions: Partitions, now: float) -> list[Action]:
        self.state = State.STABLE
        self._failures = 0
        self._heartbeat_sent = None
        self._heartbeat_pause = _FIRST_INTERVAL
        self._heartbeat_due = now + min(self._heartbeat_pause, self.options.heartbeat_interval)
        held, wanted = set(self.owned), set(partitions)
        added = tuple(partition for partition in partitions if partition not in held)
        revoked = tuple(partition for partition in self.owned if partition not in wanted)
        self._applying = ApplyAssignment(self._attempt, partitions, added, revoked)
        self._last = partitions, self.generation
        return [self._applying]

    def _applied(self, number: int) -> list[Action]:
        pending = self._applying
        if pending is None or pending.number != number:
            return []
        self.owned, self._applying = pending.assigned, None
        if pending.revoked:
            return self._rebalance("partitions were given up for others")
        return self._rebalance(self._rejoin) if self._rejoin is not None else []

    def _rebalance(self, reason: str) -> list[Action]:
        """Join again, after the polling thread has applied a pending assignment."""
        if self.state is not State.STABLE or self._applying is not None:
            self._rejoin = reason
            return []
        return self._begin(reason)

    # ---- answers

    def _answered(self, event: Joined | Planned | Synced | HeartbeatAnswered | Refused, now: float) -> list[Action]:
        if event.attempt == self._heartbeat_sent:
            self._heartbeat_sent = None
            if isinstance(event, Refused):
                return self._heartbeat_refused(event.error, now)
            self._failures = 0
            return []
        if event.attempt == self._search_sent and isinstance(event, Refused):
            return self._search_refused(event.error, now)
        if event.attempt != self._attempt:
            return []
        match event:
            case Joined() if self.state is State.JOINING:
                return self._joined(event)
            case Planned() if self.state is State.SYNCING:
                return self._sync(dict(event.assignments))
            case Synced() if self.state is State.SYNCING:
                actions = self._synced(event.partitions, now)
                return actions + (self._overdue(now) if self._is_overdue(now) else [])
            case Refused() if self.state in (State.JOINING, State.SYNCING):
                return self._refused(event.error, event.member_id, now)
            case _:
                return []

    def _refused(self, error: KafkaError, member_id: str, now: float) -> list[Action]:
        """Handle the error of a JoinGroup or SyncGroup."""
        match error:
            case MemberIdRequired() if member_id:
                self.member_id = member_id
                return self._join()
            case UnknownMemberId() | IllegalGeneration():
                return [*self._lose(keep_id=isinstance(error, IllegalGeneration)), *self._retry(now)]
            case FencedInstanceId():
                return self._fence(error)
            case CoordinatorLoadInProgress() | RebalanceInProgress():
                return self._retry(now)
            case _ if isinstance(error, COORDINATOR_GONE):
                self.coordinator = None
                return self._retry(now)
            case _:
                return self._fail(error, now)

    def _heartbeat(self, node: int, now: float) -> SendHeartbeat:
        self._heartbeat_sent = self._next_attempt()
        self._heartbeat_pause = min(2 * self._heartbeat_pause, self.options.heartbeat_interval)
        self._heartbeat_due = now + self._heartbeat_pause
        return SendHeartbeat(self._heartbeat_sent, node, self.member_id, self.generation)

    def _heartbeat_refused(self, error: KafkaError, now: float) -> list[Action]:
        match error:
            case RebalanceInProgress():
                return self._rebalance("the group is rebalancing") if self.state is State.STABLE else []
            case UnknownMemberId() | IllegalGeneration():
                self._reason = "the coordinator had given this member up"
                return [*self._lose(keep_id=isinstance(error, IllegalGeneration)), *self._retry(now)]
            case FencedInstanceId():
                return self._fence(error)
            case CoordinatorLoadInProgress():
                return []
            case _ if isinstance(error, COORDINATOR_GONE):
                return self._seek_again()
            case _:
                return [*self._lose(keep_id=True), *self._fail(error, now)]

    # ---- leaving

    def _leave_request(self, reason: str) -> list[Action]:
        """Send no LeaveGroup for a static member, so that it may return to its partitions (KIP-345)."""
        return [] if self.options.instance_id is not None else self._leave(reason)

    def _forget_membership(self, *, keep_id: bool) -> None:
        super()._forget_membership(keep_id=keep_id)
        self.leader = False
        self._rejoin = None
