"""Search of a record by timestamp: the time index leads to the batch, and that one batch is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyclient import errors
from pyclient.broker_embedded.log.segment import Segment
from pyclient.broker_embedded.log.segment_file import DamagedSegment
from pyclient.records import BatchHeader, decode_batch
from pyclient.types import OffsetAndTimestamp


def first_not_before(segments: Iterable[Segment], timestamp: int, start_offset: int) -> OffsetAndTimestamp | None:
    """Return the first record from `start_offset` on with a timestamp (ms) of at least `timestamp`, or None."""
    for segment in segments:
        if segment.size and segment.largest_timestamp >= timestamp:
            from_offset = max(start_offset, segment.base_offset + segment.times.lookup(timestamp))
            for position, header in _batches(segment, from_offset):
                if header.max_timestamp >= timestamp:
                    found = _first_record(segment, position, header, timestamp, from_offset)
                    if found is not None:
                        return found
    return None


def newest(segments: Iterable[Segment], start_offset: int) -> OffsetAndTimestamp | None:
    """Return the first record with the largest timestamp from `start_offset` on; None if there are no records.

    If no record has a timestamp it is the first one, as in Kafka.
    """
    best: tuple[Segment, int, BatchHeader] | None = None
    for segment in segments:
        if not segment.size or (best is not None and segment.largest_timestamp <= best[2].max_timestamp):
            continue
        from_offset = start_offset
        if (
            segment.base_offset >= start_offset
        ):  # the whole segment counts: its index is right; otherwise the newest record may be before the start
            from_offset = segment.largest_timestamp_offset
        for position, header in _batches(segment, from_offset):
            if best is None or header.max_timestamp > best[2].max_timestamp:
                best = segment, position, header
            if header.max_timestamp == segment.largest_timestamp:
                break
    if best is None:
        return None
    return _first_record(*best, best[2].max_timestamp, start_offset)


def _batches(segment: Segment, from_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    found = segment.locate(from_offset)
    return segment.walk(found.position) if found is not None else iter(())


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, from_offset: int
) -> OffsetAndTimestamp | None:
    batch = segment.read_batch(position, header)
    try:
        records = decode_batch(batch, 0, header, "", -1, from_offset=from_offset)
    except errors.CorruptRecord as error:
        raise DamagedSegment(segment.log.path, position, error) from error
    for record in records:
        if record.timestamp_ms >= timestamp:
            return OffsetAndTimestamp(record.offset, record.timestamp_ms, header.leader_epoch)
    return None
