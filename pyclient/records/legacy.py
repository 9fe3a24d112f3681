"""Convert messages of the formats before record batches (magic 0 and 1) to records of magic 2."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from pyclient.errors import CorruptRecord, TruncatedMessage
from pyclient.records.batch import BatchHeader, read_header
from pyclient.records.columns import Buffer
from pyclient.records.compression import Compression, decompress
from pyclient.records.payload import MAX_OFFSET, Payload
from pyclient.records.varints import encode_varint, wrap64
from pyclient.types import TIMESTAMP_LOG_APPEND

_BODY_AT: Final = {0: 18, 1: 26}
_MASK: Final = 0xFFFFFFFF


class _Message(NamedTuple):
    offset: int
    timestamp: int
    key: Buffer | None
    value: Buffer | None


def open_messages(message: memoryview, header: BatchHeader, topic: str, partition: int, max_size: int) -> Payload:
    """Return a message, or the messages that it wraps, as the payload of a batch. Raise `CorruptRecord`."""
    codec = header.codec
    _check_crc(message, header)
    outer = _read_message(message, header)
    messages = [outer] if codec == Compression.NONE else list(_unwrap(outer, header, codec, max_size))
    append_timestamp = outer.timestamp if header.timestamp_type == TIMESTAMP_LOG_APPEND else None
    base_offset, base_timestamp = messages[0].offset, messages[0].timestamp
    last = messages[-1].offset - base_offset
    if not 0 <= base_offset <= MAX_OFFSET or not 0 <= last <= 0x7FFFFFFF:
        raise CorruptRecord("its offsets are out of range")
    data = b"".join(_as_record(message, base_offset, base_timestamp) for message in messages)
    return Payload(header, topic, partition, data, len(messages), base_offset, last, base_timestamp, append_timestamp)


def _check_crc(message: memoryview, header: BatchHeader) -> None:
    actual = zlib.crc32(message[16:])
    if actual != header.crc:
        raise CorruptRecord(f"a message's CRC is {actual:#010x}, its header says {header.crc:#010x}")


def _read_message(message: memoryview, header: BatchHeader) -> _Message:
    key, position = _read_bytes(message, _BODY_AT[header.magic])
    value, position = _read_bytes(message, position)
    if position != len(message):
        raise CorruptRecord("a message is longer than its content")
    return _Message(header.base_offset, header.base_timestamp, key, value)


def _read_bytes(message: memoryview, position: int) -> tuple[memoryview | None, int]:
    start = position + 4
    if start > len(message):
        raise CorruptRecord("a message ends early")
    size = struct.unpack_from(">i", message, position)[0]
    if size == -1:
        return None, start
    if size < 0 or start + size > len(message):
        raise CorruptRecord(f"a message states {size} bytes where {len(message) - start} are left")
    return message[start : start + size], start + size


def _unwrap(outer: _Message, header: BatchHeader, codec: Compression, max_size: int) -> Iterator[_Message]:
    """Yield the messages inside a compressed one. With magic 1 their offsets are relative to the first."""
    if outer.value is None or codec == Compression.ZSTD:
        raise CorruptRecord(f"a message with compression {codec.name.lower()} has no value or an unsupported codec")
    packed = outer.value
    if header.magic == 0 and codec == Compression.LZ4:
        packed = _repair_lz4(packed)
    data = memoryview(decompress(codec, packed, max_size))
    headers = list(_inner_headers(data, header.magic))
    shift = header.base_offset - headers[-1][1].base_offset if header.magic == 1 else 0
    for position, inner in headers:
        part = data[position : position + inner.size]
        _check_crc(part, inner)
        message = _read_message(part, inner)
        timestamp = outer.timestamp if header.timestamp_type == TIMESTAMP_LOG_APPEND else message.timestamp
        yield message._replace(offset=message.offset + shift, timestamp=timestamp)


def _inner_headers(data: memoryview, magic: int) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while position < len(data) or position == 0:
        try:
            inner = read_header(data, position)
        except (CorruptRecord, TruncatedMessage) as error:
            raise CorruptRecord(f"inside its wrapper: {error}") from error
        if inner.magic != magic or inner.codec != Compression.NONE:
            raise CorruptRecord("a wrapper holds a message of another format, or another wrapper")
        if position + inner.size > len(data):
            raise CorruptRecord("a wrapper's last message ends early")
        yield position, inner
        position += inner.size


def _as_record(message: _Message, base_offset: int, base_timestamp: int) -> bytes:
    body = b"".join(
        (
            b"\0",
            encode_varint(wrap64(message.timestamp - base_timestamp)),
            encode_varint(message.offset - base_offset),
            *_sized(message.key),
            *_sized(message.value),
            b"\0",
        )
    )
    return encode_varint(len(body)) + body


def _sized(data: Buffer | None) -> tuple[Buffer, ...]:
    return (b"\x01",) if data is None else (encode_varint(len(data)), data)


def _repair_lz4(packed: Buffer) -> Buffer:
    """Correct the header checksum of an lz4 frame: Kafka 0.8 and 0.9 computed it over too many bytes (KAFKA-3160)."""
    if len(packed) < 7 or bytes(packed[:4]) != b"\x04\x22\x4d\x18":
        return packed
    checksum_at = 14 if packed[4] & 0x08 else 6
    if len(packed) <= checksum_at:
        return packed
    repaired = bytearray(packed)
    repaired[checksum_at] = (_xxh32_short(bytes(packed[4:checksum_at])) >> 8) & 0xFF
    return repaired


def _xxh32_short(data: bytes) -> int:
    """Return the xxHash32 (seed 0) of fewer than 16 bytes."""
    value = (374761393 + len(data)) & _MASK
    words = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:words]):
        value = (value + word * 3266489917) & _MASK
        value = (value << 17 | value >> 15) * 668265263 & _MASK
    for byte in data[words:]:
        value = (value + byte * 374761393) & _MASK
        value = (value << 11 | value >> 21) * 2654435761 & _MASK
    value = (value ^ value >> 15) * 2246822519 & _MASK
    value = (value ^ value >> 13) * 3266489917 & _MASK
    return value ^ value >> 16
