"""Columns of records as plain buffers in Arrow's binary layout, used by both implementations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Buffer = bytes | bytearray | memoryview

MAX_COLUMN_DATA: Final = 2**31 - 1  # the limit of 32-bit offsets


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """A column of `length` byte strings: row i is `data[offsets[start + i]:offsets[start + i + 1]]`.

    `offsets` are 32-bit integers in the machine's byte order. Row i is null if bit `start + i` (least significant
    first) of `validity` is 0; without `validity` no row is null.
    """

    offsets: Buffer
    data: Buffer
    validity: Buffer | None
    length: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class HeaderColumns:
    """The headers of many records: row i has `names` and `values` from `offsets[i]` up to `offsets[i + 1]` (int32)."""

    offsets: Buffer
    names: BinaryColumn
    values: BinaryColumn


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Many records, one buffer per field. All integers are in the machine's byte order.

    `topic_ids` (int32) are indices into the names in `topics`; `partitions` are int32, `timestamp_types` int8,
    `offsets` and `timestamps` (epoch ms) int64.
    """

    count: int
    topics: tuple[str, ...]
    topic_ids: Buffer
    partitions: Buffer
    offsets: Buffer
    timestamps: Buffer
    timestamp_types: Buffer
    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumns
