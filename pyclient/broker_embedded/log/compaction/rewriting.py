"""Removes records from a batch: the kept ones are copied byte for byte, only the header is new. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from pyclient import errors
from pyclient.broker_embedded.log.filesystem import Buffer
from pyclient.records import (
    HEADER_SIZE,
    MAX_DECOMPRESSED,
    BatchHeader,
    Compression,
    Record,
    compress,
    decode_batch,
    encode_varint,
)
from pyclient.records.crc import crc32c
from pyclient.records.payload import open_batch
from pyclient.records.varints import read_varint

ROWS_AT_ONCE: Final = 100
"""Records that are decoded at once; more of them would block a loop for too long."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END: Final = 12
_CRC_AT: Final = 17
_CHECKED_AT: Final = 21
_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_DELETE_HORIZON: Final = 0x40
_NO_TIMESTAMP: Final = -1
_WIDE: Final = 63  # the last shift of a 64-bit varint
_SIGN_BIT: Final = 1 << 63
_NARROW: Final = 28


def unpacked(batch: Buffer, header: BatchHeader) -> tuple[Buffer, BatchHeader]:
    """Return the batch with its records uncompressed and in the layout of magic 2. Raise `CorruptRecord`."""
    if header.magic == 2 and (header.codec == Compression.NONE or not header.count):
        return batch, header
    payload = open_batch(batch, 0, header, "", -1, MAX_DECOMPRESSED)
    plain = b"".join((bytes(HEADER_SIZE), payload.data))
    kept_bits = ~_CODEC if header.magic == 2 else _LOG_APPEND_TIME if header.magic == 1 else 0
    return plain, replace(
        header,
        magic=2,
        size=len(plain),
        attributes=header.attributes & kept_bits,
        base_offset=payload.base_offset,
        last_offset_delta=payload.last_offset_delta,
        base_timestamp=payload.base_timestamp,
        count=payload.count,
    )


def chunks(batch: Buffer, header: BatchHeader) -> Iterator[list[Record[Any, Any]]]:
    """Yield the records of an unpacked batch, at most `ROWS_AT_ONCE` at a time. Raise `CorruptRecord`."""
    if header.count <= ROWS_AT_ONCE:
        yield decode_batch(batch, 0, header, "", -1)
        return
    data, position, left = _as_bytes(batch, header.size), HEADER_SIZE, header.count
    while left:
        count = min(left, ROWS_AT_ONCE)
        end = _end_of(data, position, count)
        part = bytes(HEADER_SIZE) + data[position:end]
        yield decode_batch(part, 0, replace(header, size=len(part), count=count), "", -1)
        position, left = end, left - count
    if position != header.size:
        raise errors.CorruptRecord(f"{header.size - position} bytes are left after the last record")


def _as_bytes(batch: Buffer, size: int) -> bytes:
    """Return the first `size` bytes; copy them only if necessary."""
    return batch if isinstance(batch, bytes) and len(batch) == size else bytes(memoryview(batch)[:size])


def _end_of(data: bytes, position: int, count: int = 1) -> int:
    """Return the end of `count` records from `position` on. Reads lengths of up to two bytes inline: twice as fast."""
    total = len(data)
    try:
        for _ in range(count):
            first = data[position]
            if first < 0x80:
                size, body = first, position + 1
            else:
                second = data[position + 1]
                if second < 0x80:
                    size, body = first + (second << 7) - 0x80, position + 2
                else:
                    size, body = read_varint(data, position, _NARROW)
                    size <<= 1
            position = body + (size >> 1)
            if size & 1 or size < 0 or position > total:
                raise errors.CorruptRecord(f"a record ends at byte {position} of {total}")
    except (IndexError, OverflowError) as error:
        raise errors.CorruptRecord(f"the record at byte {position} has no length") from error
    return position


def spliced(batch: Buffer, header: BatchHeader, keep: Sequence[int]) -> Iterator[bytes]:
    """Yield the records of an unpacked batch that are selected by `keep` (one truth value for each), unchanged.

    In pieces, each from `ROWS_AT_ONCE` records.
    """
    data = _as_bytes(batch, header.size)
    position = HEADER_SIZE
    for first in range(0, len(keep), ROWS_AT_ONCE):
        parts: list[bytes] = []
        start = position
        for wanted in keep[first : first + ROWS_AT_ONCE]:
            end = _end_of(data, position)
            if not wanted:
                parts.append(data[start:position])
                start = end
            position = end
        parts.append(data[start:position])
        yield b"".join(parts)


def rebased(records: bytes, old_base: int, new_base: int) -> bytes:
    """Return the same records (contiguous, of magic 2) with timestamps relative to another base.

    Differences wrap at 64 bits, as readers add them up: a batch may have timestamps that are further apart.
    """
    parts: list[bytes] = []
    position, shift = 0, old_base - new_base
    while position < len(records):
        end = _end_of(records, position)
        _size, body = read_varint(records, position, _NARROW)
        delta, rest = read_varint(records, body + 1, _WIDE)  # after the record's attributes
        timestamp = encode_varint((delta + shift + _SIGN_BIT) % (2 * _SIGN_BIT) - _SIGN_BIT)
        parts += (
            encode_varint(1 + len(timestamp) + end - rest),
            records[body : body + 1],
            timestamp,
            records[rest:end],
        )
        position = end
    return b"".join(parts)


def sealed(
    header: BatchHeader, records: bytes, *, codec: Compression, count: int, max_timestamp: int, horizon: int | None
) -> bytearray:
    """Return a batch of `count` plain records with the offsets and sequences of the unpacked batch `header`.

    `horizon` (epoch ms) is when its tombstones, or its marker, may be removed; it is then the records' time base.
    """
    attributes, base_timestamp = header.attributes | codec, header.base_timestamp
    if horizon is not None:
        attributes, base_timestamp = attributes | _DELETE_HORIZON, horizon
    stored = records if codec == Compression.NONE else bytes(compress(codec, records))
    return _packed(header, attributes, base_timestamp, max_timestamp, count, stored)


def emptied(header: BatchHeader) -> bytearray:
    """Return the header without records: it keeps offsets, and the sequence and epoch of its producer."""
    attributes = header.attributes & ~_CODEC & ~_DELETE_HORIZON
    return _packed(header, attributes, _NO_TIMESTAMP, header.max_timestamp, 0, b"")


def _packed(
    header: BatchHeader, attributes: int, base_timestamp: int, max_timestamp: int, count: int, records: bytes
) -> bytearray:
    batch = bytearray(HEADER_SIZE)
    batch += records
    _HEADER.pack_into(
        batch, 0, header.base_offset, len(batch) - _LENGTH_END, header.leader_epoch, 2, 0, attributes,
        header.last_offset_delta, base_timestamp, max_timestamp,
        header.producer_id, header.producer_epoch, header.base_sequence, count,
    )  # fmt: skip
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CHECKED_AT:]))
    return batch
