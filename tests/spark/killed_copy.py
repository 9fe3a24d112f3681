"""A copy of a topic by Spark whose workers, driver and brokers are killed, and the coordinators of its transactions."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from pyclient import Admin
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.groups.partitioning import partition_for_id
from pyclient.errors import UnknownTopicOrPartition

PARTITIONS: Final = 4
ROWS: Final = 50  # of a task
SECONDS: Final = 900.0  # a query that takes longer, plus one for each kill, counts as hanging
QUERY_FAILURES: Final = 20
DOWN_SECONDS: Final = 4.0  # the longest time for which a broker is down
COORDINATORS: Final = {"transactions": "__transaction_state", "groups": "__consumer_offsets"}
"""The topics whose leaders are coordinators."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The processes to kill, and how often, for one query."""

    seed: int
    kills: int
    driver_kills: int
    broker_kills: int
    coordinator_kills: int
    ends_of_task: int

    def batches(self, mode: str) -> int:
        """Return the number of micro-batches with enough tasks for the kills; some attempts do not reach their point.

        A task that requests the kill of a coordinator is not killed itself.
        """
        return ceil((1.2 * self.kills / self.ends_of_task + self._requests(mode)) / PARTITIONS)

    def rows(self, mode: str) -> int:
        """Return the number of rows that are copied."""
        return self.batches(mode) * PARTITIONS * ROWS

    def asking(self, mode: str) -> list[str]:
        """Return the tasks that request the kill of a coordinator."""
        tasks = [f"{batch}-{partition}" for batch in range(self.batches(mode)) for partition in range(PARTITIONS)]
        return random.Random(f"{self.seed} {mode} coordinators").sample(tasks, self._requests(mode))

    def _requests(self, mode: str) -> int:
        """Return the number of tasks that request one; some of them do not reach their point."""
        return ceil(1.2 * self.coordinator_kills) if mode.startswith("exactly-once") else 0


class Brokers:
    """Kills brokers, one at a time, and starts each again after a while that the seed chooses."""

    def __init__(self, cluster: EmbeddedCluster, chosen: random.Random) -> None:
        self.killed: Counter[str] = Counter()
        self._cluster = cluster
        self._chosen = chosen
        self._down: int | None = None
        self._until = 0.0

    def kill_any(self) -> None:
        """Kill a broker that the seed chooses."""
        self.start()
        self._kill(self._some(), "brokers")

    def kill_coordinator(self, request: Path) -> None:
        """Kill the coordinator that a task names, and remove its request; do nothing while it has no coordinator."""
        kind, name, _point = request.read_text().split()
        self.start()
        node = self._coordinator(COORDINATORS[kind], name)
        if node is not None:
            self._kill(node, f"coordinators of {kind}")
            request.unlink()

    def start(self, *, when_due: bool = False) -> None:
        """Start the broker that is down, with `when_due` only if it was down for long enough."""
        if self._down is not None and not (when_due and monotonic() < self._until):
            self._cluster.start(self._down)
            self._down = None

    def _kill(self, node: int, kind: str) -> None:
        self._cluster.kill(node)
        self.killed[kind] += 1
        self._down, self._until = node, monotonic() + DOWN_SECONDS * self._chosen.random()

    def _some(self) -> int:
        return self._chosen.choice([node.id for node in self._cluster.nodes])

    def _coordinator(self, topic: str, name: str) -> int | None:
        """Return the leader of an id's partition; before the first id, when there is no such topic, any broker."""
        try:
            with Admin(self._cluster.bootstrap_servers) as admin:
                partitions = len(admin.describe_topics([topic])[topic].partitions)
        except UnknownTopicOrPartition:
            return self._some()
        return self._cluster.leader_of(topic, partition_for_id(name, partitions))


class KilledCopy:
    """A driver that copies the topic, in a process that is started until the copy has ended."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, mode: str, plan: Plan) -> None:
        self._log, self._output = folder / f"{mode}.ends", folder / f"{mode}.output"
        self._requests = folder / f"{mode}.requests"
        self._requests.mkdir()
        self._log.touch()
        self._environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "DYING_SEED": f"{plan.seed} {mode}",
            "DYING_ENDS": str(plan.ends_of_task),
            "DYING_LOG": str(self._log),
            "DYING_EXACTLY_ONCE": str(int(mode.startswith("exactly-once"))),
            "DYING_ASKING": " ".join(plan.asking(mode)),
            "DYING_REQUESTS": str(self._requests),
        }
        self._command = [sys.executable, "-m", "tests.spark.copying_driver", cluster.bootstrap_servers, mode]
        self._command += [str(folder / mode), str(plan.ends_of_task + 4), f"{plan.batches(mode)} {PARTITIONS} {ROWS}"]
        chosen = random.Random(f"{plan.seed} {mode}")
        self._moments = [(chosen.randrange(plan.kills), "driver") for _ in range(plan.driver_kills)]
        self._moments += [(chosen.randrange(plan.kills), "broker") for _ in range(plan.broker_kills)]
        self._moments.sort()
        self._brokers = Brokers(cluster, chosen)
        self._give_up = monotonic() + SECONDS + plan.kills

    def run(self) -> Counter[str]:
        """Copy, kill the driver and brokers when the seed says; return how many processes of each kind died."""
        failures = drivers = 0  # the query is started again after a failure, as a user does
        while (status := self._run_driver()) != 0:
            drivers += status == -signal.SIGKILL
            failures += status != -signal.SIGKILL
            if failures > QUERY_FAILURES:
                raise RuntimeError(f"the driver failed; its last output: {self._output.read_text()[-4000:]}")
        self._brokers.start()
        counts = Counter(workers=self._ends(), drivers=drivers) + self._brokers.killed
        return counts + Counter({"failures of the query": failures})

    def _run_driver(self) -> int:
        """Run a driver until it ends or is killed; return its status."""
        for request in self._requests.iterdir():
            request.unlink()
        with self._output.open("ab") as out:
            driver = subprocess.Popen(
                self._command, env=self._environment, stdout=out, stderr=out, start_new_session=True
            )
        try:
            while driver.poll() is None:
                if monotonic() > self._give_up:
                    raise TimeoutError(f"the query has not ended; its last output: {self._output.read_text()[-2000:]}")
                if self._moments and self._ends() >= self._moments[0][0]:
                    _, what = self._moments.pop(0)
                    if what == "driver":
                        break
                    self._brokers.kill_any()
                for request in self._requests.glob("[0-9]*"):
                    self._brokers.kill_coordinator(request)
                self._brokers.start(when_due=True)
                sleep(0.05)  # polls the driver's state
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
        return driver.wait()

    def _ends(self) -> int:
        return len(self._log.read_bytes().splitlines())
