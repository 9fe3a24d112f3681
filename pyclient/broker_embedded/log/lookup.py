"""Searching a log by time (ListOffsets): the time index names the neighbourhood, one batch is decoded for the exact record."""

from __future__ import annotations

from collections.abc import Sequence

from pyclient.broker_embedded.log.segment import Segment
from pyclient.records import BatchHeader, decode_batch
from pyclient.types import OffsetAndTimestamp


def first_not_older(segments: Sequence[Segment], timestamp_ms: int, start_offset: int) -> OffsetAndTimestamp | None:
    """The first record from `start_offset` on whose timestamp is `timestamp_ms` or later."""
    for segment in segments:
        if not segment.size or segment.largest_timestamp < timestamp_ms:
            continue
        from_offset = max(segment.base_offset + segment.times.lookup(timestamp_ms), start_offset)
        found = segment.locate(from_offset)
        for position, header in segment.walk(found[0]) if found is not None else ():
            if header.max_timestamp >= timestamp_ms:
                record = _first_record(segment, position, header, timestamp_ms, start_offset)
                if record is not None:
                    return record
    return None


def latest(segments: Sequence[Segment], start_offset: int) -> OffsetAndTimestamp | None:
    """The first record that has the largest timestamp of all; None if no record has one."""
    candidates = [segment for segment in segments if segment.size and segment.largest_timestamp >= 0]
    if not candidates:
        return None
    segment = max(candidates, key=lambda segment: segment.largest_timestamp)  # the earliest of equals
    found = segment.locate(segment.largest_timestamp_offset)
    if found is None:
        return None
    return _first_record(segment, *found, segment.largest_timestamp, start_offset)


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> OffsetAndTimestamp | None:
    batch = segment.read_batch(position, header)
    for record in decode_batch(batch, 0, header, "", -1, from_offset=start_offset):
        if record.timestamp_ms >= timestamp_ms:
            return OffsetAndTimestamp(record.offset, record.timestamp_ms, header.leader_epoch)
    return None
