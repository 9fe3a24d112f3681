"""Which of a log's oldest segments may go: by age, by size, and because the log starts behind them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pyclient.broker_embedded.log.config import LogConfig


class SegmentFacts(NamedTuple):
    """What retention looks at. `end_offset` is where the next segment begins; `timestamp` its newest record's (ms)."""

    end_offset: int
    size: int
    timestamp: int


def expired(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, start_offset: int, high_watermark: int
) -> int:
    """How many segments go, counted from the oldest; the last one given is the active one.

    None reaches above the high watermark, and an empty active segment stays.
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
