"""The rows of a `send_many` as columns, many of which are appended to a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from pyclient.errors import KafkaError
from pyclient.producer.checks import WRONG_RECORD
from pyclient.records import BatchBuilder, BinaryColumn, HeaderColumns, record_size_bound

WRONG_ROW: Final = (*WRONG_RECORD, ValueError, KafkaError)
"""Raised by a column for a row that cannot be written."""

Row = tuple[Any, Any, Any]  # key, value, headers
Times = int | Sequence[int]

_ROW_OVERHEAD: Final = 32  # maximum bytes of a record without its key, value and headers
_HEADER_OVERHEAD: Final = 10  # maximum bytes of a header without its name and value


class Column(Protocol):
    """Rows that can be appended to a batch many at once."""

    count: int

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        """Append rows from `start` and return how many; raise one of `WRONG_ROW` if the first is invalid."""
        ...

    def bound(self, number: int) -> int:
        """Return the maximum bytes of a row in a batch; may raise one of `WRONG_ROW` if it is invalid."""
        ...

    def row(self, number: int) -> Row:
        """Return one row."""
        ...

    def times(self, start: int, stop: int) -> Times:
        """Return the timestamps (ms) of these rows, or the one they share."""
        ...


class ListColumns:
    """Rows from Python sequences; with `rows` (int32 indexes) only those."""

    def __init__(
        self,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        headers: Sequence[Any] | None,
        times: Times,
        rows: memoryview | None = None,
    ) -> None:
        self.count = len(values) if rows is None else len(rows)
        self._values = values
        self._keys = keys
        self._headers = headers
        self._times = times
        self._rows = rows

    def __len__(self) -> int:
        return self.count

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        return builder.append_many(self._times, self._keys, self._values, self._headers, start, stop, self._rows)

    def bound(self, number: int) -> int:
        return record_size_bound(*self.row(number))

    def row(self, number: int) -> Row:
        number = number if self._rows is None else self._rows[number]
        return (
            None if self._keys is None else self._keys[number],
            self._values[number],
            None if self._headers is None else self._headers[number],
        )

    def times(self, start: int, stop: int) -> Times:
        if isinstance(self._times, int):
            return self._times
        return self._times[start:stop] if self._rows is None else [self._times[row] for row in self._rows[start:stop]]

    def keys(self) -> Sequence[Any] | None:
        """The key column, one for each row."""
        return self._keys

    def key_column(self) -> Sequence[Any] | None:
        """The key column as `rows_by_partition` takes it."""
        return self._keys

    def take(self, rows: memoryview) -> ListColumns:
        """Only these rows."""
        return ListColumns(self._values, self._keys, self._headers, self._times, rows)


class _Cells:
    """Access to single rows of a binary column."""

    def __init__(self, column: BinaryColumn) -> None:
        self._column = column
        self._offsets = memoryview(column.offsets).cast("B").cast("i")

    def size(self, number: int) -> int:
        """Return the size of a row in bytes."""
        at = self._column.start + number
        return self._offsets[at + 1] - self._offsets[at]

    def __getitem__(self, number: int) -> bytes | None:
        column, at = self._column, self._column.start + number
        if column.validity is not None and not column.validity[at >> 3] >> (at & 7) & 1:
            return None
        return bytes(memoryview(column.data)[self._offsets[at] : self._offsets[at + 1]])


class HeaderCells:
    """Access to single rows of a headers column."""

    def __init__(self, headers: HeaderColumns) -> None:
        self._offsets = memoryview(headers.offsets).cast("B").cast("i")
        self._names = _Cells(headers.names)
        self._values = _Cells(headers.values)

    def bound(self, number: int) -> int:
        """Return the maximum bytes of a row's headers in a batch."""
        cells = range(self._offsets[number], self._offsets[number + 1])
        return sum(_HEADER_OVERHEAD + self._names.size(at) + self._values.size(at) for at in cells)

    def __getitem__(self, number: int) -> list[tuple[str, bytes | None]]:
        cells = range(self._offsets[number], self._offsets[number + 1])
        return [((self._names[at] or b"").decode(), self._values[at]) for at in cells]


class BinaryColumns:
    """Rows from buffers in Arrow's layout; with `rows` (int32 indexes) only those."""

    def __init__(
        self,
        values: BinaryColumn,
        keys: BinaryColumn | None,
        times: int | memoryview,
        headers: HeaderColumns | None = None,
        rows: memoryview | None = None,
    ) -> None:
        self.count = values.length if rows is None else len(rows)
        self._values = values
        self._keys = keys
        self._times = times
        self._headers = headers
        self._rows = rows
        self._value_cells = _Cells(values)
        self._key_cells = None if keys is None else _Cells(keys)
        self._header_cells = None if headers is None else HeaderCells(headers)

    def __len__(self) -> int:
        return self.count

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        return builder.append_columns(self._times, self._keys, self._values, self._headers, start, stop, self._rows)

    def bound(self, number: int) -> int:
        number = number if self._rows is None else self._rows[number]
        keys, headers = self._key_cells, self._header_cells
        bound = _ROW_OVERHEAD + self._value_cells.size(number) + (0 if keys is None else keys.size(number))
        return bound if headers is None else bound + headers.bound(number)

    def row(self, number: int) -> Row:
        number = number if self._rows is None else self._rows[number]
        keys, headers = self._key_cells, self._header_cells
        return (
            None if keys is None else keys[number],
            self._value_cells[number],
            None if headers is None else headers[number],
        )

    def times(self, start: int, stop: int) -> Times:
        if isinstance(self._times, int):
            return self._times
        return self._times[start:stop] if self._rows is None else [self._times[row] for row in self._rows[start:stop]]

    def keys(self) -> Sequence[Any] | None:
        """The key column, one for each row."""
        cells = self._key_cells
        return None if cells is None else [cells[number] for number in range(self._values.length)]

    def key_column(self) -> BinaryColumn | None:
        """The key column as `rows_by_partition` takes it."""
        return self._keys

    def take(self, rows: memoryview) -> BinaryColumns:
        """Only these rows."""
        return BinaryColumns(self._values, self._keys, self._times, self._headers, rows)
