"""Steps 2 and 3: send every line as a record, read all with two consumers of one group, and compare with the files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic, perf_counter

from pyclient import Consumer, Producer, Record, TopicPartition
from pyclient.cli.demo.report import Report, progress_bar, rates
from pyclient.cli.demo.source import DirectCount, FileDigest, SourceFile, lines_by_package

CONSUMERS = 2
MOST_RECORDS = 5000  # of a poll
STALL_SECONDS = 60.0  # without a record for this long, the missing ones count as lost


def produce_lines(
    report: Report,
    files: list[SourceFile],
    bootstrap_servers: str,
    topic: str,
    expected: DirectCount,
    passed: Callable[[int], None],
) -> None:
    """Send key = path, value = line, header `line` = its number; acks=all, idempotent, lz4.

    Call `passed` with the number that were sent so far, some times at least.
    """
    sent = payload = 0
    step = max(1, expected.lines // 20)
    started = perf_counter()
    with (
        Producer(
            bootstrap_servers, acks="all", enable_idempotence=True, compression_type="lz4", linger_ms=5
        ) as producer,
        progress_bar(report.console) as progress,
    ):
        bar = progress.add_task("produce", total=expected.lines, rates="")
        send = producer.send
        for source in files:
            key = source.key.encode()
            for number, line in enumerate(source.lines(), 1):
                send(topic, line, key=key, headers=(("line", b"%d" % number),))
                payload += len(line)
                sent += 1
                if not sent % step:
                    passed(sent)
            progress.update(bar, completed=sent, rates=rates(sent, payload, perf_counter() - started))
        producer.flush()
        seconds = perf_counter() - started
        progress.update(bar, completed=sent, rates=rates(sent, payload, seconds))
    report.check(sent == expected.lines, f"{sent:,} lines were sent, the files have {expected.lines:,}")
    note = f"{len(files):,} files, acks=all, idempotent, lz4"
    report.step("produce", records=sent, payload_bytes=payload, seconds=seconds, note=note)


@dataclass(slots=True)
class Tally:
    """The records that the group has read. A partition has one consumer at a time, so its entries need no lock."""

    next_offset: dict[int, int] = field(default_factory=dict)
    files: dict[str, FileDigest] = field(default_factory=dict)
    seen: list[int] = field(default_factory=lambda: [0] * CONSUMERS)
    payload: list[int] = field(default_factory=lambda: [0] * CONSUMERS)
    repeated: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    disordered: list[str] = field(default_factory=list)

    def add(self, member: int, records: Iterable[Record[bytes | None, bytes | None]]) -> None:
        for record in records:
            expected = self.next_offset.get(record.partition, 0)
            if record.offset != expected:
                place = f"partition {record.partition}: offset {record.offset} where {expected} was due"
                (self.repeated if record.offset < expected else self.skipped).append(place)
            self.next_offset[record.partition] = record.offset + 1
            key, line = (record.key or b"").decode(), record.value or b""
            digest = self.files.get(key)
            if digest is None:
                digest = self.files[key] = FileDigest()
            if record.headers != (("line", b"%d" % (digest.lines + 1)),):
                self.disordered.append(f"{key}: {record.headers} where line {digest.lines + 1} was due")
            digest.add(line)
            self.seen[member] += 1
            self.payload[member] += len(line)


def consume_lines(
    report: Report,
    bootstrap_servers: str,
    topic: str,
    group: str,
    expected: DirectCount,
    passed: Callable[[int], None],
) -> None:
    """Read with two members until every line was read, or no record has come for a minute.

    Call `passed` with the number that were read so far, several times also when there are few.
    """
    tally = Tally()
    most = min(MOST_RECORDS, max(1, expected.lines // 6))
    done = threading.Event()
    errors: list[BaseException] = []

    def member(index: int) -> None:
        try:
            with Consumer(
                topic, bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest"
            ) as consumer:
                while not done.is_set():
                    tally.add(index, consumer.poll(timeout=0.2, max_records=most))
                    passed(sum(tally.seen))
        except BaseException as error:  # raised by the main thread
            errors.append(error)
            done.set()

    threads = [threading.Thread(target=member, args=(index,), name=f"member-{index}") for index in range(CONSUMERS)]
    started = perf_counter()
    for thread in threads:
        thread.start()
    try:
        _watch(report, tally, expected, done, started)
        seconds = perf_counter() - started
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    note = " and ".join(f"{count:,}" for count in tally.seen) + " records by the two members"
    report.step("consume", records=sum(tally.seen), payload_bytes=sum(tally.payload), seconds=seconds, note=note)
    stored = _records_stored(bootstrap_servers, topic)
    report.check(stored == expected.lines, f"the topic holds {stored:,} records, {expected.lines:,} lines were sent")
    compare(report, tally, expected)


def _records_stored(bootstrap_servers: str, topic: str) -> int:
    """Return the number of records in the new topic; more than were sent means that one was written twice."""
    with Consumer(bootstrap_servers=bootstrap_servers) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        return sum(consumer.end_offsets(partitions).values())


def _watch(
    report: Report,
    tally: Tally,
    expected: DirectCount,
    done: threading.Event,
    started: float,
) -> None:
    last, last_change = -1, monotonic()
    with progress_bar(report.console) as progress:
        bar = progress.add_task("consume", total=expected.lines, rates="")
        while not done.wait(0.1):
            seen = sum(tally.seen)
            elapsed = perf_counter() - started
            progress.update(bar, completed=seen, rates=rates(seen, sum(tally.payload), elapsed))
            if seen >= expected.lines:
                return
            if seen != last:
                last, last_change = seen, monotonic()
            elif monotonic() - last_change > STALL_SECONDS:
                return


def compare(report: Report, tally: Tally, expected: DirectCount) -> None:
    """Check what was read against a count of the files."""
    seen = sum(tally.seen)
    report.check(seen == expected.lines, f"{seen:,} records were read, {expected.lines:,} lines were sent")
    for what, places in (
        ("read twice", tally.repeated),
        ("skipped", tally.skipped),
        ("out of order", tally.disordered),
    ):
        report.check(not places, f"{len(places):,} records {what}, the first: {places[:1]}")
    read, direct = lines_by_package(tally.files), expected.by_package()
    different = sorted(name for name in read.keys() | direct.keys() if read[name] != direct[name])
    report.check(not different, f"packages with another number of lines than their files: {different[:5]}")
    damaged = [key for key, digest in expected.files.items() if tally.files.get(key) != digest]
    report.check(not damaged, f"files whose lines came back different: {damaged[:5]}")
    note = f"{len(direct):,} packages, {len(expected.files):,} keys: nothing lost, nothing twice, order kept"
    report.step("compare", note=note if not report.failures else "see the failed checks")
