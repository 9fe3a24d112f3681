"""Nodes of the demo's cluster that are killed while records pass, and started again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient.cli.demo.report import Report

if TYPE_CHECKING:
    from pyclient.broker_embedded import EmbeddedCluster

DOWN_SECONDS: Final = 1.0
_JOIN_SECONDS: Final = 120.0


class Victim(NamedTuple):
    """The node to kill, None if there is none, and what it is."""

    node: int | None
    role: str


def busiest_leader(cluster: EmbeddedCluster, topic: str) -> Victim:
    """Return the leader of the topic's partition with the most records, once there are records."""
    partitions = cluster.wait_topic(topic, records=1)["partitions"]
    busiest = max(partitions, key=lambda each: int(each["end_offset"]))["partition"]
    return Victim(cluster.leader_of(topic, busiest), f"the leader of {topic}-{busiest}")


def active_controller(cluster: EmbeddedCluster) -> Victim:
    """Return the active controller."""
    return Victim(cluster.controller_id, "the active controller")


class Killing:
    """Kills a node when a third of the `total` records has passed, and starts it again a second later.

    `choose` returns the node. `passed` is called with the number of records so far, by the threads that pass them.
    """

    def __init__(self, cluster: EmbeddedCluster, what: str, choose: Callable[[], Victim], total: int) -> None:
        self._cluster = cluster
        self._what = what
        self._choose = choose
        self._total = total
        self._lock = threading.Lock()
        self._done = False
        self._start: threading.Thread | None = None
        self._note = ""
        self._seconds = 0.0
        self._problem = "no record came"

    def passed(self, records: int) -> None:
        """Kill the node when enough records have passed.

        Block the callers meanwhile, so that further records pass after the kill, however few there are.
        """
        if self._done or records < self._total // 3:
            return
        with self._lock:
            if not self._done:
                self._kill(records)
                self._done = True

    def finish(self, report: Report) -> None:
        """Wait until the node is back, and add a row to the report."""
        if self._start is not None:
            self._start.join(_JOIN_SECONDS)
        report.check(bool(self._note), f"the {self._what} was not killed and started again: {self._problem}")
        if self._note:
            report.step(f"kill {self._what}", seconds=self._seconds, note=self._note)

    def _kill(self, records: int) -> None:
        try:
            node, role = self._choose()
            if node is None:
                self._problem = "there was none"
                return
            began = perf_counter()
            self._cluster.kill(node)
        except Exception as error:  # reported by `finish`
            self._problem = repr(error)
            return
        self._problem = f"it did not start within {_JOIN_SECONDS:g} s"
        note = f"node {node}, {role}, killed (SIGKILL) after {records:,} of {self._total:,} records, and started again"
        self._start = threading.Thread(
            target=self._start_again, args=(node, began, note), name=f"kill-{self._what}", daemon=True
        )
        self._start.start()

    def _start_again(self, node: int, began: float, note: str) -> None:
        try:
            threading.Event().wait(DOWN_SECONDS)
            self._cluster.start(node)
            self._seconds = perf_counter() - began
            self._note = note
        except Exception as error:  # reported by `finish`, in the main thread
            self._problem = repr(error)
