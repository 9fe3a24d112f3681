"""Reading record by record: a list of decoded records, and how to give back what was not read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import length_hint

from pyclient.consumer.batches import BatchSlice, RawRecord
from pyclient.consumer.core import ConsumerCore
from pyclient.consumer.subscription import AssignedPartition
from pyclient.errors import CorruptBatch
from pyclient.types import TopicPartition


class Chunk:
    """The records of one poll while a `for` loop goes through them.

    A record counts as polled when the loop asks for it. `settle` gives the rest back to the fetch buffer and empties
    the list, whereupon the loop asks for the next chunk: so commits and seeks inside the loop mean what they say, and
    the loop itself costs nothing per record.
    """

    __slots__ = ("_core", "_pieces", "_records", "iterator")

    def __init__(self, core: ConsumerCore, slices: Sequence[BatchSlice]) -> None:
        self._core = core
        self._records: list[RawRecord] = []
        self._pieces: list[tuple[BatchSlice, AssignedPartition, int, list[RawRecord]]] = []
        self.iterator: Iterator[RawRecord] = iter(self._records)
        poison: CorruptBatch | None = None
        for piece in slices:
            records: list[RawRecord] = []
            if poison is None:
                try:
                    records = piece.records()
                except CorruptBatch as error:
                    poison = error
            partition = TopicPartition(piece.batch.topic, piece.batch.partition)
            state = core.subscription.find(partition)
            if state is not None:
                self._pieces.append((piece, state, state.version, records))
                self._records += records
        if poison is not None and not self._records:
            self.settle()
            raise poison

    def settle(self, *, failed: bool = False) -> None:
        """Gives back what was not read; with `failed`, the record read last is given back, too."""
        read = len(self._records) - length_hint(self.iterator) - failed
        with self._core.lock:
            for piece, state, version, records in self._unread(read):
                if self._core.subscription.holds(state, version):
                    offset = records[0].offset if records else piece.start
                    self._core.buffer.put_back(state, piece, offset)
        self._records.clear()
        self._pieces.clear()

    def _unread(self, read: int) -> list[tuple[BatchSlice, AssignedPartition, int, list[RawRecord]]]:
        """The pieces with records left, the last one first."""
        left = []
        for piece, state, version, records in self._pieces:
            skipped = min(read, len(records))
            read -= skipped
            if skipped < len(records) or not records:
                left.append((piece, state, version, records[skipped:]))
        left.reverse()
        return left
