"""What may be appended: the one pass over a batch's header and checksum, and the stamps that a leader puts on it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log.config import LogConfig
from pyclient.broker_embedded.log.filesystem import Buffer
from pyclient.records import (
    HEADER_SIZE,
    BatchHeader,
    Compression,
    check_crc,
    compress,
    decode_batch,
    decompress,
    iter_batches,
    read_header,
    stamp_timestamp,
)
from pyclient.types import TIMESTAMP_CREATE, TIMESTAMP_LOG_APPEND

_CODEC: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_NOT_FROM_CLIENTS: Final = 0xFFE0  # control, delete horizon, and bits without a meaning
_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 21
_UNLIMITED: Final = 2**63 - 1


class RefusedRecords(errors.BrokerError):
    """Records because of which the broker refuses their batch; `records` says why, by their index in it (KIP-467)."""

    def __init__(self, text: str, records: Mapping[int, str]) -> None:
        super().__init__(text)
        self.records = records


class InvalidRecords(RefusedRecords, errors.InvalidRecord):
    """Some records break a rule of the topic."""


class InvalidTimestamps(RefusedRecords, errors.InvalidTimestamp):
    """Some records' times are out of range; others may break other rules."""


def writable(batch: Buffer) -> memoryview:
    """The batch's bytes, to be stamped in place; a copy only where they cannot be."""
    view = memoryview(batch)
    return memoryview(bytearray(view)) if view.readonly else view


def read_single(batch: memoryview, where: str) -> BatchHeader:
    """The header of what must be exactly one whole batch with a right checksum.

    Raises `CorruptMessage` or `InvalidRecord`.
    """
    if len(batch) > _MAGIC_AT and batch[_MAGIC_AT] < 2:
        raise errors.InvalidRecord(
            f"{where}: record format {batch[_MAGIC_AT]} is no longer taken, only batches (format 2)"
        )
    try:
        header = read_header(batch)
        if header.size > len(batch):
            raise errors.InvalidRecord(f"{where}: {len(batch)} bytes of a batch of {header.size}")
        if header.size < len(batch):
            raise errors.InvalidRecord(f"{where}: more than one batch; a request carries exactly one for a partition")
        check_crc(batch, 0, header)
    except errors.TruncatedMessage as error:
        raise errors.InvalidRecord(f"{where}: not one whole batch: {error}") from error
    except errors.ProtocolError as error:
        raise errors.CorruptMessage(f"{where}: {error}") from error
    if header.count < 1 or header.count != header.last_offset_delta + 1:
        raise errors.InvalidRecord(
            f"{where}: a batch of {header.count} records that ends {header.last_offset_delta} behind its first"
        )
    return header


