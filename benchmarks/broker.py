"""The embedded broker compared with a real Apache Kafka: each in its own process, the same load, in one run.

`python -m benchmarks.broker [--only produce --only fetch ...] [--seconds 2] [--rounds 3] [--no-kafka]`; medians of the
rounds, which alternate between the two. `--only growth --gigabytes 10` for a large log.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks import broker_cases as cases
from benchmarks import broker_large
from benchmarks.broker_cases import Case, Figure, Options
from benchmarks.broker_nodes import Node, both
from benchmarks.large_requests import REQUESTS

COMPARED: Mapping[str, Case] = {
    "idle": cases.idle,
    "metadata": cases.metadata,
    "latency": cases.latency,
    "produce": cases.produce,
    "fetch": cases.fetch,
    "compaction": cases.compaction,
    "confluent": cases.confluent,
    "perf-tools": cases.perf_tools,
}
ALONE = ("growth", "start", "partitions", "large-requests")


def compared(name: str, nodes: list[Node], options: Options) -> list[dict[str, Figure]]:
    """Run the case on the nodes alternately, in several rounds. Return the medians in the order of `nodes`."""
    rounds: list[list[dict[str, Figure]]] = [[] for _ in nodes]
    for _ in range(options.rounds):
        for found, node in zip(rounds, nodes, strict=True):
            found.append(COMPARED[name](node, options))
    return [
        {key: figure._replace(value=median(each[key].value for each in found)) for key, figure in found[0].items()}
        for found in rounds
    ]


def show(title: str, names: list[str], found: list[dict[str, Figure]]) -> None:
    """Print a table: a row for each figure, a column for each broker, and their ratio with its goal.

    A goal for our own figure has a column of its own.
    """
    table = Table(title=title)
    table.add_column("")
    for column in (*names, "ratio", "wanted", "goal"):
        table.add_column(column, justify="right")
    for key, figure in found[0].items():
        values = [each[key].value for each in found]
        ratio = f"{values[0] / values[1]:.2f}" if len(values) > 1 and values[1] else ""
        sign = "<=" if figure.less_is_better else ">="
        wanted = "" if figure.wanted is None or not ratio else f"{sign} {figure.wanted:g}"
        goal = "" if figure.goal is None else f"<= {figure.goal:g} {figure.unit}"
        table.add_row(key, *(f"{value:,.2f} {figure.unit}" for value in values), ratio, wanted, goal)
    Console(width=120).print(table)


def main() -> None:
    """Measure the selected cases, within a bounded time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[*COMPARED, *ALONE], help="this case; may be repeated")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=300_000, help="records of 100 B for client libraries")
    parser.add_argument("--gigabytes", type=float, default=2.0, help="the large log of the case growth")
    parser.add_argument("--partitions", type=int, default=10_000, help="of the case partitions")
    parser.add_argument("--items", type=int, default=10_000, help="of each request of the case large-requests")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds after which no further case is begun")
    parser.add_argument("--no-kafka", action="store_true", help="ours only")
    given = parser.parse_args()
    wanted = given.only or [*COMPARED, *ALONE]
    options = Options(given.seconds, given.rounds, given.count)
    end = time.monotonic() + given.limit
    chosen = [name for name in wanted if name in COMPARED]
    if chosen or "growth" in wanted:
        with both(not given.no_kafka and bool(chosen)) as nodes:
            for name in chosen:
                if time.monotonic() < end:
                    show(name, [node.name for node in nodes], compared(name, nodes, options))
            if "growth" in wanted and time.monotonic() < end:
                show("growth", ["pyclient"], [cases.growth(nodes[0], given.gigabytes)])
    if "large-requests" in wanted and time.monotonic() < end:
        broker_large.run(list(REQUESTS), items=given.items, limit=60.0, kafka=not given.no_kafka)
    if "start" in wanted and time.monotonic() < end:
        show("start", ["pyclient"], [cases.start(options)])
    if "partitions" in wanted and time.monotonic() < end:
        show("partitions", ["pyclient"], [cases.many_partitions(given.partitions)])


if __name__ == "__main__":
    main()
