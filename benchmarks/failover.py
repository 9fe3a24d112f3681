"""Kills of leaders and controllers: how long until a write is acknowledged again; and rolling restarts under load.

`python -m benchmarks.failover`: 3 brokers in processes, 3 replicas, acks=all, 2 in sync. Kills are SIGKILLs; with
`silent` the leader is stopped (SIGSTOP) instead, so that it is detected only by the end of its session. Clients try
again after a tenth of a second at most; with `defaults` they have no options.
"""

from __future__ import annotations

import argparse
import math
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.table import Table

from pyclient import Admin, Consumer, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import KafkaError

TOPIC: Final = "failover"
PATIENCE: Final = 60.0
CASES: Final = ("leader", "controller", "defaults", "silent", "rolling")
OPTIONS: Final = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200, "retry_backoff_max_ms": 100}
"""Of clients that try again after a tenth of a second at most; by default it becomes a second after some failures."""


class Writer:
    """Writes one record after another, and notes when each began and was acknowledged."""

    def __init__(self, servers: str, options: Mapping[str, int]) -> None:
        self.errors: list[KafkaError] = []
        self._last: tuple[float, float] = 0.0, 0.0
        self._acknowledged = threading.Condition()
        self._stop = threading.Event()
        self._producer = Producer(servers, linger_ms=0, **options)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.perf_counter()
            try:
                self._producer.send(TOPIC, b"x" * 100, partition=0).result(PATIENCE)
            except KafkaError as error:
                self.errors.append(error)
                continue
            with self._acknowledged:
                self._last = began, time.perf_counter()
                self._acknowledged.notify_all()
            time.sleep(0.001)

    def next_after(self, moment: float) -> float:
        """Block until a write that began after `moment` is acknowledged. Return when that was."""
        with self._acknowledged:
            if not self._acknowledged.wait_for(lambda: self._last[0] >= moment, PATIENCE):
                raise SystemExit(f"no write was acknowledged in {PATIENCE:g} s; errors: {self.errors[-3:]}")
            return self._last[1]

    def close(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()
        self._producer.close()


@contextmanager
def loaded(profile: str, options: Mapping[str, int] = OPTIONS) -> Iterator[tuple[EmbeddedCluster, Writer]]:
    """Yield three brokers and a client that writes."""
    with EmbeddedCluster(3, processes=True, profile=profile) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 3, configs={"min.insync.replicas": "2"})])
        cluster.wait_isr(TOPIC, 0, 3, PATIENCE)
        writer = Writer(cluster.bootstrap_servers, options)
        try:
            yield cluster, writer
        finally:
            writer.close()


def leader(cluster: EmbeddedCluster, *, is_controller: bool) -> int:
    """Return the leader, which is the active controller, too, or is not: it is moved to another node if need be."""
    controller = cluster.controller_id
    node = cluster.leader_of(TOPIC, 0)
    if node is None or controller is None:
        raise SystemExit(f"{cluster!r}: no leader or no controller")
    if (node == controller) != is_controller:
        node = controller if is_controller else next(each.id for each in cluster.brokers if each.id != controller)
        cluster.move_leader(TOPIC, 0, node, PATIENCE)
    return node


def kills(
    profile: str, count: int, *, is_controller: bool, silent: bool = False, options: Mapping[str, int] = OPTIONS
) -> tuple[list[float], list[float]]:
    """Return the seconds from each end of the leader to the next write, and, of controllers, to the next topic."""
    writes, topics = [], []
    with loaded(profile, options) as (cluster, writer), Admin(cluster.bootstrap_servers, **options) as admin:
        for number in range(count):
            node = leader(cluster, is_controller=is_controller)
            writer.next_after(time.perf_counter())
            began = time.perf_counter()
            (cluster.pause if silent else cluster.kill)(node)
            if is_controller:
                admin.create_topics([NewTopic(f"new-{number}", 1, 2)], timeout=PATIENCE)
                topics.append(time.perf_counter() - began)
            writes.append(writer.next_after(began) - began)
            if silent:
                cluster.resume(node)
            else:
                cluster.start(node, PATIENCE)
            cluster.wait_isr(TOPIC, 0, 3, PATIENCE)
        if writer.errors:
            raise SystemExit(f"writes failed: {writer.errors[:3]}")
    return writes, topics


