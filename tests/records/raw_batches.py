"""Build record batches that no producer library writes: each field and each record is arbitrary."""

from __future__ import annotations

import gzip
import struct
from typing import Any, Final

import lz4.frame
import zstandard

from pyclient.records import Compression, compress, encode_varint
from pyclient.records.crc import crc32c

NOW: Final = 1_700_000_000_000
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")


def overlong(value: int, size: int) -> bytes:
    """Encode a varint in `size` bytes, more than it needs."""
    plain = encode_varint(value)
    return plain[:-1] + bytes([plain[-1] | 0x80]) + b"\x80" * (size - len(plain) - 1) + b"\0"


def field(data: bytes | None, size: int | None = None) -> bytes:
    """Encode a key or a value with its length, or with the length `size`."""
    length = (-1 if data is None else len(data)) if size is None else size
    return encode_varint(length) + (data or b"")


def body(
    offset: int = 0,
    *,
    timestamp: int = 0,
    attributes: int = 0,
    key: bytes = field(b"k"),
    value: bytes = field(b"value"),
    headers: bytes = encode_varint(0),
) -> bytes:
    """Encode a record without its length."""
    return bytes([attributes]) + encode_varint(timestamp) + encode_varint(offset) + key + value + headers


def record(offset: int = 0, *, add: int = 0, **fields: Any) -> bytes:
    """Encode a record; `add` is added to its length."""
    content = body(offset, **fields)
    return encode_varint(len(content) + add) + content


THREE: Final = record(0) + record(1) + record(2)


def batch(
    records: bytes = THREE,
    *,
    codec: Compression = Compression.NONE,
    count: int = 3,
    last: int | None = None,
    attributes: int = 0,
    base_timestamp: int = NOW,
    max_timestamp: int = NOW,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    base_offset: int = 0,
    leader_epoch: int = -1,
    magic: int = 2,
    packed: bytes | None = None,
) -> bytes:
    """Encode a batch with correct length and CRC; `packed` replaces the output of `codec`."""
    if packed is None:
        packed = bytes(compress(codec, records))
    out = bytearray(61) + packed
    delta = count - 1 if last is None else last
    _HEADER.pack_into(
        out, 0, base_offset, len(out) - 12, leader_epoch, magic, 0, attributes | codec, delta, base_timestamp,
        max_timestamp, producer_id, epoch, sequence, count,
    )  # fmt: skip
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


def of_length(data: bytes, length: int) -> bytes:
    """Replace the length of a batch."""
    return data[:8] + struct.pack(">i", length) + data[12:]


def two_members(records: bytes) -> bytes:
    """Compress to two gzip members."""
    return gzip.compress(records[:10]) + gzip.compress(records[10:])


def lz4_frame(records: bytes, **options: Any) -> bytes:
    """Compress to an lz4 frame with Java's options, overridden by `options`."""
    settings = {"block_size": lz4.frame.BLOCKSIZE_MAX64KB, "block_linked": False, "store_size": False, **options}
    made: bytes = lz4.frame.compress(records, **settings)
    return made


def zstd_frame(records: bytes, **options: Any) -> bytes:
    """Compress to a zstd frame."""
    return zstandard.ZstdCompressor(**options).compress(records)
