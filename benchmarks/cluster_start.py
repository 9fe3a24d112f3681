"""Three nodes in this process: time to the first Metadata answer and to a writable replicated topic, and idle CPU.

`python -m benchmarks.cluster_start [--runs N] [--idle-seconds S]`
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.broker_start import ask
from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster

NODES: Final = 3
BUDGETS: Final = {"first Metadata answer, ms": 200.0, "writable replicated topic, ms": 300.0, "idle, % of a core": 2.0}
_SETTLING_SECONDS: Final = 2.0


def start() -> tuple[float, float]:
    """Return the milliseconds to the first Metadata answer, and to the first record that two replicas have."""
    started = time.perf_counter()
    with EmbeddedCluster(NODES) as cluster:
        ask(cluster.bootstrap_servers.partition(",")[0])
        answered = time.perf_counter()
        write(cluster.bootstrap_servers)
        written = time.perf_counter()
    return (answered - started) * 1000, (written - started) * 1000


def write(servers: str) -> None:
    """Create a topic with a replica on each node, and write a record with acks=all."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("bench", 1, NODES, configs={"min.insync.replicas": "2"})])
    with Producer(servers, acks="all", linger_ms=0) as producer:
        producer.send("bench", b"value").result(30)


def idle(seconds: float) -> float:
    """Return the percentage of a core that a cluster with a topic uses without clients."""
    with EmbeddedCluster(NODES) as cluster:
        write(cluster.bootstrap_servers)
        time.sleep(_SETTLING_SECONDS)
        began, used = time.perf_counter(), time.process_time()
        time.sleep(seconds)
        return (time.process_time() - used) / (time.perf_counter() - began) * 100


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    options = parser.parse_args()
    start()  # loads what a first start loads
    answers, writes = zip(*(start() for _ in range(options.runs)), strict=True)
    figures = dict(zip(BUDGETS, (answers, writes, (idle(options.idle_seconds),)), strict=True))
    table = Table(title=f"{NODES} nodes in one process")
    for column in ("figure", "median", "best", "budget"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, values in figures.items():
        table.add_row(name, f"{median(values):,.1f}", f"{min(values):,.1f}", f"{BUDGETS[name]:g}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
