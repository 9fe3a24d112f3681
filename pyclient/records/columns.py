"""Columns of records as plain buffers in Arrow's binary layout: what both twins take and give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Buffer = bytes | bytearray | memoryview

MAX_COLUMN_DATA: Final = 2**31 - 1  # what 32-bit offsets reach


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """`length` byte strings: row i is `data[offsets[start + i]:offsets[start + i + 1]]`.

    `offsets` are 32-bit integers of the machine's byte order. Row i is null when bit `start + i` (least significant
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
    """Many records, a buffer for each field. All integers are of the machine's byte order.

    `topics` are names and `topic_ids` (int32) say which of them a row has; `partitions` and `timestamp_types` are
    int32 and int8, `offsets` and `timestamps` (epoch ms) int64.
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
