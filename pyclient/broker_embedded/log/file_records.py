"""The `.log` file of a segment: contiguous batches, found by walking through their headers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.filesystem import File
from pyclient.broker_embedded.log.incremental_task import BlockingCall, IncrementalTask, run_here
from pyclient.records import HEADER_SIZE, BatchHeader, check_crc, read_header

_WALK_BYTES: Final = 8192
_POSITION_FIELDS: Final = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_MAGIC_AT: Final = 16
_LENGTH_END: Final = 12  # the length counts the bytes after itself
_INT_MAX: Final = 2**31 - 1


class DamagedSegment(errors.CorruptMessage):
    """Invalid bytes at a position of a segment file; the file and position are in the text and in attributes.

    `unfinished` is True if a batch begins there whose end is not in the file. `intact` are the bytes of a checked read
    that come before the position.
    """

    def __init__(self, path: str, position: int, reason: object, *, unfinished: bool = False, intact: int = 0) -> None:
        super().__init__(f"{path}: damaged at byte {position}: {reason}")
        self.path = path
        self.position = position
        self.unfinished = unfinished
        self.intact = intact


class LogOffsetPosition(NamedTuple):
    """The place of a batch: its position, the position after it, its first and its last offset."""

    position: int
    end: int
    base_offset: int
    last_offset: int


class FileRecords:
    """The batches in a `.log` file from `base_offset` on; `size` is the bytes of whole ones.

    The file is created by the first append.
    """

    __slots__ = ("base_offset", "file", "size")

    def __init__(self, file: File, base_offset: int, size: int) -> None:
        self.file = file
        self.base_offset = base_offset
        self.size = size

    def fits(self, last_offset: int) -> bool:
        """Return True if an offset can be stored relative to the base."""
        return last_offset - self.base_offset <= _INT_MAX

    def walk(
        self, position: int, *, chunk: int = _WALK_BYTES, expected: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of every batch from the one at `position` on. Raise `DamagedSegment`.

        `expected` is the lowest valid offset of the first one, by default the segment's base.
        """
        buffer, start = b"", position
        expected = self.base_offset if expected is None else expected
        while position < self.size:
            if position - start + HEADER_SIZE > len(buffer):
                buffer, start = self.file.pread(min(chunk, self.size - position), position), position
            try:
                header = read_header(buffer, position - start)
            except errors.ProtocolError as error:
                raise DamagedSegment(self.file.path, position, error) from error
            if position + header.size > self.size or header.last_offset_delta < 0:
                raise DamagedSegment(self.file.path, position, f"a batch of {header.size} bytes does not fit")
            if header.base_offset < expected or not self.fits(header.last_offset):
                found = f"a batch at offset {header.base_offset}"
                raise DamagedSegment(self.file.path, position, f"{found}, {expected} would be next")
            yield position, header
            position += header.size
            expected = header.next_offset

    def batch_positions(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield the same batches as (position, end position, base offset, last offset), without `BatchHeader`s.

        Twice as fast: docs/measurements.md, "Opening and recovery of logs".
        """
        buffer, start = b"", position
        expected, most = self.base_offset, self.base_offset + _INT_MAX
        while position < self.size:
            at = position - start
            if at + HEADER_SIZE > len(buffer):
                buffer, start, at = self.file.pread(min(_WALK_BYTES, self.size - position), position), position, 0
            if at + HEADER_SIZE > len(buffer) or buffer[at + _MAGIC_AT] != 2:
                break
            base_offset, length, last_delta = _POSITION_FIELDS.unpack_from(buffer, at)
            end = position + length + _LENGTH_END
            if end > self.size or length < HEADER_SIZE - _LENGTH_END or last_delta < 0:
                break
            last_offset = base_offset + last_delta
            if base_offset < expected or last_offset > most:
                break
            yield position, end, base_offset, last_offset
            position, expected = end, last_offset + 1
        for at, header in self.walk(position, expected=expected):  # old formats, and damage
            yield at, at + header.size, header.base_offset, header.last_offset

    def read_batch(self, position: int, header: BatchHeader) -> bytes:
        """Return all bytes of one batch."""
        return self.file.pread(header.size, position)

    def __repr__(self) -> str:
        return f"<FileRecords {self.file.path} size={self.size}>"


_READ_BYTES: Final = 1 << 20
LARGE: Final = 256 << 10
"""Bytes from which on a batch's checksum is computed on the disk thread, without the GIL."""


class BatchChecker:
    """Checks the batches of a segment from the one at `position` on. Its read buffer is kept between batches."""

    def __init__(self, records: FileRecords, position: int) -> None:
        self._records = records
        self._position = position
        self._expected = records.base_offset
        self._buffer = b""
        self._start = position  # of the buffer

    def next_batch(self) -> IncrementalTask[tuple[int, BatchHeader] | None]:
        """Return (position, header) of the next batch, None at the end. Raise `DamagedSegment` if it is
        truncated, changed or misplaced."""
        records, position = self._records, self._position
        if position >= records.size:
            return None
        try:
            if self._start + len(self._buffer) < min(position + HEADER_SIZE, records.size):
                yield from self._read(_READ_BYTES)
            header = read_header(self._buffer, position - self._start)
            end = position + header.size
            if end > records.size:
                raise errors.TruncatedMessage(f"a batch of {header.size} bytes, {records.size - position} are there")
            if (
                header.base_offset < self._expected
                or header.last_offset_delta < 0
                or not records.fits(header.last_offset)
            ):
                raise errors.CorruptRecord(f"a batch at offset {header.base_offset}, {self._expected} would be next")
            if self._start + len(self._buffer) < end:
                yield from self._read(max(header.size, _READ_BYTES))
            if header.size < LARGE:
                check_crc(self._buffer, position - self._start, header)
            else:
                yield BlockingCall(partial(check_crc, self._buffer, position - self._start, header))
        except errors.ProtocolError as error:
            unfinished = isinstance(error, errors.TruncatedMessage)
            raise DamagedSegment(records.file.path, position, error, unfinished=unfinished) from error
        self._position, self._expected = end, header.next_offset
        return position, header

    def _read(self, length: int) -> IncrementalTask[None]:
        file = self._records.file
        file.fileno()  # opened here: the disk thread must not
        file.retain()
        try:
            self._buffer = yield BlockingCall(partial(file.pread, length, self._position))
        finally:
            file.release()
        self._start = self._position


def whole_batches(records: FileRecords, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches from `position` on. Raise `DamagedSegment` at one that is truncated, changed or misplaced."""
    checking = BatchChecker(records, position)
    while (found := run_here(checking.next_batch())) is not None:
        yield found
