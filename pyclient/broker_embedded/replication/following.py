"""Decide about a leader's answer for one partition, at a follower: append, truncate, restart, or try later. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from pyclient import errors

if TYPE_CHECKING:
    from uuid import UUID

    from pyclient.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
    from pyclient.types import TopicPartition

_FIRST_BACKOFF: Final = 0.01


class EpochsOfLog(Protocol):
    """The follower's log, as a truncation needs it."""

    @property
    def end_offset(self) -> int:
        """The offset of the next batch."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest known epoch not above `epoch`, its end offset); (-1, -1) if unknown."""


@dataclass(frozen=True, slots=True)
class Append:
    """Append the records, if any, and take over the leader's high watermark and log start."""

    answer: PartitionData


@dataclass(frozen=True, slots=True)
class Truncate:
    """Remove everything from the offset on, then fetch again: the logs diverge before it."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """Ask the leader where its log starts and ends: the fetch offset is outside."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Fetch again after a pause; `reason` is the error code."""

    reason: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """Fetch no more until the metadata bring a newer leader epoch."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do nothing: the answer is for an earlier state."""


Step = Append | Truncate | FindOffsets | Wait | Fenced | Ignore


@dataclass(slots=True)
class Following:
    """A partition that is fetched from its leader."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: int
    not_before: float = -inf
    """The time of the next fetch, after a failure."""
    backoff: float = 0.0
    lag: int | None = None
    """Records that were committed at the last answer and are missing here; None before the first answer."""

    @property
    def key(self) -> tuple[UUID, int]:
        """Return the id of the topic, and the partition in it."""
        return self.topic_id, self.topic_partition.partition

    @property
    def is_in_sync(self) -> bool:
        """Return True if everything that was committed at the last answer is here. It is not throttled."""
        return self.lag is not None and self.lag <= 0

    def fenced(self) -> None:
        """Fetch no more in this leader epoch."""
        self.not_before = inf

    def failed(self, now: float, longest: float) -> None:
        """Pause after a failure, each time twice as long, up to `longest` seconds (`replica.fetch.backoff.ms`)."""
        self.backoff = min(max(self.backoff * 2, _FIRST_BACKOFF), longest)
        self.not_before = now + self.backoff

    def succeeded(self) -> None:
        """Fetch without a pause."""
        self.backoff = 0.0
        self.not_before = -inf


def decide(following: Following, asked: FetchPartition, answer: PartitionData, log: EpochsOfLog) -> Step:
    """Return what to do with the answer for a partition that was asked for with `asked`."""
    if asked.current_leader_epoch != following.leader_epoch or asked.fetch_offset != log.end_offset:
        return Ignore()
    code = answer.error_code
    if code == errors.OffsetOutOfRange.code:
        if asked.last_fetched_epoch > following.leader_epoch:
            return _without_later_epochs(asked, log)
        return FindOffsets()
    if code == errors.FencedLeaderEpoch.code:
        return Fenced()
    if code:
        return Wait(code)
    diverging = answer.diverging_epoch
    if diverging.epoch >= 0:
        offset = truncation_offset(diverging, log)
        return Truncate(offset, f"the leader's log ends at {diverging.end_offset} in epoch {diverging.epoch}")
    return Append(answer)


def _without_later_epochs(asked: FetchPartition, log: EpochsOfLog) -> Truncate:
    """Return where to truncate a log with batches of a later epoch than the leader's, which the leader does not know.

    The leader epoch of a batch is outside of its checksum: there is damage that only the comparison with the leader
    shows. A new election cannot be the cause: the leader has answered in the epoch of the request.
    """
    _epoch, offset = log.end_offset_for_epoch(asked.current_leader_epoch)
    latest, known = asked.last_fetched_epoch, asked.current_leader_epoch
    reason = f"there are batches of epoch {latest}, the leader's epoch is {known}"
    return Truncate(min(offset, log.end_offset), reason)


def truncation_offset(diverging: EpochEndOffset, log: EpochsOfLog) -> int:
    """Return where to truncate a log whose leader's ends at `diverging.end_offset` in `diverging.epoch`.

    A log without that epoch is truncated to the end of its largest smaller one; the next answer may ask for more.
    """
    end = log.end_offset
    epoch, own_end = log.end_offset_for_epoch(diverging.epoch)
    if own_end < 0:  # none of its epochs is known
        return min(diverging.end_offset, end)
    if epoch != diverging.epoch:
        return min(own_end, end)
    return min(own_end, diverging.end_offset, end)


def restart_offset(*, leader_start: int, leader_end: int, end: int) -> tuple[int, bool]:
    """Return where a log outside of its leader's goes on, and True if it has to be emptied first.

    An unclean election may give a leader with a shorter log. A log that ends before the leader's start has a gap.
    """
    if leader_end < end:
        return leader_end, leader_end < leader_start
    return max(leader_start, end), leader_start > end
