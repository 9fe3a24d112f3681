"""The small text files: offset and epoch checkpoints, topic and directory ids, the clean-shutdown file."""

from __future__ import annotations

import base64
import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from pyclient import errors
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.leader_epoch_cache import LeaderEpochFileCache
from pyclient.types import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
OF_PARTITIONS: Final = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

log = logging.getLogger("pyclient.broker_embedded")

_VERSION: Final = "0"


class CorruptCheckpoint(ValueError):
    """A checkpoint file that cannot be parsed; the text names the file and what is wrong."""


def render_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return an offset checkpoint file."""
    return render_head(len(offsets)) + render_lines(offsets.items())


def render_head(count: int) -> bytes:
    """Return the head of an offset checkpoint file with `count` partitions."""
    return f"{_VERSION}\n{count}\n".encode()


def render_lines(offsets: Iterable[tuple[TopicPartition, int]]) -> bytes:
    """Return lines of an offset checkpoint file."""
    return "".join(f"{partition.topic} {partition.partition} {offset}\n" for partition, offset in offsets).encode()


def parse_offsets(content: bytes, path: str) -> dict[TopicPartition, int]:
    """Parse an offset checkpoint file. Raise `CorruptCheckpoint`. Empty is valid: Kafka creates it before it writes."""
    offsets: dict[TopicPartition, int] = {}
    if not content:
        return offsets
    for fields in _parse(content, path, 3):
        offsets[TopicPartition(fields[0], _number(fields[1], path))] = _number(fields[2], path)
    return offsets


def render_epochs(epochs: LeaderEpochFileCache) -> bytes:
    """Return a leader-epoch-checkpoint file."""
    return _render(f"{epoch} {start}" for epoch, start in epochs)


def parse_epochs(content: bytes, path: str) -> LeaderEpochFileCache:
    """Parse a leader-epoch-checkpoint file. Raise `CorruptCheckpoint`."""
    entries = [(_number(epoch, path), _number(start, path)) for epoch, start in _parse(content, path, 2)]
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start <= start:
            raise CorruptCheckpoint(f"{path}: epoch {next_epoch} from {next_start} follows {epoch} from {start}")
    return LeaderEpochFileCache(entries)


def render_topic_id(topic_id: uuid.UUID) -> bytes:
    """Return a partition.metadata file."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}\n".encode()


def parse_topic_id(content: bytes, path: str) -> uuid.UUID:
    """Parse a partition.metadata file. Raise `CorruptCheckpoint`."""
    values = _properties(content, path, ":")
    if values.get("version") != "0":
        raise CorruptCheckpoint(f"{path}: version {values.get('version')!r} is unknown; 0 is readable")
    try:
        return uuid_from_text(values["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptCheckpoint(f"{path}: no topic id: {error!r}") from error


def stored_topic_id(fs: FileSystem, directory: str) -> uuid.UUID | None:
    """Return the topic id in a partition's directory; None if it is missing or cannot be parsed.

    A loss of power can corrupt a file that was never synced: then no record in the directory was synced, either.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    content = fs.read(path)
    try:
        return None if content is None else parse_topic_id(content, path)
    except CorruptCheckpoint as error:
        log.warning("a topic id cannot be read: %s", error)
        return None


def write_topic_id(fs: FileSystem, directory: str, topic_id: uuid.UUID) -> None:
    """Write the topic id into a partition's directory. Not synced."""
    fs.replace(f"{directory}/{PARTITION_METADATA}", render_topic_id(topic_id), sync=False)


def uuid_text(value: uuid.UUID) -> str:
    """Return Kafka's text form of an id: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> uuid.UUID:
    """Return the id of Kafka's text form. Raise `ValueError`."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def render_identity(*, cluster_id: str, node_id: int, directory_id: uuid.UUID) -> bytes:
    """Return a meta.properties file, version 1."""
    return f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={uuid_text(directory_id)}\n".encode()


def parse_identity(content: bytes, path: str) -> dict[str, str]:
    """Parse a meta.properties file. Raise `errors.ConfigError` if it is unreadable or of an unknown version."""
    try:
        values = _properties(content, path, "=")
    except CorruptCheckpoint as error:
        raise errors.ConfigError(str(error)) from error
    if values.get("version") not in ("0", "1"):
        raise errors.ConfigError(f"{path}: version {values.get('version')!r} is unknown; 0 and 1 are readable")
    return values


def render_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """Return the clean-shutdown file: all logs were closed cleanly."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch


def parse_clean_shutdown(content: bytes) -> int:
    """Return the broker epoch of a clean-shutdown file, -1 if it has none that can be read."""
    try:
        epoch = json.loads(content)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):  # an empty file of an old release, which is as good
        return -1
    return epoch if isinstance(epoch, int) else -1


def read_offsets(fs: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Return the offset checkpoint at `path`; empty if there is none. Raise `CorruptCheckpoint`."""
    content = fs.read(path)
    return {} if content is None else parse_offsets(content, path)


def _render(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(line + "\n" for line in (_VERSION, str(len(entries)), *entries)).encode()


def _parse(content: bytes, path: str, width: int) -> list[list[str]]:
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path}: not text") from error
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptCheckpoint(f"{path}: does not begin with version {_VERSION} and a count")
    entries = [line.split() for line in lines[2:]]
    if _number(lines[1], path) != len(entries):
        raise CorruptCheckpoint(f"{path}: promises {lines[1]} entries and has {len(entries)}")
    if any(len(entry) != width for entry in entries):
        raise CorruptCheckpoint(f"{path}: an entry has not {width} fields")
    return entries


def _number(text: str, path: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise CorruptCheckpoint(f"{path}: {text!r} is not a number")
    return int(text)


def _properties(content: bytes, path: str, separator: str) -> dict[str, str]:
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path}: not text") from error
    pairs = (line.split(separator, 1) for line in lines if line.strip() and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in (pair for pair in pairs if len(pair) == 2)}
