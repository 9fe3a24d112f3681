"""Latency at a steady rate: each client in a process of its own, all of them alive, taking turns of half a second.

What else a machine does comes and goes within seconds, and a percentile near the top shows little else: short turns
share that out between the clients, and medians over many rounds leave out those in which one had the worst of it. Where
the machine is a virtual one, its host says how much of its time it took away: rounds go on until there are enough in
which that was next to none, or for three times as long as that would take, and those in which it took least count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median

from benchmarks.clusters import fresh_topic
from benchmarks.produce_cases import Case, Entry

RECORDS = 500  # in a turn
TURNS = 24  # for each run that is asked for; with 40 in all a ratio of p99 was 0.90 to 1.15, with 120 it was 0.8
_TRIED = 3  # times as many rounds, at most
_QUIET = 0.01  # of the machine's time: with more its host decides over a percentile near the top


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
        """Send the records of a turn; return their times, in rising order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.entry.name}: its process ended with {self._process.wait()}")
        return sorted(json.loads(answer))

    def middle(self, share: int) -> float:
        """Return the median over the turns of a percentile."""
        return median(turn[len(turn) * share // 100] for turn in self.turns)

    def ratio(self, peer: LatencyClient, share: int) -> float:
        """Return the median over the rounds of a percentile's ratio to the peer's; both are within two seconds."""
        at = RECORDS * share // 100
        return median(mine[at] / other[at] for mine, other in zip(self.turns, peer.turns, strict=True))

    def overall(self, share: int) -> float:
        """Return a percentile of all records of all turns."""
        together = sorted(took for turn in self.turns for took in turn)
        return together[len(together) * share // 100]


@dataclass(frozen=True)
class Latency:
    """The results: each client with its turns, the number of rounds, and the host's share in those that count."""

    clients: Mapping[str, LatencyClient]
    rounds: int
    taken_away: float


def run_latency(case: Case, servers: str, runs: int) -> Latency:
    """Run all clients, each with its turns; two rounds before those do not count."""
    rounds: list[tuple[float, list[list[float]]]] = []
    wanted = runs * TURNS
    with ExitStack() as stack:
        topic = stack.enter_context(fresh_topic(servers, case.partitions))
        clients = [stack.enter_context(LatencyClient(entry, case, servers, topic)) for entry in case.entries]
        order = Random(1)
        for _ in range(2):
            _round(clients, order)
        while len(rounds) < wanted * _TRIED and sum(host <= _QUIET for host, _ in rounds) < wanted:
            rounds.append(_round(clients, order))
    count = sorted(rounds, key=lambda found: found[0])[:wanted]
    for _, turns in count:
        for client, turn in zip(clients, turns, strict=True):
            client.turns.append(turn)
    return Latency(
        {client.entry.name: client for client in clients}, len(rounds), sum(host for host, _ in count) / wanted
    )


def _round(clients: list[LatencyClient], order: Random) -> tuple[float, list[list[float]]]:
    """Give each a turn. Return the share of time that the host took away meanwhile, and the turns."""
    taken, whole = _host_time()
    turns = {}
    # A client that polls whenever it has nothing to send needs a whole core, and a host with a quota takes the time
    # away from the client after it: a random order shares that out.
    for client in order.sample(clients, len(clients)):
        turns[client.entry.name] = client.take_turn()
    taken_then, whole_then = _host_time()
    return (taken_then - taken) / max(whole_then - whole, 1), [turns[client.entry.name] for client in clients]


def _host_time() -> tuple[int, int]:
    """Return the ticks that the host has taken away from all cores, and all ticks; zeros where none are reported."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return ticks[7], sum(ticks)
