"""Build and decode whole batches from and to (key, value) pairs or columns."""

from __future__ import annotations

from collections.abc import Iterable

from pyclient.records.batch import HEADER_SIZE, BatchHeader, stamp_offsets
from pyclient.records.columns import BinaryColumn, Buffer, HeaderColumns, RecordColumns
from pyclient.records.compression import MAX_DECOMPRESSED, Compression
from pyclient.records.implementation import BatchBuilder, ColumnsBuilder, decode_batch, record_size_bound
from pyclient.records.payload import MAX_OFFSET


def build_batch(
    records: Iterable[tuple[Buffer | None, Buffer | None]],
    *,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    control: bool = False,
    transactional: bool = False,
) -> bytes:
    """Build a batch of (key, value) records that all have the timestamp `timestamp_ms` (epoch ms).

    Raise `ValueError` without records.
    """
    rows = list(records)
    room = HEADER_SIZE + sum(record_size_bound(key, value, None) for key, value in rows)
    builder = BatchBuilder(bytearray(room), None)
    builder.append_many(timestamp_ms, [key for key, _ in rows], [value for _, value in rows], None, 0, len(rows))
    batch = builder.seal(
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
    )
    stamp_offsets(batch, 0, base_offset, leader_epoch)
    return bytes(batch)


def decode_key_values(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    topic: str = "",
    partition: int = -1,
    *,
    from_offset: int = 0,
    max_size: int = MAX_DECOMPRESSED,
) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return the records of the batch at `position` as (offset, timestamp in ms, key, value). Raise `CorruptRecord`."""
    records = decode_batch(buffer, position, header, topic, partition, from_offset=from_offset, max_size=max_size)
    return [(record.offset, record.timestamp_ms, record.key, record.value) for record in records]


def decode_columns(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    topic: str = "",
    partition: int = -1,
    *,
    from_offset: int = 0,
    to_offset: int = MAX_OFFSET,
    max_size: int = MAX_DECOMPRESSED,
) -> RecordColumns:
    """Return the records of one batch as columns; for many batches use `ColumnsBuilder`. Raise `CorruptRecord`."""
    columns = ColumnsBuilder()
    columns.add(
        buffer, position, header, topic, partition, from_offset=from_offset, to_offset=to_offset, max_size=max_size
    )
    return columns.finish()


def encode_columns(
    values: BinaryColumn,
    *,
    timestamps: int | Buffer,
    keys: BinaryColumn | None = None,
    headers: HeaderColumns | None = None,
    compression: Compression = Compression.NONE,
    level: int | None = None,
) -> memoryview:
    """Encode all rows of the columns as one batch; `timestamps` (epoch ms) is one int for all or a buffer of int64.

    Raise `ValueError` for inconsistent columns.
    """
    binaries = [column for column in (keys, values) if column is not None]
    if headers is not None:
        binaries += [headers.names, headers.values]
    room = HEADER_SIZE + sum(len(memoryview(column.data).cast("B")) + 36 * column.length for column in binaries)
    builder = BatchBuilder(bytearray(room), None)
    done = builder.append_columns(timestamps, keys, values, headers, 0, values.length)
    if done < values.length:
        builder.append_columns(timestamps, keys, values, headers, done, values.length)
        raise ValueError("the rows of the columns overlap and exceed the size of their data")
    return builder.seal(compression=compression, level=level)
