"""Check a segment's batches: each must be whole, with a right checksum and the next offsets."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log.segment import Segment
from pyclient.broker_embedded.log.segment_file import DamagedSegment
from pyclient.broker_embedded.log.steps import Blocking, Steps, run_here
from pyclient.records import HEADER_SIZE, BatchHeader, check_crc, read_header

_READ_BYTES: Final = 1 << 20
LARGE: Final = 256 << 10
"""Bytes from which on a batch's checksum is computed on the side thread, without the GIL."""


class Checking:
    """Checks the batches of a segment from the one at `position` on. Its read buffer is kept between batches."""

    def __init__(self, segment: Segment, position: int) -> None:
        self._segment = segment
        self._position = position
        self._expected = segment.base_offset
        self._buffer = b""
        self._start = position  # of the buffer

    def next_batch(self) -> Steps[tuple[int, BatchHeader] | None]:
        """Return (position, header) of the next batch, None at the end. Raise `DamagedSegment` if it is cut, changed or
        misplaced."""
        segment, position = self._segment, self._position
        if position >= segment.size:
            return None
        try:
            if self._start + len(self._buffer) < min(position + HEADER_SIZE, segment.size):
                yield from self._read(_READ_BYTES)
            header = read_header(self._buffer, position - self._start)
            end = position + header.size
            if end > segment.size:
                raise errors.CorruptRecord(f"a batch of {header.size} bytes, {segment.size - position} are there")
            if (
                header.base_offset < self._expected
                or header.last_offset_delta < 0
                or not segment.fits(header.last_offset)
            ):
                raise errors.CorruptRecord(f"a batch at offset {header.base_offset}, {self._expected} would be next")
            if self._start + len(self._buffer) < end:
                yield from self._read(max(header.size, _READ_BYTES))
            if header.size < LARGE:
                check_crc(self._buffer, position - self._start, header)
            else:
                yield Blocking(partial(check_crc, self._buffer, position - self._start, header))
        except errors.ProtocolError as error:
            raise DamagedSegment(segment.log.path, position, error) from error
        self._position, self._expected = end, header.next_offset
        return position, header

    def _read(self, length: int) -> Steps[None]:
        file = self._segment.log
        file.fileno()  # opened here: the side thread must not
        file.retain()
        try:
            self._buffer = yield Blocking(partial(file.pread, length, self._position))
        finally:
            file.release()
        self._start = self._position


def whole_batches(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches from `position` on. Raise `DamagedSegment` at one that is cut, changed or misplaced."""
    checking = Checking(segment, position)
    while (found := run_here(checking.next_batch())) is not None:
        yield found
