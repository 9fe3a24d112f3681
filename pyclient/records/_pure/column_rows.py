"""Read rows from columns; every offset is checked, because the columns are the caller's."""

from __future__ import annotations

from typing import Any

from pyclient.records.columns import BinaryColumn, Buffer, HeaderColumns


class BinaryRows:
    """The rows of one column."""

    def __init__(self, column: BinaryColumn, name: str) -> None:
        end = column.start + column.length
        self.name = name
        self.length = column.length
        self.start = column.start
        self.offsets = memoryview(column.offsets).cast("B").cast("i")
        self.data = memoryview(column.data).cast("B")
        self.validity = None if column.validity is None else memoryview(column.validity).cast("B")
        bits = end if self.validity is None else 8 * len(self.validity)
        if column.start < 0 or column.length < 0 or end >= len(self.offsets) or end > bits:
            raise ValueError(f"the {name} column says {column.length} rows from {column.start} and has fewer")

    def row(self, number: int) -> bytes | None:
        """Return one row. Raise `ValueError` if it is not in the data."""
        at = self.start + number
        if self.validity is not None and not self.validity[at >> 3] >> (at & 7) & 1:
            return None
        begin, end = self.offsets[at], self.offsets[at + 1]
        if not 0 <= begin <= end <= len(self.data):
            raise ValueError(f"row {number} of the {self.name} column is not in its data")
        return bytes(self.data[begin:end])


class _Headers:
    def __init__(self, headers: HeaderColumns, length: int) -> None:
        self.offsets = memoryview(headers.offsets).cast("B").cast("i")
        self.names = BinaryRows(headers.names, "header name")
        self.values = BinaryRows(headers.values, "header value")
        if len(self.offsets) <= length:
            raise ValueError("the header column has fewer rows than the value column")

    def row(self, number: int) -> list[tuple[str, bytes | None]]:
        begin, end = self.offsets[number], self.offsets[number + 1]
        if not 0 <= begin <= end <= min(self.names.length, self.values.length):
            raise ValueError(f"row {number} of the header column is not in its data")
        try:
            return [((self.names.row(at) or b"").decode(), self.values.row(at)) for at in range(begin, end)]
        except UnicodeDecodeError:
            raise ValueError(f"row {number} of the header column has a name that is not UTF-8") from None
        except ValueError:
            raise ValueError(f"row {number} of the header column is not in its data") from None


class ColumnRows:
    """The rows of several columns."""

    def __init__(
        self,
        timestamps: int | Buffer,
        keys: BinaryColumn | None,
        values: BinaryColumn,
        headers: HeaderColumns | None,
    ) -> None:
        self._timestamp = timestamps if isinstance(timestamps, int) else 0
        self._timestamps = None if isinstance(timestamps, int) else memoryview(timestamps).cast("B").cast("q")
        self._values = BinaryRows(values, "value")
        self._keys = None if keys is None else BinaryRows(keys, "key")
        self._headers = None if headers is None else _Headers(headers, values.length)
        if self._keys is not None and self._keys.length < values.length:
            raise ValueError("the key column has fewer rows than the value column")
        if self._timestamps is not None and len(self._timestamps) < values.length:
            raise ValueError("the timestamp column has fewer rows than the value column")

    def row(self, number: int) -> tuple[int, bytes | None, bytes | None, Any]:
        """Return timestamp, key, value and headers of one row."""
        if not 0 <= number < self._values.length:
            raise ValueError(f"row {number} is not in columns of {self._values.length} rows")
        return (
            self._timestamp if self._timestamps is None else self._timestamps[number],
            None if self._keys is None else self._keys.row(number),
            self._values.row(number),
            None if self._headers is None else self._headers.row(number),
        )
