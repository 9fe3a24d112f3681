"""Damage to the files of a node: what a crash of its operating system leaves, and bits that flip on its disk.

Each function changes files, by a random number generator, and does nothing if there is no file of its kind. Those of
`__cluster_metadata` are never damaged: they are synced before they are answered, and a voter that loses synced records
breaks Raft.
"""

from __future__ import annotations

import os
import random
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from pyclient.broker_embedded.log.checkpoints import (
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    OF_PARTITIONS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    parse_offsets,
    render_offsets,
)
from pyclient.broker_embedded.log.partition_directories import DAMAGED

Damage = Callable[[Path, random.Random], None]

_LOG: Final = re.compile(r"\d{20}\.log")
_UNSYNCED_BYTES: Final = 20_000
_BATCH_BYTES: Final = 400
_GARBAGE_BYTES: Final = 2_000
_LATEST_BASE: Final = 1_000_000


def logs_of(data_dir: Path, topics: Iterable[str]) -> list[Path]:
    """Return the directories of the partitions of some topics."""
    wanted = set(topics)
    return sorted(path for path in data_dir.iterdir() if path.name.rpartition("-")[0] in wanted)


def harm(directory: Path, do: Damage, chosen: random.Random) -> list[str]:
    """Do some damage to a directory of a node that is down. Return the names of the files that differ."""
    before = _checksums(directory)
    do(directory, chosen)
    after = _checksums(directory)
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def closed_segments(directory: Path) -> list[Path]:
    """Return the segments of a log that are no longer written to, the oldest first."""
    return _segments(directory)[:-1]


def bases(directory: Path) -> list[int]:
    """Return the first offsets of the segments of a log."""
    return sorted(int(path.stem) for path in directory.glob("*.log") if _LOG.fullmatch(path.name))


def kept_aside(directory: Path) -> dict[str, int]:
    """Return the names and times (ns) of the files with damaged bytes that a repair has left."""
    return {path.name: path.stat().st_mtime_ns for path in directory.glob(f"*{DAMAGED}")}


# The directory of a partition, after a crash


def cut_tail(directory: Path, chosen: random.Random) -> None:
    """Remove the last bytes of the last segment, which were not synced."""
    for path in _segments(directory)[-1:]:
        size = path.stat().st_size
        os.truncate(path, size - chosen.randint(0, min(size, _UNSYNCED_BYTES)))


def tear_tail(directory: Path, chosen: random.Random) -> None:
    """Make the end of the last segment zeros, or half a batch."""
    for path in _segments(directory)[-1:]:
        content = path.read_bytes()
        at = len(content) - chosen.randint(1, min(len(content), _BATCH_BYTES))
        path.write_bytes(content[:at] + bytes(len(content) - at if chosen.random() < 0.5 else 0))


