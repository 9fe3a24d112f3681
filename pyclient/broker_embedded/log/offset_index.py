"""The sparse map from offsets to file positions (`.index`): 8-byte entries."""

from __future__ import annotations

import struct
from typing import Final

from pyclient.broker_embedded.log.index_entries import IndexEntries

ENTRY_BYTES: Final = 8


class OffsetIndex(IndexEntries):
    """Entries (offset relative to the segment's base, position), strictly increasing in both.

    An entry says: the batches that end with this offset start at this position.
    """

    __slots__ = ()

    entry = struct.Struct(">ii")
    type_codes = ("i", "i")

    def load(self, content: bytes, log_size: int) -> bool:
        """Load a file's entries. Return False if some were unusable (corrupt, preallocated zeros, beyond the log).

        Of a large file not every entry is checked: a wrong one is found when a read uses it.
        """
        whole = len(content) // ENTRY_BYTES
        index = last_offset = last_position = -1
        for at, (offset, position) in self._sample(content):
            distance = at - index
            if offset - last_offset < distance or position - last_position < distance or position >= log_size:
                whole = self._usable(content, log_size)
                break
            index, last_offset, last_position = at, offset, position
        return self._take(content, whole)

    def _usable(self, content: bytes, log_size: int) -> int:
        """Return how many entries from the first on are valid."""
        last_offset = last_position = -1
        whole = len(content) - len(content) % ENTRY_BYTES
        for count, (offset, position) in enumerate(self.entry.iter_unpack(memoryview(content)[:whole])):
            if offset <= last_offset or position <= last_position or position >= log_size:
                return count
            last_offset, last_position = offset, position
        return whole // ENTRY_BYTES

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry, unless it does not increase."""
        last_offset, last_position = self.last()
        if relative_offset <= last_offset or (position <= last_position and len(self)):
            return
        self._firsts.append(relative_offset)
        self._seconds.append(position)

    def lookup(self, relative_offset: int) -> int:
        """Return the greatest known position from which a forward scan finds the offset."""
        count = self._up_to(0, relative_offset)
        return self[count - 1][1] if count else 0

    def boundary(self, position: int) -> int:
        """Return the last known start of a batch at or before a file position; 0 if none is known."""
        count = self._up_to(1, position)
        return self[count - 1][1] if count else 0

    def upper_bound(self, position: int) -> int | None:
        """Return the relative offset of the first entry at or after a file position; None if there is none."""
        count = self._up_to(1, position - 1)
        return self[count][0] if count < len(self) else None

    def last(self) -> tuple[int, int]:
        """Return (relative offset, position) of the last entry; (-1, 0) if there is none."""
        count = len(self)
        return self[count - 1] if count else (-1, 0)

    def truncate(self, position: int) -> None:
        """Remove the entries for batches that start at or after `position`."""
        self._keep(self._up_to(1, position - 1))

    def truncate_offsets(self, relative_offset: int) -> None:
        """Remove the entries for offsets from `relative_offset` on."""
        self._keep(self._up_to(0, relative_offset - 1))
