"""One of the directories of `log.dirs`: its lock, its `meta.properties`, checkpoint files and clean-shutdown file."""

from __future__ import annotations

import logging
import os
import threading
import uuid
from contextlib import suppress
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log import checkpoints
from pyclient.broker_embedded.log.checkpoints import CorruptCheckpoint
from pyclient.broker_embedded.log.filesystem import FileSystem, Lock
from pyclient.broker_embedded.log.incremental_task import BlockingCall, IncrementalTask, run_here
from pyclient.clock import Rng
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")

CERTIFICATES: Final = "security-"
"""The names of certificates and keys, which a cluster may have made before its first start, begin with it."""

LOCK: Final = ".lock"
"""The file whose lock the broker has that uses the directory."""

_EXPECTED_IN_EMPTY: Final = frozenset({LOCK, "lost+found", checkpoints.META_PROPERTIES + ".tmp"})
"""Entries that a directory may have before a broker has used it."""
_AT_ONCE: Final = 250  # offsets that are rendered before a pause


class DataDirectory:
    """A directory with logs, which belongs to one node of one process at a time. Used from the logs' thread."""

    def __init__(self, path: str, fs: FileSystem) -> None:
        self.path = path
        self.directory_id = uuid.UUID(int=0)
        """The directory's own id (KIP-858), known when it is open."""
        self.was_clean = True
        self.clean_epoch = -1
        self._fs = fs
        self._lock: Lock | None = None
        self._offsets: dict[str, dict[TopicPartition, int]] = {}  # contents of the checkpoint files
        self._forgotten: dict[str, dict[TopicPartition, int]] = {name: {} for name in checkpoints.OF_PARTITIONS}
        """Removed logs whose offsets may still be in a file, and the number of the newest write begun before that."""
        self._checkpoint_lock = threading.Lock()
        self._checkpoints_begun = 0
        self._checkpoints_written: dict[str, int] = {}  # number of the newest write by name

    def __repr__(self) -> str:
        return f"<DataDirectory {self.path}>"

    def open(self, *, node_id: int, cluster_id: str | None, rng: Rng) -> str:
        """Lock the directory and read its identity. Return the cluster's id. Existing files are not changed.

        Raise `ConfigError` if another broker uses it, if it is another node's or cluster's, or if it is not empty and
        has no `meta.properties`; `OSError` if it cannot be created, read or written.
        """
        self._make()
        try:
            self._lock = self._fs.lock(self.file(LOCK))
        except BlockingIOError as error:
            raise errors.ConfigError(
                f"{self.path} is in use by another broker: stop it or choose another directory"
            ) from error
        try:
            self._refuse_foreign_directory()
            identity = identify(self._fs, self.path, node_id=node_id, cluster_id=cluster_id, rng=rng)
            self.directory_id = identity.directory_id
            shutdown = self._fs.read(self.file(checkpoints.CLEAN_SHUTDOWN))
            self.was_clean = identity.is_new or shutdown is not None
            self.clean_epoch = -1 if shutdown is None else checkpoints.parse_clean_shutdown(shutdown)
        except BaseException:
            self.release()
            raise
        return identity.cluster_id

    def take_into_use(self) -> None:
        """Remove the clean-shutdown file: files change from now on, and the next start checks them after a crash."""
        self._fs.remove(self.file(checkpoints.CLEAN_SHUTDOWN))
        self._fs.sync_directory(self.path)

    def mark_clean(self, broker_epoch: int) -> None:
        """Write the clean-shutdown file: every log in the directory was closed cleanly."""
        self._fs.replace(self.file(checkpoints.CLEAN_SHUTDOWN), checkpoints.render_clean_shutdown(broker_epoch))

    def release(self) -> None:
        """Release the lock of the directory."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def file(self, name: str) -> str:
        """Return the path of an entry of the directory."""
        return f"{self.path}/{name}"

    # Checkpoints

    def checkpoint(self, name: str) -> dict[TopicPartition, int]:
        """Return the offsets of a checkpoint file, read on first use. Empty if it is corrupt: then all is checked."""
        offsets = self._offsets.get(name)
        if offsets is None:
            try:
                offsets = checkpoints.read_offsets(self._fs, self.file(name))
            except CorruptCheckpoint as error:
                log.warning("%s: it is ignored", error)
                offsets = {}
            self._offsets[name] = offsets
        return offsets

    def forget(self, partition: TopicPartition) -> None:
        """Remove the checkpointed offsets of a log that is no longer in this directory."""
        for name in checkpoints.OF_PARTITIONS:
            if self.checkpoint(name).pop(partition, None) is not None:
                forgotten = self._forgotten[name]
                forgotten.pop(partition, None)
                forgotten[partition] = self._checkpoints_begun

    def has_forgotten(self, name: str) -> bool:
        """Return True if a checkpoint file may still have offsets of logs that were removed."""
        return bool(self._forgotten[name])

    def reset(self, partition: TopicPartition) -> None:
        """Remove checkpointed offsets of an earlier log with the name of a new one, also from the files on disk."""
        self.forget(partition)
        try:
            for name, forgotten in self._forgotten.items():
                if partition in forgotten:
                    run_here(self.write_checkpoint(name))
        except OSError as error:
            raise errors.KafkaStorageError(f"{partition}: the checkpoints cannot be written: {error}") from error

    def write_checkpoint(self, name: str) -> IncrementalTask[None]:
        """Write a checkpoint file, unless a write that began later was faster: its contents are newer, with deletions
        that this one lacks."""
        self._checkpoints_begun += 1
        number = self._checkpoints_begun
        offsets = self.checkpoint(name)
        partitions = list(offsets)
        count, parts = 0, [b""]
        for first in range(0, len(partitions), _AT_ONCE):
            chunk = partitions[first : first + _AT_ONCE]
            items = [(partition, offsets[partition]) for partition in chunk if partition in offsets]
            parts.append(checkpoints.render_lines(items))
            count += len(items)
            if len(partitions) > _AT_ONCE:
                yield None
        parts[0] = checkpoints.render_head(count)
        content = b"".join(parts)

        def write() -> None:
            with self._checkpoint_lock:  # called on the loop and on the disk thread
                if self._checkpoints_written.get(name, 0) < number:
                    self._fs.replace(self.file(name), content)
                    self._checkpoints_written[name] = number

        yield BlockingCall(write)
        forgotten = self._forgotten[name]
        while forgotten:
            removed = next(iter(forgotten))
            # this write may have begun before the removal; also for the following ones
            if forgotten[removed] >= number:
                break
            del forgotten[removed]

    def _make(self) -> None:
        if not self._fs.exists(self.path):
            self._fs.make_directory(self.path)
            with suppress(PermissionError):  # a parent directory without read permission
                self._fs.sync_directory(os.path.dirname(os.path.abspath(self.path)))

    def _refuse_foreign_directory(self) -> None:
        if self._fs.exists(self.file(checkpoints.META_PROPERTIES)):
            return
        names = [*self._fs.list_files(self.path), *self._fs.list_directories(self.path)]
        others = sorted(name for name in set(names) - _EXPECTED_IN_EMPTY if not name.startswith(CERTIFICATES))
        if others:
            raise errors.ConfigError(
                f"{self.path} is not empty ({others[0]!r}, {len(others)} in all) and has no "
                f"{checkpoints.META_PROPERTIES}, so it is no broker's: choose an empty directory, or put the "
                f"{checkpoints.META_PROPERTIES} back that was there"
            )


class MetaProperties(NamedTuple):
    """The cluster's id (22 characters), the directory's id (KIP-858), and whether the directory is new."""

    cluster_id: str
    directory_id: uuid.UUID
    is_new: bool


def cluster_of(fs: FileSystem, data_dir: str, cluster_id: str | None, *, given: bool) -> str | None:
    """Return the cluster that a node belongs to: `cluster_id` if it was given, else that of the directory's identity.

    A directory that is new belongs to `cluster_id`. Raise `ConfigError` for an identity that cannot be read.
    """
    path = f"{data_dir}/{checkpoints.META_PROPERTIES}"
    try:
        content = None if given else fs.read(path)
    except NotADirectoryError:  # opening the logs says so
        content = None
    stored = None if content is None else checkpoints.parse_identity(content, path).get("cluster.id")
    return stored or cluster_id


def identify(fs: FileSystem, data_dir: str, *, node_id: int, cluster_id: str | None, rng: Rng) -> MetaProperties:
    """Read or write the directory's identity. Raise `ConfigError` if it is another node's or cluster's."""
    path = f"{data_dir}/{checkpoints.META_PROPERTIES}"
    content = fs.read(path)
    known = {} if content is None else checkpoints.parse_identity(content, path)
    _compare(path, "node.id", known, str(node_id))
    _compare(path, "cluster.id", known, cluster_id)
    cluster = known.get("cluster.id") or cluster_id or checkpoints.uuid_text(_random_id(rng))
    stored = known.get("directory.id")
    try:
        directory_id = checkpoints.uuid_from_text(stored) if stored else _random_id(rng)
    except ValueError as error:
        raise errors.ConfigError(f"{path}: directory.id {stored!r} is not an id") from error
    if not stored or "cluster.id" not in known:
        identity = checkpoints.render_identity(cluster_id=cluster, node_id=node_id, directory_id=directory_id)
        fs.replace(path, identity)
    return MetaProperties(cluster, directory_id, content is None)


def _compare(path: str, name: str, known: dict[str, str], ours: str | None) -> None:
    stored = known.get(name)
    if stored is not None and ours is not None and stored != ours:
        raise errors.ConfigError(f"{path}: the directory belongs to {name} {stored}, this broker has {ours}")


def _random_id(rng: Rng) -> uuid.UUID:
    """Return a random (version 4) id whose text does not begin with a dash, like a command-line option."""
    while True:
        made = uuid.UUID(int=rng.getrandbits(128), version=4)
        if not checkpoints.uuid_text(made).startswith("-"):
            return made
