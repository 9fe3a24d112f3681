"""The aborted transactions of a segment (`.txnindex`): what a read_committed reader must leave out."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pyclient.broker_embedded.log.filesystem import File

ENTRY_BYTES: Final = 34
_ENTRY: Final = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """One aborted transaction: `last_offset` is its marker's, `last_stable_offset` the log's when it was decided."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Aborted transactions in the order of their markers. Rare, so each is written to the file at once."""

    __slots__ = ("_entries", "_file")

    def __init__(self, file: File) -> None:
        self._file = file
        self._entries: list[AbortedTransaction] = []

    @property
    def file(self) -> File:
        """The index file; there is none without an aborted transaction."""
        return self._file

    def __len__(self) -> int:
        return len(self._entries)

    def load(self, content: bytes) -> bool:
        """Takes over a file's entries; False if some were unusable."""
        entries: list[AbortedTransaction] = []
        whole = len(content) - len(content) % ENTRY_BYTES
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(memoryview(content)[:whole]):
            if version != 0 or not 0 <= first <= last or (entries and last <= entries[-1].last_offset):
                break
            entries.append(AbortedTransaction(producer_id, first, last, stable))
        self._entries = entries
        return len(entries) * ENTRY_BYTES == len(content)

    def append(self, entry: AbortedTransaction) -> None:
        """Adds a transaction; one that is there already (met again while recovering) is not needed."""
        if self._entries and entry.last_offset <= self._entries[-1].last_offset:
            return
        row = _ENTRY.pack(0, *entry)
        self._file.pwrite(row, len(self._entries) * ENTRY_BYTES)
        self._entries.append(entry)

    def collect(self, from_offset: int, to_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """(those that matter to a read of [from_offset, to_offset), whether later segments hold no more of them)."""
        found = []
        for entry in self._entries:
            if entry.last_offset >= from_offset and entry.first_offset < to_offset:
                found.append(entry)
            if entry.last_stable_offset >= to_offset:
                return found, True
        return found, False

    def truncate(self, offset: int) -> None:
        """Drops transactions decided at or behind `offset`."""
        count = len(self._entries)
        while count and self._entries[count - 1].last_offset >= offset:
            count -= 1
        if count < len(self._entries):
            del self._entries[count:]
            self._file.truncate(count * ENTRY_BYTES)
