"""Rebalance: six members over 60 partitions until each brought a record. `python -m benchmarks.rebalance`

Each member has a thread of its own; the broker is an embedded one (test profile) in a process of its own. Exits with 1
when a way takes a second or more from the first member's beginning to records from everywhere.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from pyclient import Admin, Consumer, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster

GOAL = 1.0  # seconds, the median
WAYS: dict[str, dict[str, Any]] = {
    "classic, range": {"partition_assignment_strategy": "range"},
    "classic, cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer (KIP-848)": {"group_protocol": "consumer"},
}


class Member:
    """A consumer in a thread that polls until it is stopped, and notes when each partition brought a record."""

    def __init__(self, servers: str, topic: str, group: str, options: dict[str, Any]) -> None:
        self.first: dict[int, float] = {}
        self._topic, self._stop = topic, threading.Event()
        self._options = {"bootstrap_servers": servers, "group_id": group, "auto_offset_reset": "earliest", **options}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Consumer(self._topic, enable_auto_commit=False, **self._options) as consumer:
            while not self._stop.is_set():
                for record in consumer.poll(0.05):
                    self.first.setdefault(record.partition, time.perf_counter())
                self.held = len(consumer.assignment())

    held = 0

    def stop(self) -> None:
        """Leave the group."""
        self._stop.set()
        self._thread.join()


def wait(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Check every half millisecond until it holds."""
    deadline = time.perf_counter() + seconds
    while not condition():
        if time.perf_counter() > deadline:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(0.0005)


def measure(servers: str, topic: str, partitions: int, count: int, options: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds until every partition of a new group has brought a record and all members have their share,
    and until the remaining members have all partitions after one has left."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    begun = time.perf_counter()
    members = [Member(servers, topic, group, options) for _ in range(count)]
    try:
        wait(lambda: settled(members, partitions), "joining")
        joined = time.perf_counter() - begun
        begun = time.perf_counter()
        members.pop().stop()
        wait(lambda: sum(member.held for member in members) == partitions, "leaving")
        return joined, time.perf_counter() - begun
    finally:
        for member in members:
            member.stop()


def settled(members: Sequence[Member], partitions: int) -> bool:
    """Return True if all members have their share and every partition has brought a record."""
    share = partitions // len(members)
    read = {number for member in members for number in list(member.first)}
    return len(read) == partitions and all(member.held == share for member in members)


def main() -> None:
    """Print the median of each way to rebalance."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with EmbeddedCluster(processes=True) as cluster:
        servers = cluster.bootstrap_servers
        topic = "rebalance"
        with Admin(servers) as admin:
            admin.create_topics([NewTopic(topic, options.partitions)])
        with Producer(servers) as producer:
            for partition in range(options.partitions):
                producer.send(topic, b"x", partition=partition)
        print(f"{options.members} members, {options.partitions} partitions, median of {options.rounds} runs")
        met = True
        for name, way in WAYS.items():
            runs = [measure(servers, topic, options.partitions, options.members, way) for _ in range(options.rounds)]
            joined, left = (statistics.median(column) for column in zip(*runs, strict=True))
            worst = max(run[0] for run in runs)
            met = met and joined < GOAL
            result = f"goal below {GOAL:g} s {'met' if joined < GOAL else 'MISSED'}"
            print(f"{name:<28} joined and reading {joined:6.3f} s (worst {worst:.3f}; {result}), left {left:6.3f} s")
    if not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
