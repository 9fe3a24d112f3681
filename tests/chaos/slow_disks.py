"""Disks that are slow: broker processes whose writes and syncs can be delayed, each on its own.

Brokers have no such fault of their own. A shim is in their interpreters: `slow_disk_shim/sitecustomize.py`.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyclient.broker_embedded import EmbeddedCluster

FOLDER_VARIABLE: Final = "PYCLIENT_CHAOS_DISKS"
_SHIM: Final = Path(__file__).with_name("slow_disk_shim")
_DELAY: Final = struct.Struct("<Q")
_COUNT: Final = struct.Struct("<Q")


class SlowDisks:
    """The disks of the brokers that were started inside of `slow_disks`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def slow(self, pid: int, seconds: float) -> None:
        """Delay each write and each sync of a process by that long; 0 ends it. The end of the process does, too."""
        with (self._folder / str(pid)).open("r+b") as file:
            file.write(_DELAY.pack(round(seconds * 1_000_000)))

    def delayed(self, pid: int) -> int:
        """Return how many writes and syncs of a process have been delayed."""
        (count,) = _COUNT.unpack_from((self._folder / str(pid)).read_bytes(), _DELAY.size)
        return int(count)

    def heal(self, cluster: EmbeddedCluster) -> None:
        """End the delays of all nodes that run."""
        for node in cluster.nodes:
            if node.alive and node.pid is not None:
                self.slow(node.pid, 0)


@contextmanager
def slow_disks() -> Iterator[SlowDisks]:
    """Have the broker processes that are started meanwhile write through disks that can be slow."""
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", FOLDER_VARIABLE)}
    with tempfile.TemporaryDirectory(prefix="pyclient-disks-") as folder:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_SHIM), before["PYTHONPATH"])))
        os.environ[FOLDER_VARIABLE] = folder
        try:
            yield SlowDisks(Path(folder))
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