def rolling(profile: str, count: int) -> tuple[int, int, int, list[KafkaError]]:
    """Restart all brokers in turn, `count` times. Return the numbers of sends, polls and commits, and their errors."""
    failures: list[KafkaError] = []
    counts = {"send": 0, "poll": 0, "commit": 0}
    over = threading.Event()
    with EmbeddedCluster(3, processes=True, profile=profile) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 6, 3, configs={"min.insync.replicas": "2"})])
        producer = Producer(cluster.bootstrap_servers, **OPTIONS)
        consumer = Consumer(
            TOPIC, bootstrap_servers=cluster.bootstrap_servers, group_id="rolling", enable_auto_commit=False, **OPTIONS
        )

        def attempt(what: str, call: Callable[[], object]) -> None:
            try:
                call()
            except KafkaError as error:
                failures.append(error)
            counts[what] += 1

        def write() -> None:
            while not over.is_set():
                attempt("send", lambda: producer.send(TOPIC, b"x" * 100).result(PATIENCE))

        def read() -> None:
            while not over.is_set():
                attempt("poll", lambda: consumer.poll(0.05))
                attempt("commit", consumer.commit)

        threads = [threading.Thread(target=each) for each in (write, read)]
        for each in threads:
            each.start()
        try:
            for _ in range(count):
                for broker in cluster.brokers:
                    cluster.restart(broker.id)
                    for partition in range(6):
                        cluster.wait_isr(TOPIC, partition, 3, PATIENCE)
        finally:
            over.set()
            for each in threads:
                each.join()
            producer.close()
            consumer.close()
    return counts["send"], counts["poll"], counts["commit"], failures


def percentile(times: list[float], share: float) -> float:
    """Return the time that this share of all does not exceed (nearest rank)."""
    return sorted(times)[max(0, math.ceil(share * len(times)) - 1)]


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", choices=("test", "kafka"), action="append")
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--silent", type=int, default=10, help="how many leaders are stopped instead of killed")
    parser.add_argument("--rounds", type=int, default=10, help="rolling restarts")
    options = parser.parse_args()
    wanted = options.only or CASES
    console = Console(width=120)
    for profile in options.profile or ["test", "kafka"]:
        table = Table(title=f"seconds until acknowledged again, profile {profile}")
        for column in ("end of", "until", "count", "p50", "p90", "p99", "maximum"):
            table.add_column(column)

        def row(name: str, until: str, times: list[float], table: Table = table) -> None:
            figures = (statistics.median(times), percentile(times, 0.9), percentile(times, 0.99), max(times))
            table.add_row(name, until, str(len(times)), *(f"{each:.3f}" for each in figures))

        if "leader" in wanted:
            row("a leader (SIGKILL)", "write", kills(profile, options.kills, is_controller=False)[0])
        if "controller" in wanted:
            writes, topics = kills(profile, options.kills, is_controller=True)
            row("leader and active controller (SIGKILL)", "write", writes)
            row("leader and active controller (SIGKILL)", "new topic", topics)
        if "defaults" in wanted:
            row("a leader, default clients", "write", kills(profile, options.kills, is_controller=False, options={})[0])
            writes, topics = kills(profile, options.kills, is_controller=True, options={})
            row("leader and controller, default clients", "write", writes)
            row("leader and controller, default clients", "new topic", topics)
        if "silent" in wanted:
            row("a leader (SIGSTOP)", "write", kills(profile, options.silent, is_controller=False, silent=True)[0])
        if table.rows:
            console.print(table)
        if "rolling" in wanted:
            sends, polls, commits, failures = rolling(profile, options.rounds)
            console.print(
                f"{options.rounds} rolling restarts, profile {profile}: {sends} sends, {polls} polls, "
                f"{commits} commits, {len(failures)} errors {failures[:3]}"
            )


if __name__ == "__main__":
    main()
