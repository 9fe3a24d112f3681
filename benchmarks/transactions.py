"""Transactions of pyclient against confluent-kafka's on the same broker: rate, commit latency, and read_committed.

`python -m benchmarks.transactions [--sizes 100 1000] [--seconds 2] [--runs 5] [--kafka]`

Clients take turns, each in a process of its own that stays connected; the first round does not count. The clock of a
commit runs from the call of `commit_transaction` to its return, and includes what was not sent before. Ratios are
medians over the rounds, of a client's turn to the peer's turn in the same round. Both kinds of readers read the same
topic to its end, of which every tenth transaction is aborted; their rates are of the records in it, also of those that
read_committed leaves out. Exits with 1 when a goal is missed. It runs on the embedded broker in its
own process, with `--kafka` on a real Kafka after that, or only on the cluster given. Short: `--seconds 0.3 --runs 2`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.clusters import Measured, fresh_topic, measured_clusters
from pyclient import Producer

SIZE = 100  # bytes of a value
PARTITIONS = 4
TO_READ = 300_000  # records
ABORT_EVERY = 10  # transactions
RATE_GOAL, READ_GOAL = 2.0, 0.95
OURS, MANY, PEER = "pyclient", "pyclient, send_many", "confluent-kafka"
WRITERS = (OURS, MANY, PEER)
READERS = (OURS, "pyclient, to_arrow", PEER)
_GUESS = 0.004  # seconds of a transaction, for the number of them in the first turn


class Client:
    """One client's process, and the figures of its turns."""

    def __init__(self, name: str, servers: str, topic: str, count: int, turns: int) -> None:
        self.name = name
        self.turns: list[Mapping[str, Any]] = []
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.transactions_work", name, "--servers", servers]
        command += ["--topic", topic, "--size", str(SIZE), "--codec", "none"]
        command += ["--count", str(count), "--turns", str(turns)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def take_turn(self) -> Mapping[str, Any]:
        """Do the work of a turn; return its figures."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name}: its process ended with {self._process.wait()}")
        found: Mapping[str, Any] = json.loads(answer)
        return found

    def rates(self, records: int) -> list[float]:
        """Return the records a second of each turn."""
        return [records / turn["seconds"] for turn in self.turns]

    def commits(self, share: float) -> list[float]:
        """Return a percentile of each turn's commit latencies, in milliseconds."""
        return [percentile(turn["commits"], share) for turn in self.turns]


class Row(NamedTuple):
    """A row of a table, and whether its goals are reached."""

    cells: tuple[str, ...]
    met: bool = True


def percentile(figures: Sequence[float], share: float) -> float:
    """Return the figure below which this share of all is."""
    return sorted(figures)[min(len(figures) - 1, int(len(figures) * share))]


def ratio(mine: Sequence[float], other: Sequence[float]) -> float:
    """Return the median over the rounds of the ratio of two clients' turns."""
    return median(a / b for a, b in zip(mine, other, strict=True))


def take_turns(clients: Sequence[Client], runs: int) -> None:
    """Let the clients take turns, in a random order in each round; the first round does not count."""
    order = Random(1)
    for number in range(runs + 1):
        for client in order.sample(clients, len(clients)):
            found = client.take_turn()
            if number:
                client.turns.append(found)


def write(servers: str, records: int, seconds: float, runs: int) -> Iterator[Row]:
    """Yield a row for each writer of transactions of `records` records."""
    turns = max(10, int(seconds / (_GUESS + records * 2e-6)))
    with ExitStack() as stack:
        topic = stack.enter_context(fresh_topic(servers, PARTITIONS))
        clients = [stack.enter_context(Client(name, servers, topic, records, turns)) for name in WRITERS]
        take_turns(clients, runs)
        peer = clients[-1]
        for client in clients:
            rate, p50, p99 = client.rates(records * turns), client.commits(0.5), client.commits(0.99)
            cpu = median(turn["cpu"] for turn in client.turns) / (records * turns) * 1e6
            cells = (client.name, f"{median(rate):,.0f}", f"{cpu:.2f}", f"{median(p50):.2f}", f"{median(p99):.2f}")
            if client is peer:
                yield Row(cells)
                continue
            relative = ratio(rate, peer.rates(records * turns))
            latencies = ratio(p50, peer.commits(0.5)), ratio(p99, peer.commits(0.99))
            met = relative >= RATE_GOAL and max(latencies) <= 1
            found = (f"{relative:.2f}", *(f"{each:.2f}" for each in latencies), _result(met))
            yield Row(cells + found, met or client.name != OURS)


def fill(servers: str, topic: str, each: int, transactions: int) -> int:
    """Write transactions, of which every tenth is aborted. Return how many records were committed."""
    column = [b"x" * SIZE] * each
    committed = 0
    with Producer(servers, transactional_id=f"fill-{topic}") as producer:
        producer.init_transactions()
        for number in range(transactions):
            producer.begin_transaction()
            producer.send_many(topic, column, partition=number % PARTITIONS)
            if number % ABORT_EVERY:
                producer.commit_transaction()
                committed += each
            else:
                producer.flush()
                producer.abort_transaction()
    return committed


def read(servers: str, records: int, count: int, runs: int) -> Iterator[Row]:
    """Yield a row for each reader of what transactions of `records` records wrote."""
    written = count - count % records
    with ExitStack() as stack:
        topic = stack.enter_context(fresh_topic(servers, PARTITIONS))
        counts = {"read_committed": fill(servers, topic, records, written // records), "read_uncommitted": written}
        pairs = [
            tuple(
                stack.enter_context(Client(f"{name}, {level}", servers, topic, returned, 1))
                for level, returned in counts.items()
            )
            for name in READERS
        ]
        take_turns([client for pair in pairs for client in pair], runs)
        for name, (committed, uncommitted) in zip(READERS, pairs, strict=True):
            rates = committed.rates(written), uncommitted.rates(written)
            relative = ratio(*rates)
            met = relative >= READ_GOAL
            goal = "" if name == PEER else _result(met)
            cells = (name, *(f"{median(each):,.0f}" for each in rates), f"{relative:.2f}", goal)
            yield Row(cells, met or name == PEER)


def show(title: str, columns: Sequence[str], rows: Iterator[Row]) -> bool:
    """Print a table; return False if a goal is missed."""
    table, met = Table(title=title), True
    table.add_column("client", min_width=22)
    for column in columns:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row.cells)
        met = met and row.met
    Console(width=130).print(table)
    return met


def _result(met: bool) -> str:
    return "met" if met else "MISSED"


def _clusters(given: str | None, kafka: bool) -> Iterator[Measured]:
    for number, cluster in enumerate(measured_clusters(given)):
        yield cluster
        if not kafka and not number:
            return


def main() -> None:
    """Measure writing and reading of every transaction size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1000], help="records of a transaction")
    parser.add_argument("--seconds", type=float, default=2.0, help="about, of a turn of writing")
    parser.add_argument("--count", type=int, default=TO_READ, help="records that a reader's topic has")
    parser.add_argument("--runs", type=int, default=5, help="rounds; medians are printed")
    parser.add_argument("--kafka", action="store_true", help="on a real Kafka, too")
    parser.add_argument("--only", choices=("write", "read"), help="this alone")
    parser.add_argument("--bootstrap-servers", help="measure on this cluster; without it, on an embedded one")
    given = parser.parse_args()
    met = True
    for cluster in _clusters(given.bootstrap_servers, given.kafka):
        for records in given.sizes:
            where = f"{records:,} records of {SIZE} B a transaction, {PARTITIONS} partitions, {cluster.name}"
            if given.only != "read":
                columns = ("records/s", "CPU us/rec.", "commit p50 ms", "p99 ms", "rate ratio", "p50 r.", "p99 r.")
                goal = f">= {RATE_GOAL:g}, <= 1"
                rows = write(cluster.servers, records, given.seconds, given.runs)
                met = show(f"transactions: {where}", (*columns, goal), rows) and met
            if given.only != "write":
                columns = ("read_committed, records/s", "read_uncommitted", "ratio", f">= {READ_GOAL:g}")
                rows = read(cluster.servers, records, given.count, given.runs)
                met = show(f"reading: {where}", columns, rows) and met
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
