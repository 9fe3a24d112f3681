"""Retention: the oldest segments of a log are deleted by age, by size, and before the log's start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyclient.broker_embedded.log.config import LogConfig

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.log_segment import LogSegment
    from pyclient.broker_embedded.log.unified_log import UnifiedLog


class SegmentFacts(NamedTuple):
    """A segment's data for retention. `end_offset` is the next segment's base; `timestamp` the newest record's (ms)."""

    end_offset: int
    size: int
    timestamp: int


def expired(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, start_offset: int, high_watermark: int
) -> int:
    """Return how many of the oldest segments to delete; the last segment given is the active one.

    Segments above the high watermark stay, and so does an empty active segment.
    """
    surplus = sum(segment.size for segment in segments) - config.retention_bytes
    by_size = config.deletes and config.retention_bytes >= 0
    by_time = config.deletes and config.retention_ms >= 0
    count = 0
    for segment in segments:
        too_large = by_size and surplus - segment.size >= 0
        too_old = by_time and now_ms - segment.timestamp > config.retention_ms
        before_start = segment.end_offset <= start_offset
        if segment.end_offset > high_watermark or not (too_large or too_old or before_start):
            break
        if count + 1 == len(segments) and not segment.size:
            break
        surplus -= segment.size
        count += 1
    return count


def retention_steps(log: UnifiedLog, now_ms: int) -> Iterator[int]:
    """Apply retention to `log` in steps of one segment; yield how many were deleted in each. Expire idle producers."""
    log.producers.expire(now_ms, log.producer_expiration_ms)
    log.remove_dropped(now_ms)
    for segment in list(log.segments):
        if segment.indexes.load():
            yield 0
        if log.closed:
            return
    facts = [_facts_of(log, segment) for segment in log.segments]
    count = expired(facts, log.config, now_ms=now_ms, start_offset=log.start_offset, high_watermark=log.high_watermark)
    oldest = list(log.segments)[:count]
    if count and count == len(log.segments):
        log.roll()
        yield 0
    for segment in oldest:
        if log.closed or log.segments[0] is not segment or segment is log.segments.active:
            return  # the log was truncated meanwhile
        log.segments.drop_oldest(1, now_ms + log.config.file_delete_delay_ms)
        log.advance_start(log.segments.first_offset)
        yield 1
    if oldest:
        log.remove_dropped(now_ms)


def _facts_of(log: UnifiedLog, segment: LogSegment) -> SegmentFacts:
    timestamp = segment.largest_timestamp
    if timestamp < 0 and segment.size:
        timestamp = log.local.fs.modified_ms(segment.records.file.path)
    return SegmentFacts(log.segments.end_of(segment, log.end_offset), segment.size, timestamp)
