"""Nodes of the demo's cluster that are killed while records pass, and started again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pyclient.cli.demo.report import Report

if TYPE_CHECKING:
    from pyclient.broker_embedded import EmbeddedCluster

DOWN_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 120.0


class Killing:
    """Kills a node, chosen by `victim`, when a share of the records has passed, and starts it again a second later.

    `passed` is called with the number of records so far; the work is done in a thread, while others pass.
    """

    def __init__(self, cluster: EmbeddedCluster, what: str, victim: Callable[[], int | None], after: int) -> None:
        self._cluster = cluster
        self._what = what
        self._victim = victim
        self._after = after
        self._thread: threading.Thread | None = None
        self._note = ""
        self._seconds = 0.0
        self._problem = ""

    def passed(self, records: int) -> None:
        """Begin when enough records have passed."""
        if self._thread is None and records >= self._after:
            self._thread = threading.Thread(target=self._run, name=f"kill-{self._what}", daemon=True)
            self._thread.start()

    def finish(self, report: Report) -> None:
        """Wait until the node is back, and add a row to the report."""
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
        back = bool(self._note) and not self._problem
        report.check(back, f"the {self._what} was not killed and started again: {self._problem or 'no record came'}")
        if back:
            report.step(f"kill {self._what}", seconds=self._seconds, note=self._note)

    def _run(self) -> None:
        try:
            node = self._victim()
            if node is None:
                self._problem = "there was none"
                return
            began = perf_counter()
            self._cluster.kill(node)
            threading.Event().wait(DOWN_SECONDS)
            self._cluster.start(node)
            self._seconds = perf_counter() - began
            self._note = f"node {node} killed (SIGKILL) after {self._after:,} records, and started again"
        except Exception as error:  # raised by `finish`, in the main thread
            self._problem = repr(error)
