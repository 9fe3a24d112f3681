"""Append records to a batch under construction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyclient.records._pure.column_rows import ColumnRows
from pyclient.records._pure.encoding import HeaderPairs, encode_record
from pyclient.records._pure.record import RecordHandle
from pyclient.records.batch import CONTROL, HEADER_SIZE, MAX_BATCH_SIZE, TRANSACTIONAL, seal_batch
from pyclient.records.checks import no_such_row, rows_outside
from pyclient.records.columns import BinaryColumn, Buffer, HeaderColumns
from pyclient.records.compression import Compression
from pyclient.records.varints import wrap64


class BatchBuilder:
    """Appends records to the caller's buffer, after space for the header, until one does not fit.

    `batch` is the object that the handles refer to. Raise `ValueError` for a buffer too small for a header or too large
    for a batch's length field. `full` is set once a record did not fit. Not thread-safe.
    """

    __slots__ = (
        "_batch", "_buffer", "_closed", "_handle_type", "base_timestamp", "count", "full", "max_timestamp", "size",
    )  # fmt: skip

    count: int
    size: int
    base_timestamp: int
    max_timestamp: int

    def __init__(self, buffer: bytearray, batch: object, handle_type: type[RecordHandle] = RecordHandle) -> None:
        if not isinstance(buffer, bytearray) or not issubclass(handle_type, RecordHandle):
            raise TypeError("a BatchBuilder needs a bytearray and a RecordHandle class")
        if not HEADER_SIZE <= len(buffer) <= MAX_BATCH_SIZE:
            raise ValueError(f"a buffer of {len(buffer)} bytes cannot hold a batch")
        self._buffer = memoryview(buffer)  # also prevents resizing of the buffer
        self._batch = batch
        self._handle_type = handle_type
        self.count = 0
        self.size = HEADER_SIZE
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.full = False
        self._closed = False

    def close(self) -> None:
        """Refuse all further records: `append` returns None."""
        self._closed = True

    def append(
        self, timestamp_ms: int, key: Buffer | None, value: Buffer | None, headers: HeaderPairs | None
    ) -> RecordHandle | None:
        """Append one record and return its handle; None if it does not fit. `headers`: (str, bytes-like or None) pairs.

        Raise `TypeError` for values of other types.
        """
        if not self._add(timestamp_ms, key, value, headers):
            return None
        handle = self._handle_type.__new__(self._handle_type)
        handle.batch = self._batch
        handle.index = self.count - 1
        handle.timestamp_ms = timestamp_ms
        return handle

    def append_many(
        self,
        timestamp_ms: int | Sequence[int],
        keys: Sequence[Buffer | None] | None,
        values: Sequence[Buffer | None],
        headers: Sequence[HeaderPairs | None] | None,
        start: int,
        stop: int,
        rows: Buffer | None = None,
    ) -> int:
        """Append `values[start:stop]` with their keys, headers and timestamps; return how many were appended.

        With `rows` (int32) append the records that `rows[start:stop]` number. Raise `TypeError` if the first record is
        invalid, `ValueError` if it does not exist; stop before a later record of that kind.
        """
        shortest = min(len(column) for column in (keys, values, headers) if column is not None)
        times = None if isinstance(timestamp_ms, int) else timestamp_ms
        if times is not None:
            shortest = min(shortest, len(times))
        numbers = None if rows is None else memoryview(rows).cast("B").cast("i")
        available = shortest if numbers is None else len(numbers)
        if not 0 <= start <= stop <= available:
            raise rows_outside(start, stop, available)
        at = start
        try:
            while at < stop:
                row = at if numbers is None else numbers[at]
                if not 0 <= row < shortest:
                    raise no_such_row(row, shortest)
                if not self._add(
                    timestamp_ms if times is None else times[row],  # type: ignore[arg-type]
                    None if keys is None else keys[row],
                    values[row],
                    None if headers is None else headers[row],
                ):
                    break
                at += 1
        except (TypeError, ValueError, OverflowError):
            if at == start:
                raise
        return at - start

    def append_columns(
        self,
        timestamps: int | Buffer,
        keys: BinaryColumn | None,
        values: BinaryColumn,
        headers: HeaderColumns | None,
        start: int,
        stop: int,
        rows: Buffer | None = None,
    ) -> int:
        """Append rows `start` to `stop` of the columns, or the rows that `rows[start:stop]` (int32) number.

        `timestamps` is one int for all, or a buffer of int64. Return how many rows were appended. Raise `ValueError`
        for inconsistent columns; stop before an invalid row after the first.
        """
        column = ColumnRows(timestamps, keys, values, headers)
        numbers = None if rows is None else memoryview(rows).cast("B").cast("i")
        available = values.length if numbers is None else len(numbers)
        if not 0 <= start <= stop <= available:
            raise rows_outside(start, stop, available)
        at = start
        try:
            while at < stop and self._add(*column.row(at if numbers is None else numbers[at])):
                at += 1
        except ValueError:
            if at == start:
                raise
        return at - start

    def _add(self, timestamp_ms: int, key: Any, value: Any, headers: HeaderPairs | None) -> bool:
        if not -(2**63) <= timestamp_ms < 2**63:
            raise OverflowError("a timestamp holds 64 bits")
        if headers is not None and type(headers) not in (tuple, list):
            headers = tuple(headers)  # iterating may run Python code, even another append
        base = timestamp_ms if self.count == 0 else self.base_timestamp
        record = encode_record(wrap64(timestamp_ms - base), self.count, key, value, headers)
        end = self.size + len(record)
        if self._closed:
            return False
        if end > len(self._buffer):
            self.full = True
            return False
        self._buffer[self.size : end] = record
        self.size = end
        self.max_timestamp = timestamp_ms if self.count == 0 else max(self.max_timestamp, timestamp_ms)
        self.base_timestamp = base
        self.count += 1
        return True

    def seal(
        self,
        *,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
    ) -> memoryview:
        """Return the whole batch with its CRC: a writable view, of the buffer itself if not compressed.

        May be called again. Raise `ValueError` without records.
        """
        flags = (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
        return seal_batch(
            self._buffer, self.size, self.count, self.base_timestamp, self.max_timestamp, compression, level,
            producer_id, producer_epoch, base_sequence, flags,
        )  # fmt: skip
