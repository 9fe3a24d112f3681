"""One segment of a log: the `.log` file with its batches, and its indexes."""

from __future__ import annotations

from typing import Final

from pyclient.broker_embedded.log.filesystem import Buffer, File, FileSystem
from pyclient.broker_embedded.log.indexed_segment import IndexedSegment
from pyclient.broker_embedded.log.steps import Steps, run_here

_KINDS: Final = (".index", ".timeindex", ".txnindex", ".log")

CLEANED: Final = ".cleaned"
"""Suffix of files that compaction is writing; a start deletes them."""
SWAP: Final = ".swap"
"""Suffix of finished files of compaction; a start replaces their sources by them."""


class LogSegment(IndexedSegment):
    """Batches from `base_offset` on. `size` is the bytes of whole batches; files are created by the first append.

    Indexes are read on first use. If they are missing or corrupt they are rebuilt from the batches.
    """

    __slots__ = ("broken", "synced")

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, *, size: int, index_interval: int, suffix: str = ""
    ) -> None:
        super().__init__(fs, directory, base_offset, size=size, index_interval=index_interval, suffix=suffix)
        self.synced = False  # closed and on the disk
        self.broken = False  # a partial write after the last batch could not be cut off yet

    # Writing

    def append(self, data: Buffer, *, last_offset: int, max_timestamp: int) -> None:
        """Write a set of batches at once. After `OSError` the segment's batches are unchanged."""
        position = self.size
        if self.broken:
            self._undo_write()
        try:
            self.log.pwrite(data, position)
        except OSError:
            self.broken = True
            self._undo_write()
            raise
        self.note(position, len(data), last_offset=last_offset, max_timestamp=max_timestamp)
        self.size = position + len(data)

    def _undo_write(self) -> None:
        """Cut off a partial write, so that it can never be taken for data."""
        if self.size or self._fs.exists(self.log.path):
            self.log.truncate(self.size)
        self.broken = False

    def finish(self) -> None:
        """Complete the indexes of a segment that is closed: both files exist, the last timestamp is the largest."""
        self.times.append(self._largest_timestamp, self._largest_timestamp_offset - self.base_offset)
        self.write_indexes()
        for file in (self.index.file, self.times.file):
            file.fileno()
            file.close()

    def files(self) -> list[File]:
        """Return the files that have data."""
        indexes = (self.index, self.times, self.transactions)
        return [self.log, *(index.file for index in indexes if len(index))]

    def truncate(self, offset: int) -> int:
        """Remove the batches that end at or after `offset`. Return the new end, which may be before `offset`."""
        found = self.locate(offset)
        if found is None:
            return offset
        self.cut(found.position)
        self.transactions.truncate(offset)
        return min(found.base_offset, offset)

    def cut(self, position: int) -> None:
        """Truncate the file and its indexes to `position`, the beginning of a batch."""
        run_here(self.cutting(position))

    def cutting(self, position: int) -> Steps[None]:
        """Do the work of `cut` in steps."""
        self.log.truncate(position)
        self.size = position
        yield from self.resuming(position)

    # Renaming and deleting files

    def mark_deleted(self, *, keep_snapshot: bool = False) -> list[str]:
        """Rename the files so that the next start deletes them. Return their new paths, to be removed later."""
        files = [self.log, *(self._fs.file(self._path(kind)) for kind in _KINDS[:-1])]
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
        kinds = reversed(_KINDS) if not suffix else _KINDS
        files = {".log": self.log, ".index": self.index.file, ".timeindex": self.times.file}
        files[".txnindex"] = self.transactions.file
        self.suffix = suffix
        for kind in kinds:
            self._fs.rename_file(files[kind], self._path(kind))

    def remove_files(self) -> None:
        """Remove the files."""
        for kind in _KINDS:
            self._fs.remove(self._path(kind))

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        for index in (self._index, self._times, self._transactions):
            if index is not None:
                index.file.close()
