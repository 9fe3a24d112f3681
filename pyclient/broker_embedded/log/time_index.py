"""The sparse map from timestamps to offsets (`.timeindex`): 12-byte entries."""

from __future__ import annotations

import struct
from typing import Final

from pyclient.broker_embedded.log.index_entries import IndexEntries

ENTRY_BYTES: Final = 12


class TimeIndex(IndexEntries):
    """Entries (largest timestamp so far in ms, the offset relative to the segment's base where it was reached).

    Timestamps strictly increase: records up to an entry's offset are not later than its timestamp.
    """

    __slots__ = ()

    entry = struct.Struct(">qi")
    type_codes = ("q", "i")

    def load(self, content: bytes) -> bool:
        """Load a file's entries. Return False if some were unusable (corrupt, or zeros of a preallocated file).

        Of a large file not every entry is checked.
        """
        whole = len(content) // ENTRY_BYTES
        index, last_timestamp, last_offset = -1, -1, 0
        for at, (timestamp, offset) in self._sample(content):
            if timestamp - last_timestamp < at - index or offset < last_offset or timestamp == offset == 0:
                whole = self._usable(content)
                break
            index, last_timestamp, last_offset = at, timestamp, offset
        return self._take(content, whole)

    def _usable(self, content: bytes) -> int:
        """Return how many entries from the first on are valid."""
        last_timestamp, last_offset = -1, 0
        whole = len(content) - len(content) % ENTRY_BYTES
        for count, (timestamp, offset) in enumerate(self.entry.iter_unpack(memoryview(content)[:whole])):
            if timestamp <= last_timestamp or offset < last_offset or timestamp == offset == 0:
                return count
            last_timestamp, last_offset = timestamp, offset
        return whole // ENTRY_BYTES

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if the timestamp has grown."""
        if timestamp < 0 or timestamp <= self.last()[0]:
            return
        self._firsts.append(timestamp)
        self._seconds.append(relative_offset)

    def lookup(self, timestamp: int) -> int:
        """Return a relative offset before which every record is earlier than `timestamp`; 0 if none is known."""
        count = self._up_to(0, timestamp - 1)
        return self[count - 1][1] if count else 0

    def last(self) -> tuple[int, int]:
        """Return (timestamp, relative offset) of the last entry; (-1, -1) if there is none."""
        count = len(self)
        return self[count - 1] if count else (-1, -1)

    def truncate(self, relative_offset: int) -> None:
        """Remove entries for offsets from `relative_offset` on."""
        self._keep(self._up_to(1, relative_offset - 1))
