"""`python -m tests.spark.kill_points --kills 1000 --seed 1`: copies by Spark whose processes are killed.

A topic is copied to others: at least once and exactly once, by streaming queries, by writes of batches, and by
`foreach_batch`. The first attempts of each task end at calls that the seed chooses (tests/spark/dying_daemon.py). With
`--driver-kills` the driver is killed as well and goes on from its checkpoint, with `--broker-kills` brokers are, and
with `--coordinator-kills` the coordinators of the transactions and of the markers' groups, at a task's call. In the
end the rows of all topics are compared.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Final

from pyclient import Admin, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from tests.reading import read_all
from tests.spark.copying_driver import source_of
from tests.spark.killed_copy import COORDINATORS, PARTITIONS, KilledCopy, Plan
from tests.waiting import until_decided

MODES: Final = (
    "at-least-once-stream",
    "at-least-once-batches",
    "exactly-once-stream",
    "exactly-once-batches",
    "exactly-once-function",
)
"""The target topics, named after the guarantee and the kind of write."""


def check(mode: str, expected: int, found: list[int]) -> list[str]:
    """Return what is wrong with the rows of a topic to which 0 to expected - 1 were written."""
    counts = Counter(found)
    problems = []
    missing = [number for number in range(expected) if number not in counts]
    if missing:
        problems.append(f"{mode}: {len(missing)} rows are lost, the first ones {missing[:10]}")
    strange = sorted(set(counts) - set(range(expected)))
    if strange:
        problems.append(f"{mode}: {len(strange)} rows were never sent, the first ones {strange[:10]}")
    repeated = sorted(number for number, count in counts.items() if count > 1)
    if repeated and mode.startswith("exactly-once"):
        problems.append(f"{mode}: {len(repeated)} rows are there more than once, the first ones {repeated[:10]}")
    return problems


def check_kills(plan: Plan, modes: list[str], killed: Counter[str]) -> list[str]:
    """Return a text for each kind of process of which fewer were killed than planned."""
    once = sum(mode.startswith("exactly-once") for mode in modes)
    coordinators = sum(killed[f"coordinators of {kind}"] for kind in COORDINATORS)
    return [
        f"only {count} of {wanted} {what} were killed, then the copies had ended"
        for what, count, wanted in (
            ("workers", killed["workers"], plan.kills * len(modes)),
            ("coordinators", coordinators, plan.coordinator_kills * once),
        )
        if count < wanted
    ]


def main() -> int:
    """Run the copies under kills and print what was killed and found; return 1 if rows are lost or repeated.

    Return 1, too, if fewer workers were killed than planned, as the run proves too little then.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill_points", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="worker processes that are killed, in all copies")
    parser.add_argument("--driver-kills", type=int, default=0, help="in each copy")
    parser.add_argument("--broker-kills", type=int, default=0, help="in each copy; three brokers run then")
    parser.add_argument("--coordinator-kills", type=int, default=0, help="in each copy that is exactly once")
    parser.add_argument("--ends-of-task", type=int, default=8, help="attempts of each task that are killed")
    parser.add_argument("--only", choices=MODES, action="append", help="this copy only; may be given again")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    modes = given.only or list(MODES)
    kills, coordinators = ceil(given.kills / len(modes)), given.coordinator_kills
    plan = Plan(given.seed, kills, given.driver_kills, given.broker_kills, coordinators, given.ends_of_task)
    killed, problems = copy_all(modes, plan)
    problems += check_kills(plan, modes, killed)
    sys.stdout.write("".join(f"WRONG: {problem}\n" for problem in problems))
    sys.stdout.write(f"killed: {described(killed)}\n{'see above' if problems else 'all rows are right'}\n")
    return 1 if problems else 0


def copy_all(modes: list[str], plan: Plan) -> tuple[Counter[str], list[str]]:
    """Copy the topic in all ways; return how many processes of each kind died, and what is wrong with the copies."""
    brokers = 3 if plan.broker_kills or plan.coordinator_kills else 1
    problems: list[str] = []
    killed: Counter[str] = Counter()
    with EmbeddedCluster(brokers=brokers, processes=True) as cluster, tempfile.TemporaryDirectory() as folder:
        with Admin(cluster.bootstrap_servers) as admin:
            topics = [topic for mode in modes for topic in (mode, source_of(mode))]
            admin.create_topics([NewTopic(topic, PARTITIONS, brokers) for topic in topics])
        for mode in modes:
            started, rows = monotonic(), plan.rows(mode)
            fill(cluster.bootstrap_servers, source_of(mode), rows)
            counts = KilledCopy(cluster, Path(folder), mode, plan).run()
            killed += counts
            found = values_of(cluster.bootstrap_servers, mode)
            problems += check(mode, rows, found)
            report = f"{mode}: {rows} rows, {len(found)} written, {monotonic() - started:.0f} s, {described(counts)}\n"
            sys.stdout.write(report)
            sys.stdout.flush()
    return killed, problems


def fill(servers: str, topic: str, rows: int) -> None:
    """Write 0 to rows - 1, as many to each partition."""
    with Producer(servers) as producer:
        for partition in range(PARTITIONS):
            values = [str(number).encode() for number in range(partition, rows, PARTITIONS)]
            producer.send_many(topic, values, partition=partition)


def described(counts: Counter[str]) -> str:
    """Return counts as text."""
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def values_of(servers: str, topic: str) -> list[int]:
    """Return the values of a topic's committed records as numbers."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    until_decided(servers, partitions)
    records = read_all(servers, topic, PARTITIONS, isolation_level="read_committed")
    return [int(record.value or b"") for record in records]


if __name__ == "__main__":
    sys.exit(main())
