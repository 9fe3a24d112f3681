"""The producers of one partition: sequences, epochs and open transactions (KIP-98). Pure.

An append first checks (`duplicate_of`, `check_batch`, `check_marker` change nothing), writes, and then records the
batch (`add_batch`, `add_marker`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.records import BatchHeader

KEPT_BATCHES: Final = 5
_NONE: Final = -1
_SEQUENCES: Final = 1 << 31


class BatchMetadata(NamedTuple):
    """The data that identifies a repeated batch; `timestamp` (ms) is its largest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Return the sequence of its first record; sequences run 0 ... 2147483647 and then 0 again."""
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def first_offset(self) -> int:
        """Return the offset of its first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction that was ended by its marker at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """One producer: its epoch, its last batches (oldest first) and its open transaction's first offset (-1: none)."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_start")

    def __init__(
        self,
        producer_id: int,
        epoch: int,
        *,
        batches: Iterable[BatchMetadata] = (),
        coordinator_epoch: int = _NONE,
        last_timestamp: int = _NONE,
        transaction_start: int = _NONE,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches = list(batches)
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_start = transaction_start

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record, -1 if no batch is known."""
        return self.batches[-1].last_sequence if self.batches else _NONE

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record, -1 if no batch is known."""
        return self.batches[-1].last_offset if self.batches else _NONE

    def raise_epoch(self, epoch: int) -> None:
        """Set the epoch. A new epoch clears the batches: its sequences start at 0."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()

    def __repr__(self) -> str:
        state = f"last_sequence={self.last_sequence} transaction_start={self.transaction_start}"
        return f"<ProducerEntry {self.producer_id} epoch={self.epoch} {state}>"


class ProducerState:
    """All producers of a partition."""

    __slots__ = ("_entries", "_open", "_undecided", "where")

    def __init__(self, where: str, entries: Iterable[ProducerEntry] = ()) -> None:
        self.where = where  # "topic-partition", for messages
        self._entries = {entry.producer_id: entry for entry in entries}
        self._open = {  # producer id -> first offset
            entry.producer_id: entry.transaction_start
            for entry in self._entries.values()
            if entry.transaction_start >= 0
        }
        self._undecided: list[CompletedTransaction] = []  # ended, but the marker is not below the high watermark yet

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """Return the state of a producer; None if it is unknown."""
        return self._entries.get(producer_id)

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the stored batch that `header` repeats: equal sequences among the last five batches of its epoch."""
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            return None
        first, delta = header.base_sequence, header.last_offset_delta
        for batch in reversed(entry.batches):
            if batch.offset_delta == delta and (batch.last_sequence - delta) % _SEQUENCES == first:
                return batch
        return None

    def check_batch(self, header: BatchHeader) -> None:
        """Check that a client's batch may follow the stored ones.

        Raises `InvalidProducerEpoch`, `OutOfOrderSequenceNumber` or `InvalidTxnState`.
        """
        entry = self._entries.get(header.producer_id)
        known = _NONE if entry is None else entry.epoch
        producer = f"{self.where}: producer {header.producer_id} epoch {header.producer_epoch}"
        if header.producer_epoch < known:
            raise errors.InvalidProducerEpoch(f"{producer}: a newer instance has epoch {known}")
        if entry is None:
            return  # new, expired, or its data deleted: any first sequence is valid
        expected = 0 if header.producer_epoch > entry.epoch else (entry.last_sequence + 1) % _SEQUENCES
        if header.base_sequence != expected and known != _NONE:  # without an epoch sequences mean nothing, as in Kafka
            raise errors.OutOfOrderSequenceNumber(
                f"{producer}: sequence {header.base_sequence} came, {expected} is next"
            )
        if entry.transaction_start >= 0 and not header.is_transactional:
            raise errors.InvalidTxnState(
                f"{producer}: its transaction from offset {entry.transaction_start} is still open"
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Check a transaction's marker. Raise `InvalidProducerEpoch` or `TransactionCoordinatorFenced`."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        what = f"{self.where}: a marker of producer {producer_id}"
        if epoch < entry.epoch:
            raise errors.InvalidProducerEpoch(f"{what} has epoch {epoch}, its batches have {entry.epoch}")
        if coordinator_epoch < entry.coordinator_epoch:
            raise errors.TransactionCoordinatorFenced(
                f"{what} comes from coordinator epoch {coordinator_epoch}, epoch {entry.coordinator_epoch} was here"
            )

    def add_batch(self, header: BatchHeader, base_offset: int) -> None:
        """Record a data batch of a producer, which is in the log at `base_offset`."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif header.producer_epoch != entry.epoch:
            entry.raise_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        batches = entry.batches
        if len(batches) == KEPT_BATCHES:
            del batches[0]
        timestamp = entry.last_timestamp = header.max_timestamp
        sequence = header.base_sequence  # -1 where a coordinator writes for a producer (offsets in a transaction)
        last_sequence = (sequence + delta) % _SEQUENCES if sequence >= 0 else _NONE
        batches.append(BatchMetadata(last_sequence, base_offset + delta, delta, timestamp))
        if header.is_transactional and entry.transaction_start < 0:
            entry.transaction_start = self._open[producer_id] = base_offset

    def add_marker(
        self, header: BatchHeader, offset: int, *, commit: bool, coordinator_epoch: int
    ) -> CompletedTransaction | None:
        """Record a transaction's marker at `offset`. Return the transaction, None if it wrote nothing here."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        entry.raise_epoch(header.producer_epoch)
        entry.coordinator_epoch = max(entry.coordinator_epoch, coordinator_epoch)
        entry.last_timestamp = header.max_timestamp
        start, entry.transaction_start = entry.transaction_start, _NONE
        self._open.pop(producer_id, None)
        if start < 0:
            return None
        completed = CompletedTransaction(producer_id, start, offset, not commit)
        self._undecided.append(completed)
        return completed

    def stable_offset_without(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset after the end of `completed`, for the `.txnindex`."""
        return min(self._open.values(), default=completed.last_offset + 1)

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the start of the oldest transaction that is open, or whose marker is not below the high watermark."""
        if not self._open and not self._undecided:
            return None
        starts = [transaction.first_offset for transaction in self._undecided]
        starts.extend(self._open.values())
        return min(starts)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Remove transactions whose markers are below the high watermark: they are final."""
        if self._undecided:
            self._undecided = [
                transaction for transaction in self._undecided if transaction.last_offset >= high_watermark
            ]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that were idle for `expiration_ms`, never inside a transaction. Return how many."""
        oldest = now_ms - expiration_ms
        gone = [entry.producer_id for entry in self if entry.last_timestamp <= oldest and entry.transaction_start < 0]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)

    def __repr__(self) -> str:
        return f"<ProducerState {self.where} producers={len(self)} open={len(self._open)}>"
