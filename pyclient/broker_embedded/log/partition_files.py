"""A partition's directory, and the two small files in it that are not data: whose log it is, and its leader epochs."""

from __future__ import annotations

import os
import uuid
from typing import NamedTuple

from pyclient.broker_embedded.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    render_epochs,
    write_topic_id,
)
from pyclient.broker_embedded.log.epoch_cache import EpochCache
from pyclient.broker_embedded.log.filesystem import File, FileSystem


class PendingFiles(NamedTuple):
    """What `begin_sync` found to be synced: files, then `directories`; `changes` is for `synced`."""

    files: list[File]
    directories: list[str]
    changes: int


class PartitionFiles:
    """The directory is made with the first append; the epochs are written before any batch is called safe.

    A crash loses epochs of batches that recovery goes through anyway, and takes them from there. `OSError` where the
    disk fails.
    """

    __slots__ = ("_changes", "_directory", "_fs", "_named", "_saved", "_synced", "_topic_id", "epochs", "exist")

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
        self._changes = 0
        self._saved = saved
        self._synced = exist and saved
        self._named = self._synced  # the directory's entry in its parent is on the disk

    def create(self) -> None:
        """Makes the directory, and says whose it is."""
        self._fs.make_directory(self._directory)
        if self._topic_id is not None:
            write_topic_id(self._fs, self._directory, self._topic_id)
        self.exist = True
        self._saved = self._synced = self._named = False

    def note_epoch(self, epoch: int, offset: int) -> None:
        """`epoch` begins at `offset`; -1 is no epoch."""
        if epoch >= 0 and self.epochs.assign(epoch, offset):
            self._saved = self._synced = False
            self._changes += 1

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
            self._changes += 1

    def begin_sync(self) -> PendingFiles:
        """Return what is to be synced for the partition to be found after a loss of power.

        Of a new partition that is its directory's name, too. Names in the directory itself are the caller's to sync.
        """
        if not self.exist or self._synced:
            return PendingFiles([], [], self._changes)
        if not self._saved:
            self.save()
        names = (LEADER_EPOCHS,) if self._topic_id is None else (LEADER_EPOCHS, PARTITION_METADATA)
        directories = [] if self._named else [os.path.dirname(self._directory)]
        return PendingFiles([self._fs.file(self._path(name)) for name in names], directories, self._changes)

    def synced(self, changes: int) -> None:
        """Note that what `begin_sync` returned is on the disk."""
        self._synced = self._synced or changes == self._changes
        self._named = True

    def sync(self) -> None:
        """Return when that is on the disk."""
        pending = self.begin_sync()
        for file in pending.files:
            file.sync()
            file.close()
        for directory in pending.directories:
            self._fs.sync_directory(directory)
        self.synced(pending.changes)

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"
