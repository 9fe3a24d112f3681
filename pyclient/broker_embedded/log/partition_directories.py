"""The names in a data directory: of a partition's log, and of one that is being deleted, stray or a copy."""

from __future__ import annotations

import re
from typing import Final

from pyclient.broker_embedded.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.types import TopicPartition

DELETED: Final = "-delete"
STRAY: Final = "-stray"
FUTURE: Final = "-future"
DAMAGED: Final = ".damaged"
"""Suffix of a file with damaged bytes that were removed from a segment; it is never read."""


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
    return name in (LEADER_EPOCHS, PARTITION_METADATA) or DATA_FILE.fullmatch(name.removesuffix(DAMAGED)) is not None


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
