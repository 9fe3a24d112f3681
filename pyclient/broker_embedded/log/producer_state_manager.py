"""The producers of one partition: sequences, epochs and open transactions (KIP-98), and their snapshot files.

An append first checks (`check_append` changes nothing), writes, and then records the batch (`add`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.end_transaction_marker import EndTransactionMarker, read_marker
from pyclient.broker_embedded.log.filesystem import Buffer, FileSystem
from pyclient.broker_embedded.log.incremental_task import IncrementalTask, run_here
from pyclient.broker_embedded.log.indexes import AbortedTransaction
from pyclient.broker_embedded.log.partition_directories import DATA_FILE
from pyclient.records import BatchHeader
from pyclient.records.crc import crc32c

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.log_segment import LogSegment
    from pyclient.broker_embedded.log.segment_indexes import SegmentIndexes

log = logging.getLogger("pyclient.broker_embedded")

KEPT_BATCHES: Final = 5
EPOCH_PER_TRANSACTION: Final = 2
"""The transaction.version from which on every transaction has its own epoch (KIP-890)."""
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


class ProducerStateEntry:
    """One producer: its epoch, its last batches (oldest first) and its open transaction's first offset (-1: none).

    `markers` is the number of transaction markers since the log was opened (see `ProducerStateManager.guard`).
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "markers",
        "producer_id",
        "transaction_start",
    )

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
        self.markers = 0

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
        return f"<ProducerStateEntry {self.producer_id} epoch={self.epoch} {state}>"


class ProducerStateManager:
    """All producers of a partition."""

    __slots__ = ("_entries", "_open", "_undecided", "where")

    def __init__(self, where: str, entries: Iterable[ProducerStateEntry] = ()) -> None:
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

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerStateEntry | None:
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

    def guard(self, producer_id: int) -> int:
        """Return a number that changes when a transaction of the producer ends here.

        A batch that was verified to belong to a transaction may begin one here only if no marker came since then.
        """
        entry = self._entries.get(producer_id)
        return 0 if entry is None else entry.markers

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return True if the producer has an open transaction here with that epoch."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0 and entry.epoch == epoch

    def check_append(
        self, batch: Buffer, header: BatchHeader, *, from_client: bool, transaction_version: int
    ) -> EndTransactionMarker | BatchMetadata | None:
        """Check a batch with a producer id. Return the marker in it, the stored batch that it repeats, or None.

        Raise `InvalidRecord`, `InvalidProducerEpoch`, `OutOfOrderSequenceNumber`, `InvalidTxnState` or
        `TransactionCoordinatorFenced`.
        """
        if header.is_control:
            return self.checked_marker(batch, header, transaction_version)
        if not from_client:  # the coordinator of groups writes offsets without sequences
            self._check_epoch(header)
            return None
        duplicate = self.duplicate_of(header)
        if duplicate is None:
            self.check_batch(header, starts_at_zero=transaction_version >= EPOCH_PER_TRANSACTION)
        return duplicate

    def add(
        self, header: BatchHeader, base_offset: int, checked: EndTransactionMarker | BatchMetadata | None
    ) -> CompletedTransaction | None:
        """Record a batch that was checked and is in the log at `base_offset`. Return the transaction that it ends."""
        if not header.is_control:
            self.add_batch(header, base_offset)
        elif isinstance(checked, EndTransactionMarker):
            epoch = checked.coordinator_epoch
            return self.add_marker(header, base_offset, commit=checked.commit, coordinator_epoch=epoch)
        return None

    def _check_epoch(self, header: BatchHeader) -> ProducerStateEntry | None:
        entry = self._entries.get(header.producer_id)
        known = _NONE if entry is None else entry.epoch
        if header.producer_epoch < known:
            producer = f"{self.where}: producer {header.producer_id} epoch {header.producer_epoch}"
            raise errors.InvalidProducerEpoch(f"{producer}: a newer instance has epoch {known}")
        return entry

    def check_batch(self, header: BatchHeader, *, starts_at_zero: bool = False) -> None:
        """Check that a client's batch may follow the stored ones.

        `starts_at_zero`: an unknown producer must begin with sequence 0, since its state cannot have expired.
        Raise `InvalidProducerEpoch`, `OutOfOrderSequenceNumber` or `InvalidTxnState`.
        """
        entry = self._check_epoch(header)
        known = _NONE if entry is None else entry.epoch
        producer = f"{self.where}: producer {header.producer_id} epoch {header.producer_epoch}"
        if entry is None:
            if starts_at_zero and header.base_sequence:
                raise errors.OutOfOrderSequenceNumber(
                    f"{producer}: sequence {header.base_sequence} came, a new producer begins with 0"
                )
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

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Check a transaction's marker. Raise `InvalidProducerEpoch` or `TransactionCoordinatorFenced`.

        From transaction version 2 on every marker has a new epoch (KIP-1228): one with the current epoch is a repeated
        one, which changes nothing while no transaction is open, and would else end the next transaction.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        what = f"{self.where}: a marker of producer {producer_id}"
        late = transaction_version >= EPOCH_PER_TRANSACTION and epoch == entry.epoch and entry.transaction_start >= 0
        if epoch < entry.epoch or late:
            raise errors.InvalidProducerEpoch(f"{what} has epoch {epoch}, its batches have {entry.epoch}")
        if coordinator_epoch < entry.coordinator_epoch:
            raise errors.TransactionCoordinatorFenced(
                f"{what} comes from coordinator epoch {coordinator_epoch}, epoch {entry.coordinator_epoch} was here"
            )

    def checked_marker(
        self, batch: Buffer, header: BatchHeader, transaction_version: int = 0
    ) -> EndTransactionMarker | None:
        """Return the marker in a control batch, checked; None for other kinds.

        Raise `InvalidRecord`, `InvalidProducerEpoch` or `TransactionCoordinatorFenced`.
        """
        try:
            marker = read_marker(batch, header)
        except errors.CorruptRecord as error:
            raise errors.InvalidRecord(f"{self.where}: {error}") from error
        if marker is not None:
            epoch = marker.coordinator_epoch
            self.check_marker(header.producer_id, header.producer_epoch, epoch, transaction_version)
        return marker

    def add_batch(self, header: BatchHeader, base_offset: int) -> None:
        """Record a data batch of a producer, which is in the log at `base_offset`."""
        producer_id = header.producer_id
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerStateEntry(producer_id, header.producer_epoch)
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
            entry = self._entries[producer_id] = ProducerStateEntry(producer_id, header.producer_epoch)
        entry.markers += 1
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
        return f"<ProducerStateManager {self.where} producers={len(self)} open={len(self._open)}>"


