"""Decide when a follower fetches from a leader, which partitions, and what each answer means. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from pyclient import errors
from pyclient.broker_embedded.replication.fetch_session_handler import FetchSessionHandler
from pyclient.broker_embedded.replication.following import (
    Append,
    EpochsOfLog,
    Fenced,
    FindOffsets,
    Following,
    Ignore,
    Truncate,
    Wait,
    decide,
    restart_offset,
)
from pyclient.protocol.messages.fetch import FetchPartition

if TYPE_CHECKING:
    from pyclient.broker_embedded.replication.fetch_session_handler import Key, SessionFetch
    from pyclient.broker_embedded.replication.replication_quota import ReplicationQuota
    from pyclient.protocol.messages.fetch import FetchResponse, PartitionData

_FIRST_BACKOFF: Final = 0.02
_PATIENCE: Final = 0.01
"""Seconds after which a new partition no longer waits for a fetch that the leader holds: that one is abandoned."""


class FollowedLog(EpochsOfLog, Protocol):
    """The log of a partition that is fetched. It is only read here."""

    @property
    def start_offset(self) -> int:
        """The offset of the first record."""

    @property
    def high_watermark(self) -> int:
        """The end of what is known to be committed."""

    @property
    def leader_epoch(self) -> int:
        """The epoch of the last batch."""

    @property
    def failure(self) -> str | None:
        """The reason why the log is offline."""

    @property
    def closed(self) -> bool:
        """True if the log is closed."""


class FetcherFacts(Protocol):
    """The metadata and the options of the node that fetches."""

    @property
    def is_leader_known(self) -> bool:
        """True if the metadata have an address of the leader."""

    @property
    def longest_backoff(self) -> float:
        """The seconds of `replica.fetch.backoff.ms`."""

    @property
    def partition_max_bytes(self) -> int:
        """The value of `replica.fetch.max.bytes`."""

    def is_throttled(self, key: Key) -> bool:
        """Return True if the topic's list of throttled replicas has this node's replica of a partition."""


# Events


@dataclass(slots=True)
class Followed:
    """A partition is to be fetched from now on, in a leader epoch."""

    following: Following
    log: FollowedLog


@dataclass(slots=True)
class Forgotten:
    """A partition is to be fetched no more."""

    key: Key


@dataclass(slots=True)
class AbandonDue:
    """The time of `StartAbandonTimer` is over."""

    fetch: int


@dataclass(slots=True)
class Responded:
    """The response to a fetch arrived."""

    fetch: int
    response: FetchResponse


@dataclass(slots=True)
class FetchFailed:
    """A fetch got no response."""

    fetch: int
    error: BaseException


@dataclass(slots=True)
class PartitionAnswered:
    """A response has an answer for a partition."""

    key: Key
    answer: PartitionData


@dataclass(slots=True)
class Appended:
    """The records of an answer were appended; `high_watermark` is the leader's."""

    key: Key
    high_watermark: int


@dataclass(slots=True)
class StepFailed:
    """An answer for a partition could not be carried out."""

    key: Key


@dataclass(slots=True)
class OffsetsFound:
    """The leader has answered where its log starts and ends; the own one ended at `end` when it was asked."""

    following: Following
    end: int
    leader_start: int
    leader_end: int


@dataclass(slots=True)
class Restarted:
    """The effect `Restart` was carried out."""

    key: Key


class Signal(Enum):
    """The events that carry nothing."""

    DUE = auto()
    """The time of `WakeAt` has come."""
    TRUNCATED = auto()
    """A log was truncated."""
    ANSWERS_TAKEN = auto()
    """All answers of a response were reported."""
    FROZEN = auto()
    THAWED = auto()
    THROTTLE_CHANGED = auto()
    LEADER_CHANGED = auto()
    """The metadata of the leading node have changed."""
    CLOSED = auto()


# Effects


@dataclass(slots=True)
class Send:
    """Send a fetch, and report `Responded` or `FetchFailed` with its number."""

    fetch: int
    content: SessionFetch


@dataclass(slots=True)
class WakeAt:
    """Report `Signal.DUE` at that time, at the end of this iteration of the loop at the earliest. Replaces others."""

    due: float


@dataclass(slots=True)
class StartAbandonTimer:
    """Report `AbandonDue` after that many seconds. Replaces an earlier one."""

    fetch: int
    seconds: float


@dataclass(slots=True)
class TakeAnswers:
    """Report `PartitionAnswered` for each answer of a response, then `Signal.ANSWERS_TAKEN`."""

    response: FetchResponse


