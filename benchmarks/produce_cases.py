"""The cases of the producer benchmark, and their goals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from statistics import median

WORK = "benchmarks.produce_work"
BULK_WORK = "benchmarks.bulk_work"
LATENCY_WORK = "benchmarks.latency_work"
MEMORY_WORK = "benchmarks.memory_work"
TOPICS_WORK = "benchmarks.topics_work"

CONFLUENT = "confluent-kafka"
BARE = "bare socket"
_LONGEST_RUN = 300  # seconds


@dataclass(frozen=True)
class Entry:
    """One client's way to do the work.

    `share` of the records is enough for a slow one, and a quick one takes more of them: rates are compared.
    """

    name: str
    module: str
    client: str
    against: str = ""  # the entry that it is compared with
    goal: float = 0.0  # the least ratio to that
    share: float = 1.0
    pure: bool = False  # without the compiled codec


@dataclass(frozen=True)
class Case:
    """One table."""

    title: str
    entries: tuple[Entry, ...]
    size: int = 100
    codec: str = "none"
    partitions: int = 1
    share: float = 1.0
    slow_broker: bool = False
    runs: int = 0  # 0: as many as asked for

    def count(self, entry: Entry, count: int) -> int:
        """Return the number of records of a run: a multiple of ten thousand if possible, for the columns."""
        wanted = int(count * self.share * entry.share)
        return wanted // 10_000 * 10_000 or max(wanted, 1)


@dataclass
class Found:
    """The results of one entry in the runs so far."""

    entry: Entry
    runs: list[dict[str, float]] = field(default_factory=list)
    failure: str = ""

    def measure(self, case: Case, servers: str, topic: str, count: int, *, counts: bool) -> None:
        """Do one run in a process of its own, and keep its figures if it counts."""
        entry, count = self.entry, case.count(self.entry, count)
        command = [sys.executable, "-W", "ignore", "-m", entry.module, entry.client, "--servers", servers]
        command += ["--topic", topic, "--size", str(case.size), "--codec", case.codec]
        command += ["--count", str(count), "--warm", str(warm_up(entry, count))]
        environment = {**os.environ, "PYCLIENT_PURE": "1" if entry.pure else "0"}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_RUN, check=False, env=environment
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            self.failure = lines[-1][:60] if lines else f"exit {done.returncode}"
        elif counts:
            self.runs.append({"count": count, **json.loads(done.stdout.splitlines()[-1])})

    def middle(self, name: str) -> float:
        """Return the median of a figure."""
        return median(run[name] for run in self.runs)

    @property
    def rate(self) -> float:
        """Return records a second."""
        return median(run["count"] / run["seconds"] for run in self.runs)

    @property
    def cpu_us(self) -> float:
        """CPU microseconds a record, of the client's whole process."""
        return median(run["cpu"] / run["count"] * 1e6 for run in self.runs)


def warm_up(entry: Entry, count: int) -> int:
    """Return how many records are sent to warm up: a third; none where memory or new topics are measured."""
    return 0 if entry.module in (MEMORY_WORK, TOPICS_WORK) else count // 3 // 10_000 * 10_000 or max(count // 3, 1)


def _send(goal: float) -> tuple[Entry, ...]:
    return (Entry("pyclient send", WORK, "pyclient", CONFLUENT, goal), Entry(CONFLUENT, WORK, CONFLUENT))


_SHAPES = ((100, "none", 1.0, 2), (100, "lz4", 1.0, 1), (1024, "none", 0.34, 1), (1024, "lz4", 0.34, 1))

SEND = (
    *(
        Case("one call a record, confirmed by future or callback", _send(goal), size, codec, partitions, share)
        for size, codec, share, goal in _SHAPES
        for partitions in (1, 12)
    ),
    Case(
        "the same by all clients",
        (
            *_send(2),
            Entry("pyclient AsyncProducer", WORK, "pyclient async", CONFLUENT),
            Entry("kafka-python", WORK, "kafka-python", CONFLUENT, share=0.05),
            Entry("aiokafka", WORK, "aiokafka", CONFLUENT, share=0.2),
        ),
        partitions=6,
    ),
)

_LARGE_BUFFER = "confluent-kafka, 256 MB"
LARGE_BUFFER = tuple(
    Case(
        "one call a record, 256 MB of memory for records that wait",
        (
            Entry("pyclient send, 256 MB", WORK, "pyclient, 256 MB", _LARGE_BUFFER, 1.2),
            Entry(_LARGE_BUFFER, WORK, _LARGE_BUFFER),
        ),
        size=1024,
        partitions=partitions,
    )
    for partitions in (1, 12)
)

_BATCH, _PRODUCE = "confluent produce_batch", "confluent produce"
BULK = tuple(
    Case(
        "columns of 10,000",
        (
            Entry("pyclient send_many, list", BULK_WORK, "pyclient send_many, list", _BATCH, 4, share=2),
            Entry(_BATCH, BULK_WORK, _BATCH),
            Entry("pyclient send_many, Arrow", BULK_WORK, "pyclient send_many, Arrow", _PRODUCE, 10, share=2),
            Entry(_PRODUCE, BULK_WORK, _PRODUCE),
            Entry(BARE, BULK_WORK, BARE, share=2),
        ),
        codec=codec,
        partitions=partitions,
        share=2,
    )
    for codec, partitions in (("none", 1), ("none", 12), ("lz4", 12))
)

PURE = tuple(
    Case(
        "without the compiled codec",
        (
            Entry("pyclient, pure", WORK, "pyclient", "aiokafka", 1, pure=True),
            Entry("pyclient AsyncProducer, pure", WORK, "pyclient async", "aiokafka", 1, pure=True),
            Entry("aiokafka", WORK, "aiokafka"),
        ),
        partitions=partitions,
        share=0.25,
    )
    for partitions in (1, 12)
)

TOPICS = tuple(
    Case(
        f"the first record to each of {count:,} topics, sent from one thread",
        (Entry("pyclient send", TOPICS_WORK, "pyclient", CONFLUENT, 1), Entry(CONFLUENT, TOPICS_WORK, CONFLUENT)),
        share=count / 300_000,
        runs=2,
    )
    for count in (1_000, 10_000)
)

_THREAD = "confluent, polling thread"
LATENCY = (
    Case(
        "1,000 records a second, linger 0",
        (
            Entry("pyclient, callback", LATENCY_WORK, "pyclient, callback", _THREAD, 1),
            Entry("pyclient, future", LATENCY_WORK, "pyclient, future", _THREAD, 1),
            Entry(_THREAD, LATENCY_WORK, _THREAD),
            Entry("confluent, polled inline", LATENCY_WORK, "confluent, polled inline"),
        ),
    ),
)

MEMORY = tuple(
    Case(
        f"growth of memory under overload, {'a slow' if slow else 'a quick'} broker",
        (
            Entry("pyclient, futures held", MEMORY_WORK, "pyclient, futures held"),
            Entry("pyclient, futures dropped", MEMORY_WORK, "pyclient, futures dropped"),
            Entry("pyclient, send_many", MEMORY_WORK, "pyclient, send_many"),
            Entry(CONFLUENT, MEMORY_WORK, CONFLUENT),
        ),
        codec=codec,
        partitions=12,
        share=2,
        slow_broker=slow,
        runs=2,
    )
    for slow, codec in ((False, "none"), (True, "none"), (True, "lz4"))
)
