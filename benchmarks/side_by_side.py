"""Runs clients in turn against one broker and prints medians, with each one's ratio to confluent-kafka."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass, field
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.clusters import brokers, fresh_topic

CLIENTS = ("pyclient", "confluent-kafka", "kafka-python", "aiokafka")
REFERENCE = "confluent-kafka"
CASES = ((100, "none"), (100, "lz4"), (1024, "none"), (1024, "lz4"))
PARTITIONS = 6
SLOW = {"kafka-python": 8, "aiokafka": 3}  # these get that much less to do; rates are compared, not times


@dataclass
class Measured:
    """What one client did in the runs so far."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    failure: str = ""


def measure(work: str, client: str, servers: str, topic: str, size: int, codec: str, count: int) -> dict[str, float]:
    """Run one piece of work in its own process."""
    command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.{work}_work", client, "--servers", servers]
    command += ["--topic", topic, "--size", str(size), "--codec", codec, "--count", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_case(work: str, servers: str, size: int, codec: str, count: int, runs: int) -> dict[str, Measured]:
    """Interleaved runs of every client; a consumer reads what our producer wrote."""
    found = {client: Measured() for client in CLIENTS}
    if work == "consume":
        with fresh_topic(servers, PARTITIONS) as topic:
            measure("produce", "pyclient", servers, topic, size, codec, count)
            for _ in range(runs):
                for client in CLIENTS:
                    _one(found[client], work, client, servers, topic, size, codec, count // SLOW.get(client, 1))
        return found
    for _ in range(runs):
        for client in CLIENTS:
            with fresh_topic(servers, PARTITIONS) as topic:
                _one(found[client], work, client, servers, topic, size, codec, count // SLOW.get(client, 1))
    return found


def _one(into: Measured, work: str, client: str, servers: str, topic: str, size: int, codec: str, count: int) -> None:
    try:
        seen = measure(work, client, servers, topic, size, codec, count)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        into.failure = str(error)[:60]
        return
    into.rates.append(count / seen["seconds"])
    into.cpu_us.append(seen["cpu"] / count * 1e6)


def show(title: str, size: int, found: dict[str, Measured]) -> None:
    """One table: msg/s, MB/s, CPU per message and the ratio to confluent-kafka."""
    table = Table(title=title)
    table.add_column("client")
    for column in ("msg/s", "MB/s", "CPU us/msg", f"x {REFERENCE}"):
        table.add_column(column, justify="right")
    reference = median(found[REFERENCE].rates) if found[REFERENCE].rates else 0.0
    for client, measured in found.items():
        if not measured.rates:
            table.add_row(client, measured.failure or "no run", "", "", "")
            continue
        rate, cpu = median(measured.rates), median(measured.cpu_us)
        ratio = f"{rate / reference:.2f}" if reference else ""
        table.add_row(client, f"{rate:,.0f}", f"{rate * size / 1e6:,.1f}", f"{cpu:.2f}", ratio)
    Console(width=100).print(table)


def main(work: str) -> None:
    """Measure one kind of work on our broker (its own process) or on the one given."""
    parser = argparse.ArgumentParser(description=f"{work}: pyclient beside its peers")
    parser.add_argument("--bootstrap-servers", help="measure on this cluster; without it, on an embedded one")
    parser.add_argument("--count", type=int, default=300_000, help="records a run at 100 bytes")
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs; medians are printed")
    arguments = parser.parse_args()
    for servers, name in brokers(arguments.bootstrap_servers):
        for size, codec in CASES:
            count = arguments.count if size == 100 else arguments.count // 3
            found = run_case(work, servers, size, codec, count, arguments.runs)
            show(f"{work}, {size} B, {codec}, on {name} ({arguments.runs} runs, {PARTITIONS} partitions)", size, found)
