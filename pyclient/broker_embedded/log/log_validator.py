"""Validation of appended batches: rules for header, checksum and records, and the stamps that a leader sets."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.filesystem import Buffer
from pyclient.records import (
    HEADER_SIZE,
    KEYLESS,
    MAX_DECOMPRESSED,
    MOST_NAMED,
    OUT_OF_RANGE,
    BatchHeader,
    Compression,
    DecompressedTooLarge,
    check_crc,
    compress,
    decompress,
    iter_batches,
    lz4_blocks_depend,
    read_header,
    stamp_timestamp,
    validate_records,
)
from pyclient.types import TIMESTAMP_CREATE, TIMESTAMP_LOG_APPEND

_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 21
_UNLIMITED: Final = 2**63 - 1
_RECOMPRESSED_ON_LOOP: Final = 32 << 10
_DECOMPRESSED_ON_LOOP: Final = {
    Compression.GZIP: 256 << 10,
    Compression.SNAPPY: 1 << 20,
    Compression.LZ4: 1 << 20,
    Compression.ZSTD: 1 << 20,
}
"""Bytes that a codec decompresses in less than a millisecond (docs/measurements.md, "Checking records")."""


class RefusedRecords(errors.BrokerError):
    """Invalid records, for which the broker refuses their batch; `records` has reasons by index in it (KIP-467)."""

    def __init__(self, text: str, records: Mapping[int, str]) -> None:
        super().__init__(text)
        self.records = records


class InvalidRecords(RefusedRecords, errors.InvalidRecord):
    """Some records break a rule of the topic."""


class InvalidTimestamps(RefusedRecords, errors.InvalidTimestamp):
    """Some records' timestamps are out of range; others may break other rules."""


def writable(batch: Buffer) -> memoryview:
    """Return a writable view of the batch; a copy only if its memory is read-only."""
    view = memoryview(batch)
    return memoryview(bytearray(view)) if view.readonly else view


def read_single(batch: memoryview, where: str) -> BatchHeader:
    """Return the header of exactly one whole batch with a right checksum.

    Raise `CorruptMessage` or `InvalidRecord`.
    """
    if len(batch) > _MAGIC_AT and batch[_MAGIC_AT] < 2:
        raise errors.InvalidRecord(
            f"{where}: record format {batch[_MAGIC_AT]} is no longer taken, only batches (format 2)"
        )
    try:
        header = read_header(batch)
        size = len(batch)
        if header.size > size:
            raise errors.InvalidRecord(f"{where}: {size} bytes of a batch of {header.size}")
        if header.base_offset != 0:
            raise errors.InvalidRecord(f"{where}: a batch with base offset {header.base_offset}; it must be 0")
        check_crc(batch, 0, header)
        if header.size < size:
            raise errors.InvalidRecord(f"{where}: more than one batch; a request carries exactly one for a partition")
    except errors.TruncatedMessage as error:
        raise errors.InvalidRecord(f"{where}: not one whole batch: {error}") from error
    except errors.ProtocolError as error:
        raise errors.CorruptMessage(f"{where}: {error}") from error
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        raise errors.InvalidRecord(
            f"{where}: a batch of {header.count} records with last offset delta {header.last_offset_delta}; it must "
            "have at least 1 record, and a last offset delta of one less than the number of records"
        )
    return header


def check_copies(batches: memoryview, expected: int, where: str) -> list[tuple[int, BatchHeader]]:
    """Return (position, header) of a leader's whole batches. They must follow offset `expected`; gaps are allowed.

    Raise `CorruptMessage` or `OffsetOutOfRange`.
    """
    found = []
    try:
        for position, header in iter_batches(batches):
            check_crc(batches, position, header)
            if header.base_offset < expected or header.last_offset_delta < 0:
                raise errors.OffsetOutOfRange(f"{where}: offset {header.base_offset} came, {expected} is next")
            expected = header.next_offset
            found.append((position, header))
    except errors.ProtocolError as error:
        raise errors.CorruptMessage(f"{where}: {error}") from error
    return found


class TooLongForLoop(Exception):
    """The batch takes longer to check than other requests may wait; `check_client_batch` may run on any thread."""


