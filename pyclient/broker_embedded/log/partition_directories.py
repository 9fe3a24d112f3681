"""Classifies the entries of a data directory: a partition's log, one that is being deleted, or foreign files.

Nothing is removed or renamed here: `Reconciliation` only decides what to do with the directories found at the start.
"""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyclient.broker_embedded.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    stored_topic_id,
    uuid_text,
)
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.types import TopicPartition

DELETED: Final = "-delete"
STRAY: Final = "-stray"
FUTURE: Final = "-future"


DATA_FILE: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")
_TEMPORARY: Final = (".deleted", ".cleaned", ".swap", ".tmp")
_LONGEST_NAME: Final = 255
_TOPIC: Final = r"(?!\.{1,2}-\d)[a-zA-Z0-9._-]{1,249}"
_LOG: Final = re.compile(rf"({_TOPIC})-(0|[1-9][0-9]{{0,9}})")
_FUTURE: Final = re.compile(rf"({_TOPIC})-(0|[1-9][0-9]{{0,9}})\.[0-9a-f]{{32}}{FUTURE}")
_DELETED: Final = re.compile(rf"{_TOPIC}-(0|[1-9][0-9]{{0,9}})\.[0-9a-f]{{32}}{DELETED}")


def is_log_file(name: str) -> bool:
    """Return True for a name that a file in a partition's directory can have, finished or not."""
    return _is_final(name) or is_temporary(name)


def _is_final(name: str) -> bool:
    return name in (LEADER_EPOCHS, PARTITION_METADATA) or DATA_FILE.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Return True for the name of a file that an interrupted operation left."""
    stem = name
    for suffix in _TEMPORARY:
        stem = stem.removesuffix(suffix)
    return stem != name and _is_final(stem)


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition of a log directory's name; None for any other name."""
    found = _LOG.fullmatch(name)
    return None if found is None else TopicPartition(found[1], int(found[2]))


def deleted_index_of(name: str) -> int | None:
    """Return the partition number in the name of a directory marked for deletion; None for any other name."""
    found = _DELETED.fullmatch(name)
    return None if found is None else int(found[1])


def copy_of(name: str) -> TopicPartition | None:
    """Return the partition in the name of a copy (a log that is being moved); None for any other name."""
    found = _FUTURE.fullmatch(name)
    return None if found is None else TopicPartition(found[1], int(found[2]))


def marked_name(partition: TopicPartition, number: int, suffix: str) -> str:
    """Return Kafka's name for a directory that is deleted, stray or a copy; `number` are 128 random bits."""
    ending = f"-{partition.partition}.{number:032x}{suffix}"
    return partition.topic[: _LONGEST_NAME - len(ending)] + ending


def foreign_entries(fs: FileSystem, directory: str) -> list[str]:
    """Return the names in a directory that are no log files; empty if there is no such directory."""
    if not fs.exists(directory):
        return []
    return [name for name in fs.list_files(directory) if not is_log_file(name)] + fs.list_directories(directory)


class Fate(enum.Enum):
    """The decision about a directory."""

    DELETE = "delete"
    """It belongs to a topic that the metadata log removed."""
    STRAY = "stray"
    """It is the log of a partition that the metadata do not know: rename and keep it."""
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
    fate: Fate
    reason: str


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Compares directories with the metadata: `topic_id` of an existing partition, the `topics` by id, and the
    `removed` ones."""

    fs: FileSystem
    topic_id: Callable[[TopicPartition], uuid.UUID | None]
    topics: Mapping[uuid.UUID, str]
    removed: Collection[uuid.UUID]

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
        unknown = Fate.IGNORE if expected is None else Fate.OFFLINE
        try:
            stored = stored_topic_id(self.fs, path)
            foreign = foreign_entries(self.fs, path) if stored is None else []
            empty = stored is None and not foreign and not self.fs.list_files(path)
        except OSError as error:
            return Found(path, partition, unknown, f"{PARTITION_METADATA} cannot be read: {error}")
        if stored is not None and stored in self.removed:
            return Found(path, partition, Fate.DELETE, f"topic id {uuid_text(stored)} was deleted")
        if foreign:
            return Found(path, partition, unknown, f"no {PARTITION_METADATA}, and {foreign[0]!r} is no file of a log")
        if expected is None:
            reason = f"the metadata have no partition {partition}"
            if stored is not None:
                reason += f" of topic id {uuid_text(stored)}"
            return Found(path, partition, Fate.IGNORE if empty else Fate.STRAY, reason)
        if stored in (expected, None):
            return None
        return Found(path, partition, Fate.OFFLINE, contradiction(path, partition, stored, expected))

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
                yield Found(path, partition, Fate.RESTORE, f"topic {name!r} is not deleted")
            else:
                yield Found(path, partition, Fate.DELETE, "it is marked for deletion")


def contradiction(directory: str, partition: TopicPartition, stored: uuid.UUID, expected: uuid.UUID) -> str:
    """Return the error text about a directory with another topic's id."""
    return (
        f"{directory}/{PARTITION_METADATA} says topic id {uuid_text(stored)}, the metadata say {uuid_text(expected)}: "
        f"{partition} is offline and its files stay as they are; write `topic_id: {uuid_text(expected)}` there if they "
        "are this topic's, or move the directory away"
    )
