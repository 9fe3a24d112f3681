"""Samples of the nodes' replicas and of their processes' resources in a chaos run, several times a second."""

from __future__ import annotations

import itertools
import os
import resource
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import KafkaError
from tests.chaos.history import CLIENTS, Place, ProcessState, ReplicaState
from tests.chaos.workload import Notes, Worker

_LOOK_SECONDS: Final = 0.2
_LOOKS_AT_PROCESSES: Final = 10  # of so many looks one is at them, too


class Watching(Worker):
    """Notes what each node says of the partitions of some topics, several times a second."""

    def __init__(self, notes: Notes, cluster: EmbeddedCluster, topics: Iterable[str]) -> None:
        super().__init__("watching", notes)
        self.cluster, self.topics = cluster, list(topics)
        self._lives: dict[int, int] = {}
        self._pids: dict[int, int | None] = {}

    def work(self) -> None:
        for look in itertools.count():
            if self.stopping.wait(_LOOK_SECONDS):
                return
            if not look % _LOOKS_AT_PROCESSES:
                self._note_processes()
            self.look(self.topics)

    def look(self, topics: Iterable[str]) -> None:
        """Note what each node says of the partitions of some topics."""
        for node in self.cluster.brokers:
            for topic in topics:
                pid = node.pid
                try:
                    seen = node.call("GET", f"/topics/{topic}")["partitions"] if node.reachable else []
                except KafkaError:
                    continue  # it was killed or frozen meanwhile
                if node.pid == pid:  # else it is unknown which process has answered
                    self._note(node.id, pid, topic, seen)

    def _note(self, node_id: int, pid: int | None, topic: str, partitions: list[dict[str, object]]) -> None:
        if self._pids.get(node_id) != pid:
            self._pids[node_id] = pid
            self._lives[node_id] = self._lives.get(node_id, 0) + 1
        at = time.monotonic()
        self.notes.add(*(_state(node_id, self._lives[node_id], topic, at, each) for each in partitions))

    def _note_processes(self) -> None:
        """Note what the process of the clients and those of the nodes use, without the threads of librdkafka."""
        pids = {CLIENTS: (os.getpid(), 1)} | {
            node_id: (pid, self._lives[node_id]) for node_id, pid in self._pids.items() if pid is not None
        }
        for node_id, (pid, life) in pids.items():
            with suppress(OSError):  # it was killed meanwhile
                files = len(os.listdir(f"/proc/{pid}/fd"))
                threads = sum(
                    not each.read_text().startswith("rdk:") for each in Path(f"/proc/{pid}/task").glob("*/comm")
                )
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                at = time.monotonic()
                self.notes.add(ProcessState(node_id, life, at, files, threads, pages * resource.getpagesize()))


def _state(node_id: int, life: int, topic: str, at: float, seen: dict[str, object]) -> ReplicaState:
    names = ("leader", "leader_epoch", "partition_epoch", "high_watermark", "end_offset")
    numbers = {name: int(str(seen[name])) for name in names}
    isr, replicas = (tuple(seen[name]) for name in ("isr", "replicas"))  # type: ignore[arg-type]
    return ReplicaState(
        node=node_id,
        life=life,
        place=Place(topic, int(str(seen["partition"]))),
        at=at,
        isr=isr,
        replicas=replicas,
        stable_offset=int(str(seen["last_stable_offset"])),
        **numbers,
    )
