"""Finds the data for a fetch: a stretch of one segment's file, and the aborted transactions that overlap it."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from pyclient.broker_embedded.log.segment import Segment
from pyclient.broker_embedded.log.segment_file import DamagedSegment
from pyclient.broker_embedded.log.segments import Segments
from pyclient.broker_embedded.log.transaction_index import AbortedTransaction


class Stretch(NamedTuple):
    """Batches of a segment. `end_offset` is at or after the last one's end; `more`: it reaches a closed file's end."""

    segment: Segment
    position: int
    length: int
    end_offset: int
    more: bool


def find_stretch(
    segments: Segments,
    offset: int,
    *,
    limit: int,
    log_end: int,
    max_bytes: int,
    min_one_batch: bool,
    whole_batches: bool,
) -> Stretch | None:
    """Return the batches from the one that holds `offset` on, below offset `limit`, up to `max_bytes`.

    None if there are none. `min_one_batch`: the first one in any case, whatever its size. Without `whole_batches` the
    last one, but never the first, is cut at `max_bytes`, as Kafka answers a Fetch.
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
        try:
            cut = segment.locate(limit)
            end, end_offset = segment.size if cut is None else cut.position, limit
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
            bound = segment.index.upper_bound(end)
            end_offset = end_offset if bound is None else min(end_offset, segment.base_offset + bound + 1)
        elif min_one_batch:
            end, end_offset = found.end, found.last_offset + 1
        else:
            return None
    if end <= position:
        return None
    return Stretch(segment, position, end - position, end_offset, whole and segment is not segments.active)


def _last_whole_batch(segment: Segment, position: int, last: int) -> tuple[int, int]:
    """Return (position, offset) of the first batch that ends after position `last`, found from an index entry.

    Or of damage before that: the batches before it can be read.
    """
    try:
        return _first_ending_after(segment, max(position, segment.index.boundary(last)), last)
    except DamagedSegment:
        with suppress(DamagedSegment):
            segment.rebuild_indexes()  # perhaps only the index is wrong
    reached: tuple[int, int] | None = None
    try:
        for at, end, base_offset, last_offset in segment.skim(position):
            if end > last:
                return at, base_offset
            reached = end, last_offset + 1
    except DamagedSegment:
        if reached is None:
            raise
    assert reached is not None
    return reached


def _first_ending_after(segment: Segment, position: int, last: int) -> tuple[int, int]:
    for at, end, base_offset, _last_offset in segment.skim(position):
        if end > last:
            return at, base_offset
    raise AssertionError("no batch ends after the given position")


def aborted_between(segments: Segments, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap [from_offset, to_offset)."""
    found: list[AbortedTransaction] = []
    for segment in segments.since(from_offset):
        entries, complete = segment.transactions.collect(from_offset, to_offset)
        found += entries
        if complete:
            break
    return found
