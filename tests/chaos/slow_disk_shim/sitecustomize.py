"""Slows the writes and syncs of a broker's process: imported by its interpreter, if this folder is in PYTHONPATH.

The process makes a file with its id as the name in the folder of the variable `PYCLIENT_CHAOS_DISKS`: a delay in
microseconds that a test may write, and the number of writes and syncs that had one.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DELAY = struct.Struct("<Q")
COUNT = struct.Struct("<Q")
SIZE = DELAY.size + COUNT.size


def delayed(shared: mmap.mmap, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that sleeps before each call while there is a delay."""

    def slow(*arguments: Any, **options: Any) -> Any:
        (delay,) = DELAY.unpack_from(shared, 0)
        if delay:
            (count,) = COUNT.unpack_from(shared, DELAY.size)
            COUNT.pack_into(shared, DELAY.size, count + 1)
            time.sleep(delay / 1_000_000)  # the delay of the disk
        return call(*arguments, **options)

    return slow


def install(folder: str) -> None:
    """Slow down this process's files of logs, as the file in `folder` says."""
    from pyclient.broker_embedded.log.filesystem import RealFile, RealFileSystem

    path = Path(folder) / str(os.getpid())
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), SIZE)
    for owner, names in ((RealFile, ("pwrite", "sync")), (RealFileSystem, ("replace", "sync_directory", "sync_all"))):
        for name in names:
            setattr(owner, name, delayed(shared, getattr(owner, name)))


if "PYCLIENT_CHAOS_DISKS" in os.environ and "pyclient.broker_embedded" in sys.orig_argv:
    install(os.environ["PYCLIENT_CHAOS_DISKS"])
