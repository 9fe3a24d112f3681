"""Decode the records of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pyclient.errors import CorruptRecord
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
    bad_record_text,
    open_batch,
)
from pyclient.records.varints import read_varint, wrap64
from pyclient.types import Headers

_NULL: Final = 1  # the length -1


class _Problem(Exception):
    """An invalid record; `args[0]` is the problem's number."""


def _read_length(record: bytes, position: int, smallest: int) -> tuple[int, int]:
    size, position = read_varint(record, position, 28)
    if size < smallest:
        raise _Problem(LENGTH)
    if size > len(record) - position:
        raise _Problem(EARLY)
    return size, position


def _read_bytes(record: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = read_varint(record, position, 28)
    if size < 0:
        if size < -1:
            raise _Problem(LENGTH)
        return None, position
    end = position + size
    if end > len(record):
        raise _Problem(EARLY)
    return record[position:end], end


def _read_headers(record: bytes, position: int) -> tuple[Headers, int]:
    count, position = read_varint(record, position, 28)
    if not 0 <= count <= (len(record) - position) // 2:
        raise _Problem(HEADERS)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = _read_length(record, position, 0)
        end = position + size
        try:
            name = record[position:end].decode()
        except UnicodeDecodeError:
            raise _Problem(NAME) from None
        value, position = _read_bytes(record, end)
        headers.append((name, value))
    return tuple(headers), position


_Row = tuple[int, int, bytes | None, bytes | None, Headers]


def _read_record(data: bytes, position: int, previous: int, last: int) -> tuple[_Row, int]:
    """Read one record as (offset delta, timestamp delta, key, value, headers); return it and the position after it.

    One-byte numbers are read inline: a call for each would add half to the time of a record.
    """
    size, position = read_varint(data, position, 28)
    end = position + size
    if size < 0:
        raise _Problem(LENGTH)
    if size == 0 or end > len(data):
        raise _Problem(EARLY)
    record = data[position:end]  # a slice, so that nothing is read from the next record
    timestamp_delta, position = record[1] >> 1, 2
    if record[1] & 0x81:
        timestamp_delta, position = read_varint(record, 1, 63)
    offset_delta = record[position]
    if offset_delta & 0x81:
        offset_delta, position = read_varint(record, position, 28)
    else:
        offset_delta >>= 1
        position += 1
    if not previous < offset_delta <= last:
        raise _Problem(OFFSET)
    key = None
    if record[position] == _NULL:
        position += 1
    else:
        key, position = _read_bytes(record, position)
    value, position = _read_bytes(record, position)
    headers: Headers = ()
    if record[position]:
        headers, position = _read_headers(record, position)
    else:
        position += 1
    if position != size:
        raise _Problem(LEFTOVER)
    return (offset_delta, timestamp_delta, key, value, headers), end


def check_record(data: bytes, position: int, delta: int) -> tuple[int, bool, int]:
    """Return the record's timestamp delta, True if it has a key, and the position after it.

    Its offset delta must be `delta`. Raise `CorruptRecord`.
    """
    try:
        row, end = _read_record(data, position, delta - 1, delta)
    except _Problem as problem:
        raise CorruptRecord(bad_record_text(delta, problem.args[0])) from None
    except IndexError:
        raise CorruptRecord(bad_record_text(delta, EARLY)) from None
    except OverflowError:
        raise CorruptRecord(bad_record_text(delta, VARINT)) from None
    return row[1], row[2] is not None, end


def read_rows(payload: Payload, from_offset: int, to_offset: int) -> Iterable[_Row]:
    """Yield the rows with from_offset <= offset < to_offset as (offset, timestamp, key, value, headers); check all."""
    data = bytes(payload.data)
    position, delta = 0, -1
    for number in range(payload.count):
        try:
            row, position = _read_record(data, position, delta, payload.last_offset_delta)
        except _Problem as problem:
            raise payload.bad_record(number, problem.args[0]) from None
        except IndexError:
            raise payload.bad_record(number, EARLY) from None
        except OverflowError:
            raise payload.bad_record(number, VARINT) from None
        delta = row[0]
        offset = payload.base_offset + delta
        if from_offset <= offset < to_offset:
            timestamp = payload.append_timestamp
            if timestamp is None:
                timestamp = wrap64(payload.base_timestamp + row[1])
            yield offset, timestamp, row[2], row[3], row[4]
    if position != len(data):
        raise payload.bytes_behind(len(data) - position)


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
    """Return the records of the batch at `position` with from_offset <= offset < to_offset, also of a control batch.

    Do not check the CRC of magic 2. Raise `CorruptRecord`, also past `max_size` uncompressed bytes.
    """
    return decode_payload(open_batch(buffer, position, header, topic, partition, max_size), from_offset, to_offset)


def decode_payload(
    payload: Payload, from_offset: int = 0, to_offset: int = MAX_OFFSET
) -> list[Record[bytes | None, bytes | None]]:
    """Return the records with from_offset <= offset < to_offset of a payload from `open_batch`."""
    topic, partition = payload.topic, payload.partition
    kind, epoch = payload.header.timestamp_type, payload.header.leader_epoch
    return [
        make_record(topic, partition, offset, timestamp, kind, epoch, key, value, headers)
        for offset, timestamp, key, value, headers in read_rows(payload, from_offset, to_offset)
    ]


class RecordChain(Iterator[Record[Any, Any]]):
    """Iterates over the records in the lists that `sources` return; each source is called on demand.

    An error of a source is raised by `next`; the call after that continues with the next source.
    """

    __slots__ = ("_at", "_records", "_sources")

    def __init__(self, sources: Iterable[Callable[[], list[Record[Any, Any]]]]) -> None:
        self._sources = iter(sources)
        self._records: list[Record[Any, Any]] = []
        self._at = 0

    def __next__(self) -> Record[Any, Any]:
        while self._at >= len(self._records):
            source = next(self._sources)
            self._records, self._at = [], 0
            self._records = source()
        record = self._records[self._at]
        self._at += 1
        return record
