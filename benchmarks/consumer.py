"""The consumer compared with other clients: objects, iteration, columns, and memory, as ratios in one run.

`python -m benchmarks.consumer [--only NAME] [--runs N] [--count N] [--bootstrap-servers HOST:PORT]`

NAME is one of small (100 B), large (1 KB), packed (100 B in lz4), memory. Clients take turns, each in a process of its
own that has read a part of it before; the first round does not count. All read the same topic from its beginning, and
it is in the page cache. Only the "warm" socket reads the same MiB of each partition all the time, out of the CPU's
cache. The slower ones get fewer records: rates are compared, not times. Exits with 1 when a goal is missed. Without
`--bootstrap-servers` everything runs on the embedded broker in its own process, then on a real Kafka.
confluent-kafka rests for a second whenever 100,000 records wait for its user; "no rests" is what it does without.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.bare_fetch import PARTITIONS
from benchmarks.clusters import brokers, fresh_topic
from benchmarks.side_by_side import measure
from benchmarks.timed_work import BATCH_BYTES, LINGER_MS, values
from pyclient import Producer

OURS, ITERATED, COLUMNS = "pyclient", "pyclient, iterated", "pyclient, to_arrow"
CONFLUENT, POLL, AIOKAFKA, KAFKA_PYTHON = "confluent-kafka", "confluent-kafka, poll", "aiokafka", "kafka-python"
NO_RESTS = "confluent-kafka, no rests"
BARE, WARM, STALLED = "bare socket", "bare socket, warm", "pyclient, stalled"

SHARES = {CONFLUENT: 4, NO_RESTS: 2, POLL: 8, AIOKAFKA: 3, KAFKA_PYTHON: 16}
"""Slower clients, and the factors by which they get fewer records."""


class Goal(NamedTuple):
    """`client` is to be so many times as fast as `than`."""

    client: str
    than: str
    times: float


@dataclass(frozen=True)
class Case:
    """The records that all clients read, the clients, and the goals."""

    size: int
    codec: str
    part: float  # of --count
    clients: tuple[str, ...]
    goals: tuple[Goal, ...] = ()


CASES = {
    "small": Case(
        100,
        "none",
        1,
        (OURS, CONFLUENT, NO_RESTS, ITERATED, POLL, COLUMNS, AIOKAFKA, KAFKA_PYTHON),
        (Goal(OURS, CONFLUENT, 3), Goal(OURS, AIOKAFKA, 2), Goal(ITERATED, POLL, 3), Goal(COLUMNS, CONFLUENT, 20)),
    ),
    "large": Case(
        1024,
        "none",
        1 / 3,
        (OURS, CONFLUENT, COLUMNS, BARE, AIOKAFKA, WARM),
        (Goal(OURS, CONFLUENT, 1.2), Goal(COLUMNS, BARE, 0.8)),
    ),
    "packed": Case(100, "lz4", 1, (OURS, CONFLUENT, COLUMNS, AIOKAFKA)),
    "memory": Case(1024, "none", 1 / 3, (STALLED,)),
}


@dataclass
class Taken:
    """One client's results of the rounds so far: bytes and records per second, CPU microseconds per record."""

    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)
    failure: str = ""


def fill(servers: str, topic: str, size: int, codec: str, count: int) -> None:
    """Write the records to read."""
    column = values(size) * 100
    with Producer(servers, compression_type=codec, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        for start in range(0, count, len(column)):
            producer.send_many(topic, column[: count - start])


def run_case(case: Case, servers: str, count: int, runs: int) -> dict[str, Taken]:
    """Do interleaved runs of every client; the first round is not counted."""
    found = {client: Taken() for client in case.clients}
    with fresh_topic(servers, PARTITIONS) as topic:
        fill(servers, topic, case.size, case.codec, count)
        for number in range(runs + 1):
            for client, taken in found.items():
                run_client(case, client, taken, servers, topic, count, counts=number > 0)
    return found


def run_client(case: Case, client: str, taken: Taken, servers: str, topic: str, count: int, *, counts: bool) -> None:
    """Do one client's turn, and add its results to `taken` if it counts."""
    share = count // SHARES.get(client, 1)
    try:
        seen = measure("consume", client, servers, topic, case.size, case.codec, share)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        taken.failure = str(error)[:60]
        return
    if counts:
        done = seen.get("bytes", share * case.size) / case.size  # a bare socket counts bytes
        taken.rates.append(done / seen["seconds"])
        taken.cpu_us.append(seen["cpu"] / done * 1e6)
        taken.extra = seen


def ratios(case: Case, found: dict[str, Taken]) -> Iterator[tuple[Goal, float]]:
    """Yield the goals with the reached ratios."""
    for goal in case.goals:
        mine, theirs = found[goal.client].rates, found[goal.than].rates
        if mine and theirs:
            yield goal, median(mine) / median(theirs)


def show(name: str, case: Case, found: dict[str, Taken]) -> bool:
    """Print a table and the goals; False when one is missed."""
    reference = found[CONFLUENT].rates if CONFLUENT in found else []
    table = Table(title=name)
    for column in ("client", "records/s", "MB/s", "CPU us/record", f"x {CONFLUENT}"):
        table.add_column(column, justify="left" if column == "client" else "right")
    for client, taken in found.items():
        if not taken.rates:
            table.add_row(client, taken.failure or "no run", "", "", "")
            continue
        rate = median(taken.rates)
        relative = f"{rate / median(reference):.2f}" if reference else ""
        row = (f"{rate:,.0f}", f"{rate * case.size / 1e6:,.0f}", f"{median(taken.cpu_us):.2f}", relative)
        table.add_row(client, *row)
    console = Console(width=110)
    console.print(table)
    met = True
    for goal, reached in ratios(case, found):
        result = "met" if reached >= goal.times else "MISSED"
        met = met and reached >= goal.times
        console.print(f"  {goal.client} is {reached:.2f}x {goal.than}; goal {goal.times:g}x {result}")
    return met


def show_memory(name: str, found: dict[str, Taken]) -> bool:
    """Print what a stalled user's consumer grew by; False when it is more than allowed."""
    taken = found[STALLED]
    grown, bound = taken.extra.get("grown", float("inf")), taken.extra.get("bound", 0.0)
    result = "met" if grown <= bound else "MISSED"
    Console(width=110).print(
        f"{name}: a stalled user's process grew by {grown / 1e6:,.1f} MB with "
        f"{taken.extra.get('buffered', 0) / 1e6:,.1f} MB fetched ahead; "
        f"goal below {bound / 1e6:,.1f} MB {result}{taken.failure}"
    )
    return grown <= bound


def main() -> None:
    """Measure every case, or the one asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=sorted(CASES), help="measure this alone")
    parser.add_argument("--bootstrap-servers", help="measure on this cluster; without it, on an embedded one")
    parser.add_argument("--count", type=int, default=1_500_000, help="records of 100 bytes in a run")
    parser.add_argument("--runs", type=int, default=5, help="interleaved runs; medians are printed")
    given = parser.parse_args()
    met = True
    for servers, broker in brokers(given.bootstrap_servers):
        for kind, case in CASES.items():
            if given.only not in (None, kind):
                continue
            runs = 1 if kind == "memory" else given.runs
            found = run_case(case, servers, int(given.count * case.part), runs)
            title = f"consume {case.size} B, {case.codec}, on {broker} ({runs} runs, {PARTITIONS} partitions)"
            met = (show_memory(title, found) if kind == "memory" else show(title, case, found)) and met
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
