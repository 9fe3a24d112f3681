"""Records out of a batch."""

from __future__ import annotations

from collections.abc import Iterable

from pyclient.records._pure.record import Record, make_record
from pyclient.records.batch import BatchHeader
from pyclient.records.columns import Buffer
from pyclient.records.compression import MAX_DECOMPRESSED
from pyclient.records.payload import (
    EARLY,
    HEADERS,
    LEFTOVER,
    LENGTH,
    MAX_OFFSET,
    NAME,
    OFFSET,
    VARINT,
    Payload,
    bad_record,
    bytes_behind,
    open_batch,
)
from pyclient.records.varints import read_varint, wrap64
from pyclient.types import Headers


class _Problem(Exception):
    """A record that makes no sense; `args[0]` is the problem's number."""


def _read_length(record: bytes, position: int, smallest: int) -> tuple[int, int]:
    size, position = read_varint(record, position, 28)
    if size < smallest:
        raise _Problem(LENGTH)
    if size > len(record) - position:
        raise _Problem(EARLY)
    return size, position


def _read_headers(record: bytes, position: int) -> tuple[Headers, int]:
    count, position = read_varint(record, position, 28)
    if not 0 <= count <= (len(record) - position) // 2:
        raise _Problem(HEADERS)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = _read_length(record, position, 0)
        try:
            name = record[position : position + size].decode()
        except UnicodeDecodeError:
            raise _Problem(NAME) from None
        position += size
        size, position = _read_length(record, position, -1)
        headers.append((name, None if size < 0 else record[position : position + size]))
        position += max(size, 0)
    return tuple(headers), position


_Row = tuple[int, int, bytes | None, bytes | None, Headers]


def _read_record(data: bytes, position: int, previous: int, last: int) -> tuple[_Row, int]:
    """One record as (offset delta, timestamp delta, key, value, headers), and the position behind it."""
    size, position = _read_length(data, position, 0)
    end = position + size
    record = data[position:end]
    if not size:
        raise _Problem(EARLY)
    timestamp_delta, position = read_varint(record, 1, 63)
    offset_delta, position = read_varint(record, position, 28)
    if not previous < offset_delta <= last:
        raise _Problem(OFFSET)
    key_size, position = _read_length(record, position, -1)
    key = None if key_size < 0 else record[position : position + key_size]
    position += max(key_size, 0)
    value_size, position = _read_length(record, position, -1)
    value = None if value_size < 0 else record[position : position + value_size]
    position += max(value_size, 0)
    if record[position] == 0:
        headers: Headers = ()
        position += 1
    else:
        headers, position = _read_headers(record, position)
    if position != size:
        raise _Problem(LEFTOVER)
    return (offset_delta, timestamp_delta, key, value, headers), end


def read_rows(payload: Payload, from_offset: int, to_offset: int) -> Iterable[_Row]:
    """The rows with from_offset <= offset < to_offset, as (offset, timestamp, key, value, headers); all are checked."""
    data = bytes(payload.data)
    position, delta = 0, -1
    for number in range(payload.count):
        try:
            row, position = _read_record(data, position, delta, payload.last_offset_delta)
        except _Problem as problem:
            raise bad_record(payload.place, number, problem.args[0]) from None
        except IndexError:
            raise bad_record(payload.place, number, EARLY) from None
        except OverflowError:
            raise bad_record(payload.place, number, VARINT) from None
        delta = row[0]
        offset = payload.base_offset + delta
        if from_offset <= offset < to_offset:
            timestamp = payload.append_timestamp
            if timestamp is None:
                timestamp = wrap64(payload.base_timestamp + row[1])
            yield offset, timestamp, row[2], row[3], row[4]
    if position != len(data):
        raise bytes_behind(payload.place, len(data) - position)


def decode_batch(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    topic: str,
    partition: int,
    *,
    from_offset: int = 0,
    to_offset: int = MAX_OFFSET,
    max_size: int = MAX_DECOMPRESSED,
) -> list[Record[bytes | None, bytes | None]]:
    """The records of the batch at `position` with from_offset <= offset < to_offset; a control batch gives its own.

    Does not check the CRC of magic 2. Raises `CorruptRecord`, also past `max_size` uncompressed bytes.
    """
    payload = open_batch(buffer, position, header, topic, partition, max_size)
    kind, epoch = payload.timestamp_type, payload.leader_epoch
    return [
        make_record(topic, partition, offset, timestamp, kind, epoch, key, value, headers)
        for offset, timestamp, key, value, headers in read_rows(payload, from_offset, to_offset)
    ]
