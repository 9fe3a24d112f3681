"""File descriptors: how many connections and log files may use, and a reserve for operations that must not fail.

Connections never take those that the logs need, and log files are closed where connections need theirs. Importing a
module on first use takes a descriptor: when they run out, all such modules are imported from the reserve.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.dispatch import handler_of
from pyclient.broker_embedded.scheduling.request_slices import SlicedRequest
from pyclient.broker_embedded.served_apis import SERVED

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.incremental_task import IncrementalTask
    from pyclient.broker_embedded.scheduling.request_slices import RequestSlices

log = logging.getLogger("pyclient.broker_embedded")

OTHERS: Final = 64
"""Descriptors for everything but connections and log files: modules, checkpoints, directories."""

_UNLIMITED: Final = 1 << 20
_RESERVE: Final = 8
LATE_MODULES: Final = (
    "pyclient.protocol.encoding",
    "pyclient.protocol.decoding",
    "pyclient.protocol.diagnosis",
    *(
        f"pyclient.broker_embedded.{name}"
        for name in (
            "faults.error_answers", "groups.coordinator", "groups.broker_runtime", "network.produce_template",
        )
    ),
    "difflib", "hashlib", "hmac", "ipaddress", "shutil",
)  # fmt: skip
"""Modules that are imported inside functions."""


class FileDescriptors:
    """The descriptors of one process, without those that a program around the node has open."""

    def __init__(self, fs: FileSystem, slices: RequestSlices, limit: int | None = None) -> None:
        if limit is None:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = limit if 0 < limit < _UNLIMITED else _UNLIMITED
        self._fs = fs
        self._slices = slices
        self._reserve: list[int] = []
        self._all_loaded = False

    def __repr__(self) -> str:
        return f"<FileDescriptors limit={self._limit} reserve={len(self._reserve)}>"

    @property
    def most_connections(self) -> int:
        """Return how many connections leave an eighth of the descriptors to the logs."""
        return max(self._limit - self._limit // 8 - OTHERS, 1)

    def connections_are(self, count: int) -> None:
        """Set the limit of open log files to what `count` connections leave."""
        self._fs.limit_open_files(max(self._limit - OTHERS - count, self._limit // 8))

    def run_out(self) -> bool:
        """Free descriptors when a connection could not get one. Return True if log files were closed."""
        self._drain()
        if not self._all_loaded:
            self._all_loaded = True
            steps = SlicedRequest(self._load_all(), self.refill)
            if self._slices.begin(steps):
                self.refill()
        return self._fs.close_idle_files() > 0

    def close(self) -> None:
        """Close the reserve."""
        self._all_loaded = True
        self._drain()

    def _load_all(self) -> IncrementalTask[None]:
        """Import the modules that are otherwise imported on first use."""
        for name in SERVED:
            try:
                handler_of(name)
            except (ImportError, OSError) as error:
                log.error("no file descriptor to import the handler of %s: %s", name, error)
                self._all_loaded = False
            yield None
        for module in LATE_MODULES:
            with contextlib.suppress(ImportError, OSError):
                import_module(module)
            yield None

    def refill(self) -> None:
        """Fill the reserve up as far as descriptors are free."""
        with contextlib.suppress(OSError):  # no descriptor is free: retried at the next call
            while len(self._reserve) < _RESERVE:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _drain(self) -> None:
        while self._reserve:
            os.close(self._reserve.pop())
