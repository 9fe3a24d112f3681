"""Retention: which of a log's oldest segments to delete, by age, by size, and before the log's start. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyclient.broker_embedded.log.config import LogConfig


class SegmentFacts(NamedTuple):
    """A segment's data for retention. `end_offset` is the next segment's base; `timestamp` the newest record's (ms)."""

    end_offset: int
    size: int
    timestamp: int


def expired(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, start_offset: int, high_watermark: int
) -> int:
    """Return how many of the oldest segments to delete; the last one given is the active one.

    LogSegments above the high watermark stay, and so does an empty active segment.
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
