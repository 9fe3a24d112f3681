"""A segment's batches with their indexes: read on first use, kept up to date, rebuilt if they are wrong."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from pyclient.broker_embedded.log.file_records import DamagedSegment, LogOffsetPosition, SegmentFile
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.indexes import OffsetIndex, TimeIndex, TransactionIndex
from pyclient.broker_embedded.log.producer_state_manager import rebuild_aborted
from pyclient.broker_embedded.log.steps import Steps, run_here
from pyclient.records.batch import BatchHeader

log = logging.getLogger("pyclient.broker_embedded")

_UNWRITTEN_ENTRIES: Final = 256


class IndexedSegment(SegmentFile):
    """Batches from `base_offset` on, with indexes by offset and by time.

    Operations that walk through batches exist twice: in steps for a log that is being opened, and at once for readers
    that find an index missing or corrupt.
    """

    __slots__ = (
        "_bytes_since_index",
        "_first_timestamp",
        "_index",
        "_largest_timestamp",
        "_largest_timestamp_offset",
        "_rebuilt",
        "_times",
        "_transactions",
        "index_interval",
    )

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, *, size: int, index_interval: int, suffix: str = ""
    ) -> None:
        super().__init__(fs, directory, base_offset, size=size, suffix=suffix)
        self.index_interval = index_interval
        self._index: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._transactions: TransactionIndex | None = None
        self._bytes_since_index = 0
        self._largest_timestamp = -1
        self._largest_timestamp_offset = base_offset
        self._first_timestamp: int | None = None
        self._rebuilt = False
        if not size:
            self._empty_indexes()

    # What is in it

    @property
    def index(self) -> OffsetIndex:
        """Return the offset index."""
        if self._index is None:
            self.load()
        assert self._index is not None
        return self._index

    @property
    def times(self) -> TimeIndex:
        """Return the time index."""
        if self._times is None:
            self.load()
        assert self._times is not None
        return self._times

    @property
    def transactions(self) -> TransactionIndex:
        """Return the index of the transactions whose abort marker is in this segment."""
        if self._transactions is None:
            self.load()
        assert self._transactions is not None
        return self._transactions

    @property
    def largest_timestamp(self) -> int:
        """Return the latest timestamp of the records (ms), -1 if none has one."""
        if self._index is None:
            self.load()
        return self._largest_timestamp

    @property
    def largest_timestamp_offset(self) -> int:
        """Return the last offset of the earliest batch that has `largest_timestamp`."""
        if self._index is None:
            self.load()
        return self._largest_timestamp_offset

    @property
    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, -1 if it has none: a segment's age counts from it."""
        if self._first_timestamp is None:
            if not self.size:
                return -1
            self._first_timestamp = next(header.max_timestamp for _, header in self.walk(0))
        return self._first_timestamp

    @property
    def index_entries(self) -> tuple[int, int]:
        """Return how many entries the offset index and the time index have."""
        return len(self.index), len(self.times)

    def locate(self, offset: int) -> LogOffsetPosition | None:
        """Return the first batch that ends at or after `offset`; None if all end before it."""
        try:
            return self._locate(offset, self.index.lookup(offset - self.base_offset))
        except DamagedSegment:
            with suppress(DamagedSegment):
                self.rebuild_indexes()  # perhaps only the index is wrong
            return self._locate(offset, self.index.lookup(offset - self.base_offset))

    def _locate(self, offset: int, start: int) -> LogOffsetPosition | None:
        if start >= self.size > 0:
            raise DamagedSegment(self.log.path, start, "the index has a batch beyond the end")
        for position, end, base_offset, last_offset in self.skim(start):
            if last_offset >= offset:
                if position == start > 0 and base_offset > offset:
                    raise DamagedSegment(self.log.path, start, f"offset {base_offset}, the index says {offset} is here")
                return LogOffsetPosition(position, end, base_offset, last_offset)
        return None

    # Read

    def _empty_indexes(self) -> None:
        self._index = OffsetIndex(self._fs.file(self._path(".index")))
        self._times = TimeIndex(self._fs.file(self._path(".timeindex")))
        self._transactions = TransactionIndex(self._fs.file(self._path(".txnindex")))

    def _drop_indexes(self) -> None:
        """Drop the indexes after a read error: partial ones would be taken for complete."""
        self._index = self._times = self._transactions = None

    def load(self) -> bool:
        """Read the indexes at once, which may take long. Return False if they were read before.

        Damage in the file is logged; the indexes then cover the batches before it.
        """
        try:
            return run_here(self.loading())
        except DamagedSegment as error:
            log.error("%s; the rest of this file cannot be read", error)
            return True

    def loading(self) -> Steps[bool]:
        """Read the indexes in steps, for a segment that is not in use yet. Raises `DamagedSegment`."""
        if self._index is not None:
            return False
        try:
            if (yield from self.load_indexes()):
                return True
            yield from self.resuming(self.size)
        except OSError:
            self._drop_indexes()
            raise
        self.times.append(self._largest_timestamp, self._largest_timestamp_offset - self.base_offset)
        try:
            self.write_indexes()
        except OSError as error:
            log.warning(
                "%s: its indexes cannot be written: %s; they are in memory, and the next start makes them again",
                self.log.path,
                error,
            )
        return True

    def load_indexes(self, before: int | None = None) -> Steps[bool]:
        """Load the index files (for batches that end before offset `before`). Return True if they look complete.

        If entries do not fit the batches, all are dropped: nothing in the files can be trusted then.
        """
        self._empty_indexes()
        offsets = self._fs.read(self._stem + ".index")
        times = self._fs.read(self._stem + ".timeindex")
        whole = self.index.load(offsets or b"", self.size)
        needed = self.size > self.index_interval
        complete = whole and (len(self.index) > 0 or not needed)
        times_usable = self.times.load(times or b"") and len(self.times) > 0
        if before is not None:
            self.index.truncate_offsets(before - self.base_offset)
            self.times.truncate(self.index.last()[0] + 1)
        if not times_usable or (needed and not len(self.index)) or not self._confirmed():
            complete = False
            self.index.truncate(0)
            self.times.truncate(0)
        self._resume(self.index.last()[1])
        self._bytes_since_index = self.size - self.index.last()[1]
        aborted = self._fs.read(self._stem + ".txnindex")
        if aborted is not None and not self.transactions.load(aborted):
            yield from rebuild_aborted(self, self._fs.read(self._stem + ".snapshot"), before)
        return complete

    def _confirmed(self) -> bool:
        """Return True if the last entries of both indexes refer to existing batches."""
        relative, position = self.index.last()
        timestamp, reached = self.times.last()
        try:
            if relative >= 0 and not any(last - self.base_offset >= relative for *_, last in self.skim(position)):
                return False
            if timestamp < 0:
                return True
            found = self._locate(self.base_offset + reached, self.index.lookup(reached))
            return found is not None and next(self.walk(found.position))[1].max_timestamp == timestamp
        except DamagedSegment:
            return False

    # Kept up to date

    def note(self, position: int, size: int, *, last_offset: int, max_timestamp: int) -> None:
        """Index a set of batches that is in the file at `position`."""
        if not position:
            self._first_timestamp = max_timestamp
        if max_timestamp > self._largest_timestamp:
            self._largest_timestamp, self._largest_timestamp_offset = max_timestamp, last_offset
        if self._bytes_since_index > self.index_interval:
            self.index.append(last_offset - self.base_offset, position)
            self.times.append(self._largest_timestamp, self._largest_timestamp_offset - self.base_offset)
            self._bytes_since_index = 0
            if self.index.unwritten >= _UNWRITTEN_ENTRIES:
                self.write_indexes()
        self._bytes_since_index += size

    def note_batch(self, position: int, header: BatchHeader) -> None:
        """Index one batch. A batch without records, which compaction leaves, has no timestamp."""
        timestamp = header.max_timestamp if header.count else -1
        self.note(position, header.size, last_offset=header.last_offset, max_timestamp=timestamp)

    def write_indexes(self) -> None:
        """Write the index files (not synced). The time index first: it may be ahead of the offset index, not behind."""
        if self._index is not None and self._times is not None:
            self._times.flush()
            self._index.flush()

    # Rebuilt

    def resume_at(self, position: int) -> None:
        """Restore the indexes to their state when the file ended at `position`; wrong entries are rebuilt."""
        run_here(self.resuming(position))

    def resuming(self, position: int) -> Steps[None]:
        """Do the work of `resume_at` in steps of one batch."""
        try:
            if (yield from self._note_between(self.forget(position), position)):
                return
        except DamagedSegment:  # an entry points into a batch, or the log is damaged: the next line decides
            pass
        yield from self._note_between(self.forget(0), position)

    def resume_before(self, offset: int) -> Steps[int]:
        """Bring indexes without entries from `offset` on up to the first batch that ends at or after it, or to the end.
        Return the position of that batch."""
        if offset <= self.base_offset:
            return self.forget(0)
        begin = self.forget(self.size)
        try:
            reached = yield from self._note_before(offset, begin)
            if reached > begin or not begin:
                return reached
        except DamagedSegment:  # an entry points into a batch, or the log is damaged: the next line decides
            pass
        return (yield from self._note_before(offset, self.forget(0)))

    def _note_before(self, offset: int, start: int) -> Steps[int]:
        """Index the batches from `start` on that end before `offset`. Return the position after them."""
        for position, header in self.walk(start):
            if header.last_offset >= offset:
                return position
            self.note_batch(position, header)
            yield None
        return self.size

    def forget(self, position: int) -> int:
        """Truncate the indexes to their last entry before `position`. Return where `note` must continue."""
        self.index.truncate(position)
        relative, at = self.index.last()
        self.times.truncate(relative + 1)
        self._resume(at)
        if not position:
            self._first_timestamp = None
        return at

    def _resume(self, position: int) -> None:
        """Restore the state of `note` right after the last index entry."""
        timestamp, reached = self.times.last()
        self._largest_timestamp, self._largest_timestamp_offset = timestamp, self.base_offset + max(reached, 0)
        self._bytes_since_index = 0

    def rebuild_indexes(self) -> None:
        """Rebuild the offset and time indexes from the headers of all batches.

        Only once: the entries are right then, and remaining contradictions are damage.
        """
        if self._index is None:
            self._empty_indexes()
        if self._rebuilt:
            return
        try:
            run_here(self._note_between(self.forget(0), self.size))
        except OSError:
            self._drop_indexes()
            raise
        except DamagedSegment:
            self._rebuilt = True
            raise
        self._rebuilt = True

    def _note_between(self, start: int, end: int) -> Steps[bool]:
        """Index the batches from `start` up to `end`. Return False if no batch ends there."""
        for position, header in self.walk(start):
            if position >= end:
                return position == end
            self.note_batch(position, header)
            yield None
        return True
