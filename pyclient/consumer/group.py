"""One member of a consumer group in the classic protocol: what it does next, given what happened and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyclient.consumer.group_events import (
    Action,
    Adopt,
    Adopted,
    CoordinatorFound,
    CoordinatorLost,
    Departing,
    Event,
    Fail,
    FindCoordinator,
    HeartbeatAnswered,
    Joined,
    Lose,
    LossNoted,
    Partitions,
    PlanAssignment,
    Planned,
    Polled,
    Refused,
    RejoinWanted,
    Released,
    Revoke,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Subscribed,
    Synced,
    Ticked,
)
from pyclient.errors import (
    CommitFailed,
    ConnectionFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    IllegalGeneration,
    KafkaError,
    KafkaTimeout,
    MemberIdRequired,
    NotCoordinator,
    PollIntervalExceeded,
    RebalanceInProgress,
    UnknownMemberId,
)

NO_GENERATION: Final = -1


class State(Enum):
    """Where a member stands. Moves:

    IDLE      -> SEEKING | REVOKING | JOINING     subscribed
    SEEKING   -> REVOKING | JOINING               the coordinator was found
    REVOKING  -> JOINING                          the polling thread has given its partitions up
    JOINING   -> SYNCING | WAITING                JoinGroup answered
    SYNCING   -> STABLE | WAITING                 SyncGroup answered
    STABLE    -> REVOKING | JOINING | WAITING     rebalance; lost
    STABLE, REVOKING -> OVERDUE                   max_poll_interval_ms passed; the next poll joins again
    WAITING   -> SEEKING | REVOKING | JOINING     the backoff is over
    any       -> FAILED                           an error only the user can solve; the next poll tries again
    any       -> FENCED                           another consumer has the same group_instance_id; for good
    any       -> IDLE                             unsubscribed, closed
    """

    IDLE = "idle"
    SEEKING = "seeking coordinator"
    REVOKING = "revoking"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    WAITING = "waiting to retry"
    OVERDUE = "poll overdue"
    FAILED = "failed"
    FENCED = "fenced"


_HEARTBEATING: Final = (State.STABLE, State.REVOKING)
_AT_REST: Final = (State.IDLE, State.OVERDUE, State.FAILED)
COORDINATOR_GONE: Final = (NotCoordinator, CoordinatorNotAvailable, ConnectionFailed, KafkaTimeout)
"""After these the coordinator is looked up again."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """What a member is told once; times in seconds, `backoff(failures)` too."""

    group_id: str
    heartbeat_interval: float
    max_poll_interval: float
    backoff: Callable[[int], float]
    instance_id: str | None = None
    cooperative: bool = False


class GroupMember:
    """A pure state machine: `step(event, now)` gives the actions to carry out, `deadline()` when to step by itself.

    Two parties carry them out: an event loop the requests, the thread that polls the callbacks. Heartbeats go on while
    the polling thread works. Answers name the `attempt` they belong to; those of an earlier one are ignored.
    """

    def __init__(self, options: MemberOptions) -> None:
        self.options = options
        self.state = State.IDLE
        self.topics: tuple[str, ...] = ()
        self.member_id = ""
        self.generation = NO_GENERATION
        self.protocol = ""
        self.leader = False
        self.coordinator: int | None = None
        self.owned: Partitions = ()
        self.polled_at = 0.0
        self._attempt = 0
        self._failures = 0
        self._retry_at = 0.0
        self._search_sent: int | None = None
        self._adopting: Adopt | None = None
        self._losses = 0
        self._rejoin: str | None = None
        self._reason = ""
        self._heartbeat_due = 0.0
        self._heartbeat_sent: int | None = None

    # ---- for others to ask

    def deadline(self) -> float | None:
        """When `step(Ticked(), ...)` is due; None: only after an event."""
        if self.state is State.WAITING:
            return self._retry_at
        if self.state not in _HEARTBEATING:
            return None
        due = self.polled_at + self.options.max_poll_interval
        if self.coordinator is not None and self._heartbeat_sent is None:
            due = min(due, self._heartbeat_due)
        return due

    def commit_identity(self) -> tuple[int, str]:
        """Generation and member id to commit under; `CommitFailed` if the partitions are not this member's any more."""
        if self._losses or self.generation == NO_GENERATION:
            raise CommitFailed(
                f"{self.describe()}: its partitions have gone to others, or were never its own, so nothing was "
                "committed and the records since the last commit are read again by their new owners. Call poll() to "
                "join again; if this happens often, poll more often (max_poll_interval_ms, max_poll_records)"
            )
        return self.generation, self.member_id

    def describe(self) -> str:
        """In words, who this is."""
        name = self.member_id or "a member without id"
        return f"group {self.options.group_id!r}, {name}, generation {self.generation}, {self.state.value}"

    # ---- steps

    def step(self, event: Event, now: float) -> list[Action]:
        """Takes in one event at `now` (seconds); the actions are to be carried out in order."""
        if self.state is State.FENCED:
            return []
        match event:
            case Polled():
                return self._polled(now)
            case Ticked():
                return self._ticked(now)
            case Subscribed(topics):
                return self._subscribed(topics, now)
            case RejoinWanted(reason):
                return self._rebalance(reason, now) if self.state is State.STABLE else []
            case Departing(reason):
                return self._depart(reason)
            case CoordinatorFound(node):
                return self._found(node, now)
            case CoordinatorLost():
                return self._seek_again() if self.state in _HEARTBEATING else []
            case Joined() | Planned() | Synced() | HeartbeatAnswered() | Refused():
                return self._answered(event, now)
            case Released():
                return self._released()
            case Adopted(number):
                return self._adopted(number, now)
            case LossNoted():
                self._losses -= 1
                return []

    def _polled(self, now: float) -> list[Action]:
        self.polled_at = now
        if self.state is State.OVERDUE or (self.state is State.FAILED and now >= self._retry_at):
            return self._begin("poll was called again")
        return []

    def _ticked(self, now: float) -> list[Action]:
        if self.state is State.WAITING and now >= self._retry_at:
            return self._begin(self._reason)
        if self.state not in _HEARTBEATING:
            return []
        if now >= self.polled_at + self.options.max_poll_interval:
            return self._overdue(now)
        if self.coordinator is not None and self._heartbeat_sent is None and now >= self._heartbeat_due:
            return [self._heartbeat(self.coordinator, now)]
        return []

    def _subscribed(self, topics: tuple[str, ...], now: float) -> list[Action]:
        changed, self.topics = topics != self.topics, topics
        if self.state is State.IDLE:
            self.polled_at = now
        if self.state in _AT_REST:
            return self._begin("subscribed")
        return self._rebalance("the subscription changed", now) if changed else []

    def _depart(self, reason: str) -> list[Action]:
        actions: list[Action] = []
        if self.member_id and self.coordinator is not None and self.options.instance_id is None:
            actions.append(SendLeave(self.coordinator, self.member_id, reason))
        self._forget_membership(keep_id=False)
        self.topics = ()
        self.state = State.IDLE
        return actions

    # ---- joining

    def _begin(self, reason: str) -> list[Action]:
        """On the way to JoinGroup, through whatever is missing."""
        self._reason = reason
        self._heartbeat_sent = None
        if self.coordinator is None:
            self.state = State.SEEKING
            return self._search()
        return self._prepare_join()

    def _prepare_join(self) -> list[Action]:
        given_up = self.owned
        if self.options.cooperative:
            given_up = tuple(partition for partition in self.owned if partition.topic not in self.topics)
        if given_up:
            self.state = State.REVOKING
            return [Revoke(given_up)]
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
        self._heartbeat_due = now + self.options.heartbeat_interval
        held, wanted = set(self.owned), set(partitions)
        added = tuple(partition for partition in partitions if partition not in held)
        revoked = tuple(partition for partition in self.owned if partition not in wanted)
        self._adopting = Adopt(self._attempt, partitions, added, revoked)
        return [self._adopting]

    def _adopted(self, number: int, now: float) -> list[Action]:
        adopt = self._adopting
        if adopt is None or adopt.number != number:
            return []
        self.owned, self._adopting = adopt.assigned, None
        if adopt.revoked:
            return self._rebalance("partitions were given up for others", now)
        return self._rebalance(self._rejoin, now) if self._rejoin is not None else []

    def _rebalance(self, reason: str, now: float) -> list[Action]:
        """Joins again. What the polling thread has not taken over yet, it takes over first."""
        if self.state is not State.STABLE or self._adopting is not None:
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
            self._search_sent = None
            return [*self._lose(keep_id=True), *self._fail(event.error, now)]
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
        """JoinGroup or SyncGroup did not work."""
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

    def _heartbeat_refused(self, error: KafkaError, now: float) -> list[Action]:
        match error:
            case RebalanceInProgress():
                return self._rebalance("the group is rebalancing", now) if self.state is State.STABLE else []
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

    def _retry(self, now: float) -> list[Action]:
        self.state = State.WAITING
        self._retry_at = now + self.options.backoff(self._failures)
        self._failures += 1
        return []

    # ---- the coordinator

    def _search(self) -> list[Action]:
        if self._search_sent is not None:
            return []
        self._search_sent = self._next_attempt()
        return [FindCoordinator(self._search_sent)]

    def _seek_again(self) -> list[Action]:
        """The coordinator has moved; membership goes on with the next one."""
        self.coordinator = None
        self._heartbeat_sent = None
        return self._search()

    def _found(self, node: int, now: float) -> list[Action]:
        self._search_sent = None
        self.coordinator = node
        if self.state is State.SEEKING:
            return self._prepare_join()
        if self.state in _HEARTBEATING:
            return [self._heartbeat(node, now)]
        return []

    def _heartbeat(self, node: int, now: float) -> SendHeartbeat:
        self._heartbeat_sent = self._next_attempt()
        self._heartbeat_due = now + self.options.heartbeat_interval
        return SendHeartbeat(self._heartbeat_sent, node, self.member_id, self.generation)

    # ---- losing membership

    def _is_overdue(self, now: float) -> bool:
        return now >= self.polled_at + self.options.max_poll_interval

    def _overdue(self, now: float) -> list[Action]:
        interval = self.options.max_poll_interval
        error = PollIntervalExceeded(
            f"{self.describe()}: {now - self.polled_at:.1f} s passed without a poll, more than max_poll_interval_ms="
            f"{interval * 1000:.0f} allows, so it left the group and its partitions went to others. Poll more often, "
            "ask for fewer records a poll (max_poll_records), or raise max_poll_interval_ms"
        )
        actions: list[Action] = []
        if self.coordinator is not None and self.options.instance_id is None:
            actions.append(SendLeave(self.coordinator, self.member_id, "max_poll_interval_ms passed without a poll"))
        actions += self._lose(keep_id=False)
        self.state = State.OVERDUE
        return [*actions, Fail(error)]

    def _lose(self, *, keep_id: bool) -> list[Action]:
        """The generation is over; the polling thread has to know before it may commit again."""
        lost, adopting = self.owned, self._adopting
        self._forget_membership(keep_id=keep_id)
        if not lost and adopting is None:
            return []
        self._losses += 1
        return [Lose(lost)]

    def _forget_membership(self, *, keep_id: bool) -> None:
        self.member_id = self.member_id if keep_id else ""
        self.generation = NO_GENERATION
        self.owned = ()
        self.leader = False
        self._adopting = None
        self._rejoin = None
        self._heartbeat_sent = None
        self._next_attempt()  # what is still on its way concerns nobody any more

    def _fail(self, error: KafkaError, now: float) -> list[Action]:
        self._retry(now)
        self.state = State.FAILED
        return [Fail(error)]

    def _fence(self, error: KafkaError) -> list[Action]:
        actions = self._lose(keep_id=False)
        self.state = State.FENCED
        return [*actions, Fail(error)]

    def _next_attempt(self) -> int:
        self._attempt += 1
        return self._attempt

    def __repr__(self) -> str:
        return f"<GroupMember {self.describe()}>"
