"""Iteration record by record: a list of decoded records, and how unread ones are given back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint

from pyclient.consumer.batches import BatchSlice, RawRecord
from pyclient.consumer.core import ConsumerCore
from pyclient.types import TopicPartition


class Chunk:
    """The records of one poll while a `for` loop goes through them.

    A record counts as polled when the loop requests it. `settle` gives the rest back to the fetch buffer and empties
    the list, so that the loop requests the next chunk: commits and seeks inside the loop apply to the record it is at,
    and the loop has no cost per record. `making` is True while the last record is deserialized: one that fails counts
    as not read, and its partition then moves after the others.
    """

    __slots__ = ("_core", "_last", "_pieces", "_records", "_unread", "iterator", "making")

    def __init__(self, core: ConsumerCore, slices: Sequence[BatchSlice]) -> None:
        self._core = core
        self._pieces = [(piece, piece.records()) for piece in slices]
        self._records: list[RawRecord] = [record for _, records in self._pieces for record in records]
        self._unread: list[tuple[BatchSlice, int]] | None = None
        self._last: TopicPartition | None = None
        self.making = False
        self.iterator: Iterator[RawRecord] = iter(self._records)

    def settle(self) -> None:
        """Give back unread records. Repeatable after Ctrl-C: the read records are counted once."""
        if self._unread is None:
            unread = self._find_unread(len(self._records) - length_hint(self.iterator) - self.making)
            self._last = unread[0][0].topic_partition if self.making else None
            self._unread = unread
        self._records.clear()
        self._core.give_back(self._unread, last=self._last)

    def _find_unread(self, read: int) -> list[tuple[BatchSlice, int]]:
        """Return the slices with unread records, each with the offset of the first of them."""
        left = []
        for piece, records in self._pieces:
            if read < len(records):
                left.append((piece, records[max(read, 0)].offset))
            read -= len(records)
        return left
