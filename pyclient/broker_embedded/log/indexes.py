"""The index files of a segment: offsets to positions, timestamps to offsets, aborted transactions."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import ClassVar, Final, NamedTuple

from pyclient.broker_embedded.log.filesystem import File

_CHECKED_ENTRIES: Final = 512
"""Number of entries that are checked when a file is loaded (docs/measurements.md, "Opening and recovery of logs")."""


class AbstractIndex:
    """A sorted table of pairs with fixed-size entries; `flush` writes new ones to the file.

    A file's contents are not converted: loading costs no more than reading it.
    """

    __slots__ = ("_file", "_firsts", "_flushed", "_has_junk", "_seconds", "_stored", "_stored_count")

    entry: ClassVar[struct.Struct]
    type_codes: ClassVar[tuple[str, str]]

    def __init__(self, file: File) -> None:
        self._file = file
        self._stored = b""
        self._stored_count = 0  # valid entries of `_stored`
        self._flushed = 0
        self._has_junk = False  # the file has more bytes after the valid entries
        self._firsts: array[int]
        self._seconds: array[int]
        self._begin_arrays()

    def _begin_arrays(self) -> None:
        first, second = self.type_codes
        self._firsts, self._seconds = array(first), array(second)

    @property
    def file(self) -> File:
        """Return the index file."""
        return self._file

    def __len__(self) -> int:
        return self._stored_count + len(self._firsts)

    @property
    def unwritten(self) -> int:
        """Return how many entries are not in the file yet."""
        return len(self) - self._flushed

    def __getitem__(self, index: int) -> tuple[int, int]:
        newer = index - self._stored_count
        if newer >= 0:
            return self._firsts[newer], self._seconds[newer]
        first, second = self.entry.unpack_from(self._stored, index * self.entry.size)
        return first, second

    def _take(self, content: bytes, count: int) -> bool:
        """Load the first `count` entries of a file. Return True if that is all of it."""
        self._stored, self._stored_count, self._flushed = content, count, count
        self._begin_arrays()
        self._has_junk = count * self.entry.size != len(content)
        return not self._has_junk

    def _sample(self, content: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield (index, entry) of entries at even distances, all of a small file; the last one always."""
        count = len(content) // self.entry.size
        for index in range(0, count - 1, 1 + count // _CHECKED_ENTRIES):
            yield index, self.entry.unpack_from(content, index * self.entry.size)
        if count:
            yield count - 1, self.entry.unpack_from(content, (count - 1) * self.entry.size)

    def _up_to(self, column: int, value: int) -> int:
        """Return how many entries have at most `value` in a column (0 or 1)."""
        newer = self._seconds if column else self._firsts
        if newer and value >= newer[0]:
            return self._stored_count + bisect_right(newer, value)
        if not self._stored_count:
            return 0
        unpack, stored, size, of = self.entry.unpack_from, self._stored, self.entry.size, itemgetter(column)
        return bisect_right(range(self._stored_count), value, key=lambda index: of(unpack(stored, index * size)))

    def _keep(self, count: int) -> None:
        """Remove all but the first `count` entries, also from the file."""
        newer = max(count - self._stored_count, 0)
        del self._firsts[newer:], self._seconds[newer:]
        self._stored_count = min(self._stored_count, count)
        if count < self._flushed:
            self._flushed = count
            self._file.truncate(count * self.entry.size)

    def flush(self) -> None:
        """Write the new entries to the file (not synced)."""
        if self._has_junk:
            self._file.truncate(self._flushed * self.entry.size)
            self._has_junk = False
        count = len(self)
        if count == self._flushed:
            return
        begin = self._flushed - self._stored_count
        rows = zip(self._firsts[begin:], self._seconds[begin:], strict=True)
        data = b"".join(self.entry.pack(first, second) for first, second in rows)
        self._file.pwrite(data, self._flushed * self.entry.size)
        self._flushed = count


class OffsetIndex(AbstractIndex):
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
        whole = len(content) // self.entry.size
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
        whole = len(content) - len(content) % self.entry.size
        for count, (offset, position) in enumerate(self.entry.iter_unpack(memoryview(content)[:whole])):
            if offset <= last_offset or position <= last_position or position >= log_size:
                return count
            last_offset, last_position = offset, position
        return whole // self.entry.size

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


class TimeIndex(AbstractIndex):
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
        whole = len(content) // self.entry.size
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
        whole = len(content) - len(content) % self.entry.size
        for count, (timestamp, offset) in enumerate(self.entry.iter_unpack(memoryview(content)[:whole])):
            if timestamp <= last_timestamp or offset < last_offset or timestamp == offset == 0:
                return count
            last_timestamp, last_offset = timestamp, offset
        return whole // self.entry.size

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


_TRANSACTION: Final = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One aborted transaction: `last_offset` is its marker's, `last_stable_offset` the log's when it was decided."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_aborted(content: bytes) -> list[AbortedTransaction]:
    """Return the entries of a transaction index file, up to the first that is not usable."""
    entries: list[AbortedTransaction] = []
    whole = len(content) - len(content) % _TRANSACTION.size
    for version, producer_id, first, last, stable in _TRANSACTION.iter_unpack(memoryview(content)[:whole]):
        if version != 0 or not 0 <= first <= last or (entries and last <= entries[-1].last_offset):
            break
        entries.append(AbortedTransaction(producer_id, first, last, stable))
    return entries


class TransactionIndex:
    """Aborted transactions in the order of their markers. They are rare, so each is written to the file at once."""

    __slots__ = ("_entries", "_file")

    def __init__(self, file: File) -> None:
        self._file = file
        self._entries: list[AbortedTransaction] = []

    @property
    def file(self) -> File:
        """Return the index file, which does not exist without an aborted transaction."""
        return self._file

    def __len__(self) -> int:
        return len(self._entries)

    def load(self, content: bytes) -> bool:
        """Load a file's entries. Return False if some were unusable."""
        self._entries = read_aborted(content)
        return len(self._entries) * _TRANSACTION.size == len(content)

    def append(self, entry: AbortedTransaction) -> None:
        """Add a transaction, unless it is present (recovery reads some again)."""
        if self._entries and entry.last_offset <= self._entries[-1].last_offset:
            return
        row = _TRANSACTION.pack(0, *entry)
        self._file.pwrite(row, len(self._entries) * _TRANSACTION.size)
        self._entries.append(entry)

    def collect(self, from_offset: int, to_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return (transactions that overlap [from_offset, to_offset), True if later segments have no more of them)."""
        found = []
        for entry in self._entries:
            if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found, True
        return found, False

    def truncate(self, offset: int) -> None:
        """Remove transactions whose markers are at or after `offset`."""
        count = len(self._entries)
        while count and self._entries[count - 1].last_offset >= offset:
            count -= 1
        if count < len(self._entries):
            del self._entries[count:]
            self._file.truncate(count * _TRANSACTION.size)
