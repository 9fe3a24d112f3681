"""Convert columns from and to lists for tests."""

from __future__ import annotations

from array import array
from typing import Any

from hypothesis import strategies as st

from pyclient.records import BinaryColumn

SMALL = st.one_of(st.none(), st.binary(max_size=40))
HEADERS = st.lists(st.tuples(st.text("abé", max_size=4), SMALL), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(st.integers(-1, 2**41), SMALL, SMALL, HEADERS), max_size=20)


def column(values: list[bytes | None], *, start: int = 0, validity: bool = True) -> BinaryColumn:
    """Build a column with `start` unrelated rows before it, as in a slice of an Arrow array."""
    rows = [b"junk"] * start + values
    offsets, data, bits = array("i", [0]), bytearray(), 0
    for number, value in enumerate(rows):
        data += value or b""
        bits |= (value is not None) << number
        offsets.append(len(data))
    packed = bits.to_bytes(len(rows) // 8 + 1, "little") if validity else None
    return BinaryColumn(offsets.tobytes(), bytes(data), packed, len(values), start)


def to_list(part: BinaryColumn) -> list[bytes | None]:
    offsets = memoryview(part.offsets).cast("B").cast("i")
    data = bytes(part.data)
    return [
        None
        if part.validity is not None and not part.validity[row >> 3] >> (row & 7) & 1
        else data[offsets[row] : offsets[row + 1]]
        for row in range(part.start, part.start + part.length)
    ]


def integers(buffer: Any, kind: str) -> list[int]:
    return memoryview(buffer).cast("B").cast(kind).tolist()  # type: ignore[no-any-return]


def all_bytes(columns: Any) -> Any:
    """Return every byte of the columns, to compare implementations."""
    binaries = (columns.keys, columns.values, columns.headers.names, columns.headers.values)
    fixed = ("topic_ids", "partitions", "offsets", "timestamps", "timestamp_types")
    return (
        columns.count,
        columns.topics,
        [bytes(getattr(columns, name)) for name in fixed],
        [
            (bytes(part.offsets), bytes(part.data), part.validity and bytes(part.validity), part.length, part.start)
            for part in binaries
        ],
        bytes(columns.headers.offsets),
    )