@dataclass(slots=True)
class Take:
    """Carry out a step, and report `Appended`, `Signal.TRUNCATED` or `OffsetsFound`. An append is in `leader_epoch`."""

    key: Key
    step: Append | Truncate | FindOffsets | Wait
    leader_epoch: int


@dataclass(slots=True)
class Restart:
    """Let a log outside of its leader's go on at an offset, without its records if `is_emptied`. Report `Restarted`."""

    key: Key
    offset: int
    is_emptied: bool
    leader_start: int
    leader_end: int


@dataclass(slots=True)
class LogFailure:
    """Log the failure of a fetch."""

    error: BaseException


class Act(Enum):
    """The effects that carry nothing."""

    RECONNECT = auto()
    """Close the connection, which ends the fetch in flight, and open another."""
    FLUSH_CHECKPOINTS = auto()
    """Write the recovery points: one may be beyond the new end of a log."""


Event = (
    Followed
    | Forgotten
    | AbandonDue
    | Responded
    | FetchFailed
    | PartitionAnswered
    | Appended
    | StepFailed
    | OffsetsFound
    | Restarted
    | Signal
)
Effect = Send | WakeAt | StartAbandonTimer | TakeAnswers | Take | Restart | LogFailure | Act


class FetcherState:
    """The partitions that one node leads and this one fetches: one request after the other.

    `receive` takes an event and returns effects. After `Signal.CLOSED` there are none.
    """

    def __init__(self, facts: FetcherFacts, quota: ReplicationQuota) -> None:
        self._facts = facts
        self._quota = quota
        self._session = FetchSessionHandler()
        self._followed: dict[Key, tuple[Following, FollowedLog]] = {}
        self._fetches = 0
        self._in_flight: int | None = None
        self._backoff = 0.0
        self._not_before = -inf
        self._patience: int | None = None
        """The fetch that is given up if it is still in flight when the patience is over."""
        self._is_frozen = False
        self._is_closed = False
        self._has_truncated = False

    def __repr__(self) -> str:
        flight = "" if self._in_flight is None else f" fetch {self._in_flight} in flight"
        return f"<FetcherState partitions={len(self._followed)}{flight} {self._session}>"

    def __len__(self) -> int:
        return len(self._followed)

    def following(self, key: Key) -> Following | None:
        """Return the state of a partition that is fetched."""
        followed = self._followed.get(key)
        return None if followed is None else followed[0]

    def receive(self, event: Event, now: float) -> list[Effect]:
        """Return the effects of an event."""
        if self._is_closed:
            return []
        match event:
            case PartitionAnswered(key, answer):
                return self._decide(key, answer, now)
            case Appended(key, high_watermark):
                return self._appended(key, high_watermark)
            case Responded(fetch, response):
                return self._responded(response, now) if fetch == self._in_flight else []
            case Signal():
                return self._signalled(event, now)
            case Followed(following, followed_log):
                return self._follow(following, followed_log, now)
            case Forgotten(key):
                self._followed.pop(key, None)
                return []
            case FetchFailed(fetch, error):
                return self._failed(error, now) if fetch == self._in_flight else []
            case AbandonDue(fetch):
                return self._abandon(fetch, now)
            case StepFailed(key):
                if key in self._followed:
                    self._followed[key][0].failed(now, self._facts.longest_backoff)
                return []
            case OffsetsFound():
                return self._restart(event)
            case Restarted(key):
                if key in self._followed:
                    self._followed[key][0].succeeded()
                return [WakeAt(now)]

    def _signalled(self, signal: Signal, now: float) -> list[Effect]:
        match signal:
            case Signal.DUE:
                return self._send(now)
            case Signal.TRUNCATED:
                self._has_truncated = True
            case Signal.ANSWERS_TAKEN:  # checkpoints come before the next append
                is_due, self._has_truncated = self._has_truncated, False
                return [*([Act.FLUSH_CHECKPOINTS] if is_due else []), *self._send(now)]
            case Signal.FROZEN:
                self._is_frozen = True
            case Signal.THAWED:
                self._is_frozen = False
                return [WakeAt(now)]
            case Signal.THROTTLE_CHANGED:
                return [WakeAt(now)]
            case Signal.LEADER_CHANGED:
                self._not_before = -inf
                return [WakeAt(now)]
            case Signal.CLOSED:
                self._is_closed = True
                self._followed.clear()
        return []

    def _follow(self, following: Following, followed_log: FollowedLog, now: float) -> list[Effect]:
        self._followed[following.key] = following, followed_log
        if self._in_flight is None:
            return [WakeAt(now)]
        if self._patience == self._in_flight:
            return []
        self._patience = self._in_flight
        return [StartAbandonTimer(self._in_flight, _PATIENCE)]

    def _abandon(self, fetch: int, now: float) -> list[Effect]:
        """Give up a fetch that the leader still holds, so that the new partitions are fetched now."""
        if self._in_flight != fetch:
            return []
        self._in_flight = None
        self._session.failed()
        return [Act.RECONNECT, WakeAt(now)]

    # The next fetch

    def _send(self, now: float) -> list[Effect]:
        if self._is_frozen or self._in_flight is not None or not self._followed:
            return []
        throttled_until = now + self._quota.wait(now)
        due = {key: self._due(key, *followed, throttled_until) for key, followed in self._followed.items()}
        wanted = {key: self._asked(*followed) for key, followed in self._followed.items() if due[key] <= now}
        if not self._facts.is_leader_known:
            return []  # `Signal.LEADER_CHANGED` follows
        if now < self._not_before or not wanted:
            due_at = max(self._not_before, min(due.values()))
            return [WakeAt(due_at)] if due_at < inf else []
        self._fetches += 1
        self._in_flight = self._fetches
        return [Send(self._fetches, self._session.next(wanted))]

    def _due(self, key: Key, following: Following, followed_log: FollowedLog, throttled_until: float) -> float:
        """Return when a partition may be fetched. `throttled_until` is when the quota has room for throttled ones."""
        if followed_log.failure is not None or followed_log.closed:
            return inf
        if following.is_in_sync or not self._facts.is_throttled(key):
            return following.not_before
        return max(following.not_before, throttled_until)

    def _asked(self, following: Following, followed_log: FollowedLog) -> FetchPartition:
        return FetchPartition(
            partition=following.topic_partition.partition,
            current_leader_epoch=following.leader_epoch,
            fetch_offset=followed_log.end_offset,
            last_fetched_epoch=followed_log.leader_epoch,
            log_start_offset=followed_log.start_offset,
            partition_max_bytes=self._facts.partition_max_bytes,
            high_watermark=followed_log.high_watermark,
        )

    # Its response

    def _responded(self, response: FetchResponse, now: float) -> list[Effect]:
        self._in_flight = None
        self._backoff = 0.0
        if self._session.answered(response.session_id, response.error_code):
            return [TakeAnswers(response)]
        if errors.for_code(response.error_code).retriable:
            return self._send(now)
        return self._failed(errors.from_code(response.error_code, "Fetch"), now)

    def _failed(self, error: BaseException, now: float) -> list[Effect]:
        self._in_flight = None
        effects: list[Effect] = [] if self._backoff else [LogFailure(error)]
        self._session.failed()
        self._backoff = min(max(self._backoff * 2, _FIRST_BACKOFF), self._facts.longest_backoff)
        self._not_before = now + self._backoff
        return [*effects, WakeAt(self._not_before)]

    def _decide(self, key: Key, answer: PartitionData, now: float) -> list[Effect]:
        asked, followed = self._session.partitions.get(key), self._followed.get(key)
        if asked is None or followed is None:
            return []
        following, followed_log = followed
        step = decide(following, asked, answer, followed_log)
        match step:
            case Append():
                if answer.records and self._facts.is_throttled(key):
                    self._quota.record(len(answer.records), now)
            case FindOffsets() | Wait():
                following.failed(now, self._facts.longest_backoff)
            case Fenced():
                following.fenced()
                return []
            case Ignore():
                return []
            case Truncate():
                pass
        return [Take(key, step, asked.current_leader_epoch)]

    def _appended(self, key: Key, high_watermark: int) -> list[Effect]:
        if key in self._followed:
            following, followed_log = self._followed[key]
            following.lag = high_watermark - followed_log.end_offset
            following.succeeded()
        return []

    # A log outside of its leader's

    def _restart(self, found: OffsetsFound) -> list[Effect]:
        key = found.following.key
        following, followed_log = self._followed.get(key, (None, None))
        if following is not found.following or followed_log is None or followed_log.end_offset != found.end:
            return []
        start, end = found.leader_start, found.leader_end
        offset, is_emptied = restart_offset(leader_start=start, leader_end=end, end=found.end)
        if offset == found.end and start <= followed_log.start_offset:
            return []  # nothing is out of range now: the next fetch follows after a pause
        return [Restart(key, offset, is_emptied, start, end)]