class CheckedBatch(NamedTuple):
    """A client's batch whose records are valid by the rules of `config`; `latest` is their latest timestamp."""

    data: memoryview
    header: BatchHeader
    latest: int
    config: LogConfig


def check_client_batch(
    batch: memoryview, config: LogConfig, now_ms: int, where: str, *, on_loop: bool = False
) -> CheckedBatch:
    """Check the batch and each of its records, and recompress it if the topic has a codec of its own.

    Stricter than Kafka where a record would stop consumers: offset deltas are 0, 1, 2, ..., lengths not below -1, names
    of headers UTF-8, and nothing follows the end of compressed data.

    Raise `MessageTooLarge`, `CorruptMessage`, `InvalidRecord`, `InvalidTimestamp` or `UnsupportedCompressionType`;
    if single records are invalid, `RefusedRecords` names them. With `on_loop`, `TooLongForLoop` if codecs would take
    more than a millisecond.
    """
    if len(batch) > config.max_message_bytes:
        raise errors.MessageTooLarge(
            f"{where}: a batch of {len(batch)} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    header = read_single(batch, where)
    attributes = header.attributes
    if attributes & _CONTROL:
        raise errors.InvalidRecord(f"{where}: attributes {attributes:#06x}: a client may not write control batches")
    codec = attributes & _CODEC
    if codec > Compression.ZSTD:
        raise errors.UnsupportedCompressionType(f"{where}: compression codec {codec} does not exist")
    if header.producer_id >= 0:
        if header.base_sequence < 0:
            raise errors.InvalidRecord(f"{where}: producer {header.producer_id} without a sequence")
    elif attributes & _TRANSACTIONAL:
        raise errors.InvalidRecord(f"{where}: a transactional batch without a producer id")
    wanted = _wanted_codec(config, codec)
    if not codec and wanted is None:
        latest = _check_records(batch, HEADER_SIZE, header, config, now_ms, where)
        return CheckedBatch(batch, header, latest, config)
    if on_loop and wanted is not None and len(batch) > _RECOMPRESSED_ON_LOOP:
        raise TooLongForLoop
    records = _decompressed(batch, header, where, on_loop=on_loop)
    latest = _check_records(records, 0, header, config, now_ms, where)
    if wanted is None:
        return CheckedBatch(batch, header, latest, config)
    if on_loop and len(records) > _RECOMPRESSED_ON_LOOP:
        raise TooLongForLoop
    stored = _recompressed(batch, records, header, wanted, config)
    if len(stored) > config.max_message_bytes:
        raise errors.MessageTooLarge(
            f"{where}: a batch of {len(stored)} bytes in the topic's compression, max.message.bytes is "
            f"{config.max_message_bytes}"
        )
    return CheckedBatch(stored, read_header(stored), latest, config)


def stamp_client_batch(checked: CheckedBatch, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """Return the batch to store and its header; wrong timestamps are stamped in place."""
    batch, header, latest, config = checked
    if config.log_append_time:
        stamp_timestamp(batch, 0, header, TIMESTAMP_LOG_APPEND, now_ms)
    elif header.max_timestamp == latest and not header.attributes & _LOG_APPEND_TIME:
        return batch, header
    else:
        stamp_timestamp(batch, 0, header, TIMESTAMP_CREATE, latest)
    return batch, read_header(batch)


def _check_records(data: Buffer, position: int, header: BatchHeader, config: LogConfig, now_ms: int, where: str) -> int:
    """Check every record. Return the latest timestamp, -1 if none has one.

    A record has one reason; one with a wrong timestamp makes the error InvalidTimestamp, as in Kafka.
    """
    stamped = config.log_append_time or header.attributes & _LOG_APPEND_TIME
    try:
        latest, refused, named = validate_records(
            data,
            position,
            header.count,
            header.base_timestamp,
            "compact" in config.cleanup_policy,
            now_ms,
            _UNLIMITED if stamped else config.message_timestamp_before_max_ms,
            _UNLIMITED if stamped else config.message_timestamp_after_max_ms,
        )
    except errors.CorruptRecord as error:
        raise errors.InvalidRecord(f"{where}: {error}") from error
    if not refused and not stamped:
        return latest
    reasons = {index: _reason(problem, timestamp, config, now_ms) for index, problem, timestamp in named}
    cls: type[RefusedRecords] = InvalidRecords
    if any(problem == OUT_OF_RANGE for _index, problem, _timestamp in named):
        cls = InvalidTimestamps
    if header.attributes & _LOG_APPEND_TIME:
        latest = header.max_timestamp  # of every record
        wrong = _claim_problem(header, config, now_ms)
        if wrong is not None:
            reasons = {index: reasons.get(index, wrong) for index in range(min(header.count, MOST_NAMED))}
            cls, refused = InvalidTimestamps, header.count
    if not refused:
        return latest
    first = min(reasons)
    text = f"{where}: {refused} of the batch's {header.count} records cannot be taken"
    raise cls(f"{text}; number {first}: {reasons[first]}", reasons)


def _reason(problem: int, timestamp: int, config: LogConfig, now_ms: int) -> str:
    if problem == KEYLESS:
        return "a record without a key; a compacted topic needs one"
    ahead = timestamp - now_ms
    if ahead > config.message_timestamp_after_max_ms:
        limit = f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}"
        return f"timestamp {timestamp} is {ahead} ms ahead of the broker, {limit}"
    limit = f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}"
    return f"timestamp {timestamp} is {-ahead} ms behind the broker, {limit}"


