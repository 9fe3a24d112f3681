"""A segment's batches with their indexes: read when first needed, kept up to date, made again where they lie."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.offset_index import OffsetIndex
from pyclient.broker_embedded.log.replay import rebuild_aborted
from pyclient.broker_embedded.log.segment_file import DamagedSegment, Place, SegmentFile
from pyclient.broker_embedded.log.steps import Steps, run_here
from pyclient.broker_embedded.log.time_index import TimeIndex
from pyclient.broker_embedded.log.transaction_index import TransactionIndex
from pyclient.records.batch import BatchHeader

log = logging.getLogger("pyclient.broker_embedded")

_UNWRITTEN_ENTRIES: Final = 256


class IndexedSegment(SegmentFile):
    """Batches from `base_offset` on, and where they are by offset and by time.

    What goes through batches is there twice: in steps for a log that is being opened, and at once for readers that
    meet an index that is missing or makes no sense.
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
        """Offsets to positions."""
        if self._index is None:
            self.load()
        assert self._index is not None
        return self._index

    @property
    def times(self) -> TimeIndex:
        """Timestamps to offsets."""
        if self._times is None:
            self.load()
        assert self._times is not None
        return self._times

    @property
    def transactions(self) -> TransactionIndex:
        """Transactions whose abort marker is here."""
        if self._transactions is None:
            self.load()
        assert self._transactions is not None
        return self._transactions

    @property
    def largest_timestamp(self) -> int:
        """The latest time of any record here (ms), -1 if none has one."""
        if self._index is None:
            self.load()
        return self._largest_timestamp

    @property
    def largest_timestamp_offset(self) -> int:
        """The last offset of the earliest batch that has `largest_timestamp`."""
        if self._index is None:
            self.load()
        return self._largest_timestamp_offset

    @property
    def first_timestamp(self) -> int:
        """The largest time in the first batch, -1 if it has none: a segment's age counts from it."""
        if self._first_timestamp is None:
            if not self.size:
                return -1
            self._first_timestamp = next(header.max_timestamp for _, header in self.walk(0))
        return self._first_timestamp

    @property
    def index_entries(self) -> tuple[int, int]:
        """How many entries the offset index and the time index have."""
        return len(self.index), len(self.times)

    def locate(self, offset: int) -> Place | None:
        """The first batch that ends at or behind `offset`; None if all end before it."""
        try:
            return self._locate(offset, self.index.lookup(offset - self.base_offset))
        except DamagedSegment:
            with suppress(DamagedSegment):
                self.rebuild_indexes()  # perhaps only the index lied
            return self._locate(offset, self.index.lookup(offset - self.base_offset))

    def _locate(self, offset: int, start: int) -> Place | None:
        if start >= self.size > 0:
            raise DamagedSegment(self.log.path, start, "the index knows of a batch behind the end")
        for position, end, base_offset, last_offset in self.skim(start):
            if last_offset >= offset:
                if position == start > 0 and base_offset > offset:
                    raise DamagedSegment(self.log.path, start, f"offset {base_offset}, the index says {offset} is here")
                return Place(position, end, base_offset, last_offset)
        return None

    # Read

    def _empty_indexes(self) -> None:
        self._index = OffsetIndex(self._fs.file(self._path(".index")))
        self._times = TimeIndex(self._fs.file(self._path(".timeindex")))
        self._transactions = TransactionIndex(self._fs.file(self._path(".txnindex")))

    def _drop_indexes(self) -> None:
        """The file could not be read to its end: what is known so far would be taken for all there is."""
        self._index = self._times = self._transactions = None

    def load(self) -> bool:
        """Reads the indexes now, for a caller with time to spare; False if that was done before.

        Damage in the file is reported: then they know of what is before it.
        """
        try:
            return run_here(self.loading())
        except DamagedSegment as error:
            log.error("%s; what is behind it in this file cannot be read", error)
            return True

    def loading(self) -> Steps[bool]:
        """The same in steps, for a segment that nobody else knows yet. Raises `DamagedSegment`."""
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
        """Takes over what the index files have (of batches that end before offset `before`); True if it looks complete.

        Entries that do not fit the batches are dropped, all of them: then nothing in the files can be trusted.
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
        """Whether the last entries of both indexes are about batches that are there."""
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
        """Indexes a set of batches that is in the file at `position`."""
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
        """Indexes one batch. The time of one without records, which compaction left, is nobody's."""
        timestamp = header.max_timestamp if header.count else -1
        self.note(position, header.size, last_offset=header.last_offset, max_timestamp=timestamp)

    def write_indexes(self) -> None:
        """Brings the index files up to date (in the page cache). Times first: they may be ahead, not behind."""
        if self._index is not None and self._times is not None:
            self._times.flush()
            self._index.flush()

    # Made again

    def resume_at(self, position: int) -> None:
        """Brings the indexes to where they were when the file ended at `position`; wrong entries are made again."""
        run_here(self.resuming(position))

    def resuming(self, position: int) -> Steps[None]:
        """The same, one batch a step."""
        try:
            if (yield from self._note_between(self.forget(position), position)):
                return
        except DamagedSegment:  # an entry points into a batch, or the log is damaged: the next line tells which
            pass
        yield from self._note_between(self.forget(0), position)

    def resume_before(self, offset: int) -> Steps[int]:
        """Brings indexes that know of nothing from `offset` on to where they were at the first batch that ends at or
        behind it, the end if there is none; returns its position."""
        if offset <= self.base_offset:
            return self.forget(0)
        begin = self.forget(self.size)
        try:
            reached = yield from self._note_before(offset, begin)
            if reached > begin or not begin:
                return reached
        except DamagedSegment:  # an entry points into a batch, or the log is damaged: the next line tells which
            pass
        return (yield from self._note_before(offset, self.forget(0)))

    def _note_before(self, offset: int, start: int) -> Steps[int]:
        """Notes the batches from `start` on that end before `offset`; returns where that ends."""
        for position, header in self.walk(start):
            if header.last_offset >= offset:
                return position
            self.note_batch(position, header)
            yield None
        return self.size

    def forget(self, position: int) -> int:
        """Makes the indexes end at their last entry before `position`; returns where `note` must go on from."""
        self.index.truncate(position)
        relative, at = self.index.last()
        self.times.truncate(relative + 1)
        self._resume(at)
        if not position:
            self._first_timestamp = None
        return at

    def _resume(self, position: int) -> None:
        """The state of `note` as it was right after the last index entry, which is for the batches at `position`."""
        timestamp, reached = self.times.last()
        self._largest_timestamp, self._largest_timestamp_offset = timestamp, self.base_offset + max(reached, 0)
        self._bytes_since_index = 0

    def rebuild_indexes(self) -> None:
        """Makes the offset and time indexes again from the headers of all batches.

        Once is enough: the entries are right then, and what still makes no sense is damage.
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
        """Notes the batches from `start` up to `end`; False if no batch ends there."""
        for position, header in self.walk(start):
            if position >= end:
                return position == end
            self.note_batch(position, header)
            yield None
        return True
