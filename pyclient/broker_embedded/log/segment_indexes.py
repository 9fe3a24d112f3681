"""The indexes of a segment: loaded on first use, kept up to date by appends, rebuilt from the batches if wrong."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from pyclient.broker_embedded.log.file_records import DamagedSegment, FileRecords, LogOffsetPosition
from pyclient.broker_embedded.log.filesystem import File, FileSystem
from pyclient.broker_embedded.log.incremental_task import IncrementalTask, run_here
from pyclient.broker_embedded.log.indexes import OffsetIndex, TimeIndex, TransactionIndex
from pyclient.broker_embedded.log.producer_state_manager import rebuild_aborted
from pyclient.records.batch import BatchHeader

log = logging.getLogger("pyclient.broker_embedded")

_UNWRITTEN_ENTRIES: Final = 256


class SegmentIndexes:
    """The offset, time and transaction index of `records`, and the segment's largest timestamp.

    `stem` is the path of the files without their kind, `suffix` follows the kind. `interval` is the number of bytes
    between two index entries.

    Operations that walk through batches exist twice: in steps for a log that is being opened, and at once for readers
    that find an index missing or corrupt.
    """

    __slots__ = (
        "_bytes_since_entry",
        "_first_timestamp",
        "_fs",
        "_largest_timestamp",
        "_largest_timestamp_offset",
        "_offsets",
        "_rebuilt",
        "_stem",
        "_times",
        "_transactions",
        "interval",
        "records",
        "suffix",
    )

    def __init__(self, fs: FileSystem, stem: str, records: FileRecords, *, interval: int, suffix: str) -> None:
        self._fs = fs
        self._stem = stem
        self.records = records
        self.suffix = suffix
        self.interval = interval
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._transactions: TransactionIndex | None = None
        self._bytes_since_entry = 0
        self._largest_timestamp = -1
        self._largest_timestamp_offset = records.base_offset
        self._first_timestamp: int | None = None
        self._rebuilt = False
        if not records.size:
            self._create_empty()

    @property
    def offsets(self) -> OffsetIndex:
        """Return the offset index."""
        if self._offsets is None:
            self.load()
        assert self._offsets is not None
        return self._offsets

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
        if self._offsets is None:
            self.load()
        return self._largest_timestamp

    @property
    def largest_timestamp_offset(self) -> int:
        """Return the last offset of the earliest batch that has `largest_timestamp`."""
        if self._offsets is None:
            self.load()
        return self._largest_timestamp_offset

    @property
    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, -1 if it has none: a segment's age counts from it."""
        if self._first_timestamp is None:
            if not self.records.size:
                return -1
            self._first_timestamp = next(header.max_timestamp for _, header in self.records.walk(0))
        return self._first_timestamp

    def files(self) -> list[File]:
        """Return the files of all three indexes."""
        return [self.offsets.file, self.times.file, self.transactions.file]

    def files_with_entries(self) -> list[File]:
        """Return the files that have data."""
        return [index.file for index in (self.offsets, self.times, self.transactions) if len(index)]

    def locate(self, offset: int) -> LogOffsetPosition | None:
        """Return the first batch that ends at or after `offset`; None if all end before it."""
        try:
            return self._locate(offset, self.offsets.lookup(offset - self.records.base_offset))
        except DamagedSegment:
            with suppress(DamagedSegment):
                self.rebuild()  # perhaps only the index is wrong
            return self._locate(offset, self.offsets.lookup(offset - self.records.base_offset))

    def _locate(self, offset: int, start: int) -> LogOffsetPosition | None:
        records = self.records
        if start >= records.size > 0:
            raise DamagedSegment(records.file.path, start, "the index has a batch beyond the end")
        for position, end, base_offset, last_offset in records.batch_positions(start):
            if last_offset >= offset:
                if position == start > 0 and base_offset > offset:
                    found = f"offset {base_offset}, the index says {offset} is here"
                    raise DamagedSegment(records.file.path, start, found)
                return LogOffsetPosition(position, end, base_offset, last_offset)
        return None

    # Load

    def _create_empty(self) -> None:
        self._offsets = OffsetIndex(self._fs.file(f"{self._stem}.index{self.suffix}"))
        self._times = TimeIndex(self._fs.file(f"{self._stem}.timeindex{self.suffix}"))
        self._transactions = TransactionIndex(self._fs.file(f"{self._stem}.txnindex{self.suffix}"))

    def _drop(self) -> None:
        """Drop the indexes after a read error: partial ones would be taken for complete."""
        self._offsets = self._times = self._transactions = None

    def load(self) -> bool:
        """Read the indexes at once, which may take long. Return False if they were read before.

        Damage in the file is logged; the indexes then cover the batches before it.
        """
        try:
            return run_here(self.load_steps())
        except DamagedSegment as error:
            log.error("%s; the rest of this file cannot be read", error)
            return True

    def load_steps(self) -> IncrementalTask[bool]:
        """Read the indexes in steps, for a segment that is not in use yet. Raise `DamagedSegment`."""
        if self._offsets is not None:
            return False
        try:
            if (yield from self.load_files()):
                return True
            yield from self.resume_at_steps(self.records.size)
        except OSError:
            self._drop()
            raise
        self.add_last_timestamp()
        try:
            self.write()
        except OSError as error:
            log.warning(
                "%s: its indexes cannot be written: %s; they are in memory, and the next start makes them again",
                self.records.file.path,
                error,
            )
        return True

    def load_files(self, before: int | None = None) -> IncrementalTask[bool]:
        """Load the index files (for batches that end before offset `before`). Return True if they look complete.

        If entries do not fit the batches, all are dropped: nothing in the files can be trusted then.
        """
        self._create_empty()
        records = self.records
        offsets = self._fs.read(self._stem + ".index")
        times = self._fs.read(self._stem + ".timeindex")
        whole = self.offsets.load(offsets or b"", records.size)
        needed = records.size > self.interval
        complete = whole and (len(self.offsets) > 0 or not needed)
        times_usable = self.times.load(times or b"") and len(self.times) > 0
        if before is not None:
            self.offsets.truncate_offsets(before - records.base_offset)
            self.times.truncate(self.offsets.last()[0] + 1)
        if not times_usable or (needed and not len(self.offsets)) or not self._last_entries_match():
            complete = False
            self.offsets.truncate(0)
            self.times.truncate(0)
        self._reset_to_last_entry()
        self._bytes_since_entry = records.size - self.offsets.last()[1]
        aborted = self._fs.read(self._stem + ".txnindex")
        if aborted is not None and not self.transactions.load(aborted):
            yield from rebuild_aborted(self, self._fs.read(self._stem + ".snapshot"), before)
        return complete

    def _last_entries_match(self) -> bool:
        """Return True if the last entries of both indexes refer to existing batches."""
        records = self.records
        relative, position = self.offsets.last()
        timestamp, reached = self.times.last()
        try:
            if relative >= 0 and not any(
                last - records.base_offset >= relative for *_, last in records.batch_positions(position)
            ):
                return False
            if timestamp < 0:
                return True
            found = self._locate(records.base_offset + reached, self.offsets.lookup(reached))
            return found is not None and next(records.walk(found.position))[1].max_timestamp == timestamp
        except DamagedSegment:
            return False

    # Keep up to date

    def add(self, position: int, size: int, *, last_offset: int, max_timestamp: int) -> None:
        """Index a set of batches that is in the file at `position`."""
        if not position:
            self._first_timestamp = max_timestamp
        if max_timestamp > self._largest_timestamp:
            self._largest_timestamp, self._largest_timestamp_offset = max_timestamp, last_offset
        if self._bytes_since_entry > self.interval:
            self.offsets.append(last_offset - self.records.base_offset, position)
            self.add_last_timestamp()
            self._bytes_since_entry = 0
            if self.offsets.unwritten >= _UNWRITTEN_ENTRIES:
                self.write()
        self._bytes_since_entry += size

    def add_batch(self, position: int, header: BatchHeader) -> None:
        """Index one batch. A batch without records, which compaction leaves, has no timestamp."""
        timestamp = header.max_timestamp if header.count else -1
        self.add(position, header.size, last_offset=header.last_offset, max_timestamp=timestamp)

    def add_last_timestamp(self) -> None:
        """Add the largest timestamp to the time index: its last entry is the largest then."""
        self.times.append(self._largest_timestamp, self._largest_timestamp_offset - self.records.base_offset)

    def write(self) -> None:
        """Write the index files (not synced). The time index first: it may be ahead of the offset index, not behind."""
        if self._offsets is not None and self._times is not None:
            self._times.flush()
            self._offsets.flush()

    def close(self) -> None:
        """Close the files."""
        for index in (self._offsets, self._times, self._transactions):
            if index is not None:
                index.file.close()

    # Rebuild

    def resume_at_steps(self, position: int) -> IncrementalTask[None]:
        """Restore the indexes to their state when the file ended at `position`, in steps of one batch.

        Wrong entries are rebuilt.
        """
        try:
            if (yield from self._add_between(self._truncate(position), position)):
                return
        except DamagedSegment:  # an entry points into a batch, or the log is damaged: the next line decides
            pass
        yield from self._add_between(self._truncate(0), position)

    def resume_before(self, offset: int) -> IncrementalTask[int]:
        """Bring indexes without entries from `offset` on up to the first batch that ends at or after it, or to the end.
        Return the position of that batch."""
        if offset <= self.records.base_offset:
            return self._truncate(0)
        begin = self._truncate(self.records.size)
        try:
            reached = yield from self._add_before(offset, begin)
            if reached > begin or not begin:
                return reached
        except DamagedSegment:  # an entry points into a batch, or the log is damaged: the next line decides
            pass
        return (yield from self._add_before(offset, self._truncate(0)))

    def rebuild(self) -> None:
        """Rebuild the offset and time indexes from the headers of all batches.

        Only once: the entries are right then, and remaining contradictions are damage.
        """
        if self._offsets is None:
            self._create_empty()
        if self._rebuilt:
            return
        try:
            run_here(self._add_between(self._truncate(0), self.records.size))
        except OSError:
            self._drop()
            raise
        except DamagedSegment:
            self._rebuilt = True
            raise
        self._rebuilt = True

    def _truncate(self, position: int) -> int:
        """Truncate the indexes to their last entry before `position`. Return where `add` must continue."""
        self.offsets.truncate(position)
        relative, at = self.offsets.last()
        self.times.truncate(relative + 1)
        self._reset_to_last_entry()
        if not position:
            self._first_timestamp = None
        return at

    def _reset_to_last_entry(self) -> None:
        """Restore the state of `add` right after the last index entry."""
        timestamp, reached = self.times.last()
        self._largest_timestamp = timestamp
        self._largest_timestamp_offset = self.records.base_offset + max(reached, 0)
        self._bytes_since_entry = 0

    def _add_before(self, offset: int, start: int) -> IncrementalTask[int]:
        """Index the batches from `start` on that end before `offset`. Return the position after them."""
        for position, header in self.records.walk(start):
            if header.last_offset >= offset:
                return position
            self.add_batch(position, header)
            yield None
        return self.records.size

    def _add_between(self, start: int, end: int) -> IncrementalTask[bool]:
        """Index the batches from `start` up to `end`. Return False if no batch ends there."""
        for position, header in self.records.walk(start):
            if position >= end:
                return position == end
            self.add_batch(position, header)
            yield None
        return True

    def __repr__(self) -> str:
        return f"<SegmentIndexes {self._stem} loaded={self._offsets is not None}>"
