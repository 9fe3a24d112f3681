"""A member in the consumer protocol (KIP-848): the coordinator assigns, and heartbeats carry all state."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from pyclient.consumer.member import AT_REST, COORDINATOR_GONE, HEARTBEATING, Member, MemberOptions, State
from pyclient.consumer.member_events import (
    Action,
    ApplyAssignment,
    AssignmentApplied,
    ConsumerHeartbeatAnswered,
    Event,
    IdPartitions,
    InstanceReleased,
    Refused,
    ReleaseInstance,
    ResolveTopics,
    SendConsumerHeartbeat,
    Subscribed,
    TopicsResolved,
)
from pyclient.errors import (
    CoordinatorLoadInProgress,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from pyclient.types import TopicPartition


@dataclass(frozen=True, slots=True)
class _ReportedState:
    """The state of this member that the coordinator knows."""

    topics: tuple[str, ...]
    pattern: str
    owned: IdPartitions


class ConsumerMember(Member):
    """A state machine, see `Member`. Transitions:

    IDLE          -> SEEKING | JOINING                   subscribed
    SEEKING       -> JOINING                             the coordinator was found
    JOINING       -> RECONCILING | STABLE | WAITING      the heartbeat with epoch 0 was answered
    STABLE        -> RECONCILING                         the coordinator revokes or assigns partitions
    RECONCILING   -> ACKNOWLEDGING | STABLE              the polling thread applied the target assignment
    ACKNOWLEDGING -> STABLE | RECONCILING                a heartbeat reported the new assignment
    those four    -> WAITING                             fenced or removed by the coordinator; joins again
    those four    -> OVERDUE                             max_poll_interval_ms passed; the next poll joins again
    WAITING       -> SEEKING | JOINING                   the backoff is over
    any           -> FAILED                              an error only the user can resolve; the next poll tries again
    any           -> FENCED                              another consumer has the same group_instance_id; final
    any           -> IDLE                                unsubscribed, closed

    The member chooses its id (KIP-1082) and keeps it for life. While the polling thread reconciles, heartbeats
    continue, and a newer assignment waits for it to finish.

    The coordinator refuses a join with a group_instance_id that a member owns, even the joining member itself: its
    first join was answered, but the answer lost, or its epoch was fenced. It then releases the id and joins again.
    Kafka refuses only joins for that reason; a joined member that gets this refusal loses its partitions and fails.
    """

    def __init__(self, options: MemberOptions, member_id: str) -> None:
        super().__init__(options)
        self.member_id = member_id
        self.pattern = ""
        self._interval = options.heartbeat_interval
        self._reported: _ReportedState | None = None
        self._reporting = _ReportedState((), "", ())
        self._target: IdPartitions | None = None
        self._owned_ids: IdPartitions = ()
        self._applying_ids: IdPartitions = ()
        self._has_applied = False
        self._names: dict[uuid.UUID, str] = {}
        self._resolving: int | None = None
        self._resolve_at = 0.0
        self._resolve_failures = 0
        self._may_own_instance = False
        self._release_sent: int | None = None
        self._unreleased: KafkaError | None = None

    def deadline(self) -> float | None:
        """See `Member.deadline`; also due when unresolved topic names are requested again."""
        due = super().deadline()
        if due is None or self._resolving is not None or not self._unresolved():
            return due
        return min(due, self._resolve_at)

    def describe(self) -> str:
        return f"group {self.options.group_id!r}, {self.member_id}, member epoch {self.generation}, {self.state.value}"

    # ---- steps

    def _protocol_step(self, event: Event, now: float) -> list[Action]:
        match event:
            case Subscribed(topics, pattern):
                return self._subscribed(topics, pattern, now)
            case ConsumerHeartbeatAnswered() if event.attempt == self._heartbeat_sent:
                return self._answered(event, now)
            case TopicsResolved(attempt, names) if attempt == self._resolving:
                return self._resolved(names, now)
            case InstanceReleased(attempt) if attempt == self._release_sent:
                return self._join_after_release()
            case Refused(attempt, error):
                return self._refused(attempt, error, now)
            case AssignmentApplied(number):
                return self._applied(number, now)
            case _:
                return []

    def _ticked(self, now: float) -> list[Action]:
        actions = super()._ticked(now)
        if self.state in HEARTBEATING and self._unresolved():
            actions += self._reconcile(now)
        return actions

    def _subscribed(self, topics: tuple[str, ...], pattern: str, now: float) -> list[Action]:
        self.topics, self.pattern = topics, pattern
        if self.state is State.IDLE:
            self.polled_at = now
        if self.state in AT_REST:
            return self._begin("subscribed")
        return self._report_changes(now)

    # ---- heartbeats

    def _prepare_join(self) -> list[Action]:
        self.state = State.JOINING
        assert self.coordinator is not None
        return [self._report(self.coordinator)]

    def _heartbeat(self, node: int, now: float) -> SendConsumerHeartbeat:
        self._heartbeat_due = now + self._interval
        return self._report(node)

    def _report(self, node: int) -> SendConsumerHeartbeat:
        reported, current = self._reported, _ReportedState(self.topics, self.pattern, self._owned_ids)
        self._reporting = current
        self._heartbeat_sent = self._next_attempt()
        return SendConsumerHeartbeat(
            attempt=self._heartbeat_sent,
            node=node,
            member_id=self.member_id,
            epoch=max(0, self.generation),
            complete=reported is None,
            topics=current.topics if reported is None or current.topics != reported.topics else None,
            pattern=current.pattern if current.pattern != (reported.pattern if reported is not None else "") else None,
            owned=current.owned if reported is None or current.owned != reported.owned else None,
        )

    def _report_changes(self, now: float) -> list[Action]:
        """Return a heartbeat, if there are changes to report and none is in flight."""
        if self.state not in HEARTBEATING or self.coordinator is None or self._heartbeat_sent is not None:
            return []
        changed = self._reported is not None and self._reported != _ReportedState(
            self.topics, self.pattern, self._owned_ids
        )
        return [self._heartbeat(self.coordinator, now)] if changed else []

    def _answered(self, event: ConsumerHeartbeatAnswered, now: float) -> list[Action]:
        self._heartbeat_sent = None
        self._failures = 0
        self._may_own_instance = True
        self._reported = self._reporting
        self._interval = event.interval
        self._heartbeat_due = now + event.interval
        self.generation = event.epoch
        if event.assigned is not None:
            self._target = event.assigned
        elif self.state is State.JOINING:
            self._target = ()
        self._update_state()
        if self._is_overdue(now):
            return self._overdue(now)
        return [*self._reconcile(now), *self._report_changes(now)]

    def _refused(self, attempt: int, error: KafkaError, now: float) -> list[Action]:
        if attempt == self._search_sent:
            return self._search_refused(error, now)
        if attempt == self._resolving:
            return self._resolved({}, now)
        if attempt == self._release_sent:
            return self._release_refused(error, now)
        if attempt != self._heartbeat_sent:
            return []
        self._heartbeat_sent = None
        self._reported = None  # the next heartbeat is complete
        match error:
            case FencedMemberEpoch() | UnknownMemberId():
                self._reason = "the coordinator had given this member up"
                return [*self._lose(keep_id=True), *self._retry(now)]
            case FencedInstanceId():
                return self._fence(error)
            case UnreleasedInstanceId() if self._may_own_instance and self.state is State.JOINING:
                return self._release(error)
            case _:
                return self._unanswered(error, now)

    def _unanswered(self, error: KafkaError, now: float) -> list[Action]:
        """Handle an error that says nothing about the membership."""
        match error:
            case CoordinatorLoadInProgress():
                return self._retry_heartbeat(now)
            case _ if isinstance(error, COORDINATOR_GONE):
                self._may_own_instance = True  # the coordinator may have received the join
                if self.state is not State.JOINING:
                    return self._seek_again()
                self.coordinator = None
                return self._retry(now)
            case _:
                return [*self._lose(keep_id=True), *self._fail(error, now)]

    def _retry_heartbeat(self, now: float) -> list[Action]:
        if self.state is State.JOINING:
            return self._retry(now)
        self._heartbeat_due = now + self.options.backoff(self._failures)
        self._failures += 1
        return []

    def _update_state(self) -> None:
        """Set the state between heartbeats."""
        if self._applying is not None:
            self.state = State.RECONCILING
        elif self._reported is None or self._reported.owned != self._owned_ids:
            self.state = State.ACKNOWLEDGING
        else:
            self.state = State.STABLE

    # ---- an instance id that is still owned

    def _release(self, error: KafkaError) -> list[Action]:
        """Release the instance id, in case that this member is its owner."""
        assert self.coordinator is not None
        self._unreleased = error
        self._release_sent = self._next_attempt()
        return [ReleaseInstance(self._release_sent, self.coordinator, self.member_id)]

    def _join_after_release(self) -> list[Action]:
        self._release_sent = self._unreleased = None
        self._may_own_instance = False
        return self._prepare_join()

    def _release_refused(self, error: KafkaError, now: float) -> list[Action]:
        unreleased, self._release_sent = self._unreleased, None
        match error:
            case UnknownMemberId() | GroupIdNotFound():  # the owner's session has ended
                return self._join_after_release()
            case FencedInstanceId() if unreleased is not None:  # the owner is another consumer
                self._may_own_instance = False
                return [*self._lose(keep_id=True), *self._fail(unreleased, now)]
            case _:
                return self._unanswered(error, now)

    # ---- reconciling

    def _unresolved(self) -> tuple[uuid.UUID, ...]:
        return tuple(dict.fromkeys(topic for topic, _ in self._target or () if topic not in self._names))

    def _reconcile(self, now: float) -> list[Action]:
        """Move towards the target assignment, as far as the names of its topics are known."""
        if self._applying is not None or self._target is None or self._resolving is not None:
            return []
        unresolved = self._unresolved()
        if unresolved and now >= self._resolve_at:
            self._resolving = self._next_attempt()
            return [ResolveTopics(self._resolving, unresolved)]
        return self._apply_target(self._target)

    def _resolved(self, names: Mapping[uuid.UUID, str], now: float) -> list[Action]:
        """Add resolved names; missing topics are deleted, or unknown to that node, and are requested again."""
        self._resolving = None
        wanted = {topic for topic, _ in (*(self._target or ()), *self._owned_ids)}
        self._names = {topic: name for topic, name in {**self._names, **names}.items() if topic in wanted}
        if self._unresolved():
            self._resolve_at = now + self.options.backoff(self._resolve_failures)
            self._resolve_failures += 1
        else:
            self._resolve_failures = 0
        return [*self._reconcile(now), *self._report_changes(now)] if self.state in HEARTBEATING else []

    def _apply_target(self, target: IdPartitions) -> list[Action]:
        wanted = tuple(sorted((topic, number) for topic, number in target if topic in self._names))
        assigned = tuple(dict.fromkeys(TopicPartition(self._names[topic], number) for topic, number in wanted))
        held, kept = set(self.owned), set(assigned)
        added = tuple(partition for partition in assigned if partition not in held)
        revoked = tuple(partition for partition in self.owned if partition not in kept)
        if not added and not revoked and self._has_applied:
            self._owned_ids = wanted  # a recreated topic has another id; its partitions handle that themselves
            return []
        self._applying = ApplyAssignment(self._next_attempt(), assigned, added, revoked)
        self._applying_ids = wanted
        self.state = State.RECONCILING
        return [self._applying]

    def _applied(self, number: int, now: float) -> list[Action]:
        pending = self._applying
        if pending is None or pending.number != number:
            return []
        self.owned, self._owned_ids, self._applying = pending.assigned, self._applying_ids, None
        self._has_applied = True
        self._update_state()
        return [*self._report_changes(now), *self._reconcile(now)]

    # ---- leaving

    def _leave_request(self, reason: str) -> list[Action]:
        is_member = self.generation > 0 or self._heartbeat_sent is not None
        return self._leave(reason) if is_member else []

    def _depart(self, reason: str) -> list[Action]:
        actions = super()._depart(reason)
        self.pattern = ""
        return actions

    def _forget_membership(self, *, keep_id: bool) -> None:
        self._may_own_instance |= self._heartbeat_sent is not None
        super()._forget_membership(keep_id=True)
        self._reported = self._target = self._resolving = self._release_sent = self._unreleased = None
        self._owned_ids = self._applying_ids = ()
        self._has_applied = False