def halve_index(directory: Path, chosen: random.Random) -> None:
    """Cut an offset or time index in the middle, which is often inside of an entry."""
    path = _one(_with_data(directory, "*.index", "*.timeindex"), chosen)
    if path is not None:
        os.truncate(path, path.stat().st_size // 2)


def halve_closed_index(directory: Path, chosen: random.Random) -> None:
    """Cut an index of a closed segment in the middle."""
    path = _one(_closed_indexes(directory), chosen)
    if path is not None:
        os.truncate(path, path.stat().st_size // 2)


def empty_leader_epochs(directory: Path, _chosen: random.Random) -> None:
    """Empty the leader epochs: the name of the file is on the disk, and its content is not."""
    for path in _with_data(directory, LEADER_EPOCHS):
        os.truncate(path, 0)


def remove_small_file(directory: Path, chosen: random.Random) -> None:
    """Remove the leader epochs, the topic id, or a snapshot of the producers."""
    path = _one(_with_data(directory, LEADER_EPOCHS, PARTITION_METADATA, "*.snapshot"), chosen)
    if path is not None:
        path.unlink()


def leave_temporary_files(directory: Path, chosen: random.Random) -> None:
    """Leave garbage under the names of operations that a crash has interrupted, as Kafka names them."""
    stems = [path.stem for path in _segments(directory)] or [f"{0:020d}"]
    stems.append(f"{chosen.randrange(_LATEST_BASE):020d}")
    names = [f"{name}.tmp" for name in (LEADER_EPOCHS, PARTITION_METADATA)]
    for suffix in ("deleted", "cleaned", "swap"):
        kind = chosen.choice(("log", "index", "timeindex", "txnindex"))
        names.append(f"{chosen.choice(stems)}.{kind}.{suffix}")
    _write_garbage(directory, names, chosen)


# The data directory of a node, after a crash


def lower_offsets(
    data_dir: Path, chosen: random.Random, names: Iterable[str] = (RECOVERY_POINTS, HIGH_WATERMARKS)
) -> None:
    """Lower the recovery points or the high watermarks, as an older checkpoint has them."""
    path = _one(_with_data(data_dir, *names), chosen)
    if path is None:
        return
    try:
        offsets = parse_offsets(path.read_bytes(), str(path))
    except CorruptCheckpoint:
        return  # an earlier fault has damaged it, and it was not written since
    path.write_bytes(render_offsets({at: chosen.randint(0, offset) for at, offset in offsets.items()}))


def remove_checkpoint(data_dir: Path, chosen: random.Random, names: Iterable[str] = OF_PARTITIONS) -> None:
    """Remove a checkpoint of offsets."""
    path = _one(_with_data(data_dir, *names), chosen)
    if path is not None:
        path.unlink()


def halve_checkpoint(data_dir: Path, chosen: random.Random, names: Iterable[str] = OF_PARTITIONS) -> None:
    """Cut a checkpoint of offsets in the middle, or empty it: its name is on the disk, and its content is not."""
    path = _one(_with_data(data_dir, *names), chosen)
    if path is not None:
        os.truncate(path, chosen.choice((0, path.stat().st_size // 2)))


def leave_temporary_checkpoints(data_dir: Path, chosen: random.Random) -> None:
    """Leave garbage under the names of checkpoints whose replacement a crash has interrupted."""
    _write_garbage(data_dir, [f"{name}.tmp" for name in OF_PARTITIONS], chosen)


# Flipped bits


def flip_tail(directory: Path, chosen: random.Random) -> None:
    """Flip a bit near the end of the last segment, which a start after a crash checks."""
    for path in _segments(directory)[-1:]:
        _flip(path, chosen, _UNSYNCED_BYTES)


def flip_last_segment(directory: Path, chosen: random.Random) -> None:
    """Flip a bit of the last segment."""
    for path in _segments(directory)[-1:]:
        _flip(path, chosen)


def flip_closed_segment(directory: Path, chosen: random.Random) -> None:
    """Flip a bit of a closed segment, which a start does not read: it is found later."""
    path = _one(closed_segments(directory), chosen)
    if path is not None:
        _flip(path, chosen)


def flip_index(directory: Path, chosen: random.Random) -> None:
    """Flip a bit of an offset or time index."""
    _flip_one(_with_data(directory, "*.index", "*.timeindex"), chosen)


def flip_closed_index(directory: Path, chosen: random.Random) -> None:
    """Flip a bit of an offset or time index of a closed segment, which a start does not check."""
    _flip_one(_closed_indexes(directory), chosen)


def flip_snapshot(directory: Path, chosen: random.Random) -> None:
    """Flip a bit of a snapshot of the producers."""
    _flip_one(_with_data(directory, "*.snapshot"), chosen)


def flip_leader_epochs(directory: Path, chosen: random.Random) -> None:
    """Flip a bit of the leader epochs."""
    _flip_one(_with_data(directory, LEADER_EPOCHS), chosen)


def flip_high_watermarks(data_dir: Path, chosen: random.Random) -> None:
    """Flip a bit of the checkpoint of the high watermarks."""
    _flip_one(_with_data(data_dir, HIGH_WATERMARKS), chosen)


def flip_recovery_points(data_dir: Path, chosen: random.Random) -> None:
    """Flip a bit of the checkpoint of the recovery points."""
    _flip_one(_with_data(data_dir, RECOVERY_POINTS), chosen)


def _flip(path: Path, chosen: random.Random, last_bytes: int | None = None) -> None:
    """Flip a bit in place, as a running node may have the file open; with `last_bytes` only of these."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        position = chosen.randrange(0 if last_bytes is None else max(0, size - last_bytes), size)
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << chosen.randrange(8)]))


def _flip_one(paths: list[Path], chosen: random.Random) -> None:
    path = _one(paths, chosen)
    if path is not None:
        _flip(path, chosen)


def _segments(directory: Path) -> list[Path]:
    """Return the segments of a log that have data, the oldest first."""
    return [path for path in _with_data(directory, "*.log") if _LOG.fullmatch(path.name)]


def _closed_indexes(directory: Path) -> list[Path]:
    closed = {path.stem for path in closed_segments(directory)}
    return [path for path in _with_data(directory, "*.index", "*.timeindex") if path.stem in closed]


def _checksums(directory: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in directory.iterdir() if path.is_file()]
    return {path.name: (path.stat().st_size, zlib.crc32(path.read_bytes())) for path in files}


def _with_data(directory: Path, *patterns: str) -> list[Path]:
    """Return the files with names like these that are not empty."""
    found = sorted(path for pattern in patterns for path in directory.glob(pattern))
    return [path for path in found if path.stat().st_size]


def _one(paths: list[Path], chosen: random.Random) -> Path | None:
    return chosen.choice(paths) if paths else None


def _write_garbage(directory: Path, names: Iterable[str], chosen: random.Random) -> None:
    for name in names:
        (directory / name).write_bytes(chosen.randbytes(chosen.randint(1, _GARBAGE_BYTES)))
