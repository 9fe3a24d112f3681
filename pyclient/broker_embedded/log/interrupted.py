"""Completes or undoes operations that a crash interrupted in a partition's directory: deletions, compaction swaps."""

from __future__ import annotations

import re
from typing import Final

from pyclient.broker_embedded.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from pyclient.broker_embedded.log.filesystem import FileSystem
from pyclient.broker_embedded.log.log_segment import SWAP, LogSegment
from pyclient.broker_embedded.log.steps import Steps

DATA_FILE: Final = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot)")
_INT_MAX: Final = 2**31 - 1
_TEMPORARY: Final = (".deleted", ".cleaned", ".swap", ".tmp")


def is_log_file(name: str) -> bool:
    """Return True for a name that a file in a partition's directory can have, finished or not."""
    return _is_final(name) or _is_temporary(name)


def _is_final(name: str) -> bool:
    return name in (LEADER_EPOCHS, PARTITION_METADATA) or DATA_FILE.fullmatch(name) is not None


def _is_temporary(name: str) -> bool:
    stem = name
    for suffix in _TEMPORARY:
        stem = stem.removesuffix(suffix)
    return stem != name and _is_final(stem)


def finish_interrupted(fs: FileSystem, directory: str, files: dict[str, int]) -> Steps[dict[str, int]]:
    """Complete or undo interrupted operations. Return the files that are left."""
    kept = {name: size for name, size in files.items() if not _is_temporary(name)}
    if len(kept) != len(files):
        yield from _finish_swaps(fs, directory, files, kept)
        for name in sorted(files, key=lambda name: name.endswith(".log.cleaned")):  # last: it identifies the others
            if _is_temporary(name):
                fs.remove(f"{directory}/{name}")
    for name in [name for name in kept if DATA_FILE.fullmatch(name) and not name.endswith(".snapshot")]:
        if f"{name[:20]}.log" not in kept:
            fs.remove(f"{directory}/{name}")
            del kept[name]
    return kept


def _finish_swaps(fs: FileSystem, directory: str, files: dict[str, int], kept: dict[str, int]) -> Steps[None]:
    cleaned = min((int(name[:20]) for name in files if name.endswith(".log.cleaned")), default=None)
    swaps = [name for name in files if name.endswith(SWAP) and (cleaned is None or int(name[:20]) < cleaned)]
    for base in sorted({name[:20] for name in swaps}):
        if f"{base}.log.swap" in files:
            yield from _drop_covered(fs, directory, base, files, kept)
        elif f"{base}.log" not in kept:
            continue
        for name in [name for name in swaps if name.startswith(base)]:
            final = name.removesuffix(SWAP)
            fs.rename(f"{directory}/{name}", f"{directory}/{final}")
            kept[final] = files[name]


def _drop_covered(
    fs: FileSystem, directory: str, base: str, files: dict[str, int], kept: dict[str, int]
) -> Steps[None]:
    """Remove the segments that a finished segment of compaction replaces."""
    swapped = LogSegment(fs, directory, int(base), size=files[f"{base}.log.swap"], index_interval=_INT_MAX, suffix=SWAP)
    end = int(base) + 1
    for _position, header in swapped.records.walk(0):
        end = header.next_offset
        yield None
    swapped.close()
    for name in [name for name in kept if DATA_FILE.fullmatch(name)]:
        if int(base) <= int(name[:20]) < end and not name.endswith(".snapshot"):
            fs.remove(f"{directory}/{name}")
            del kept[name]
