"""Check batches without creating `Record` objects: those that a broker appends, and those that a consumer received."""

from __future__ import annotations

from collections.abc import Sequence

from pyclient.errors import CorruptRecord
from pyclient.records._pure.placing import PlacedBatch
from pyclient.records._pure.reading import check_record, read_rows
from pyclient.records.batch import check_crc
from pyclient.records.columns import Buffer
from pyclient.records.compression import MAX_DECOMPRESSED, Compression
from pyclient.records.payload import (
    KEYLESS,
    MAX_OFFSET,
    MOST_NAMED,
    OUT_OF_RANGE,
    SMALLEST_RECORD,
    Payload,
    bytes_behind_text,
    open_batch,
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


def count_intact(batches: Sequence[PlacedBatch], crcs: bool = True) -> int:
    """Return how many batches, counted from the first, have a correct CRC and readable records.

    Mark them as `checked`, and as `readable` unless they are compressed. Stop before the first that is corrupt,
    incomplete or of an old format; `check_crc` and `check_rows` raise the error for it. With `crcs` False check only
    the records.
    """
    for number, batch in enumerate(batches):
        header = batch.header
        if header.magic != 2:
            return number
        plain = header.codec == Compression.NONE
        try:
            if crcs and not batch.checked:
                check_crc(batch.buffer, batch.position, header)
            if plain and not batch.readable:
                place = (batch.topic, batch.partition, MAX_DECOMPRESSED)
                check_rows(open_batch(batch.buffer, batch.position, header, *place))
        except CorruptRecord:
            return number
        batch.checked = batch.checked or crcs
        batch.readable = batch.readable or plain
    return len(batches)


def check_rows(payload: Payload) -> None:
    """Raise `CorruptRecord` unless every record of a payload is readable; create no `Record` objects."""
    for _ in read_rows(payload, MAX_OFFSET, MAX_OFFSET):
        pass
