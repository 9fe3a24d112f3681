"""The entries of an index file: pairs that grow, those of the file as they are there, newer ones in two arrays."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import ClassVar, Final

from pyclient.broker_embedded.log.filesystem import File

_LOOKED_AT: Final = 512
"""Entries of a file that are checked when it is loaded (docs/measurements.md, "Opening and recovery of logs")."""


class IndexEntries:
    """A sorted table of pairs, fixed in size on disk; `flush` brings new ones to the file.

    What a file holds is not converted: to take it over costs reading it, whatever its size.
    """

    __slots__ = ("_file", "_firsts", "_flushed", "_has_junk", "_seconds", "_stored", "_stored_count")

    entry: ClassVar[struct.Struct]
    type_codes: ClassVar[tuple[str, str]]

    def __init__(self, file: File) -> None:
        self._file = file
        self._stored = b""
        self._stored_count = 0  # entries of `_stored` that count
        self._flushed = 0
        self._has_junk = False  # the file goes on behind the entries that were taken over
        self._firsts: array[int]
        self._seconds: array[int]
        self._begin_arrays()

    def _begin_arrays(self) -> None:
        first, second = self.type_codes
        self._firsts, self._seconds = array(first), array(second)

    @property
    def file(self) -> File:
        """The index file."""
        return self._file

    def __len__(self) -> int:
        return self._stored_count + len(self._firsts)

    @property
    def unwritten(self) -> int:
        """How many entries are not in the file yet."""
        return len(self) - self._flushed

    def __getitem__(self, index: int) -> tuple[int, int]:
        behind = index - self._stored_count
        if behind >= 0:
            return self._firsts[behind], self._seconds[behind]
        first, second = self.entry.unpack_from(self._stored, index * self.entry.size)
        return first, second

    def _take(self, content: bytes, count: int) -> bool:
        """Takes over the first `count` entries of a file; whether that is all of it."""
        self._stored, self._stored_count, self._flushed = content, count, count
        self._begin_arrays()
        self._has_junk = count * self.entry.size != len(content)
        return not self._has_junk

    def _sample(self, content: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
        """(index, entry) of some entries at even distances, all of a small file; the last one always."""
        count = len(content) // self.entry.size
        for index in range(0, count - 1, 1 + count // _LOOKED_AT):
            yield index, self.entry.unpack_from(content, index * self.entry.size)
        if count:
            yield count - 1, self.entry.unpack_from(content, (count - 1) * self.entry.size)

    def _up_to(self, column: int, value: int) -> int:
        """How many entries have at most `value` in a column (0 or 1), which grows."""
        behind = self._seconds if column else self._firsts
        if behind and value >= behind[0]:
            return self._stored_count + bisect_right(behind, value)
        if not self._stored_count:
            return 0
        unpack, stored, size, of = self.entry.unpack_from, self._stored, self.entry.size, itemgetter(column)
        return bisect_right(range(self._stored_count), value, key=lambda index: of(unpack(stored, index * size)))

    def _keep(self, count: int) -> None:
        """Drops all but the first `count` entries, in the file, too."""
        behind = max(count - self._stored_count, 0)
        del self._firsts[behind:], self._seconds[behind:]
        self._stored_count = min(self._stored_count, count)
        if count < self._flushed:
            self._flushed = count
            self._file.truncate(count * self.entry.size)

    def flush(self) -> None:
        """Writes the new entries to the file (not to the disk)."""
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
