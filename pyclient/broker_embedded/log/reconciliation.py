"""Compares the directories found at the start with the metadata log, and acts on the differences."""

from __future__ import annotations

import enum
import logging
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyclient.broker_embedded.log.checkpoints import PARTITION_METADATA, stored_topic_id, uuid_text
from pyclient.broker_embedded.log.data_directories import DataDirectories, LogDeletion
from pyclient.broker_embedded.log.data_directory import DataDirectory
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.partition_directories import (
    DELETED,
    STRAY,
    copy_of,
    foreign_entries,
    marked_name,
)
from pyclient.clock import Rng
from pyclient.types import TopicPartition

log = logging.getLogger("pyclient.broker_embedded")


class DirectoryDecision(enum.Enum):
    """The decision about a directory."""

    DELETE = "delete"
    """It belongs to a topic that the metadata log removed."""
    STRAY = "stray"
    """It is the log of a partition that has no replica on this node by the metadata, or of a topic that they do not
    know any more: rename and keep it."""
    IGNORE = "ignore"
    """It is no log, or cannot be read, and has no partition: do not change it."""
    OFFLINE = "offline"
    """Its partition exists, but it has another topic's id: do not change it, and do not serve the partition."""
    RESTORE = "restore"
    """It is marked for deletion, but its topic is not removed: restore its name."""


class Found(NamedTuple):
    """A directory with a decision. `partition` is the one that its name says, `reason` a text for the log."""

    path: str
    partition: TopicPartition
    decision: DirectoryDecision
    reason: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Compares directories with the metadata: `topic_id` of a partition with a replica on this node, the `topics` by
    id, and the `removed` ones. A node that `has_others` may have missed what was removed."""

    fs: FileSystem
    topic_id: Callable[[TopicPartition], uuid.UUID | None]
    topics: Mapping[uuid.UUID, str]
    removed: Collection[uuid.UUID]
    has_others: bool = False

    def logs(self, logs: Iterable[tuple[TopicPartition, str]], *, check_known: bool) -> Iterator[Found]:
        """Yield decisions about directories that have the name of a log; none for those in order.

        Without `check_known`, directories of existing partitions are not read: opening them does that.
        """
        for partition, path in logs:
            expected = self.topic_id(partition)
            if expected is None or check_known:
                found = self._log(partition, path, expected)
                if found is not None:
                    yield found

    def _log(self, partition: TopicPartition, path: str, expected: uuid.UUID | None) -> Found | None:
        unknown = DirectoryDecision.IGNORE if expected is None else DirectoryDecision.OFFLINE
        try:
            stored = stored_topic_id(self.fs, path)
            foreign = foreign_entries(self.fs, path) if stored is None else []
            empty = stored is None and not foreign and not self.fs.list_files(path)
        except OSError as error:
            return Found(path, partition, unknown, f"{PARTITION_METADATA} cannot be read: {error}")
        if stored is not None and stored in self.removed:
            return Found(path, partition, DirectoryDecision.DELETE, f"topic id {uuid_text(stored)} was deleted")
        if foreign:
            return Found(path, partition, unknown, f"no {PARTITION_METADATA}, and {foreign[0]!r} is no file of a log")
        if expected is None:
            reason = f"the metadata have no {partition} on this node"
            if stored is not None:
                reason += f" of topic id {uuid_text(stored)}"
            return Found(path, partition, DirectoryDecision.IGNORE if empty else DirectoryDecision.STRAY, reason)
        if stored in (expected, None):
            return None
        if self.has_others and stored not in self.topics:
            reason = f"topic id {uuid_text(stored)} was deleted, {partition} is of topic id {uuid_text(expected)}"
            return Found(path, partition, DirectoryDecision.STRAY, reason)
        return Found(path, partition, DirectoryDecision.OFFLINE, contradiction(path, partition, stored, expected))

    def marked(self, paths: Iterable[tuple[int, str]]) -> Iterator[Found]:
        """Yield decisions about directories (partition number, path) that are marked for deletion."""
        for index, path in paths:
            try:
                stored = stored_topic_id(self.fs, path)
            except OSError:  # the name is enough
                stored = None
            name = None if stored is None else self.topics.get(stored)
            partition = TopicPartition(name or "", index)
            if name is not None and self.topic_id(partition) == stored:
                yield Found(path, partition, DirectoryDecision.RESTORE, f"topic {name!r} is not deleted")
            else:
                yield Found(path, partition, DirectoryDecision.DELETE, "it is marked for deletion")


def contradiction(directory: str, partition: TopicPartition, stored: uuid.UUID, expected: uuid.UUID) -> str:
    """Return the error text about a directory with another topic's id."""
    return (
        f"{directory}/{PARTITION_METADATA} says topic id {uuid_text(stored)}, the metadata say {uuid_text(expected)}: "
        f"{partition} is offline and its files stay as they are; write `topic_id: {uuid_text(expected)}` there if they "
        "are this topic's, or move the directory away"
    )


