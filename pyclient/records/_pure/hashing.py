"""The hash that assigns keys to partitions."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from pyclient.records._pure.column_rows import BinaryRows
from pyclient.records.checks import as_bytes
from pyclient.records.columns import BinaryColumn, Buffer


def murmur2(data: Buffer) -> int:
    """Return the 32-bit hash (signed) by which Kafka's clients choose a key's partition."""
    content = bytes(as_bytes(data, "key"))
    size = len(content)
    words = size // 4 * 4
    value = 0x9747B28C ^ size
    for word in struct.unpack_from(f"<{words // 4}I", content):
        word = word * 0x5BD1E995 & 0xFFFFFFFF
        value = (value * 0x5BD1E995 ^ (word ^ word >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if words < size:
        value = (value ^ int.from_bytes(content[words:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    value ^= value >> 15
    return value - (value >> 31 << 32)


def partition_for_key(key: Buffer, partitions: int) -> int:
    """Return the partition of `key` in a topic with `partitions`, the same as in the Java client."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def rows_by_partition(keys: BinaryColumn | Sequence[Any], partitions: int) -> dict[int, memoryview]:
    """Group the row numbers (int32, ascending) of a column or sequence of keys by the partition of the key.

    Rows whose key is null or invalid are under -1.
    """
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    found: dict[int, array[int]] = {}
    for row, partition in enumerate(_choose(keys, partitions)):
        found.setdefault(partition, array("i")).append(row)
    return {partition: memoryview(found[partition]) for partition in sorted(found)}


def _choose(keys: BinaryColumn | Sequence[Any], partitions: int) -> Iterator[int]:
    column = BinaryRows(keys, "key") if isinstance(keys, BinaryColumn) else None
    for row in range(len(keys) if column is None else column.length):  # type: ignore[arg-type]
        try:
            key = keys[row] if column is None else column.row(row)  # type: ignore[index]
            yield -1 if key is None else partition_for_key(key, partitions)
        except (TypeError, ValueError):
            yield -1
