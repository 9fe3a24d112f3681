"""The `.snapshot` file: the state of a partition's producers at the offset in its name."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.producer_state import BatchMetadata, ProducerEntry
from pyclient.records.crc import crc32c

_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshot(ValueError):
    """A snapshot that cannot be used; the text is the reason."""


def render_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the file's contents. Of each producer only the last batch is kept, as in Kafka."""
    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, entry.last_timestamp)
        rows.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.transaction_start,
            )
        )
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def parse_snapshot(content: bytes) -> list[ProducerEntry]:
    """Return the producers of a snapshot file. Raise `CorruptSnapshot`."""
    if len(content) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(content)} bytes are too few")
    version, crc = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is unknown")
    if crc32c(body) != crc:
        raise CorruptSnapshot("the CRC is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries do not fill {len(content)} bytes")
    return [_entry(*row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]


def write_snapshot(fs: FileSystem, directory: str, offset: int, entries: Iterable[ProducerEntry]) -> None:
    """Write the producers as of `offset`: a restart need not read the batches before it. Not synced: it has a CRC."""
    fs.replace(f"{directory}/{offset:020d}.snapshot", render_snapshot(entries), sync=False)


def remove_snapshot(fs: FileSystem, directory: str, offset: int) -> None:
    """Remove the snapshot for `offset`, if there is one."""
    fs.remove(f"{directory}/{offset:020d}.snapshot")


def drop_snapshots_behind(fs: FileSystem, directory: str, offset: int) -> None:
    """Remove snapshots for offsets above `offset`."""
    for name in fs.list_files(directory):
        if name.endswith(".snapshot") and name[:20].isdigit() and int(name[:20]) > offset:
            fs.remove(f"{directory}/{name}")


def _entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> ProducerEntry:
    batches = [] if last_offset < 0 else [BatchMetadata(last_sequence, last_offset, offset_delta, timestamp)]
    return ProducerEntry(
        producer_id,
        epoch,
        batches=batches,
        coordinator_epoch=coordinator_epoch,
        last_timestamp=timestamp,
        transaction_start=transaction_start,
    )
