"""The entries of an index file, increasing pairs: those of the file in its format, newer ones in two arrays."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import ClassVar, Final

from pyclient.broker_embedded.log.filesystem import File

_LOOKED_AT: Final = 512
"""Number of entries that are checked when a file is loaded (docs/measurements.md, "Opening and recovery of logs")."""


class IndexEntries:
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
        for index in range(0, count - 1, 1 + count // _LOOKED_AT):
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
