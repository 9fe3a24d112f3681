"""Transactions during compaction: aborted data is dropped, a marker stays until its data is gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from pyclient.broker_embedded.log.transaction_index import AbortedTransaction
from pyclient.records import BatchHeader


class CleanedTransactions:
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
