"""Reads from a log: the data for a fetch, aborted transactions, and records by timestamp."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.file_records import DamagedSegment
from pyclient.broker_embedded.log.indexes import AbortedTransaction
from pyclient.broker_embedded.log.log_segment import LogSegment
from pyclient.broker_embedded.log.log_segments import LogSegments
from pyclient.net.file_region import FileRegion
from pyclient.records import BatchHeader, decode_batch
from pyclient.types import OffsetAndTimestamp


class SegmentSlice(NamedTuple):
    """Batches of a segment. `end_offset` is at or after the last one's end; `more`: it reaches a closed file's end."""

    segment: LogSegment
    position: int
    length: int
    end_offset: int
    more: bool

    def read(self) -> bytes:
        """Return the bytes of the batches."""
        return self.segment.records.file.pread(self.length, self.position)

    def region(self) -> FileRegion:
        """Return the place of the batches in their file, which stays open until the region is released."""
        file = self.segment.records.file
        file.retain()
        try:
            return FileRegion(file.fileno(), self.position, self.length, file.release)
        except OSError:
            file.release()
            raise


def find_slice(
    segments: LogSegments,
    offset: int,
    *,
    limit: int,
    log_end: int,
    max_bytes: int,
    min_one_batch: bool,
    whole_batches: bool,
) -> SegmentSlice | None:
    """Return the batches from the one that holds `offset` on, below offset `limit`, up to `max_bytes`.

    None if there are none. `min_one_batch`: the first one in any case, whatever its size. Without `whole_batches` the
    last one, but never the first, is truncated at `max_bytes`, as Kafka answers a Fetch.
    """
    for segment in segments.since(offset) if offset < limit else ():
        if segment.base_offset >= limit:
            return None
        found = segment.indexes.locate(offset) if segment.records.size else None
        if found is not None:
            break
    else:
        return None
    position = found.position
    end_offset = segments.end_of(segment, log_end)
    end, whole = segment.records.size, limit >= end_offset
    if not whole:
        try:
            at_limit = segment.indexes.locate(limit)
            end, end_offset = segment.records.size if at_limit is None else at_limit.position, limit
        except DamagedSegment as error:  # the batches before the damage can be read
            if error.position < found.end:
                raise
            end, end_offset = error.position, limit
    if end - position > max_bytes:
        whole = False
        if found.end - position <= max_bytes and whole_batches:
            end, end_offset = _last_whole_batch(segment, position, position + max_bytes)
        elif found.end - position <= max_bytes:
            end = position + max_bytes
            bound = segment.indexes.offsets.upper_bound(end)
            end_offset = end_offset if bound is None else min(end_offset, segment.base_offset + bound + 1)
        elif min_one_batch:
            end, end_offset = found.end, found.last_offset + 1
        else:
            return None
    if end <= position:
        return None
    return SegmentSlice(segment, position, end - position, end_offset, whole and segment is not segments.active)


def _last_whole_batch(segment: LogSegment, position: int, last: int) -> tuple[int, int]:
    """Return (position, offset) of the first batch that ends after position `last`, found from an index entry.

    Or of damage before that: the batches before it can be read.
    """
    try:
        return _first_ending_after(segment, max(position, segment.indexes.offsets.boundary(last)), last)
    except DamagedSegment:
        with suppress(DamagedSegment):
            segment.indexes.rebuild()  # perhaps only the index is wrong
    reached: tuple[int, int] | None = None
    try:
        for at, end, base_offset, last_offset in segment.records.batch_positions(position):
            if end > last:
                return at, base_offset
            reached = end, last_offset + 1
    except DamagedSegment:
        if reached is None:
            raise
    assert reached is not None
    return reached


def _first_ending_after(segment: LogSegment, position: int, last: int) -> tuple[int, int]:
    for at, end, base_offset, _last_offset in segment.records.batch_positions(position):
        if end > last:
            return at, base_offset
    raise AssertionError("no batch ends after the given position")


def aborted_between(segments: LogSegments, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap [from_offset, to_offset)."""
    found: list[AbortedTransaction] = []
    for segment in segments.since(from_offset):
        entries, complete = segment.indexes.transactions.collect(from_offset, to_offset)
        found += entries
        if complete:
            break
    return found


def first_not_before(segments: Iterable[LogSegment], timestamp: int, start_offset: int) -> OffsetAndTimestamp | None:
    """Return the first record from `start_offset` on with a timestamp (ms) of at least `timestamp`, or None."""
    for segment in segments:
        if segment.size and segment.largest_timestamp >= timestamp:
            from_offset = max(start_offset, segment.base_offset + segment.indexes.times.lookup(timestamp))
            for position, header in _batches(segment, from_offset):
                if header.max_timestamp >= timestamp:
                    found = _first_record(segment, position, header, timestamp, from_offset)
                    if found is not None:
                        return found
    return None


def newest(segments: Iterable[LogSegment], start_offset: int) -> OffsetAndTimestamp | None:
    """Return the first record with the largest timestamp from `start_offset` on; None if there are no records.

    If no record has a timestamp it is the first one, as in Kafka.
    """
    best: tuple[LogSegment, int, BatchHeader] | None = None
    for segment in segments:
        if not segment.size or (best is not None and segment.largest_timestamp <= best[2].max_timestamp):
            continue
        from_offset = start_offset
        if (
            segment.base_offset >= start_offset
        ):  # the whole segment counts: its index is right; otherwise the newest record may be before the start
            from_offset = segment.indexes.largest_timestamp_offset
        for position, header in _batches(segment, from_offset):
            if best is None or header.max_timestamp > best[2].max_timestamp:
                best = segment, position, header
            if header.max_timestamp == segment.largest_timestamp:
                break
    if best is None:
        return None
    return _first_record(*best, best[2].max_timestamp, start_offset)


def _batches(segment: LogSegment, from_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    found = segment.indexes.locate(from_offset)
    return segment.records.walk(found.position) if found is not None else iter(())


def _first_record(
    segment: LogSegment, position: int, header: BatchHeader, timestamp: int, from_offset: int
) -> OffsetAndTimestamp | None:
    batch = segment.records.read_batch(position, header)
    try:
        records = decode_batch(batch, 0, header, "", -1, from_offset=from_offset)
    except errors.CorruptRecord as error:
        raise DamagedSegment(segment.records.file.path, position, error) from error
    for record in records:
        if record.timestamp_ms >= timestamp:
            return OffsetAndTimestamp(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


AppendOrigin = Literal["client", "coordinator", "replica"]
FetchIsolation = Literal["uncommitted", "committed", "log_end"]


class LogAppendInfo(NamedTuple):
    """The place of appended batches. `append_time_ms` is -1, except with LogAppendTime and for duplicates."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class FetchDataInfo(NamedTuple):
    """The result of a read: at most one region of a file, or its bytes; `size` in bytes.

    `more`: the next segment may have data as well.

    `aborted` are (producer id, first offset) of the aborted transactions that overlap it, None unless the read was of
    committed data. The region keeps its file open until it is released.
    """

    parts: list[FileRegion | bytes]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    end_offset: int
    aborted: list[tuple[int, int]] | None = None
    more: bool = False
