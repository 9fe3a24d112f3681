"""Decides which records of a batch compaction keeps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

from pyclient.broker_embedded.log.compaction.offset_map import OffsetMap
from pyclient.broker_embedded.log.compaction.rewriting import (
    ROWS_AT_ONCE,
    chunks,
    emptied,
    rebased,
    sealed,
    spliced,
    unpacked,
)
from pyclient.broker_embedded.log.end_transaction_marker import read_marker
from pyclient.broker_embedded.log.filesystem import Buffer
from pyclient.broker_embedded.log.incremental_task import BlockingCall, IncrementalTask
from pyclient.broker_embedded.log.indexes import AbortedTransaction
from pyclient.broker_embedded.log.producer_state_manager import ProducerStateEntry
from pyclient.records import BatchHeader, Record, read_header

_LARGE: Final = 1 << 16  # bytes in one batch from which (de)compressing it is work for another thread


class KeptBatch(NamedTuple):
    """A batch of the new segment. `abort`: the transaction that it ends, if readers still have to know of that."""

    data: Buffer
    header: BatchHeader
    abort: AbortedTransaction | None = None


class BatchFilter:
    """The rules of one cleaning round, applied batch by batch in the order of offsets.

    `last_offset_kept` is the end of what is cleaned: the batch before it stays, empty if need be, so that no offset is
    given twice. `producers` are those whose last sequence or epoch must not be forgotten.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactionMetadata,
        producers: Iterable[ProducerStateEntry],
        *,
        end: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = {entry.producer_id: (entry.last_offset, entry.epoch) for entry in producers}
        self._end = end
        self._now_ms = now_ms
        self._horizon = now_ms + delete_retention_ms

    def apply(self, batch: Buffer, header: BatchHeader) -> IncrementalTask[KeptBatch | None]:
        """Return the batch to keep, perhaps rewritten; None if it is dropped. Raise `CorruptRecord`."""
        if header.is_control:
            return (yield from self._marker(batch, header))
        if self._transactions.drops_data(header) or not header.count:
            return self._without_records(header)
        return (yield from self._data(batch, header))

    def _without_records(self, header: BatchHeader) -> KeptBatch | None:
        if not self._must_stay(header):
            return None
        data = emptied(header)
        return KeptBatch(data, read_header(data))

    def _must_stay(self, header: BatchHeader) -> bool:
        """Return True for the last batch (without data: marker) of an active producer, and the round's last batch."""
        if header.next_offset == self._end:
            return True
        known = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == epoch

    def _marker(self, batch: Buffer, header: BatchHeader) -> IncrementalTask[KeptBatch | None]:
        """Keep a control batch while its transaction has data, and then until its delete horizon is over."""
        if not header.count:
            return self._without_records(header)
        marker = read_marker(batch, header)
        if marker is None:
            return KeptBatch(batch, header)
        without_data, abort = self._transactions.end(header, commit=marker.commit)
        if not without_data or (header.has_delete_horizon and self._now_ms < header.base_timestamp):
            return KeptBatch(batch, header, abort)
        if header.has_delete_horizon:
            return self._without_records(header)
        return (yield from self._rewritten(batch, header, header, b"\1", header.max_timestamp, starts_horizon=True))

    def _data(self, batch: Buffer, header: BatchHeader) -> IncrementalTask[KeptBatch | None]:
        plain, opened = yield from off_loop_if_large(batch, header)
        keep = bytearray()
        tombstones, newest = False, -1
        for rows in chunks(plain, opened):
            for record in self._choose(rows, keep, header):
                tombstones = tombstones or record.value is None
                if record.timestamp_ms > newest:
                    newest = record.timestamp_ms
            if len(rows) == ROWS_AT_ONCE:
                yield None
        if not any(keep):
            return self._without_records(header)
        starts_horizon = tombstones and not header.has_delete_horizon
        if all(keep) and not starts_horizon:
            return KeptBatch(batch, header)
        return (yield from self._rewritten(plain, opened, header, keep, newest, starts_horizon=starts_horizon))

    def _choose(self, rows: list[Record[Any, Any]], keep: bytearray, header: BatchHeader) -> Iterator[Record[Any, Any]]:
        """Yield the records that stay; append a truth value for each record to `keep`."""
        end, last = self._offsets.end, self._offsets.last
        tombstones_stay = not header.has_delete_horizon or self._now_ms < header.base_timestamp
        for record in rows:
            offset, key = record.offset, record.key
            stays = offset >= end or (
                key is not None and offset >= last(key) and (tombstones_stay or record.value is not None)
            )
            keep.append(stays)
            if stays:
                yield record

    def _rewritten(
        self,
        plain: Buffer,
        opened: BatchHeader,
        header: BatchHeader,
        keep: bytes | bytearray,
        max_timestamp: int,
        *,
        starts_horizon: bool,
    ) -> IncrementalTask[KeptBatch]:
        """Return a batch like `header`'s with the kept records of `plain`, whose header is `opened`."""
        pieces: list[bytes] = []
        for piece in spliced(plain, opened, keep):
            pieces.append(rebased(piece, opened.base_timestamp, self._horizon) if starts_horizon else piece)
            if len(keep) > ROWS_AT_ONCE:
                yield None
        records = b"".join(pieces)
        count, horizon = sum(keep), self._horizon if starts_horizon else None

        def seal() -> bytearray:
            return sealed(
                opened, records, codec=header.codec, count=count, max_timestamp=max_timestamp, horizon=horizon
            )

        data = (yield BlockingCall(seal)) if header.codec and len(records) >= _LARGE else seal()
        return KeptBatch(data, read_header(data))


def off_loop_if_large(batch: Buffer, header: BatchHeader) -> IncrementalTask[tuple[Buffer, BatchHeader]]:
    """Return the batch unpacked; on the disk thread if it is large, as the codecs work without the GIL."""
    if header.codec and len(batch) >= _LARGE:
        opened: tuple[Buffer, BatchHeader] = yield BlockingCall(lambda: unpacked(batch, header))
        return opened
    return unpacked(batch, header)


class CleanedTransactionMetadata:
    """Tracks transactions: gets the aborted transactions of a segment, then its batches in order."""

    def __init__(self) -> None:
        self._committed: set[int] = set()  # producers with data of their current transaction
        self._expected: list[tuple[int, AbortedTransaction]] = []  # by first offset
        self._known: set[AbortedTransaction] = set()
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}  # by producer; True if it had data

    def expect(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions that overlap the next segment."""
        for transaction in transactions:
            if transaction not in self._known:
                self._known.add(transaction)
                heappush(self._expected, (transaction.first_offset, transaction))

    def drops_data(self, header: BatchHeader) -> bool:
        """Return True if a data batch belongs to an aborted transaction."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        met = self._aborted.get(header.producer_id)
        if met is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = met[0], True
        return True

    def end(self, header: BatchHeader, *, commit: bool) -> tuple[bool, AbortedTransaction | None]:
        """Handle a marker. Return (True if its transaction has no data, the abort that readers still need)."""
        self._begin_up_to(header.last_offset)
        if commit:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not met, None
        transaction, had_data = self._aborted.pop(header.producer_id, (None, False))
        return (False, transaction) if had_data else (True, None)

    def _begin_up_to(self, offset: int) -> None:
        while self._expected and self._expected[0][0] <= offset:
            transaction = heappop(self._expected)[1]
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
