"""The part of a group member's state machine that the classic and the consumer protocol (KIP-848) share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyclient.consumer.member_events import (
    Action,
    ApplyAssignment,
    CoordinatorFound,
    CoordinatorLost,
    Departing,
    Event,
    Fail,
    FindCoordinator,
    LossAcknowledged,
    Partitions,
    PartitionsLost,
    Polled,
    RecheckMembership,
    SendLeave,
    Ticked,
)
from pyclient.errors import (
    CommitFailed,
    ConnectionFailed,
    CoordinatorNotAvailable,
    KafkaError,
    KafkaTimeout,
    NotCoordinator,
    PollIntervalExceeded,
)

NO_GENERATION: Final = -1


class State(Enum):
    """The state of a member. `ClassicMember` and `ConsumerMember` document their transitions."""

    IDLE = "idle"
    SEEKING = "seeking coordinator"
    REVOKING = "revoking"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    WAITING = "waiting to retry"
    OVERDUE = "poll overdue"
    FAILED = "failed"
    FENCED = "fenced"


HEARTBEATING: Final = (State.STABLE, State.REVOKING, State.RECONCILING, State.ACKNOWLEDGING)
"""States in which the member sends heartbeats."""

AT_REST: Final = (State.IDLE, State.OVERDUE, State.FAILED)
"""States that only a call of the user ends."""

ON_THE_WAY: Final = (State.SEEKING, State.JOINING, State.SYNCING, State.WAITING)
"""States between two generations."""

COORDINATOR_GONE: Final = (NotCoordinator, CoordinatorNotAvailable, ConnectionFailed, KafkaTimeout)
"""Errors after which the coordinator is looked up again."""


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Constant options of a member; times in seconds, also `backoff(failures)`.

    In the consumer protocol `heartbeat_interval` applies until the coordinator sets one.
    """

    group_id: str
    heartbeat_interval: float
    max_poll_interval: float
    backoff: Callable[[int], float]
    instance_id: str | None = None
    cooperative: bool = False


