"""Validate the records of a batch before a broker appends it, without decoding them."""

from __future__ import annotations

from pyclient.errors import CorruptRecord
from pyclient.records._pure.reading import check_record
from pyclient.records.columns import Buffer
from pyclient.records.payload import (
    KEYLESS,
    MOST_NAMED,
    OUT_OF_RANGE,
    SMALLEST_RECORD,
    bytes_behind_text,
)
from pyclient.records.varints import wrap64


def validate_records(
    data: Buffer,
    position: int,
    count: int,
    base_timestamp: int,
    needs_keys: bool,
    now_ms: int,
    before_ms: int,
    after_ms: int,
) -> tuple[int, int, tuple[tuple[int, int, int], ...]]:
    """Check that `data` contains exactly `count` records from `position` to its end, and check each of them.

    Return the latest timestamp (-1 if none has one), the number of refused records, and the first thousand of them as
    (index, `KEYLESS` or `OUT_OF_RANGE`, timestamp). Offset deltas must be 0, 1, 2, ...; timestamps may be at most
    `before_ms` before and `after_ms` after `now_ms`; -1 means no timestamp. The GIL is released for 1 MiB or more.
    Raise `CorruptRecord` for an unreadable record and for a different number of records.
    """
    if not 0 <= position <= len(data):
        raise CorruptRecord("the batch ends early")
    if not 0 <= count <= (len(data) - position) // SMALLEST_RECORD:
        raise CorruptRecord(f"{count} records cannot be in {len(data) - position} bytes")
    records = bytes(data[position:])
    latest, refused, at = -1, 0, 0
    named: list[tuple[int, int, int]] = []
    for number in range(count):
        delta, has_key, at = check_record(records, at, number)
        timestamp = wrap64(base_timestamp + delta)
        latest = max(latest, timestamp)
        problem = 0
        if needs_keys and not has_key:
            problem = KEYLESS
        elif _out_of_range(timestamp, now_ms, before_ms, after_ms):
            problem = OUT_OF_RANGE
        if problem:
            refused += 1
            if refused <= MOST_NAMED:
                named.append((number, problem, timestamp))
    if at != len(records):
        raise CorruptRecord(bytes_behind_text(len(records) - at))
    return latest, refused, tuple(named)


def _out_of_range(timestamp: int, now_ms: int, before_ms: int, after_ms: int) -> bool:
    """Compare as Kafka does, including overflow; -1 means no timestamp."""
    age = wrap64(now_ms - timestamp)
    return timestamp != -1 and (age > before_ms or wrap64(-age) > after_ms)