_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """A snapshot that cannot be used; the text is the reason."""


def render_snapshot(entries: Iterable[ProducerStateEntry]) -> bytes:
    """Return the file's contents. Of each producer only the last batch is kept, as in Kafka."""
    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, entry.last_timestamp)
        rows.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
        )
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def parse_snapshot(content: bytes) -> list[ProducerStateEntry]:
    """Return the producers of a snapshot file. Raise `CorruptSnapshot`."""
    if len(content) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(content)} bytes are too few")
    version, crc = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    if crc32c(body) != crc:
        raise CorruptSnapshot("the CRC is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries do not fill {len(content)} bytes")
    return [_entry(*row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]


class ProducerSnapshots:
    """The snapshot files of one log: recovery reads batches only from the newest one on.

    `position` is the size of the active segment at the newest snapshot.
    """

    __slots__ = ("_directory", "_fs", "_offset", "position")

    def __init__(self, fs: FileSystem, directory: str, offset: int) -> None:
        self._fs = fs
        self._directory = directory
        self._offset = offset
        self.position = 0

    def write(self, offset: int, position: int, producers: Iterable[ProducerStateEntry], *, segment_base: int) -> None:
        """Write the producers as of `offset`. Not synced: the file has a CRC.

        The snapshot before it is kept only if the active segment, from `segment_base` on, begins there.
        """
        if self._offset not in (offset, segment_base):
            self._fs.remove(f"{self._directory}/{self._offset:020d}.snapshot")
        self._fs.replace(f"{self._directory}/{offset:020d}.snapshot", render_snapshot(producers), sync=False)
        self._offset, self.position = offset, position

    def truncate(self, offset: int, segment_base: int) -> None:
        """Remove the snapshots for offsets above `offset`, after a truncation."""
        remove_snapshots_after(self._fs, self._directory, offset)
        self._offset, self.position = segment_base, 0


def remove_snapshots_after(fs: FileSystem, directory: str, offset: int) -> None:
    """Remove snapshots for offsets above `offset`."""
    for name in fs.list_files(directory):
        if name.endswith(".snapshot") and name[:20].isdigit() and int(name[:20]) > offset:
            fs.remove(f"{directory}/{name}")


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> ProducerStateEntry:
    batches = [] if last_offset < 0 else [BatchMetadata(last_sequence, last_offset, offset_delta, timestamp)]
    return ProducerStateEntry(
        producer_id,
        epoch,
        batches=batches,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        transaction_start=transaction_start,
    )


def replay_batch(
    producers: ProducerStateManager, header: BatchHeader, read: Callable[[], Buffer]
) -> CompletedTransaction | None:
    """Record a stored batch in `producers`; `read` returns its bytes, and is called only for a control batch."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.add_batch(header, header.base_offset)
        return None
    marker = read_marker(read(), header) if header.count else None
    if marker is None:
        return None
    return producers.add_marker(
        header, header.base_offset, commit=marker.commit, coordinator_epoch=marker.coordinator_epoch
    )


def aborted(producers: ProducerStateManager, completed: CompletedTransaction) -> AbortedTransaction:
    """Return the index entry of a transaction that was just aborted."""
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, producers.stable_offset_without(completed)
    )


def rebuild_aborted(indexes: SegmentIndexes, snapshot: bytes | None, before: int | None) -> IncrementalTask[None]:
    """Rebuild a transaction index (up to offset `before`) from the batches and the snapshot at their beginning."""
    try:
        entries = [] if snapshot is None else parse_snapshot(snapshot)
    except CorruptSnapshot:
        entries = []
    producers = ProducerStateManager(indexes.records.file.path, entries)
    indexes.transactions.truncate(0)
    for position, header in indexes.records.walk(0):
        if before is not None and header.base_offset >= before:
            return
        replay_into(indexes, producers, position, header)
        yield None


def replay_into(indexes: SegmentIndexes, producers: ProducerStateManager, position: int, header: BatchHeader) -> None:
    """Record a batch of `segment` in `producers`, and a transaction that it aborts in the transaction index."""
    try:
        completed = replay_batch(producers, header, lambda: indexes.records.read_batch(position, header))
    except errors.CorruptRecord as error:  # a whole batch, but no readable marker
        log.warning("%s: %s: byte %d: %s", producers.where, indexes.records.file.path, position, error)
        return
    if completed is not None and completed.aborted:
        indexes.transactions.append(aborted(producers, completed))


def load_producers(
    fs: FileSystem, directory: str, name: str, segments: list[LogSegment], end_offset: int
) -> ProducerStateManager:
    """Return the producers as of `end_offset`: from the newest snapshot before it and the batches after that."""
    producers, offset = restore_producers(
        fs, directory, name, fs.list_files(directory), first_offset=segments[0].base_offset, at_most=end_offset
    )
    run_here(replay_steps(segments, producers, offset, end_offset))
    return producers


def restore_producers(
    fs: FileSystem, directory: str, name: str, files: dict[str, int], *, first_offset: int, at_most: int
) -> tuple[ProducerStateManager, int]:
    """Load the newest usable snapshot for an offset from `first_offset`, the log's start, up to `at_most`.

    Return the producers and its offset; no producers and the log's start without a snapshot. Corrupt ones are removed,
    also from `files`.
    """
    found = (DATA_FILE.fullmatch(file) for file in files)
    offsets = sorted((int(match[1]) for match in found if match is not None and match[2] == "snapshot"), reverse=True)
    for offset in offsets:
        path = f"{directory}/{offset:020d}.snapshot"
        content = fs.read(path) if first_offset <= offset <= at_most else None
        if content is None:
            continue
        try:
            return ProducerStateManager(name, parse_snapshot(content)), offset
        except CorruptSnapshot as error:
            log.warning("%s: %s: %s; using an older snapshot", name, path, error)
            fs.remove(path)
            files.pop(f"{offset:020d}.snapshot")
    return ProducerStateManager(name), first_offset


def replay_steps(
    segments: list[LogSegment], producers: ProducerStateManager, from_offset: int, to_offset: int
) -> IncrementalTask[None]:
    """Record the batches in between in `producers`; reads only headers and markers."""
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if from_offset >= to_offset or (following is not None and following.base_offset <= from_offset):
            continue
        yield from segment.indexes.load_steps()
        found = segment.indexes.locate(from_offset)
        for position, header in segment.records.walk(found.position) if found is not None else ():
            if header.base_offset >= to_offset:
                return
            replay_into(segment.indexes, producers, position, header)
            yield None
