"""One segment of a log: the `.log` file with its batches, and its indexes."""

from __future__ import annotations

from typing import Final

from pyclient.broker_embedded.log.file_records import DamagedSegment, FileRecords
from pyclient.broker_embedded.log.filesystem import Buffer, File, FileSystem
from pyclient.broker_embedded.log.incremental_task import IncrementalTask, run_here
from pyclient.broker_embedded.log.segment_indexes import SegmentIndexes

_KINDS: Final = (".index", ".timeindex", ".txnindex", ".log")

CLEANED: Final = ".cleaned"
"""Suffix of files that compaction is writing; a start deletes them."""
SWAP: Final = ".swap"
"""Suffix of finished files of compaction; a start replaces their sources by them."""


class LogSegment:
    """The batches from `base_offset` on, `records`, with their `indexes`. Files are created by the first append.

    `size` is the bytes of the batches that the file has already. `suffix` ends the names of the files of a segment
    that is not part of the log yet.
    """

    __slots__ = ("_fs", "_incomplete_write", "_stem", "base_offset", "indexes", "records", "suffix", "synced")

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, *, size: int, index_interval: int, suffix: str = ""
    ) -> None:
        self._fs = fs
        self._stem = f"{directory}/{base_offset:020d}"
        self.suffix = suffix
        self.base_offset = base_offset
        self.records = FileRecords(fs.file(self._path(".log")), base_offset, size)
        self.indexes = SegmentIndexes(fs, self._stem, self.records, interval=index_interval, suffix=suffix)
        self.synced = False  # closed and on the disk
        self._incomplete_write = False  # a partial write after the last batch could not be truncated yet

    def __repr__(self) -> str:
        return f"<LogSegment {self.records.file.path} size={self.records.size}>"

    @property
    def size(self) -> int:
        """Return the bytes of whole batches."""
        return self.records.size

    @property
    def largest_timestamp(self) -> int:
        """Return the latest timestamp of the records (ms), -1 if none has one."""
        return self.indexes.largest_timestamp

    @property
    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, -1 if it has none."""
        return self.indexes.first_timestamp

    @property
    def index_entries(self) -> tuple[int, int]:
        """Return how many entries the offset index and the time index have."""
        return len(self.indexes.offsets), len(self.indexes.times)

    def append(self, data: Buffer, *, last_offset: int, max_timestamp: int) -> None:
        """Write a set of batches at once. After `OSError` the segment's batches are unchanged."""
        records = self.records
        position = records.size
        if self._incomplete_write:
            self._undo_write()
        try:
            records.file.pwrite(data, position)
        except OSError:
            self._incomplete_write = True
            self._undo_write()
            raise
        self.indexes.add(position, len(data), last_offset=last_offset, max_timestamp=max_timestamp)
        records.size = position + len(data)

    def _undo_write(self) -> None:
        """Cut off a partial write, so that it can never be taken for data."""
        records = self.records
        if records.size or self._fs.exists(records.file.path):
            records.file.truncate(records.size)
        self._incomplete_write = False

    def finish(self) -> None:
        """Complete the indexes of a segment that is closed: both files exist, the last timestamp is the largest."""
        indexes = self.indexes
        indexes.add_last_timestamp()
        indexes.write()
        for file in (indexes.offsets.file, indexes.times.file):
            file.fileno()
            file.close()

    def files(self) -> list[File]:
        """Return the files that have data."""
        return [self.records.file, *self.indexes.files_with_entries()]

    def truncate(self, offset: int) -> int:
        """Remove the batches that end at or after `offset`. Return the new end, which may be before `offset`."""
        try:
            found = self.indexes.locate(offset)
        except DamagedSegment as error:  # the batches before the damage all end before the offset
            run_here(self.truncate_to_position_steps(error.position))
            self.indexes.transactions.truncate(offset)
            return self.end()
        if found is None:
            return offset
        run_here(self.truncate_to_position_steps(found.position))
        self.indexes.transactions.truncate(offset)
        return min(found.base_offset, offset)

    def end(self) -> int:
        """Return the offset after the last batch."""
        end = self.base_offset
        for _position, header in self.records.walk(self.indexes.offsets.last()[1]):
            end = header.next_offset
        return end

    def truncate_to_position_steps(self, position: int) -> IncrementalTask[None]:
        """Truncate the file and its indexes to `position`, the beginning of a batch, in steps."""
        self.records.file.truncate(position)
        self.records.size = position
        yield from self.indexes.resume_at_steps(position)

    # Rename and delete files

    def mark_deleted(self, *, keep_snapshot: bool = False) -> list[str]:
        """Rename the files so that the next start deletes them. Return their new paths, to be removed later."""
        files = [self.records.file, *(self._fs.file(self._path(kind)) for kind in _KINDS[:-1])]
        if not keep_snapshot:
            files.append(self._fs.file(self._path(".snapshot")))
        for file in files:
            self._fs.rename_file(file, file.path + ".deleted")
        self.close()
        return [file.path for file in files]

    def rename(self, suffix: str) -> None:
        """Change the suffix of the files' names.

        The `.log` file is the last to get a suffix and the first to lose it: a start can see how far this came.
        """
        files = dict(zip(_KINDS, (*self.indexes.files(), self.records.file), strict=True))
        self.suffix = self.indexes.suffix = suffix
        for kind in reversed(_KINDS) if not suffix else _KINDS:
            self._fs.rename_file(files[kind], self._path(kind))

    def remove_files(self) -> None:
        """Remove the files."""
        for kind in _KINDS:
            self._fs.remove(self._path(kind))

    def close(self) -> None:
        """Close the files."""
        self.records.file.close()
        self.indexes.close()

    def _path(self, kind: str) -> str:
        return self._stem + kind + self.suffix
