"""Three nodes in this process: time to the first Metadata answer and to a writable replicated topic, and idle CPU.

Also the time in which the control port makes and deletes a cluster of one node and of three, as threads of its process.

`python -m benchmarks.cluster_start [--runs N] [--idle-seconds S]`
"""

from __future__ import annotations

import argparse
import http.client
import json
import time
from collections.abc import Sequence
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


def over_http(runs: int) -> dict[str, list[float]]:
    """Return the milliseconds of `POST /clusters` and of `DELETE` for one node and for several, by the row's name."""
    found: dict[str, list[float]] = {}
    with EmbeddedCluster(control_port=0) as cluster:
        address = str(cluster.control_url).removeprefix("http://")
        for number in range(runs + 1):
            for brokers, nodes in ((1, "1 node"), (NODES, f"{NODES} nodes")):
                began = time.perf_counter()
                made = request(address, "POST", "/clusters", {"brokers": brokers})
                serves = time.perf_counter()
                ask(made["bootstrap_servers"].partition(",")[0])
                answered = time.perf_counter()
                request(address, "DELETE", made["controls"])
                ended = time.perf_counter()
                if number:  # the first round loads what a first request loads
                    found.setdefault(f"POST /clusters, {nodes}, ms", []).append((serves - began) * 1000)
                    found.setdefault(f"DELETE of it, {nodes}, ms", []).append((ended - answered) * 1000)
    return found


def request(address: str, method: str, path: str, body: dict[str, int] | None = None) -> dict[str, str]:
    """Send a request of the controls over a new connection. Return the answer."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        answer: dict[str, str] = json.loads(response.read())
        assert response.status == 200, answer
        return answer
    finally:
        connection.close()


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    options = parser.parse_args()
    start()  # loads what a first start loads
    answers, writes = zip(*(start() for _ in range(options.runs)), strict=True)
    measured: tuple[Sequence[float], ...] = (answers, writes, (idle(options.idle_seconds),))
    figures = dict(zip(BUDGETS, measured, strict=True)) | over_http(options.runs)
    table = Table(title=f"{NODES} nodes in one process, and clusters over HTTP")
    for column in ("figure", "median", "best", "budget"):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, values in figures.items():
        table.add_row(
            name, f"{median(values):,.1f}", f"{min(values):,.1f}", f"{BUDGETS[name]:g}" if name in BUDGETS else ""
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
