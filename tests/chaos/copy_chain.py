"""`python -m tests.chaos.copy_chain --seed 1 --messages 100000 --size 750`: exactly one copy of a topic, under faults.

Copiers in processes read a topic and write another, with the offsets in the same transactions, while copiers, leaders
and coordinators are killed and requests come late or twice. Each partition of the copy must be what the original is, in
its order: a record that is missing was lost or torn off its transaction, one too many was aborted or duplicated. What a
reader of committed records saw meanwhile must be the same, and no transaction may be open in the end.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.errors import KafkaError, TopicAlreadyExists
from tests.chaos.copy_faults import FAULTS, Copiers, CopyFaults, plan

SOURCE: Final = "original"
TARGET: Final = "copy"
GROUP: Final = "copiers"
PARTITIONS: Final = 4
SETTINGS: Final = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 3,
    "replica.lag.time.max.ms": 2_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
    "min.insync.replicas": 2,
}
FINISH_SECONDS: Final = 150.0
CLOSE_SECONDS: Final = 40.0  # more than a transaction's timeout, and the coordinator's interval

Seen = dict[int, dict[int, int]]
"""By partition and offset: the number that was read."""


@dataclass
class Result:
    """The result of a run."""

    seed: int
    messages: int
    faults: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    late_requests: int = 0
    read_meanwhile: int = 0

    def report(self) -> str:
        """Return the run in lines."""
        lines = [
            f"seed {self.seed}: {self.messages} messages copied in {self.seconds:.0f} s, {len(self.faults)} faults, "
            f"{self.late_requests} late requests, {self.read_meanwhile} records read meanwhile",
            ", ".join(f"{name} x {count}" for name, count in sorted(Counter(self.faults).items())),
            *(f"VIOLATED {each}" for each in self.violations[:20]),
            *(f"FAILED {each}" for each in self.notes[:10]),
        ]
        return "\n".join(lines)


class CommittedReader:
    """Reads committed records of the copy all the time, in a thread."""

    def __init__(self, servers: str) -> None:
        self.seen: Seen = {partition: {} for partition in range(PARTITIONS)}
        self.failure: BaseException | None = None
        self._servers = servers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            with _consumer(self._servers) as consumer:
                while not self._stop.is_set():
                    _note(consumer.poll(0.2), self.seen)
        except Exception as error:  # a finding of the run
            self.failure = error


def _consumer(servers: str) -> Consumer[bytes, bytes]:
    consumer = Consumer[bytes, bytes](
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        request_timeout_ms=5_000,
        fetch_max_wait_ms=50,
    )
    consumer.assign([TopicPartition(TARGET, partition) for partition in range(PARTITIONS)])
    return consumer


def _note(records: object, seen: Seen) -> None:
    for record in records:  # type: ignore[attr-defined]
        seen[record.partition][record.offset] = int(record.value)


def drain(servers: str, seconds: float) -> Seen:
    """Read all committed records from the beginning to the ends, which must be those of uncommitted readers, too."""
    seen: Seen = {partition: {} for partition in range(PARTITIONS)}
    deadline = time.monotonic() + seconds
    places = [TopicPartition(TARGET, partition) for partition in range(PARTITIONS)]
    with _consumer(servers) as consumer, Consumer[bytes, bytes](bootstrap_servers=servers) as other:
        while consumer.end_offsets(places, timeout=30) != (ends := other.end_offsets(places, timeout=30)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the last stable offsets are stuck: {consumer.end_offsets(places)} of {ends}")
            time.sleep(0.2)  # between two looks
        while any(consumer.position(place, timeout=30) < end for place, end in ends.items()):
            _note(consumer.poll(1.0), seen)
            if time.monotonic() > deadline + 60:
                raise TimeoutError(f"not everything up to {ends} could be read")
    return seen


def violations(messages: int, copied: Seen, meanwhile: Seen) -> list[str]:
    """Return a sentence for each difference between the copy and the original, and between two readers."""
    found = []
    for partition in range(PARTITIONS):
        original = list(range(partition, messages, PARTITIONS))
        copy = [number for _, number in sorted(copied[partition].items())]
        counts = Counter(copy)
        lost, twice = sorted(set(original) - set(copy)), sorted(each for each, count in counts.items() if count > 1)
        if lost:
            found.append(f"lost: partition {partition} misses {len(lost)}, from {lost[:5]} on")
        if twice:
            found.append(f"duplicated: partition {partition} has {len(twice)} more than once, from {twice[:5]} on")
        if not lost and not twice and copy != original:
            found.append(f"order: partition {partition} is not in the order of the original")
        aborted = [at for at, number in meanwhile[partition].items() if copied[partition].get(at) != number]
        if aborted:
            found.append(f"aborted: partition {partition}: a reader saw records that are not there, at {aborted[:5]}")
    return found


def run(
    seed: int,
    *,
    messages: int,
    size: int,
    seconds: float,
    copiers: int = 3,
    names: list[str] | None = None,
    fault_seconds: float = 3.0,
) -> Result:
    """Copy that many messages in transactions of `size`, with faults until all are copied; then check.

    Copiers pause in their transactions, so that copying would take about `seconds` without faults.
    """
    result, began = Result(seed, messages), time.monotonic()
    pause = seconds * copiers * size / messages
    with (
        tempfile.TemporaryDirectory(prefix="pyclient-copy-") as data_dir,
        EmbeddedCluster(3, processes=True, data_dir=data_dir, config=SETTINGS) as cluster,
    ):
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin, suppress(TopicAlreadyExists):  # a request that was sent again after a late answer
            admin.create_topics([NewTopic(SOURCE, PARTITIONS, 3), NewTopic(TARGET, PARTITIONS, 3)])
        with Producer(servers) as producer:
            for partition in range(PARTITIONS):
                values = [b"%d" % number for number in range(partition, messages, PARTITIONS)]
                producer.send_many(SOURCE, values, partition=partition)
        processes = Copiers(servers, copiers, SOURCE, TARGET, GROUP, size, pause)
        reader = CommittedReader(servers)
        faults = CopyFaults(cluster, processes, TARGET, PARTITIONS, seed)
        try:
            processes.start()
            reader.start()
            _wait_until_copying(reader)
            _strike_until_copied(faults, result, reader, names, fault_seconds, 5 * seconds)
            processes.end()
            copied = drain(servers, CLOSE_SECONDS)
            reader.stop()
            result.violations = violations(messages, copied, reader.seen)
        except TimeoutError as error:
            result.violations.append(f"stuck: {error}")
        finally:
            processes.close()
            reader.stop()
    result.notes = processes.notes + ([] if reader.failure is None else [f"the reader: {reader.failure!r}"])
    result.late_requests, result.seconds = faults.late_requests, time.monotonic() - began
    result.read_meanwhile = sum(len(each) for each in reader.seen.values())
    return result


def _wait_until_copying(reader: CommittedReader) -> None:
    deadline = time.monotonic() + 60
    while not any(reader.seen.values()):
        if time.monotonic() > deadline:
            raise TimeoutError("nothing was copied within 60 s")
        time.sleep(0.1)  # between two looks


def _strike_until_copied(
    faults: CopyFaults, result: Result, reader: CommittedReader, names: list[str] | None, seconds: float, limit: float
) -> None:
    """Do faults by turns while records are left, for `limit` seconds; then wait until a reader has seen all of them."""
    deadline = time.monotonic() + limit
    for name in plan(result.seed, names):
        if _count(reader) >= result.messages or time.monotonic() > deadline:
            break
        result.faults.append(name)
        try:
            faults.strike(name, seconds)
        except (KafkaError, TimeoutError) as error:  # what the fault needed was away because of the one before
            result.faults[-1] = f"{name} (missed: {type(error).__name__})"
            faults.mend()
        time.sleep(faults.random.random())  # without faults
    known, since = _count(reader), time.monotonic()
    while (count := _count(reader)) < result.messages:
        if count > known:
            known, since = count, time.monotonic()
        elif time.monotonic() - since > FINISH_SECONDS:
            text = f"{count} of {result.messages} were copied and seen as committed, none in {FINISH_SECONDS:g} s"
            raise TimeoutError(text)
        faults.copiers.start()
        time.sleep(0.1)  # between two looks


def _count(reader: CommittedReader) -> int:
    return sum(len(each) for each in reader.seen.values())


def main() -> int:
    """Run with a seed, and print the report."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.copy_chain", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=750, help="records of a transaction at most")
    parser.add_argument("--seconds", type=float, default=120.0, help="about, that copying takes without faults")
    parser.add_argument("--fault-seconds", type=float, default=3.0, help="how long a fault lasts")
    parser.add_argument("--only", action="append", choices=sorted(FAULTS), help="only these faults")
    given = parser.parse_args()
    sys.stdout.write(f"seed {given.seed}\n")
    found = run(
        given.seed,
        messages=given.messages,
        size=given.size,
        seconds=given.seconds,
        names=given.only,
        fault_seconds=given.fault_seconds,
    )
    sys.stdout.write(f"{found.report()}\n")
    return 1 if found.violations or found.notes else 0


if __name__ == "__main__":
    sys.exit(main())
