"""Plans compaction: which part of a log may be compacted, whether it is due, and which segments to merge. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from pyclient.broker_embedded.log.config import LogConfig

_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1
_INDEX_ENTRY_BYTES: Final = 8
_TIME_ENTRY_BYTES: Final = 12


class Candidate(Protocol):
    """A segment for planning. Times are epoch ms, -1 if no record has one; sizes are bytes."""

    @property
    def base_offset(self) -> int:
        """Return its first offset."""
        ...

    @property
    def size(self) -> int:
        """Return the bytes of its batches."""
        ...

    @property
    def largest_timestamp(self) -> int:
        """Return the time of its newest record."""
        ...

    @property
    def first_timestamp(self) -> int:
        """Return the time of its first batch."""
        ...

    @property
    def index_entries(self) -> tuple[int, int]:
        """Return how many entries its offset index and its time index have."""
        ...


S = TypeVar("S", bound=Candidate)


class LogToClean(NamedTuple):
    """A plan: keys from `first_dirty` up to `end` are read, and everything before `end` is rewritten.

    `end` is the base of a segment. `overdue`: `max.compaction.lag.ms` is over for a dirty segment.
    """

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """Return the dirty share of the bytes that may be cleaned, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Return True if Kafka's cleaner would compact the log."""
        if not self.dirty_bytes:
            return False
        return self.overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def plan_cleaning(
    segments: Sequence[Candidate], config: LogConfig, *, first_dirty: int, limit: int, now_ms: int
) -> LogToClean:
    """Return which part of a log may be cleaned now. The last of `segments` is the active one, which is never cleaned.

    `first_dirty` is where the last cleaning ended. `limit` is the last stable offset, which is at or below the high
    watermark: undecided transactions are not cleaned.
    """
    closed = segments[:-1]
    end = segments[-1].base_offset
    for segment, following in zip(closed, segments[1:], strict=True):
        if following.base_offset > limit or _is_young(segment, first_dirty, following.base_offset, config, now_ms):
            end = segment.base_offset
            break
    dirty = [
        segment
        for segment, following in zip(closed, segments[1:], strict=True)
        if segment.base_offset < end and following.base_offset > first_dirty
    ]
    clean_bytes = sum(segment.size for segment in closed if segment.base_offset < end) - _size(dirty)
    return LogToClean(min(first_dirty, end), end, clean_bytes, _size(dirty), _is_overdue(dirty, config, now_ms))


def _is_young(segment: Candidate, first_dirty: int, end_offset: int, config: LogConfig, now_ms: int) -> bool:
    """Return True if `min.compaction.lag.ms` excludes the segment, which must have dirty records."""
    lag = config.min_compaction_lag_ms
    return lag > 0 and end_offset > first_dirty and segment.largest_timestamp > now_ms - lag


def _is_overdue(dirty: Sequence[Candidate], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= _LONG_MAX:
        return False
    times = [segment.first_timestamp for segment in dirty]
    return any(0 < time < now_ms - config.max_compaction_lag_ms for time in times)


def _size(segments: Sequence[Candidate]) -> int:
    return sum(segment.size for segment in segments)


def grouped(segments: Sequence[S], *, end: int, segment_bytes: int, index_bytes: int) -> Iterator[list[S]]:
    """Yield groups of adjacent segments to merge, within the size limits of a segment and its indexes.

    `end` is the offset after the last segment; offsets of a group must fit relative to its base.
    """
    group: list[S] = []
    size = entries = times = 0
    for position, segment in enumerate(segments):
        own_entries, own_times = segment.index_entries
        last = segments[position + 1].base_offset if position + 1 < len(segments) else end
        fits = (
            group
            and size + segment.size <= segment_bytes
            and (entries + own_entries) * _INDEX_ENTRY_BYTES <= index_bytes
            and (times + own_times) * _TIME_ENTRY_BYTES <= index_bytes
            and last - 1 - group[0].base_offset <= _INT_MAX
        )
        if group and not fits:
            yield group
            group, size, entries, times = [], 0, 0, 0
        group.append(segment)
        size, entries, times = size + segment.size, entries + own_entries, times + own_times
    if group:
        yield group
