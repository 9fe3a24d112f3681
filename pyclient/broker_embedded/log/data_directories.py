"""The data directories of a broker (`log.dirs`): which log is in which, where new logs go, and deletion."""

from __future__ import annotations

import logging
import os
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.data_directory import DataDirectory
from pyclient.broker_embedded.log.disk_thread import DiskThread, Dropped
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.partition_directories import (
    DELETED,
    FUTURE,
    copy_of,
    deleted_index_of,
    marked_name,
    partition_of,
)
from pyclient.clock import Clock, Rng
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")

_METADATA: Final = TopicPartition("__cluster_metadata", 0)  # the controller's: it opens that log itself


@dataclass(slots=True)
class FoundDirectories:
    """The directories of partitions that the start found, until the reconciliation with the metadata."""

    logs: dict[TopicPartition, str] = field(default_factory=dict)
    """The paths of logs."""
    duplicates: list[tuple[TopicPartition, DataDirectory]] = field(default_factory=list)
    """Logs that another data directory has, too."""
    copies: list[str] = field(default_factory=list)
    """Incomplete copies of interrupted moves."""
    marked: list[tuple[int, str]] = field(default_factory=list)
    """Partition numbers and paths of directories that are marked for deletion."""


class DataDirectories:
    """The data directories at `paths`, which belong to one node of one process at a time.

    The first one has the metadata log, and the node does not start without it. Another one that fails is offline, with
    the partitions in it.
    """

    def __init__(self, paths: Sequence[str], *, fs: FileSystem, node_id: int, cluster_id: str | None, rng: Rng) -> None:
        self.paths = tuple(paths)
        self.fs = fs
        self.online: list[DataDirectory] = []
        """The open directories, in the order of log.dirs."""
        self.offline: dict[str, str] = {}
        """The paths of the offline directories, and their errors."""
        self.cordoned: frozenset[str] = frozenset()
        """Paths of directories that get no new partitions (cordoned.log.dirs)."""
        self.homes: dict[TopicPartition, DataDirectory] = {}
        """The directories of the logs."""
        self.found = FoundDirectories()
        self.directory_for: Callable[[TopicPartition], uuid.UUID | None] = lambda _partition: None
        """Returns the id of the directory that the metadata assign a partition to; None if they assign none."""
        self.was_clean = True
        """True if every directory was closed cleanly, or is new."""
        self.clean_epoch = -1
        """The broker epoch at the clean shutdown, -1 if it is not known."""
        self.broker_epoch = -1
        """The broker epoch that a clean shutdown notes."""
        self.failed = False
        """True after a failed write, rename or sync: the next start has to check all logs."""
        self._in_use = False
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._rng = rng

    def __repr__(self) -> str:
        return f"<DataDirectories online={self.online} offline={list(self.offline)}>"

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id, 22 characters: the directory's, or the one given, or a new one."""
        if self._cluster_id is None:
            raise RuntimeError("the data directory is not open")
        return self._cluster_id

    @property
    def directory_id(self) -> uuid.UUID:
        """Return the directory id (KIP-858) of the first data directory."""
        if not self.online:
            raise RuntimeError("the data directory is not open")
        return self.online[0].directory_id

    # Open and close

    def open(self) -> None:
        """Lock the directories and list their logs. Existing files are not changed before `take_into_use`.

        Raise `ConfigError` if one cannot be created or written, if another broker uses it, if it is another node's or
        cluster's, or if it is not empty and has no `meta.properties`.
        """
        try:
            for path in self.paths:
                self._open_directory(path)
            self.was_clean = all(directory.was_clean for directory in self.online)
            epochs = {directory.clean_epoch for directory in self.online}
            self.clean_epoch = epochs.pop() if len(epochs) == 1 else -1
            for name in () if self.was_clean else checkpoints.OF_PARTITIONS:  # they are needed at once
                for directory in self.online:
                    directory.checkpoint(name)
        except OSError as error:
            self.release()
            raise errors.ConfigError(f"the broker cannot keep its data in {self.paths[0]}: {error}") from error
        except BaseException:
            self.release()
            raise

    def _open_directory(self, path: str) -> None:
        directory = DataDirectory(path, self.fs)
        try:
            self._cluster_id = directory.open(node_id=self._node_id, cluster_id=self._cluster_id, rng=self._rng)
            self._find_partitions(directory)
        except OSError as error:
            directory.release()
            if path == self.paths[0]:
                raise errors.ConfigError(f"the broker cannot keep its data in {path}: {error.strerror}") from error
            log.error("%s is offline, and so are the partitions in it: %s", path, error)
            self.offline[path] = str(error)
            return
        self.online.append(directory)

    def _find_partitions(self, directory: DataDirectory) -> None:
        found = self.found
        for name in self.fs.list_directories(directory.path):
            partition = partition_of(name)
            deleted = deleted_index_of(name)
            if deleted is not None:
                found.marked.append((deleted, directory.file(name)))
            elif copy_of(name) is not None:
                found.copies.append(directory.file(name))
            elif partition is None or partition == _METADATA:
                continue
            elif partition in self.homes:
                found.duplicates.append((partition, directory))
            else:
                self.homes[partition] = directory
                found.logs[partition] = directory.file(name)

    def take_into_use(self) -> None:
        """Remove the clean-shutdown files: files change from now on, and the next start checks them after a crash."""
        for directory in self.online:
            directory.take_into_use()
        self._in_use = True

    def fail(self, home: DataDirectory, reason: str) -> None:
        """Take a directory offline, which is not the first one: nothing is written there any more."""
        log.error("%s is offline, and so are the partitions in it: %s", home.path, reason)
        self.online.remove(home)
        self.offline[home.path] = reason
        self.failed = True
        home.release()

    @property
    def may_be_marked_clean(self) -> bool:
        """Return True if the directories were in use and nothing has failed."""
        return self._in_use and not self.failed

    def release(self) -> None:
        """Release the locks of the directories."""
        for directory in self.online:
            directory.release()

    # Logs

    def path(self, partition: TopicPartition) -> str:
        """Return the path of a log, or the one of a new log."""
        return self.homes.get(partition, self.online[0]).file(str(partition))

    def directory_of(self, path: str) -> DataDirectory:
        """Return the data directory that an entry is in."""
        parent = os.path.dirname(path)
        return next((each for each in self.online if each.path == parent), self.online[0])

    def place(self, partition: TopicPartition) -> DataDirectory:
        """Return the directory for a new log: the one that the metadata name, or else the one with the fewest logs.

        Raise `KafkaStorageError` if none of those online is named while others are offline.
        """
        wanted = self.directory_for(partition)
        found = next((each for each in self.online if each.directory_id == wanted), None)
        if found is not None:
            return found
        if self.offline:
            paths = ", ".join(self.offline)
            raise errors.KafkaStorageError(
                f"{partition} is in none of the directories that are online; offline: {paths}"
            )
        counts = Counter(home.path for home in self.homes.values())
        return min(self.online, key=lambda each: (each.path in self.cordoned, counts[each.path]))

    def place_new(self, partition: TopicPartition) -> None:
        """Choose the directory of a new log, without checkpointed offsets of an earlier log of that name."""
        home = self.homes[partition] = self.place(partition)
        home.reset(partition)

    def forget(self, partition: TopicPartition) -> None:
        """Remove a log from the directories, with its checkpointed offsets."""
        home = self.homes.pop(partition, None)
        if home is not None:
            home.forget(partition)

    def start_offset(self, partition: TopicPartition) -> int:
        """Return the checkpointed start of a log; 0 if that is above its high watermark.

        A start beyond the end would drop the whole log, and a checkpoint has no checksum.
        """
        home = self.homes[partition]
        start = home.checkpoint(checkpoints.LOG_STARTS).get(partition, 0)
        committed = home.checkpoint(checkpoints.HIGH_WATERMARKS).get(partition, 0) if start else 0
        if start <= committed:
            return start
        log.error(
            "%s: ignoring the checkpointed start %d: it is above the high watermark %d", partition, start, committed
        )
        return 0


