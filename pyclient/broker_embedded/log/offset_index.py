"""The sparse map from offsets to file positions (`.index`): two arrays in memory, 8-byte entries on disk."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt
from typing import Final

from pyclient.broker_embedded.log.filesystem import File

ENTRY_BYTES: Final = 8


class OffsetIndex:
    """Entries (offset relative to the segment's base, position), strictly increasing in both.

    An entry says: the batches that end with this offset start at this position. `flush` brings new ones to the file.
    """

    __slots__ = ("_file", "_flushed", "_has_junk", "_offsets", "_positions")

    def __init__(self, file: File) -> None:
        self._file = file
        self._offsets = array("i")
        self._positions = array("i")
        self._flushed = 0
        self._has_junk = False  # the file goes on behind the entries that were taken over

    @property
    def file(self) -> File:
        """The index file."""
        return self._file

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def unwritten(self) -> int:
        """How many entries are not in the file yet."""
        return len(self._offsets) - self._flushed

    def load(self, content: bytes, log_size: int) -> bool:
        """Takes over a file's entries; False if some were unusable (nonsense, preallocated zeros, beyond the log)."""
        whole = len(content) - len(content) % ENTRY_BYTES
        values = array("i", content[:whole])
        if sys.byteorder == "little":
            values.byteswap()
        offsets, positions = values[::2], values[1::2]
        count = _increasing(offsets, positions, log_size)
        self._offsets, self._positions = offsets[:count], positions[:count]
        self._flushed = count
        self._has_junk = count * ENTRY_BYTES != len(content)
        return not self._has_junk

    def append(self, relative_offset: int, position: int) -> None:
        """Adds an entry; one that does not increase is not needed."""
        if self._offsets and (relative_offset <= self._offsets[-1] or position <= self._positions[-1]):
            return
        self._offsets.append(relative_offset)
        self._positions.append(position)

    def lookup(self, relative_offset: int) -> int:
        """The greatest known position from which a scan forward must meet the offset."""
        index = bisect_right(self._offsets, relative_offset)
        return self._positions[index - 1] if index else 0

    def boundary(self, position: int) -> int:
        """The last known position at or before a file position where a batch begins; 0 if none is known."""
        index = bisect_right(self._positions, position)
        return self._positions[index - 1] if index else 0

    def last(self) -> tuple[int, int]:
        """(relative offset, position) of the last entry; (-1, 0) if there is none."""
        return (self._offsets[-1], self._positions[-1]) if self._offsets else (-1, 0)

    def truncate(self, position: int) -> None:
        """Drops the entries for sets that start at or behind `position`."""
        count = bisect_right(self._positions, position - 1)
        del self._offsets[count:], self._positions[count:]
        if count < self._flushed:
            self._flushed = count
            self._file.truncate(count * ENTRY_BYTES)

    def truncate_offsets(self, relative_offset: int) -> None:
        """Drops the entries for offsets from `relative_offset` on."""
        count = bisect_left(self._offsets, relative_offset)
        if count < len(self._offsets):
            self.truncate(self._positions[count])

    def flush(self) -> None:
        """Writes the new entries to the file (not to the disk)."""
        count = len(self._offsets)
        if self._has_junk:
            self._file.truncate(self._flushed * ENTRY_BYTES)
            self._has_junk = False
        if count == self._flushed:
            return
        values = [
            value
            for pair in zip(self._offsets[self._flushed :], self._positions[self._flushed :], strict=True)
            for value in pair
        ]
        self._file.pwrite(struct.pack(f">{len(values)}i", *values), self._flushed * ENTRY_BYTES)
        self._flushed = count


def _increasing(offsets: array[int], positions: array[int], log_size: int) -> int:
    """How many entries from the first on are as they must be."""
    sane = bool(offsets) and offsets[0] >= 0 and positions[0] >= 0 and positions[-1] < log_size
    if sane and all(map(lt, offsets, offsets[1:])) and all(map(lt, positions, positions[1:])):
        return len(offsets)
    last_offset = last_position = -1
    for count, (offset, position) in enumerate(zip(offsets, positions, strict=True)):
        if offset <= last_offset or position <= last_position or position >= log_size:
            return count
        last_offset, last_position = offset, position
    return len(offsets)
