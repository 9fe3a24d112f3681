"""Latency at a steady rate: each client in a process of its own, all of them alive, taking turns of half a second.

What else a machine does comes and goes within seconds, and a percentile near the top tells of little else: short turns
share that out between the clients, and medians over many rounds leave out those in which one had the worst of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from random import Random
from statistics import median

from benchmarks.clusters import fresh_topic
from benchmarks.produce_cases import Case, Entry

RECORDS = 500  # in a turn
TURNS = 8  # for each run that is asked for


class LatencyClient:
    """One client's process, and how long its records took in each turn, in milliseconds."""

    def __init__(self, entry: Entry, case: Case, servers: str, topic: str) -> None:
        self.entry = entry
        self.turns: list[list[float]] = []
        command = [sys.executable, "-W", "ignore", "-m", entry.module, entry.client, "--servers", servers]
        command += ["--topic", topic, "--size", str(case.size), "--codec", case.codec, "--count", str(RECORDS)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> LatencyClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def take_turn(self) -> list[float]:
        """Sends the records of a turn; how long they took, in rising order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.entry.name}: its process ended with {self._process.wait()}")
        return sorted(json.loads(answer))

    def middle(self, share: int) -> float:
        """The median over the turns of a percentile."""
        return median(turn[len(turn) * share // 100] for turn in self.turns)

    def ratio(self, peer: LatencyClient, share: int) -> float:
        """The median over the rounds of what a percentile is to the peer's, whose turn was within two seconds of it."""
        at = RECORDS * share // 100
        return median(mine[at] / other[at] for mine, other in zip(self.turns, peer.turns, strict=True))

    def overall(self, share: int) -> float:
        """A percentile of all records of all turns."""
        together = sorted(took for turn in self.turns for took in turn)
        return together[len(together) * share // 100]


def run_latency(case: Case, servers: str, runs: int) -> Mapping[str, LatencyClient]:
    """All clients, each with its turns; two turns before those do not count."""
    with ExitStack() as stack:
        topic = stack.enter_context(fresh_topic(servers, case.partitions))
        clients = [stack.enter_context(LatencyClient(entry, case, servers, topic)) for entry in case.entries]
        order = Random(1)
        for number in range(-2, runs * TURNS):
            # One that polls whenever it has nothing to send needs a whole core, and a host that counts takes time away
            # from whoever comes behind it: so nobody always does.
            for client in order.sample(clients, len(clients)):
                took = client.take_turn()
                if number >= 0:
                    client.turns.append(took)
    return {client.entry.name: client for client in clients}
