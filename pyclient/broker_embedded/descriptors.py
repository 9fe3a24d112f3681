"""File descriptors: how many connections and log files may have, and a reserve for what must not fail without one.

Connections never take those that the logs need, and log files are closed where connections need theirs. Modules are
loaded when they are first needed, which takes descriptors: all of them are loaded when those run out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from importlib import import_module
from typing import TYPE_CHECKING, Final

from pyclient.broker_embedded.dispatch import SERVED, handler_of
from pyclient.broker_embedded.request_slices import SlicedRequest

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.filesystem import FileSystem
    from pyclient.broker_embedded.log.steps import Steps
    from pyclient.broker_embedded.request_slices import RequestSlices

log = logging.getLogger("pyclient.broker_embedded")

OTHERS: Final = 64
"""Descriptors for whatever is neither a connection nor a log file: modules, checkpoints, directories."""

_UNLIMITED: Final = 1 << 20
_RESERVE: Final = 8
_LATE_MODULES: Final = (
    "pyclient.protocol.encoding",
    "pyclient.protocol.decoding",
    "pyclient.protocol.diagnosis",
    *(
        f"pyclient.broker_embedded.{name}"
        for name in (
            "error_answers", "group_settings", "groups.coordinator", "groups_seams", "lone_produce", "loggers",
            "settings_refused",
        )
    ),
    "difflib", "hashlib", "hmac", "ipaddress", "shutil",
)  # fmt: skip
"""What is imported inside of functions."""


class Descriptors:
    """The descriptors of one process, as far as a node knows: a program around it may have others open."""

    def __init__(self, fs: FileSystem, slices: RequestSlices, limit: int | None = None) -> None:
        if limit is None:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._limit = limit if 0 < limit < _UNLIMITED else _UNLIMITED
        self._fs = fs
        self._slices = slices
        self._reserve: list[int] = []
        self._all_loaded = False

    def __repr__(self) -> str:
        return f"<Descriptors limit={self._limit} reserve={len(self._reserve)}>"

    @property
    def most_connections(self) -> int:
        """Connections that leave an eighth of the descriptors to the logs."""
        return max(self._limit - self._limit // 8 - OTHERS, 1)

    def connections_are(self, count: int) -> None:
        """Leave the log files what `count` connections do not need."""
        self._fs.limit_open_files(max(self._limit - OTHERS - count, self._limit // 8))

    def run_out(self) -> bool:
        """There was none for a connection. True if that may be otherwise at once: log files were closed."""
        self._drain()
        if not self._all_loaded:
            self._all_loaded = True
            steps = SlicedRequest(self._load_all(), self.refill)
            if self._slices.begin(steps):
                self.refill()
        return self._fs.close_idle_files() > 0

    def close(self) -> None:
        """Give the reserve back."""
        self._all_loaded = True
        self._drain()

    def _load_all(self) -> Steps[None]:
        """Load what is usually loaded when it is first needed."""
        for name in SERVED:
            try:
                handler_of(name)
            except (ImportError, OSError) as error:
                log.error("the handler of %s cannot be loaded while there are no file descriptors: %s", name, error)
                self._all_loaded = False
            yield None
        for module in _LATE_MODULES:
            with contextlib.suppress(ImportError, OSError):
                import_module(module)
            yield None

    def refill(self) -> None:
        """Open the reserve, or what is missing of it."""
        with contextlib.suppress(OSError):  # there is none now: the next time
            while len(self._reserve) < _RESERVE:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _drain(self) -> None:
        while self._reserve:
            os.close(self._reserve.pop())