class LogDeletion:
    """Directories that are marked for deletion (`-delete`) and removed after `file.delete.delay.ms`.

    `delay_ms` returns that delay. Files are removed on the disk thread if it is in use, since large ones take long.
    """

    def __init__(
        self,
        directories: DataDirectories,
        disk_thread: DiskThread,
        clock: Clock,
        rng: Rng,
        delay_ms: Callable[[], int],
    ) -> None:
        self._directories = directories
        self._fs = directories.fs
        self._disk_thread = disk_thread
        self._clock = clock
        self._rng = rng
        self._delay_ms = delay_ms
        self._queue: list[tuple[int, str]] = []  # (when, path)

    def mark(self, partition: TopicPartition, path: str) -> None:
        """Rename a log's directory, if it exists, and remove it after the delay."""
        if self._fs.exists(path):
            home = self._directories.directory_of(path)
            marked = home.file(marked_name(partition, self._rng.getrandbits(128), DELETED))
            self._fs.rename(path, marked)
            self._queue.append((self._clock.time_ms() + self._delay_ms(), marked))

    def schedule(self, path: str) -> None:
        """Let the next `remove_due` remove a directory."""
        self._queue.append((self._clock.time_ms(), path))

    def remove_due(self, now_ms: int) -> None:
        """Remove the directories whose delay is over."""
        due = [path for when, path in self._queue if when <= now_ms]
        self._queue = [(when, path) for when, path in self._queue if when > now_ms]
        if due:
            self.remove(due)

    def remove_all(self) -> None:
        """Remove all directories at once, and block until that is done."""
        for _when, path in self._queue:
            self._fs.remove_tree(path)

    def remove(self, paths: list[str]) -> None:
        """Remove deleted files and directories."""

        def remove() -> None:
            for path in paths:
                if path.endswith((DELETED, FUTURE)):
                    self._fs.remove_tree(path)
                else:
                    self._fs.remove(path)

        def done(_answer: None, failure: Exception | None) -> None:
            if failure is not None and not isinstance(failure, Dropped):
                log.error("deleted files stay until the next start: %s", failure)

        if self._disk_thread.wake is None:
            remove()
        else:
            self._disk_thread.submit(remove, done)
