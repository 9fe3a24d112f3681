"""Reading record by record: a list of decoded records, and how to give back what was not read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint

from pyclient.consumer.batches import BatchSlice, RawRecord
from pyclient.consumer.core import ConsumerCore
from pyclient.types import TopicPartition


class Chunk:
    """The records of one poll while a `for` loop goes through them.

    A record counts as polled when the loop asks for it. `settle` gives the rest back to the fetch buffer and empties
    the list, whereupon the loop asks for the next chunk: so commits and seeks inside the loop mean what they say, and
    the loop itself costs nothing per record. `making` is True while the record asked for last is deserialized: one that
    fails counts as not read, and its partition then goes behind the others.
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
        """Gives back what was not read. It may be called again, if Ctrl-C ended it: what was read is looked at once."""
        if self._unread is None:
            unread = self._find_unread(len(self._records) - length_hint(self.iterator) - self.making)
            self._last = unread[0][0].topic_partition if self.making else None
            self._unread = unread
        self._records.clear()
        self._core.give_back(self._unread, last=self._last)

    def _find_unread(self, read: int) -> list[tuple[BatchSlice, int]]:
        """The pieces with records left, each with the offset of the first of them."""
        left = []
        for piece, records in self._pieces:
            if read < len(records):
                left.append((piece, records[max(read, 0)].offset))
            read -= len(records)
        return left
