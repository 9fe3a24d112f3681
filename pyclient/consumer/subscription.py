"""A consumer's subscription and assignment, with one state per assigned partition."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pyclient.errors import ConfigError, KafkaError, NotAssigned, OffsetOutOfRange
from pyclient.types import OffsetAndMetadata, TopicPartition

UNKNOWN: Final = -1
_NO_TOPIC_ID: Final = uuid.UUID(int=0)


class Mode(Enum):
    """The source of the assignment."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    REMOTE_PATTERN = "pattern for the broker"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class SubscriptionPattern:
    """A regular expression in RE2 syntax that the broker matches with whole topic names (KIP-848).

    For `subscribe()` with `group_protocol="consumer"`; the client then does not need the metadata of all topics. Raise
    `ValueError` if empty.
    """

    pattern: str

    def __post_init__(self) -> None:
        """Check the type; the broker checks the syntax."""
        if not isinstance(self.pattern, str) or not self.pattern:
            raise ValueError(f"{self.pattern!r} is not a pattern: give a regular expression as a string")


class Phase(Enum):
    """The phase of an assigned partition. Transitions:

    COMMITTED -> FETCH | RESET | STOPPED      the committed offset is looked up
    RESET     -> FETCH | STOPPED              ListOffsets finds the position
    OUTDATED  -> FETCH | VALIDATE             the metadata has the leader epoch of the position, or does not get it
    FETCH     -> RESET | VALIDATE | STOPPED   out of range, a new leader, an error that only the user can resolve
    FETCH     -> REFUSED                      out of range, at a position whose leader epoch is not known
    REFUSED   -> FETCH | RESET | STOPPED      another broker names a newer leader, or the one that refused the position
    VALIDATE  -> FETCH | STOPPED              OffsetForLeaderEpoch says whether the log was truncated (KIP-320)
    any       -> FETCH (seek), RESET (seek to beginning or end), STOPPED (not subscribed to any more)

    Where a position becomes known, FETCH stands for `phase_of` of its leader epoch: also VALIDATE or OUTDATED.
    """

    COMMITTED = "committed"
    RESET = "reset"
    OUTDATED = "outdated"
    REFUSED = "refused"
    VALIDATE = "validate"
    FETCH = "fetch"
    STOPPED = "stopped"


def phase_of(position_epoch: int, leader_epoch: int) -> Phase:
    """Return the phase for a position whose last record has one leader epoch, while the metadata has another one.

    The metadata are out of date if they have the lower one: the leader in them may not know yet that it was replaced,
    and its log may end before the position. Either is -1 if unknown.
    """
    if position_epoch < 0 or leader_epoch < 0 or position_epoch == leader_epoch:
        return Phase.FETCH
    return Phase.VALIDATE if position_epoch < leader_epoch else Phase.OUTDATED


class Changes:
    """Partitions that changed, so that not all have to be visited.

    `dirty` have a change that may affect fetching, `failed` may have an error to raise, `with_data` may have unpolled
    data. Dictionaries, for their order.
    """

    __slots__ = ("dirty", "failed", "with_data")

    def __init__(self) -> None:
        self.dirty: dict[AssignedPartition, None] = {}
        self.failed: dict[AssignedPartition, None] = {}
        self.with_data: dict[AssignedPartition, None] = {}


