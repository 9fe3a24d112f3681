"""A partition's directory, and the two small files in it that are not data: whose log it is, and its leader epochs."""

from __future__ import annotations

import uuid

from pyclient.broker_embedded.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    render_epochs,
    write_topic_id,
)
from pyclient.broker_embedded.log.epoch_cache import EpochCache
from pyclient.broker_embedded.log.filesystem import FileSystem


class PartitionFiles:
    """The directory is made with the first append; the epochs are written before any batch is called safe.

    A crash loses epochs of batches that recovery goes through anyway, and takes them from there. `OSError` where the
    disk fails.
    """

    __slots__ = ("_directory", "_fs", "_saved", "_synced", "_topic_id", "epochs", "exist")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        topic_id: uuid.UUID | None,
        epochs: EpochCache,
        *,
        exist: bool,
        saved: bool,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._topic_id = topic_id
        self.epochs = epochs
        self.exist = exist
        self._saved = saved
        self._synced = exist and saved

    def create(self) -> None:
        """Makes the directory, and says whose it is."""
        self._fs.make_directory(self._directory)
        if self._topic_id is not None:
            write_topic_id(self._fs, self._directory, self._topic_id)
        self.exist = True
        self._saved = self._synced = False

    def note_epoch(self, epoch: int, offset: int) -> None:
        """`epoch` begins at `offset`; -1 is no epoch."""
        if epoch >= 0 and self.epochs.assign(epoch, offset):
            self._saved = self._synced = False

    def truncate_epochs(self, *, start: int | None = None, end: int | None = None) -> None:
        """Forgets what was before offset `start`, or from offset `end` on."""
        changed = start is not None and self.epochs.truncate_from_start(start)
        if (end is not None and self.epochs.truncate_from_end(end)) or changed:
            self.save()

    def save(self) -> None:
        """Writes the epochs, if there is a directory yet. The next `sync` brings them to the disk."""
        if self.exist:
            self._fs.replace(self._path(LEADER_EPOCHS), render_epochs(self.epochs), sync=False)
            self._saved = True
            self._synced = False

    def sync(self) -> None:
        """Returns when the files are on the disk (their names are when the directory is synced)."""
        if self.exist and not self._synced:
            if not self._saved:
                self.save()
            for name in (LEADER_EPOCHS,) if self._topic_id is None else (LEADER_EPOCHS, PARTITION_METADATA):
                file = self._fs.file(self._path(name))
                file.sync()
                file.close()
            self._synced = True

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
