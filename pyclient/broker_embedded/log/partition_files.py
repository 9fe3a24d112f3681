"""A partition's directory, and the two small files in it that are not data: its topic id and its leader epochs."""

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
from pyclient.broker_embedded.log.filesystem import File, FileSystem
from pyclient.broker_embedded.log.leader_epoch_cache import LeaderEpochFileCache


class PendingFiles(NamedTuple):
    """The result of `begin_sync`: files to sync, then `directories`; `changes` is for `synced`."""

    files: list[File]
    directories: list[str]
    changes: int


class PartitionFiles:
    """The directory is created by the first append; the epochs are written before the recovery point covers a batch.

    Epochs that a crash loses are restored from the batches that recovery reads anyway. Failures of the disk are
    `OSError`.
    """

    __slots__ = ("_changes", "_named", "_saved", "_synced", "_topic_id", "directory", "epochs", "exist", "fs")

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        topic_id: uuid.UUID | None,
        epochs: LeaderEpochFileCache,
        *,
        exist: bool,
        saved: bool,
    ) -> None:
        self.fs = fs
        self.directory = directory
        self._topic_id = topic_id
        self.epochs = epochs
        self.exist = exist
        self._changes = 0
        self._saved = saved
        self._synced = exist and saved
        self._named = self._synced  # the directory's entry in its parent is on the disk

    def create(self) -> None:
        """Create the directory, and write the topic id."""
        self.fs.make_directory(self.directory)
        if self._topic_id is not None:
            write_topic_id(self.fs, self.directory, self._topic_id)
        self.exist = True
        self._saved = self._synced = self._named = False

    def note_epoch(self, epoch: int, offset: int) -> None:
        """Note that `epoch` begins at `offset`; -1 is no epoch."""
        if epoch >= 0 and self.epochs.assign(epoch, offset):
            self._saved = self._synced = False
            self._changes += 1

    def truncate_epochs(self, *, start: int | None = None, end: int | None = None) -> None:
        """Remove the epochs before offset `start`, or from offset `end` on."""
        changed = start is not None and self.epochs.truncate_from_start(start)
        if (end is not None and self.epochs.truncate_from_end(end)) or changed:
            self.save()

    def save(self) -> None:
        """Write the epochs, if the directory exists. The next `sync` syncs them."""
        if self.exist:
            self.fs.replace(self._path(LEADER_EPOCHS), render_epochs(self.epochs), sync=False)
            self._saved = True
            self._synced = False
            self._changes += 1

    def begin_sync(self) -> PendingFiles:
        """Return what must be synced for the partition to survive a loss of power.

        For a new partition this includes its directory's name. The caller syncs the names in the directory itself.
        """
        if not self.exist or self._synced:
            return PendingFiles([], [], self._changes)
        if not self._saved:
            self.save()
        names = (LEADER_EPOCHS,) if self._topic_id is None else (LEADER_EPOCHS, PARTITION_METADATA)
        directories = [] if self._named else [os.path.dirname(self.directory)]
        return PendingFiles([self.fs.file(self._path(name)) for name in names], directories, self._changes)

    def synced(self, changes: int) -> None:
        """Note that what `begin_sync` returned is on the disk."""
        self._synced = self._synced or changes == self._changes
        self._named = True

    def sync(self) -> None:
        """Return when the files and the directory's name are on the disk."""
        pending = self.begin_sync()
        for file in pending.files:
            file.sync()
            file.close()
        for directory in pending.directories:
            self.fs.sync_directory(directory)
        self.synced(pending.changes)

    def _path(self, name: str) -> str:
        return f"{self.directory}/{name}"
