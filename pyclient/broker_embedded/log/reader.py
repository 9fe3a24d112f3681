"""Finding what a fetch may have: the stretch of one segment's file, and the aborted transactions that reach into it."""

from __future__ import annotations

from typing import NamedTuple

from pyclient.broker_embedded.log.segment import Segment
from pyclient.broker_embedded.log.segment_file import DamagedSegment
from pyclient.broker_embedded.log.segments import Segments
from pyclient.broker_embedded.log.transaction_index import AbortedTransaction


class Stretch(NamedTuple):
    """Whole batches of a segment. `end_offset` is at or behind the last one's end; `more`: a closed file's end."""

    segment: Segment
    position: int
    length: int
    end_offset: int
    more: bool


def find_stretch(
    segments: Segments, offset: int, *, limit: int, log_end: int, max_bytes: int, min_one_batch: bool
) -> Stretch | None:
    """The batches from the one that holds `offset` on, all below offset `limit`, as many as `max_bytes` holds.

    None if there is none. `min_one_batch`: the first one, whatever its size.
    """
    for segment in segments.since(offset) if offset < limit else ():
        if segment.base_offset >= limit:
            return None
        found = segment.locate(offset) if segment.size else None
        if found is not None:
            break
    else:
        return None
    position = found.position
    end_offset = segments.end_of(segment, log_end)
    end, whole = segment.size, limit >= end_offset
    if not whole:
        cut = segment.locate(limit)
        end, end_offset = segment.size if cut is None else cut.position, limit
    if end - position > max_bytes:
        whole = False
        if found.end - position <= max_bytes:
            end, end_offset = _last_whole_batch(segment, position, position + max_bytes)
        elif min_one_batch:
            end, end_offset = found.end, found.last_offset + 1
        else:
            return None
    if end <= position:
        return None
    return Stretch(segment, position, end - position, end_offset, whole and segment is not segments.active)


def _last_whole_batch(segment: Segment, position: int, last: int) -> tuple[int, int]:
    """(position, offset) of the first batch that would end behind `last`: it is close behind an index entry."""
    try:
        return _ends_behind(segment, max(position, segment.index.boundary(last)), last)
    except DamagedSegment:
        segment.rebuild_indexes()  # perhaps only the index lied
        return _ends_behind(segment, position, last)


def _ends_behind(segment: Segment, position: int, last: int) -> tuple[int, int]:
    for at, end, base_offset, _last_offset in segment.skim(position):
        if end > last:
            return at, base_offset
    raise AssertionError("the segment ends behind the position that was asked for")


def aborted_between(segments: Segments, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that reach into [from_offset, to_offset)."""
    found: list[AbortedTransaction] = []
    for segment in segments.since(from_offset):
        entries, complete = segment.transactions.collect(from_offset, to_offset)
        found += entries
        if complete:
            break
    return found
