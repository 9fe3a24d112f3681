"""The sparse map from timestamps to offsets (`.timeindex`): two arrays in memory, 12-byte entries on disk."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import Final

from pyclient.broker_embedded.log.filesystem import File

ENTRY_BYTES: Final = 12
_ENTRY: Final = struct.Struct(">qi")


class TimeIndex:
    """Entries (largest timestamp so far in ms, the offset relative to the segment's base where it was reached).

    Timestamps strictly increase. All records behind an entry's offset and before the next entry's are later or as late
    as its timestamp at most. New entries reach the file with `flush`.
    """

    __slots__ = ("_file", "_flushed", "_has_junk", "_offsets", "_timestamps")

    def __init__(self, file: File) -> None:
        self._file = file
        self._timestamps = array("q")
        self._offsets = array("i")
        self._flushed = 0
        self._has_junk = False  # the file goes on behind the entries that were taken over

    @property
    def file(self) -> File:
        """The index file."""
        return self._file

    def __len__(self) -> int:
        return len(self._timestamps)

    def load(self, content: bytes) -> bool:
        """Takes over a file's entries; False if some were unusable (nonsense, or zeros of a preallocated file)."""
        self._timestamps, self._offsets = array("q"), array("i")
        whole = len(content) - len(content) % ENTRY_BYTES
        for timestamp, offset in _ENTRY.iter_unpack(memoryview(content)[:whole]):
            last_timestamp, last_offset = self.last()
            if timestamp <= last_timestamp or offset < max(last_offset, 0) or (timestamp == 0 and offset == 0):
                break
            self._timestamps.append(timestamp)
            self._offsets.append(offset)
        self._flushed = len(self._timestamps)
        self._has_junk = self._flushed * ENTRY_BYTES != len(content)
        return not self._has_junk

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Adds an entry if the timestamp grew."""
        if timestamp < 0 or (self._timestamps and timestamp <= self._timestamps[-1]):
            return
        self._timestamps.append(timestamp)
        self._offsets.append(relative_offset)

    def lookup(self, timestamp: int) -> int:
        """A relative offset before which every record is earlier than `timestamp`; 0 if nothing is known."""
        index = bisect_right(self._timestamps, timestamp - 1)
        return self._offsets[index - 1] if index else 0

    def last(self) -> tuple[int, int]:
        """(timestamp, relative offset) of the last entry; (-1, -1) if there is none."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else (-1, -1)

    def truncate(self, relative_offset: int) -> None:
        """Drops entries for offsets from `relative_offset` on."""
        count = len(self._offsets)
        while count and self._offsets[count - 1] >= relative_offset:
            count -= 1
        del self._offsets[count:], self._timestamps[count:]
        if count < self._flushed:
            self._flushed = count
            self._file.truncate(count * ENTRY_BYTES)

    def flush(self) -> None:
        """Writes the new entries to the file (not to the disk)."""
        count = len(self._timestamps)
        if self._has_junk:
            self._file.truncate(self._flushed * ENTRY_BYTES)
            self._has_junk = False
        if count == self._flushed:
            return
        rows = zip(self._timestamps[self._flushed :], self._offsets[self._flushed :], strict=True)
        self._file.pwrite(
            b"".join(_ENTRY.pack(timestamp, offset) for timestamp, offset in rows), self._flushed * ENTRY_BYTES
        )
        self._flushed = count