class StartupReconciler:
    """Makes the directories found at the start agree with the metadata.

    Logs leave `unopened`, the paths of the logs to open; the reasons of those that contradict the metadata go to
    `offline`.
    """

    def __init__(
        self,
        directories: DataDirectories,
        deletion: LogDeletion,
        rng: Rng,
        *,
        unopened: dict[TopicPartition, str],
        offline: dict[TopicPartition, str],
    ) -> None:
        self._directories = directories
        self._deletion = deletion
        self._fs = directories.fs
        self._rng = rng
        self._unopened = unopened
        self._offline = offline

    def keep_named_duplicates(self) -> None:
        """Keep one of the two directories of a log whose move was interrupted: the one that the metadata name."""
        directories = self._directories
        for partition, other in directories.found.duplicates:
            home = directories.homes[partition]
            if other.directory_id == directories.directory_for(partition):
                directories.homes[partition], self._unopened[partition] = other, other.file(str(partition))
                home, other = other, home
            path = other.file(str(partition))
            try:
                self._set_aside(partition, path, f"{home.path} has the log of {partition}")
            except OSError as error:
                directories.failed = True
                log.error("%s stays although %s has the log, too: %s", path, home.path, error)
        directories.found.duplicates.clear()

    def interrupted_moves(self, topics: Mapping[uuid.UUID, str]) -> list[tuple[TopicPartition, DataDirectory]]:
        """Return the moves that a crash interrupted, logs and their targets, and delete their incomplete copies."""
        moves = []
        for path in self._directories.found.copies:
            stored = stored_topic_id(self._fs, path)
            partition = copy_of(os.path.basename(path))
            home = None if partition is None else self._directories.homes.get(partition)
            parent = os.path.dirname(path)
            target = next((each for each in self._directories.online if each.path == parent), None)
            is_ours = stored is not None and partition is not None and topics.get(stored) == partition.topic
            if partition is None or home is None or target is None or target is home or not is_ours:
                log.warning("%s stays as it is: no log is on its way there", path)
                continue
            self._deletion.schedule(path)
            moves.append((partition, target))
        self._directories.found.copies.clear()
        return moves

    def apply(self, decisions: Reconciliation, *, check_known: bool) -> None:
        """Delete, rename or restore directories. A failure is logged, and the directory stays."""
        marked = self._directories.found.marked
        found = [*decisions.marked(marked), *decisions.logs(list(self._unopened.items()), check_known=check_known)]
        marked.clear()
        for each in found:
            try:
                self._apply(each)
            except OSError as error:
                self._directories.failed = True
                self._unopened.pop(each.partition, None)
                log.error("%s stays as it is (%s): %s", each.path, each.reason, error)

    def _apply(self, found: Found) -> None:
        partition, path = found.partition, found.path
        if found.decision is DirectoryDecision.RESTORE:
            self._restore(found)
        elif path.endswith(DELETED):
            self._deletion.schedule(path)
        elif found.decision is DirectoryDecision.OFFLINE:
            del self._unopened[partition]
            self._offline[partition] = f"{path}: {found.reason}"
            log.error("%s is offline, nothing in %s is changed: %s", partition, path, found.reason)
        elif found.decision is DirectoryDecision.IGNORE:
            del self._unopened[partition]
            self._directories.homes.pop(partition, None)
            log.warning("%s is no log of this broker and stays as it is: %s", path, found.reason)
        else:
            del self._unopened[partition]
            self._directories.forget(partition)
            if found.decision is DirectoryDecision.DELETE:
                log.info("%s is deleted: %s", path, found.reason)
                self._deletion.mark(partition, path)
            else:
                self._set_aside(partition, path, found.reason)

    def _restore(self, found: Found) -> None:
        partition, path = found.partition, found.path
        home = self._directories.directory_of(path)
        own = home.file(str(partition))
        if self._fs.exists(own) or partition in self._directories.homes:
            log.warning("%s stays as it is: %s, but %s exists already", path, found.reason, own)
            return
        self._fs.rename(path, own)
        self._unopened[partition] = own
        self._directories.homes[partition] = home
        log.warning("%s is renamed back to %s: %s", path, own, found.reason)

    def _set_aside(self, partition: TopicPartition, path: str, reason: str) -> None:
        home = self._directories.directory_of(path)
        stray = home.file(marked_name(partition, self._rng.getrandbits(128), STRAY))
        self._fs.rename(path, stray)
        log.warning("%s is kept as %s, remove it if it is not needed: %s", path, stray, reason)
