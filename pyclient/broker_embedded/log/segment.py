"""One segment of a log: the `.log` file with its batches, and the indexes beside it."""

from __future__ import annotations

from typing import Final

from pyclient.broker_embedded.log.filesystem import Buffer, File, FileSystem
from pyclient.broker_embedded.log.indexed_segment import IndexedSegment
from pyclient.broker_embedded.log.steps import Steps, run_here

_KINDS: Final = (".index", ".timeindex", ".txnindex", ".log")

CLEANED: Final = ".cleaned"
"""What compaction is still writing; a start throws it away."""
SWAP: Final = ".swap"
"""What compaction has finished; a start puts it in the place of what it was made from."""


class Segment(IndexedSegment):
    """Batches from `base_offset` on. `size` is the bytes of whole batches; files appear with the first append.

    Indexes are read when first needed. If they are missing or make no sense they are made again from the batches.
    """

    __slots__ = ("broken", "synced")

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, *, size: int, index_interval: int, suffix: str = ""
    ) -> None:
        super().__init__(fs, directory, base_offset, size=size, index_interval=index_interval, suffix=suffix)
        self.synced = False  # closed, and on the disk as it is
        self.broken = False  # half a write is behind the last batch, and could not be cut off yet

    # Writing

    def append(self, data: Buffer, *, last_offset: int, max_timestamp: int) -> None:
        """Writes one set of batches in one piece; `OSError` leaves the segment's batches as they were."""
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
        """A write stopped half way: cut it off, so that nothing of it can ever be taken for data."""
        if self.size or self._fs.exists(self.log.path):
            self.log.truncate(self.size)
        self.broken = False

    def finish(self) -> None:
        """Completes the indexes of a segment that is closed: both files exist, the last time is the largest."""
        self.times.append(self._largest_timestamp, self._largest_timestamp_offset - self.base_offset)
        self.write_indexes()
        for file in (self.index.file, self.times.file):
            file.fileno()
            file.close()

    def files(self) -> list[File]:
        """The files that hold data now."""
        indexes = (self.index, self.times, self.transactions)
        return [self.log, *(index.file for index in indexes if len(index))]

    def truncate(self, offset: int) -> int:
        """Drops the batches that end at or behind `offset`; returns where the rest ends, perhaps before `offset`."""
        found = self.locate(offset)
        if found is None:
            return offset
        self.cut(found.position)
        self.transactions.truncate(offset)
        return min(found.base_offset, offset)

    def cut(self, position: int) -> None:
        """Makes the file end at `position`, a batch's beginning, and forgets what the indexes knew of the rest."""
        run_here(self.cutting(position))

    def cutting(self, position: int) -> Steps[None]:
        """The same in steps."""
        self.log.truncate(position)
        self.size = position
        yield from self.resuming(position)

    # Files coming and going

    def mark_deleted(self, *, keep_snapshot: bool = False) -> list[str]:
        """Renames the files so that the next start throws them away; returns their new paths, to be removed later."""
        files = [self.log, *(self._fs.file(self._path(kind)) for kind in _KINDS[:-1])]
        if not keep_snapshot:
            files.append(self._fs.file(self._path(".snapshot")))
        for file in files:
            self._fs.rename_file(file, file.path + ".deleted")
        self.close()
        return [file.path for file in files]

    def rename(self, suffix: str) -> None:
        """Gives the files' names another suffix.

        The log is the last to be called finished and the first to be in place: a start can tell how far this came.
        """
        kinds = reversed(_KINDS) if not suffix else _KINDS
        files = {".log": self.log, ".index": self.index.file, ".timeindex": self.times.file}
        files[".txnindex"] = self.transactions.file
        self.suffix = suffix
        for kind in kinds:
            self._fs.rename_file(files[kind], self._path(kind))

    def remove_files(self) -> None:
        """Removes the files."""
        for kind in _KINDS:
            self._fs.remove(self._path(kind))

    def close(self) -> None:
        """Gives back the descriptors."""
        self.log.close()
        for index in (self._index, self._times, self._transactions):
            if index is not None:
                index.file.close()
