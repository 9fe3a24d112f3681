"""Time until a broker answers its first Metadata: ours in a thread, with the import, in a process; and others.

`python -m benchmarks.broker_start [--runs N] [--kafka]`; `--kafka` adds a real Apache Kafka, which takes seconds a run.
"""

from __future__ import annotations

import argparse
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

from pyclient.broker_embedded import EmbeddedCluster

BUDGETS_MS = {"thread, after the import": 100, "thread, with the import": 250}

_WITH_IMPORT = """
import socket, struct, time
started = time.perf_counter()
from pyclient.broker_embedded import EmbeddedCluster
with EmbeddedCluster() as cluster:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    body = struct.pack(">hhihi", 3, 1, 7, -1, 0)
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert len(connection.recv(4096)) > 4
    print((time.perf_counter() - started) * 1000)
"""


def ask(bootstrap: str) -> None:
    """Send one Metadata request (version 1, no topics) over a fresh connection, and wait for its answer."""
    host, _, port = bootstrap.rpartition(":")
    body = struct.pack(">hhihi", 3, 1, 7, -1, 0)
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        assert len(connection.recv(4096)) > 4


def in_thread() -> float:
    """Return the milliseconds from making the cluster to its first answer, all modules loaded."""
    started = time.perf_counter()
    with EmbeddedCluster() as cluster:
        ask(cluster.bootstrap_servers)
        return (time.perf_counter() - started) * 1000


def in_process() -> float:
    """Return the milliseconds until the answer of a broker in its own process."""
    started = time.perf_counter()
    with EmbeddedCluster(processes=True) as cluster:
        ask(cluster.bootstrap_servers)
        return (time.perf_counter() - started) * 1000


def with_import() -> float:
    """Return the milliseconds in a fresh interpreter from the import to the first answer."""
    done = subprocess.run([sys.executable, "-c", _WITH_IMPORT], capture_output=True, text=True, check=True)
    return float(done.stdout)


def interpreter() -> float:
    """Return the milliseconds of starting an interpreter alone."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - started) * 1000


def mock() -> float:
    """Return the milliseconds of librdkafka's mock cluster, made with a producer and asked for Metadata by it."""
    from confluent_kafka import Producer

    started = time.perf_counter()
    producer = Producer({"test.mock.num.brokers": 1})
    producer.list_topics(timeout=30)
    return (time.perf_counter() - started) * 1000


def real_kafka() -> float:
    """Return the milliseconds of an Apache Kafka of one node, data directory formatted beforehand."""
    from tests.kafka.runner import AS_SHIPPED, RealKafka

    with RealKafka(jvm=AS_SHIPPED) as kafka:
        kafka.stop(1)
        started = time.perf_counter()
        kafka.restart(1)
        return (time.perf_counter() - started) * 1000


def main() -> None:
    """Measure everything in turn and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--kafka", action="store_true", help="also start a real Apache Kafka")
    options = parser.parse_args()
    cases: dict[str, Callable[[], float]] = {
        "thread, after the import": in_thread,
        "thread, with the import": with_import,
        "process": in_process,
        "(a bare interpreter)": interpreter,
        "librdkafka's mock cluster": mock,
    }
    in_thread()  # loads what a first start loads
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.runs):
        for name, case in cases.items():
            figures[name].append(case())
    if options.kafka:
        figures["Apache Kafka"] = [real_kafka() for _ in range(2)]
    table = Table(title="start to first Metadata answer")
    for column in ("broker", "median ms", "best ms", "budget ms"):
        table.add_column(column, justify="left" if column == "broker" else "right")
    for name, times in figures.items():
        table.add_row(name, f"{median(times):,.1f}", f"{min(times):,.1f}", str(BUDGETS_MS.get(name, "")))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
