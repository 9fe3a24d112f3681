"""The aborted transactions of a segment (`.txnindex`), which a read_committed reader must skip."""

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
        entries: list[AbortedTransaction] = []
        whole = len(content) - len(content) % ENTRY_BYTES
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(memoryview(content)[:whole]):
            if version != 0 or not 0 <= first <= last or (entries and last <= entries[-1].last_offset):
                break
            entries.append(AbortedTransaction(producer_id, first, last, stable))
        self._entries = entries
        return len(entries) * ENTRY_BYTES == len(content)

    def append(self, entry: AbortedTransaction) -> None:
        """Add a transaction, unless it is present (recovery reads some again)."""
        if self._entries and entry.last_offset <= self._entries[-1].last_offset:
            return
        row = _ENTRY.pack(0, *entry)
        self._file.pwrite(row, len(self._entries) * ENTRY_BYTES)
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
            self._file.truncate(count * ENTRY_BYTES)