@dataclass(slots=True, eq=False)
class AssignedPartition:
    """One assigned partition.

    Ctrl-C may end a method at any call it makes, so each one first discards fetched data, which is consistent by
    itself, and then changes the other fields without a call.

    `position` is the offset of the next record for the user (-1: unknown), `position_epoch` the leader epoch of the
    record before. `fetch_offset` is the start of the next fetch; the `buffered` bytes in between are fetched already.
    `version` changes whenever they become invalid: responses with another version are dropped. `polled_from` is the
    position before the poll numbered `polled_in`, the last one that returned records, and `polled_from_epoch` the epoch
    of the record before.
    """

    topic_partition: TopicPartition
    phase: Phase
    position: int = UNKNOWN
    position_epoch: int = UNKNOWN
    fetch_offset: int = UNKNOWN
    buffered: int = 0
    version: int = 0
    paused: bool = False
    reset_to: int | None = None
    retry_at: float = 0.0
    error: KafkaError | None = None
    topic_id: uuid.UUID = field(default=_NO_TOPIC_ID)
    leader_epoch: int = UNKNOWN
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    preferred_replica: int = UNKNOWN
    preferred_until: float = 0.0
    polled_in: int = 0
    polled_from: int = UNKNOWN
    polled_from_epoch: int = UNKNOWN
    changes: Changes = field(default_factory=Changes, repr=False)

    def touch(self) -> None:
        """Mark the partition for the fetcher; call this before changing a field that decides what is fetched."""
        self.changes.dirty[self] = None

    def start_at(self, offset: int, leader_epoch: int = UNKNOWN) -> None:
        """Set the position, and the epoch of the record before it; discard fetched data."""
        phase = phase_of(leader_epoch, self.leader_epoch)
        self._discard_fetched()
        self.phase = phase
        self.position = self.fetch_offset = offset
        self.position_epoch = leader_epoch
        self.polled_in = 0

    def reset(self, timestamp: int | None) -> None:
        """Make the position unknown until ListOffsets has found `timestamp`.

        -2 is the earliest, -1 the latest, None that of the reset policy.
        """
        self._discard_fetched()
        self.phase = Phase.RESET
        self.position = self.fetch_offset = UNKNOWN
        self.position_epoch = UNKNOWN
        self.reset_to = timestamp
        self.polled_in = 0

    def validate(self) -> None:
        """Have the new leader validate that its log still holds the position."""
        self._discard_fetched()
        self.phase = Phase.VALIDATE

    def has_new_leader(self) -> None:
        """Decide by the new `leader_epoch` whether to fetch at the known position."""
        phase = phase_of(self.position_epoch, self.leader_epoch)
        if phase is Phase.VALIDATE:
            self.validate()
        elif phase is Phase.OUTDATED:
            if self.phase is not phase:
                self._discard_fetched()
                self.phase = phase
        elif self.phase in (Phase.OUTDATED, Phase.REFUSED):
            self.validated()
        elif self.position_epoch < 0:
            self._discard_fetched()  # the old leader may yet refuse the position: that is no word of the new one

    def out_of_range(self, *, resets: bool) -> None:
        """Process that the leader refuses the position: reset it, or stop if the policy is to do nothing.

        If its leader epoch is not known, the leader may have been replaced without knowing it, and its log may end
        before the position. `confirm_refusal` follows then, or a new leader.
        """
        if self.position_epoch < 0 <= self.leader_epoch:
            self._discard_fetched()
            self.phase = Phase.REFUSED
        else:
            self.confirm_refusal(resets=resets)

    def confirm_refusal(self, *, resets: bool) -> None:
        """Apply the reset policy to a position that is not in the log."""
        if resets:
            self.reset(None)
            return
        self.stop(
            OffsetOutOfRange(
                f"{self.topic_partition}: the log does not have offset {self.position}, and auto_offset_reset is "
                "'none': seek to an offset that beginning_offsets() and end_offsets() include"
            )
        )

    def forget_epoch(self) -> None:
        """Fetch at the position without the leader epoch that the metadata do not get."""
        self.touch()
        self.position_epoch = UNKNOWN
        self.phase = Phase.FETCH
        self.retry_at = 0.0

    def validated(self) -> None:
        """Continue fetching: the log holds the position."""
        self.touch()
        self.phase = Phase.FETCH
        self.retry_at = 0.0

    def stop(self, error: KafkaError) -> None:
        """Stop until the user seeks: every poll raises `error` until then."""
        self._discard_fetched()
        self.changes.failed[self] = None
        self.phase = Phase.STOPPED
        self.error = error

    def retire(self) -> None:
        """Stop fetching a partition that stays assigned until the next rebalance; keep its position."""
        self._discard_fetched()
        self.phase = Phase.STOPPED

    def revive(self, first_phase: Phase) -> None:
        """Undo `retire`."""
        if self.phase is Phase.STOPPED and self.error is None:
            if self.position >= 0:
                self.start_at(self.position, self.position_epoch)
            else:
                self.phase = first_phase

    def rewind(self, poll: int) -> None:
        """Move the position back to where it was before that poll, if the poll moved it."""
        if self.polled_in == poll:
            self.start_at(self.polled_from, self.polled_from_epoch)

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before an offset to commit; -1 if it is not known.

        It is known at the position, and within the last poll if that has records of one epoch only: epochs never
        decrease along a log.
        """
        if offset == self.position:
            return self.position_epoch
        polled = self.polled_in and self.polled_from <= offset < self.position
        return self.position_epoch if polled and self.polled_from_epoch == self.position_epoch else UNKNOWN

    def _discard_fetched(self) -> None:
        self.touch()
        self.version += 1
        self.buffered = 0
        self.retry_at = 0.0
        self.error = None
        self.preferred_replica = UNKNOWN
        self.fetch_offset = self.position

    def lag(self, *, read_committed: bool = False) -> int | None:
        """Return the number of offsets from the position to the end; None while either is unknown."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        return None if end < 0 or self.position < 0 else max(0, end - self.position)