def _claim_problem(header: BatchHeader, config: LogConfig, now_ms: int) -> str | None:
    """Return what is wrong with a batch that claims to have the broker's time (LogAppendTime), or None."""
    timestamp = header.max_timestamp
    if config.log_append_time:
        return "the batch claims the broker's time (LogAppendTime), which only the broker may set"
    if timestamp == -1:
        return "the batch claims the broker's time (LogAppendTime) and has none"
    behind = now_ms - timestamp
    if behind > config.message_timestamp_before_max_ms or -behind > config.message_timestamp_after_max_ms:
        return _reason(OUT_OF_RANGE, timestamp, config, now_ms)
    return None


def _decompressed(batch: memoryview, header: BatchHeader, where: str, *, on_loop: bool) -> Buffer:
    codec, packed = header.codec, batch[HEADER_SIZE:]
    if codec == Compression.NONE:
        return packed
    limit = _DECOMPRESSED_ON_LOOP[codec] if on_loop else MAX_DECOMPRESSED
    if on_loop and 2 * len(packed) > limit:
        raise TooLongForLoop
    try:
        if codec == Compression.LZ4 and lz4_blocks_depend(packed):
            raise errors.CorruptRecord("lz4 blocks that depend on each other, which Java's clients cannot read")
        return decompress(codec, packed, limit)
    except errors.CorruptRecord as error:
        if on_loop and isinstance(error, DecompressedTooLarge):
            raise TooLongForLoop from None
        raise errors.InvalidRecord(f"{where}: {error}") from error


def _wanted_codec(config: LogConfig, sent: int) -> Compression | None:
    """Return the topic's codec if it differs from the batch's, otherwise None."""
    name = config.compression_type
    if name == "producer":
        return None
    codec = Compression.NONE if name == "uncompressed" else Compression.from_name(name)
    return None if codec == sent else codec


def _recompressed(
    batch: memoryview, records: Buffer, header: BatchHeader, codec: Compression, config: LogConfig
) -> memoryview:
    """Return the batch with its records compressed by the topic's codec; records are one block and are not decoded."""
    packed = compress(codec, records, _level(codec, config))
    stored = memoryview(bytearray(HEADER_SIZE + len(packed)))
    stored[:HEADER_SIZE] = batch[:HEADER_SIZE]
    stored[HEADER_SIZE:] = packed
    struct.pack_into(">i", stored, _LENGTH_AT, len(stored) - _LENGTH_AT - 4)
    struct.pack_into(">h", stored, _ATTRIBUTES_AT, header.attributes & ~_CODEC | codec)
    stamp_timestamp(stored, 0, read_header(stored), header.timestamp_type, header.max_timestamp)
    return stored


def _level(codec: Compression, config: LogConfig) -> int | None:
    levels = {
        Compression.GZIP: config.compression_gzip_level if config.compression_gzip_level > 0 else None,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)
