"""Read, check, write and update the 61-byte header of a record batch."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyclient.errors import CorruptRecord, TruncatedMessage
from pyclient.records.columns import Buffer
from pyclient.records.compression import Compression, compress
from pyclient.records.crc import crc32c
from pyclient.types import TIMESTAMP_CREATE, TIMESTAMP_LOG_APPEND, TIMESTAMP_NONE

HEADER_SIZE: Final = 61
MAX_BATCH_SIZE: Final = 2**31 - 1
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
_CODEC_MASK: Final = 0x07
_CODECS: Final = tuple(Compression)  # by number; a lookup in the enum takes ten times as long
_LOG_APPEND_TIME: Final = 0x08
_KNOWN_ATTRIBUTES: Final = 0x7F

# base offset, length, leader epoch, magic, crc, then what the CRC covers: attributes ... count
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_PREFIX: Final = struct.Struct(">qii")
_PRODUCER: Final = struct.Struct(">qhi")
_LENGTH_END: Final = 12  # the length counts the bytes after itself
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CHECKED_AT: Final = 21
_MAX_TIMESTAMP_AT: Final = 35
_PRODUCER_AT: Final = 43

# Logs of magic 0 and 1 consist of single messages: offset, length, crc, magic, attributes, [timestamp].
_MESSAGE: Final = {0: struct.Struct(">qiIbb"), 1: struct.Struct(">qiIbbq")}
_SMALLEST: Final = {0: 26, 1: 34, 2: HEADER_SIZE}


@dataclass(slots=True)
class BatchHeader:
    """The header of a batch. `size` is the size of the whole batch in bytes; sequences and ids are -1 if unset.

    A message of the old formats (magic 0 and 1) reads as a batch whose base offset is its own offset; if it wraps
    compressed messages, that is the offset of the last of them, and `count` is 1.
    """

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def codec(self) -> Compression:
        """Return the compression codec. Raise `CorruptRecord` for an unknown one."""
        number = self.attributes & _CODEC_MASK
        if number >= len(_CODECS):
            raise CorruptRecord(f"compression codec {number} does not exist")
        return _CODECS[number]

    @property
    def timestamp_type(self) -> int:
        """Return `TIMESTAMP_CREATE` or `TIMESTAMP_LOG_APPEND`; `TIMESTAMP_NONE` for magic 0."""
        if self.magic == 0:
            return TIMESTAMP_NONE
        return TIMESTAMP_LOG_APPEND if self.attributes & _LOG_APPEND_TIME else TIMESTAMP_CREATE

    @property
    def is_transactional(self) -> bool:
        """True for a batch of a transaction (KIP-98)."""
        return self.magic >= 2 and self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """True for a batch of control records instead of a user's records."""
        return self.magic >= 2 and self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        """True if `base_timestamp` is the time at which its tombstones may be removed (KIP-534)."""
        return self.magic >= 2 and self.attributes & DELETE_HORIZON != 0

    @property
    def last_offset(self) -> int:
        """The last offset of the batch; compaction keeps it even if it removes that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, which wraps from 2147483647 to 0; -1 without a sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`.

    Raise `TruncatedMessage` if the buffer ends inside it, `CorruptRecord` if its length or magic is invalid. The
    records need not be in the buffer.
    """
    available = len(buffer) - position
    if position < 0 or available <= _MAGIC_AT:
        raise TruncatedMessage(f"a record batch header ends early: {max(available, 0)} bytes at position {position}")
    magic = buffer[position + _MAGIC_AT]
    if magic == 2 and available >= HEADER_SIZE:
        base_offset, length, *rest = _HEADER.unpack_from(buffer, position)
        if length >= HEADER_SIZE - _LENGTH_END:
            return BatchHeader(base_offset, length + _LENGTH_END, *rest)
    return _read_unusual_header(buffer, position, magic, available)