class SubscriptionState:
    """The subscription, and the partitions that are assigned through it.

    Not thread-safe: its owner holds a lock around every call. `looks_up_committed` says whether a new partition begins
    at the group's committed offset or straight at the reset policy.
    """

    def __init__(self, *, looks_up_committed: bool) -> None:
        self.mode = Mode.NONE
        self.topics: tuple[str, ...] = ()
        self.pattern: re.Pattern[str] | None = None
        self._first_phase = Phase.COMMITTED if looks_up_committed else Phase.RESET
        self._assigned: dict[TopicPartition, AssignedPartition] = {}
        self.changes = Changes()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replace the subscription by a list of topics, and stop fetching others at once."""
        self._refuse_mixing(Mode.TOPICS)
        self.mode, self.topics, self.pattern = Mode.TOPICS, tuple(dict.fromkeys(topics)), None
        for partition, state in self._assigned.items():
            if partition.topic in self.topics:
                state.revive(self._first_phase)
            else:
                state.retire()

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Replace the subscription by all topics whose whole name matches; `match` finds them."""
        self._refuse_mixing(Mode.PATTERN)
        self.mode, self.topics, self.pattern = Mode.PATTERN, (), pattern

    def subscribe_remote_pattern(self, pattern: SubscriptionPattern) -> None:
        """Replace the subscription by a pattern that the broker matches; the assignment determines the topics."""
        self._refuse_mixing(Mode.REMOTE_PATTERN)
        self.mode, self.topics, self.pattern = Mode.REMOTE_PATTERN, (), None
        self._note_topics()

    def match(self, names: Iterable[str]) -> bool:
        """Subscribe to those of `names` that match the pattern; return True if that changed the subscription."""
        if self.pattern is None:
            return False
        matched = tuple(sorted(name for name in names if self.pattern.fullmatch(name)))
        changed = matched != self.topics
        self.topics = matched
        return changed

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment by the user's own; partitions that stay keep their positions."""
        self._refuse_mixing(Mode.MANUAL)
        self.mode = Mode.MANUAL
        self.set_assignment(partitions)

    def unsubscribe(self) -> None:
        """Clear the subscription and the assignment."""
        self.mode, self.topics, self.pattern = Mode.NONE, (), None
        self.set_assignment(())

    def set_assignment(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment; partitions that stay keep position, paused state and fetched data."""
        before, changes = self._assigned, self.changes
        after = {
            partition: before.get(partition) or AssignedPartition(partition, self._first_phase, changes=changes)
            for partition in partitions
        }
        for state in [*before.values(), *after.values()]:
            if before.get(state.topic_partition) is not after.get(state.topic_partition):
                state.touch()
        self._assigned = after
        self._note_topics()

    def _note_topics(self) -> None:
        if self.mode is Mode.REMOTE_PATTERN:
            self.topics = tuple(sorted({partition.topic for partition in self._assigned}))

    def _refuse_mixing(self, mode: Mode) -> None:
        by_hand = Mode.MANUAL in (mode, self.mode)
        if by_hand and self.mode not in (Mode.NONE, mode):
            raise ConfigError("subscribe() and assign() exclude each other: call unsubscribe() first")

    # ---- queries

    def __iter__(self) -> Iterator[AssignedPartition]:
        return iter(self._assigned.values())

    def __len__(self) -> int:
        return len(self._assigned)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._assigned

    def find(self, partition: TopicPartition) -> AssignedPartition | None:
        """Return the partition's state, or None if it is not assigned."""
        return self._assigned.get(partition)

    def require(self, partition: TopicPartition) -> AssignedPartition:
        """Return the partition's state; raise `NotAssigned` if it is not assigned."""
        state = self._assigned.get(partition)
        if state is None:
            raise NotAssigned(f"{partition} is not assigned to this consumer, which has {self.describe()}")
        return state

    def holds(self, state: AssignedPartition, version: int) -> bool:
        """Return True if a response for `state`, requested at `version`, is still valid."""
        return state.version == version and self._assigned.get(state.topic_partition) is state

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the assigned partitions."""
        return tuple(self._assigned)

    def waiting_for(self, phase: Phase, now: float) -> list[AssignedPartition]:
        """Return the partitions in a phase whose backoff is over."""
        return [state for state in self._assigned.values() if state.phase is phase and state.retry_at <= now]

    def positions(self, before: int | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions as offsets to commit; partitions without a position are left out.

        With `before`, those before the poll of that number returned anything.
        """
        return {
            partition: OffsetAndMetadata(state.polled_from, "", state.polled_from_epoch)
            if state.polled_in == before
            else OffsetAndMetadata(state.position, "", state.position_epoch)
            for partition, state in self._assigned.items()
            if state.position >= 0
        }

    def with_epochs(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the user's offsets to commit, with the leader epochs that they lack where those are known."""
        return {
            partition: offset._replace(leader_epoch=state.epoch_before(offset.offset))
            if offset.leader_epoch < 0 and (state := self._assigned.get(partition)) is not None
            else offset
            for partition, offset in offsets.items()
        }

    def first_error(self) -> KafkaError | None:
        """Return the error of a stopped partition, if there is one."""
        for state in tuple(self.changes.failed):
            if state.error is not None and self._assigned.get(state.topic_partition) is state:
                return state.error
            del self.changes.failed[state]
        return None

    def describe(self) -> str:
        """Return the assignment in words."""
        names = ", ".join(map(str, sorted(self._assigned)[:8]))
        more = len(self._assigned) - 8
        return f"{names}{f' and {more} more' if more > 0 else ''}" if names else "no partitions"

    # ---- changes

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop returning records of these, and keep what is fetched. All or none: raise `NotAssigned`."""
        for state in [self.require(partition) for partition in partitions]:
            state.touch()
            state.paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Continue where `pause` stopped."""
        for state in [self.require(partition) for partition in partitions]:
            state.touch()
            state.paused = False

    def note_leader(self, partition: TopicPartition, leader_epoch: int, topic_id: uuid.UUID) -> None:
        """Apply new metadata to an assigned partition.

        After another topic id the topic was deleted and recreated: the old offsets are meaningless and the policy
        decides. After a later leader epoch the position is validated first, if its epoch is known (KIP-320), again if
        that is already in progress; a position of an even later epoch waits for that.
        """
        state = self._assigned.get(partition)
        if state is None:
            return
        if (topic_id != state.topic_id and topic_id != _NO_TOPIC_ID) or leader_epoch > state.leader_epoch:
            state.touch()
        known, state.topic_id = state.topic_id, topic_id if topic_id != _NO_TOPIC_ID else state.topic_id
        if _NO_TOPIC_ID not in (known, topic_id) and known != topic_id:
            state.leader_epoch = leader_epoch
            state.reset(None)
        elif leader_epoch > state.leader_epoch:
            state.leader_epoch = leader_epoch
            if state.phase in (Phase.FETCH, Phase.VALIDATE, Phase.OUTDATED, Phase.REFUSED):
                state.has_new_leader()


def split_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    """Return partition numbers by topic."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