class Member(ABC):
    """A pure state machine: `step(event, now)` returns actions, `deadline()` the time of the next `Ticked`.

    The event loop carries out requests, the polling thread callbacks; heartbeats continue meanwhile. Responses carry
    the `attempt` they belong to; those of an earlier attempt are ignored. `generation` is the classic protocol's
    generation, or the consumer protocol's member epoch.
    """

    def __init__(self, options: MemberOptions) -> None:
        self.options = options
        self.state = State.IDLE
        self.topics: tuple[str, ...] = ()
        self.member_id = ""
        self.generation = NO_GENERATION
        self.coordinator: int | None = None
        self.owned: Partitions = ()
        self.polled_at = 0.0
        self._attempt = 0
        self._failures = 0
        self._retry_at = 0.0
        self._search_sent: int | None = None
        self._applying: ApplyAssignment | None = None
        self._losses = 0
        self._reason = ""
        self._heartbeat_due = 0.0
        self._heartbeat_sent: int | None = None

    # ---- queries

    def deadline(self) -> float | None:
        """Return when `step(Ticked(), ...)` is due; None: only after an event."""
        if self.state is State.WAITING:
            return self._retry_at
        if self.state not in HEARTBEATING:
            return None
        due = self.polled_at + self.options.max_poll_interval
        if self.coordinator is not None and self._heartbeat_sent is None:
            due = min(due, self._heartbeat_due)
        return due

    def commit_identity(self) -> tuple[int, str]:
        """Return the generation and member id to commit with; raise `CommitFailed` if the partitions are not owned."""
        if self._losses or self.generation == NO_GENERATION:
            raise CommitFailed(
                f"{self.describe()}: its partitions were assigned to other members, or never to this one, so "
                "nothing was committed and their new owners read the records since the last commit again. Call poll() "
                "to join again; if this happens often, poll more often (max_poll_interval_ms, max_poll_records)"
            )
        return self.generation, self.member_id

    def has_left(self, generation: int) -> bool:
        """Return True if the member keeps partitions, but is leaving that generation or has already left it.

        A commit that is refused for its generation is then retried in the next one: the coordinator started that when
        the last member had joined, and this member learns of it a little later.
        """
        return bool(self.owned) and (self.state in ON_THE_WAY or self.generation != generation)

    def describe(self) -> str:
        """Return group, member, generation and state for messages."""
        name = self.member_id or "a member without id"
        return f"group {self.options.group_id!r}, {name}, generation {self.generation}, {self.state.value}"

    # ---- steps

    def step(self, event: Event, now: float) -> list[Action]:
        """Process one event at `now` (seconds); return the actions to carry out, in order."""
        if self.state is State.FENCED:
            return []
        match event:
            case Polled():
                return self._polled(now)
            case Ticked():
                return self._ticked(now)
            case Departing(reason):
                return self._depart(reason)
            case CoordinatorFound(node):
                return self._found(node, now)
            case CoordinatorLost():
                return self._seek_again() if self.state in HEARTBEATING else []
            case RecheckMembership():
                return self._heartbeat_now(now)
            case LossAcknowledged():
                self._losses -= 1
                return []
            case _:
                return self._protocol_step(event, now)

    @abstractmethod
    def _protocol_step(self, event: Event, now: float) -> list[Action]:
        """Process an event that depends on the protocol."""

    @abstractmethod
    def _prepare_join(self) -> list[Action]:
        """Start to join: the coordinator is known."""

    @abstractmethod
    def _heartbeat(self, node: int, now: float) -> Action:
        """Return the heartbeat to send now."""

    @abstractmethod
    def _leave_request(self, reason: str) -> list[Action]:
        """Return the request by which this member leaves the group, if it needs one."""

    def _polled(self, now: float) -> list[Action]:
        self.polled_at = now
        if self.state is State.OVERDUE or (self.state is State.FAILED and now >= self._retry_at):
            return self._begin("poll was called again")
        return []

    def _ticked(self, now: float) -> list[Action]:
        if self.state is State.WAITING and now >= self._retry_at:
            return self._begin(self._reason)
        if self.state not in HEARTBEATING:
            return []
        if self._is_overdue(now):
            return self._overdue(now)
        return self._heartbeat_now(now) if now >= self._heartbeat_due else []

    def _heartbeat_now(self, now: float) -> list[Action]:
        """Return a heartbeat, unless one is in flight."""
        if self.state not in HEARTBEATING or self.coordinator is None or self._heartbeat_sent is not None:
            return []
        return [self._heartbeat(self.coordinator, now)]

    def _depart(self, reason: str) -> list[Action]:
        actions = self._leave_request(reason)
        self._forget_membership(keep_id=False)
        self.topics = ()
        self.state = State.IDLE
        return actions

    def _begin(self, reason: str) -> list[Action]:
        """Start to join, with a search for the coordinator if it is not known."""
        self._reason = reason
        self._heartbeat_sent = None
        if self.coordinator is None:
            self.state = State.SEEKING
            return self._search()
        return self._prepare_join()

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
        """Search for the moved coordinator; the membership is kept."""
        self._failures += self.coordinator is not None
        self.coordinator = None
        self._heartbeat_sent = None
        return self._search()

    def _found(self, node: int, now: float) -> list[Action]:
        self._search_sent = None
        self.coordinator = node
        if self.state is State.SEEKING:
            return self._prepare_join()
        if self.state not in HEARTBEATING:
            return []
        if self._failures > 1:  # the node found before was not the coordinator: back off
            self._heartbeat_due = now + self.options.backoff(self._failures - 2)
            return []
        return [self._heartbeat(node, now)]

    def _search_refused(self, error: KafkaError, now: float) -> list[Action]:
        self._search_sent = None
        return [*self._lose(keep_id=True), *self._fail(error, now)]

    def _leave(self, reason: str) -> list[Action]:
        if self.coordinator is None or not self.member_id:
            return []
        return [SendLeave(self.coordinator, self.member_id, reason)]

    # ---- losing membership

    def _is_overdue(self, now: float) -> bool:
        return now >= self.polled_at + self.options.max_poll_interval

    def _overdue(self, now: float) -> list[Action]:
        interval = self.options.max_poll_interval
        error = PollIntervalExceeded(
            f"{self.describe()}: {now - self.polled_at:.1f} s passed without a poll, more than max_poll_interval_ms="
            f"{interval * 1000:.0f}, so it left the group and its partitions were assigned to others. Poll more often, "
            "return fewer records per poll (max_poll_records), or raise max_poll_interval_ms"
        )
        actions = self._leave_request("max_poll_interval_ms passed without a poll")
        actions += self._lose(keep_id=False)
        self.state = State.OVERDUE
        return [*actions, Fail(error)]

    def _lose(self, *, keep_id: bool) -> list[Action]:
        """End the generation; the polling thread has to acknowledge that before it may commit again."""
        lost, applying = self.owned, self._applying
        self._forget_membership(keep_id=keep_id)
        if not lost and applying is None:
            return []
        self._losses += 1
        return [PartitionsLost(lost)]

    def _forget_membership(self, *, keep_id: bool) -> None:
        self.member_id = self.member_id if keep_id else ""
        self.generation = NO_GENERATION
        self.owned = ()
        self._applying = None
        self._heartbeat_sent = None
        self._next_attempt()  # ignore responses that are still in flight

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
        return f"<{type(self).__name__} {self.describe()}>"
