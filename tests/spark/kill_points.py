"""`python -m tests.spark.kill_points --kills 1000 --seed 1`: streaming queries whose processes are killed.

A query copies a topic to another, once at least once and once exactly once. The first attempts of each of its tasks end
at calls that the seed chooses (tests/spark/dying_daemon.py). With `--driver-kills` the driver is killed as well and
goes on from its checkpoint, with `--broker-kills` brokers are, the coordinators of its transactions among them. In the
end the rows of both topics are compared.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster

PARTITIONS: Final = 4
ROWS: Final = 50  # of a task
SECONDS: Final = 900.0  # after which a query that has not ended is taken to hang, plus one for each kill
QUERY_FAILURES: Final = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes to kill, and how often, for one query."""

    seed: int
    kills: int
    driver_kills: int
    broker_kills: int
    ends_of_task: int

    @property
    def batches(self) -> int:
        """The number of micro-batches with enough tasks for the kills; some attempts do not reach their point."""
        return ceil(1.2 * self.kills / (PARTITIONS * self.ends_of_task))


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
    if repeated and mode == "exactly-once":
        problems.append(f"{mode}: {len(repeated)} rows are there more than once, the first ones {repeated[:10]}")
    return problems


def check_kills(wanted: int, killed: int) -> list[str]:
    """Return what is wrong if fewer workers were killed than were to be."""
    return [f"only {killed} of {wanted} workers were killed, then the queries had ended"] if killed < wanted else []


def main() -> int:
    """Run both queries under kills and print what was killed and found; return 1 if rows are lost or repeated.

    Return 1, too, if fewer workers were killed than were to be: then the run has shown less than it says.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kill_points", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="worker processes that are killed, in both queries")
    parser.add_argument("--driver-kills", type=int, default=0, help="in each query")
    parser.add_argument("--broker-kills", type=int, default=0, help="in each query; three brokers run then")
    parser.add_argument("--ends-of-task", type=int, default=8, help="attempts of each task that are killed")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    plan = Plan(given.seed, ceil(given.kills / 2), given.driver_kills, given.broker_kills, given.ends_of_task)
    brokers = 3 if given.broker_kills else 1
    problems: list[str] = []
    killed = 0
    with EmbeddedCluster(brokers=brokers, processes=True) as cluster, tempfile.TemporaryDirectory() as folder:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS, brokers) for topic in ("source", *MODES)])
        rows = plan.batches * PARTITIONS * ROWS
        with Producer(cluster.bootstrap_servers) as producer:
            for partition in range(PARTITIONS):
                values = [str(number).encode() for number in range(partition, rows, PARTITIONS)]
                producer.send_many("source", values, partition=partition)
        for mode in MODES:
            started = monotonic()
            killed += copy(cluster, Path(folder), mode, plan)
            found = values_of(cluster.bootstrap_servers, mode)
            wrong = check(mode, rows, found)
            problems += wrong
            sys.stdout.write(f"{mode}: {rows} rows, {len(found)} written, {monotonic() - started:.0f} s\n")
    problems += check_kills(given.kills, killed)
    sys.stdout.write("".join(f"WRONG: {problem}\n" for problem in problems))
    sys.stdout.write(f"{killed} workers were killed, {'see above' if problems else 'all rows are right'}\n")
    return 1 if problems else 0


MODES: Final = ("at-least-once", "exactly-once")


def copy(cluster: EmbeddedCluster, folder: Path, mode: str, plan: Plan) -> int:
    """Let a driver copy the topic, kill it and brokers when the seed says; return how many workers died."""
    log, output = folder / f"{mode}.ends", folder / f"{mode}.output"
    log.touch()
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "DYING_SEED": f"{plan.seed} {mode}",
        "DYING_ENDS": str(plan.ends_of_task),
        "DYING_LOG": str(log),
        "DYING_EXACTLY_ONCE": str(int(mode == "exactly-once")),
    }
    command = [sys.executable, "-m", "tests.spark.copying_driver", cluster.bootstrap_servers, mode, str(folder / mode)]
    command += [str(plan.ends_of_task + 4), str(PARTITIONS * ROWS)]
    chosen = random.Random(f"{plan.seed} {mode}")
    moments = [(chosen.randrange(plan.kills), "driver") for _ in range(plan.driver_kills)]
    moments += [(chosen.randrange(plan.kills), "broker") for _ in range(plan.broker_kills)]
    moments.sort()
    give_up = monotonic() + SECONDS + plan.kills
    down: int | None = None
    failures = 0  # the query is started again after one, as a user does
    with output.open("wb") as out:
        while True:
            driver = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
            try:
                while driver.poll() is None:
                    if monotonic() > give_up:
                        raise TimeoutError(f"the query has not ended; its last output: {output.read_text()[-2000:]}")
                    if moments and len(log.read_bytes().splitlines()) >= moments[0][0]:
                        _, what = moments.pop(0)
                        if what == "driver":
                            break
                        if down is not None:
                            cluster.start(down)
                        down = chosen.randrange(1, 4)
                        cluster.kill(down)
                    sleep(0.05)
            finally:
                if driver.poll() is None:
                    os.killpg(driver.pid, signal.SIGKILL)
            if driver.wait() == 0:
                break
            failures += driver.returncode != -signal.SIGKILL
            if failures > QUERY_FAILURES:
                raise RuntimeError(f"the driver failed; its last output: {output.read_text()[-4000:]}")
    if down is not None:
        cluster.start(down)
    return len(log.read_bytes().splitlines())


def values_of(servers: str, topic: str) -> list[int]:
    """Return the values of a topic's committed records as numbers."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    found: list[int] = []
    with Consumer(bootstrap_servers=servers, **options) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            found += [int(record.value or b"") for record in consumer.poll(timeout=10)]
    return found


if __name__ == "__main__":
    sys.exit(main())
