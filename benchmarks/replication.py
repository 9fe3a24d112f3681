"""Replicated produce: 3 brokers in processes, 3 replicas, acks=all, 2 in sync; against one broker and a real Kafka.

`python -m benchmarks.replication`; a real Kafka of 3 nodes takes part where Java and Maven are, with --kafka.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.warming import memory_at_hand
from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster

RECORD: Final = b"x" * 1024
PARTITIONS: Final = 6
SINGLE: Final = 1_000
_AT_HAND: Final = 4 << 30
"""Bytes of memory that are brought back from the host before a round: three replicas of what a round writes."""


@contextmanager
def clusters(kafka: bool) -> Iterator[Iterator[tuple[str, str, int]]]:
    """Yield (name, bootstrap servers, replicas) of each cluster, one running at a time."""

    def each() -> Iterator[tuple[str, str, int]]:
        with EmbeddedCluster(1, processes=True, profile="kafka") as one:
            yield "pyclient, 1 broker", one.bootstrap_servers, 1
        with EmbeddedCluster(3, processes=True, profile="kafka") as three:
            yield "pyclient, 3 brokers", three.bootstrap_servers, 3
        if kafka:
            from tests.kafka.runner import AS_SHIPPED, RealKafka

            with RealKafka(nodes=3, jvm=AS_SHIPPED) as real:
                yield f"Apache Kafka {real.version}, 3 brokers", real.bootstrap_servers, 3

    yield each()


def throughput(servers: str, topic: str, seconds: float) -> float:
    """Return MB/s of values that were acknowledged."""
    sent = 0
    with Producer(bootstrap_servers=servers, acks="all", linger_ms=5, batch_size=256 << 10) as producer:
        producer.partitions_for(topic)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            producer.send_many(topic, [RECORD] * 500)
            sent += 500
        producer.flush()
        return sent * len(RECORD) / (time.perf_counter() - began) / 1e6


def latencies(servers: str, topic: str) -> list[float]:
    """Return the milliseconds of single records, one sent when the one before is acknowledged, in order."""
    with Producer(bootstrap_servers=servers, acks="all", linger_ms=0) as producer:
        times = [time.perf_counter()]
        for _ in range(SINGLE):
            producer.send(topic, RECORD, partition=0).result(30)
            times.append(time.perf_counter())
    return sorted((b - a) * 1000 for a, b in pairwise(times[SINGLE // 10 :]))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds of load before; a JVM compiles its code")
    parser.add_argument("--kafka", action="store_true", help="measure a real Kafka, too")
    options = parser.parse_args()
    table = Table(title="acks=all, 1 KB records")
    for column in ("cluster", "MB/s (median)", "one at a time p50 ms", "p99 ms"):
        table.add_column(column)
    with clusters(options.kafka) as several:
        for name, servers, replicas in several:
            configs = {"min.insync.replicas": str(min(2, replicas))}
            with Admin(servers) as admin:
                admin.create_topics([NewTopic("bench", PARTITIONS, replicas, configs=configs)])
            throughput(servers, "bench", options.warm_up)
            latencies(servers, "bench")
            rates = []
            for _ in range(options.rounds):
                memory_at_hand(_AT_HAND)
                rates.append(throughput(servers, "bench", options.seconds))
            times = latencies(servers, "bench")
            p99 = times[int(0.99 * len(times))]
            table.add_row(name, f"{statistics.median(rates):.1f}", f"{statistics.median(times):.2f}", f"{p99:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