def _read_unusual_header(buffer: Buffer, position: int, magic: int, available: int) -> BatchHeader:
    """Read a message of an old format, or raise the error for an invalid header."""
    offset, length, _ = _PREFIX.unpack_from(buffer, position)
    if magic not in _SMALLEST:
        raise CorruptRecord(f"batch at offset {offset}: magic {magic} is not 0, 1 or 2")
    if length < _SMALLEST[magic] - _LENGTH_END:
        raise CorruptRecord(f"batch at offset {offset}: a length of {length} bytes is too small for magic {magic}")
    header_size = HEADER_SIZE if magic == 2 else _MESSAGE[magic].size
    if available < header_size:
        raise TruncatedMessage(f"a record batch header ends early: {available} bytes at position {position}")
    fields = _MESSAGE[magic].unpack_from(buffer, position)
    crc, attributes = fields[2], fields[4]
    timestamp = fields[5] if magic == 1 else -1
    return BatchHeader(offset, length + _LENGTH_END, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield every complete batch from `position` on as (position, header); stop before an incomplete last one.

    Raise `CorruptRecord` at an invalid header.
    """
    end = len(buffer)
    while end - position > _MAGIC_AT:
        try:
            header = read_header(buffer, position)
        except TruncatedMessage:
            return
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def where(header: BatchHeader, topic: str, partition: int) -> str:
    """Return the name of a batch for errors: `orders-3: batch at offset 42`."""
    prefix = f"{topic}-{partition}: " if topic else ""
    return f"{prefix}batch at offset {header.base_offset}"


def check_crc(buffer: Buffer, position: int, header: BatchHeader, topic: str = "", partition: int = -1) -> None:
    """Compare the batch's checksum with its bytes (CRC-32C, or CRC-32 in the old formats).

    Raise `CorruptRecord` if they differ or the buffer does not contain the whole batch.
    """
    end = position + header.size
    if position < 0 or end > len(buffer):
        raise CorruptRecord(f"{where(header, topic, partition)} ends early")
    view = memoryview(buffer)
    if header.magic == 2:
        actual = crc32c(view[position + _CHECKED_AT : end])
    else:
        actual = zlib.crc32(view[position + _MAGIC_AT : end])
    if actual != header.crc:
        raise CorruptRecord(
            f"{where(header, topic, partition)}: its CRC is {actual:#010x}, the header says {header.crc:#010x}"
        )


def stamp_offsets(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set, in place, the base offset and the leader epoch, which the leader assigns. The CRC does not cover them."""
    length = struct.unpack_from(">i", buffer, position + 8)[0]
    _PREFIX.pack_into(buffer, position, base_offset, length, leader_epoch)


def stamp_producer(batch: bytearray | memoryview, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Set, in place, producer id, epoch and base sequence of a sealed batch, and its CRC."""
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _stamp_crc(batch, 0, len(batch))


def stamp_timestamp(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_type: int, max_timestamp: int
) -> None:
    """Set, in place, a batch's timestamp type and maximum timestamp (epoch ms), and its CRC.

    With `TIMESTAMP_LOG_APPEND` that timestamp applies to every record. Undefined attribute bits are cleared, as in
    Kafka.
    """
    attributes = header.attributes & _KNOWN_ATTRIBUTES & ~_LOG_APPEND_TIME
    if timestamp_type == TIMESTAMP_LOG_APPEND:
        attributes |= _LOG_APPEND_TIME
    struct.pack_into(">h", buffer, position + _CHECKED_AT, attributes)
    struct.pack_into(">q", buffer, position + _MAX_TIMESTAMP_AT, max_timestamp)
    _stamp_crc(buffer, position, header.size)


def _stamp_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    checked = memoryview(buffer)[position + _CHECKED_AT : position + size]
    struct.pack_into(">I", buffer, position + _CRC_AT, crc32c(checked))


def seal_batch(
    buffer: memoryview,
    size: int,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: Compression,
    level: int | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    flags: int,
) -> memoryview:
    """Write the header before the `count` records in `buffer[61:size]`; a compressed batch goes to a new buffer."""
    if count < 1:
        raise ValueError("a batch without records cannot be sealed")
    batch = buffer[:size]
    if compression != Compression.NONE:
        packed = compress(compression, batch[HEADER_SIZE:], level)
        size = HEADER_SIZE + len(packed)
        target = bytearray(size)
        target[HEADER_SIZE:] = packed
        batch = memoryview(target)
    attributes = compression | flags
    _HEADER.pack_into(
        batch, 0, 0, size - _LENGTH_END, -1, 2, 0, attributes, count - 1, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    _stamp_crc(batch, 0, size)
    return batch