def check_copies(batches: memoryview, expected: int, where: str) -> list[tuple[int, BatchHeader]]:
    """(position, header) of the whole batches that a leader sent. They must follow offset `expected`; gaps are fine.

    Raises `CorruptMessage` or `OffsetOutOfRange`.
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


def check_client_batch(batch: memoryview, config: LogConfig, now_ms: int, where: str) -> tuple[memoryview, BatchHeader]:
    """The batch as it is to be stored, and its header. Stamps times in place; recompresses only if the topic says so.

    Raises `MessageTooLarge`, `CorruptMessage`, `InvalidRecord`, `InvalidTimestamp` or `UnsupportedCompressionType`;
    where single records are at fault, `RefusedRecords` names them.
    """
    if len(batch) > config.max_message_bytes:
        raise errors.MessageTooLarge(
            f"{where}: a batch of {len(batch)} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    header = read_single(batch, where)
    attributes = header.attributes & 0xFFFF
    if header.base_offset != 0:
        raise errors.InvalidRecord(f"{where}: a batch with base offset {header.base_offset}; a producer's must be 0")
    if attributes & _NOT_FROM_CLIENTS:
        raise errors.InvalidRecord(f"{where}: attributes {attributes:#06x}: a client may not write control batches")
    if attributes & _CODEC > Compression.ZSTD:
        raise errors.UnsupportedCompressionType(f"{where}: compression codec {attributes & _CODEC} does not exist")
    if header.producer_id >= 0:
        if header.base_sequence < 0 or header.producer_epoch < 0:
            raise errors.InvalidRecord(f"{where}: producer {header.producer_id} without a sequence or an epoch")
    elif attributes & _TRANSACTIONAL:
        raise errors.InvalidRecord(f"{where}: a transactional batch without a producer id")
    if config.compacts or config.message_timestamp_before_max_ms != _UNLIMITED or _is_ahead(header, config, now_ms):
        _check_records(batch, header, config, now_ms, where)
    header = _stamp_time(batch, header, config, now_ms, where)
    if config.compression_type != "producer":
        return _recompress(batch, header, config, where)
    return batch, header


def _is_ahead(header: BatchHeader, config: LogConfig, now_ms: int) -> bool:
    return not config.log_append_time and header.max_timestamp > now_ms + config.message_timestamp_after_max_ms


def _stamp_time(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, where: str) -> BatchHeader:
    from_broker = header.attributes & _LOG_APPEND_TIME
    if config.log_append_time:
        if from_broker:
            raise errors.InvalidTimestamp(
                f"{where}: the batch claims the broker's time (LogAppendTime), which only the broker may set"
            )
        stamp_timestamp(batch, 0, header, TIMESTAMP_LOG_APPEND, now_ms)
        return read_header(batch)
    if _is_ahead(header, config, now_ms):
        raise errors.InvalidTimestamp(f"{where}: {_time_problem(header.max_timestamp, config, now_ms)}")
    if not from_broker:
        return header
    if header.max_timestamp < 0:
        raise errors.InvalidTimestamp(f"{where}: the batch claims the broker's time (LogAppendTime) and has none")
    stamp_timestamp(batch, 0, header, TIMESTAMP_CREATE, header.max_timestamp)
    return read_header(batch)


def _check_records(batch: memoryview, header: BatchHeader, config: LogConfig, now_ms: int, where: str) -> None:
    """The rules that need each record: keys on compacted topics, and times that are out of range.

    A record is refused for one reason; one with a wrong time makes InvalidTimestamp of it all, as in Kafka.
    """
    try:
        records = decode_batch(batch, 0, header, "", -1)
    except errors.CorruptRecord as error:
        raise errors.InvalidRecord(f"{where}: {error}") from error
    refused: dict[int, str] = {}
    cls: type[RefusedRecords] = InvalidRecords
    for index, record in enumerate(records):
        if config.compacts and record.key is None:
            refused[index] = "a record without a key; a compacted topic needs one"
        elif not config.log_append_time and (problem := _time_problem(record.timestamp_ms, config, now_ms)):
            refused[index], cls = problem, InvalidTimestamps
    if refused:
        first = min(refused)
        text = f"{where}: {len(refused)} of the batch's {header.count} records cannot be taken"
        raise cls(f"{text}; number {first}: {refused[first]}", refused)


def _time_problem(timestamp_ms: int, config: LogConfig, now_ms: int) -> str | None:
    """What is wrong with a record's time; None if nothing is, or it has none."""
    ahead = timestamp_ms - now_ms
    if ahead > config.message_timestamp_after_max_ms:
        limit = f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}"
        return f"timestamp {timestamp_ms} is {ahead} ms ahead of the broker, {limit}"
    if timestamp_ms >= 0 and -ahead > config.message_timestamp_before_max_ms:
        limit = f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}"
        return f"timestamp {timestamp_ms} is {-ahead} ms behind the broker, {limit}"
    return None


def _recompress(
    batch: memoryview, header: BatchHeader, config: LogConfig, where: str
) -> tuple[memoryview, BatchHeader]:
    """The same records in the topic's codec: they are one block, so nothing inside it has to be read."""
    name = config.compression_type
    codec = Compression.NONE if name == "uncompressed" else Compression.from_name(name)
    if header.attributes & _CODEC == codec:
        return batch, header
    try:
        records = decompress(header.codec, batch[HEADER_SIZE:])
    except errors.CorruptRecord as error:
        raise errors.InvalidRecord(f"{where}: {error}") from error
    packed = compress(codec, records, _level(codec, config))
    stored = memoryview(bytearray(HEADER_SIZE + len(packed)))
    stored[:HEADER_SIZE] = batch[:HEADER_SIZE]
    stored[HEADER_SIZE:] = packed
    struct.pack_into(">i", stored, _LENGTH_AT, len(stored) - _LENGTH_AT - 4)
    struct.pack_into(">h", stored, _ATTRIBUTES_AT, header.attributes & ~_CODEC | codec)
    stamp_timestamp(stored, 0, read_header(stored), header.timestamp_type, header.max_timestamp)
    return stored, read_header(stored)


def _level(codec: Compression, config: LogConfig) -> int | None:
    levels = {
        Compression.GZIP: config.compression_gzip_level if config.compression_gzip_level > 0 else None,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return levels.get(codec)
