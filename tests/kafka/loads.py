"""Producers that send numbered records while something happens to a Kafka, and what its logs must say afterwards."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol

import pytest

from pyclient import Consumer, TopicPartition, errors
from pyclient.admin import NewTopic
from pyclient.producer import sender
from pyclient.producer.record_accumulator import ATOMIC_APPEND
from pyclient.records import partition_for_key
from tests.kafka import topics
from tests.kafka.topics import wait_until
from tests.producer.parts import fast_path_of
from tests.producer.producer_clients import AsyncClient, SyncClient

PARTITIONS: Final = 3
BURST: Final = 30
UNKNOWN_OFFSET: Final = -1  # of a record that a restarted broker has and does not remember
PATIENCE: Final = 150.0  # seconds; how long a busy machine may take for what is awaited


class Serving(Protocol):
    """A cluster that serves."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of its nodes."""
        ...


def create(kafka: Serving, topic: str, partitions: int = PARTITIONS) -> None:
    """Create a topic that all nodes serve, with three replicas."""
    topics.create(kafka.bootstrap_servers, NewTopic(topic, partitions, 3))


def read(kafka: Serving, topic: str, partitions: int = PARTITIONS) -> dict[int, list[bytes]]:
    """Partition -> the values of all its records, by their offsets."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        ends = consumer.end_offsets(places, timeout=PATIENCE)
        consumer.assign(places)
        found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
        while any(len(found[place.partition]) < end for place, end in ends.items()):
            records = consumer.poll(PATIENCE)
            assert records, f"{topic}: {[*map(len, found.values())]} records came, and {[*ends.values()]} are there"
            for record in records:
                assert record.offset == len(found[record.partition])
                found[record.partition].append(record.value or b"")
    return found


class Load:
    """A producer that sends numbered records to a topic of its own, from a thread, until `stop`.

    This one sends bursts of single records, to one partition after the other, which linger until they are batches.
    """

    run = 1
    """So many records in a row are for one partition."""
    partitions = PARTITIONS
    options: dict[str, Any] = {}

    def __init__(self, client: Any, topic: str, name: str, *, may_fail: bool = False) -> None:
        self.client, self.topic, self.name, self.may_fail = client, topic, name, may_fail
        self.sent: list[Any] = []
        self.confirmed_at: list[float] = []
        self.raised: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        client.partitions_for(topic)
        self._thread.start()

    def _run(self) -> None:
        try:
            for burst in itertools.count(1):
                if self._stop.is_set():
                    break
                self._send_some(range(len(self.sent), len(self.sent) + BURST))
                if burst % 10 == 0:
                    self._flush()
                self.client.exception(self.sent[max(0, len(self.sent) - 4 * BURST)], PATIENCE)
                self._stop.wait(0.002)
        except BaseException as error:
            self.raised.append(error)

    def _send_some(self, numbers: range) -> None:
        for number in numbers:
            self._send(number)

    def _send(self, number: int) -> Any:
        value, partition = b"%d" % number, self._partition_of(number)
        future = self.client.send(self.topic, value, partition=partition, on_delivery=self._note)
        self.sent.append(future)
        return future

    def _partition_of(self, number: int) -> int:
        return number // self.run % self.partitions

    def _note(self, _: object) -> None:
        self.confirmed_at.append(time.monotonic())

    def _flush(self) -> None:
        try:
            self.client.flush(PATIENCE)
        except errors.DeliveryFailed:
            if not self.may_fail:
                raise

    @property
    def is_on_path(self) -> bool:
        """Return True when records took the path that the load tests."""
        return True

    def wait_for(self, more: int = 10 * BURST) -> None:
        """Wait until so many records more were sent and the first of them has an outcome."""
        goal = len(self.sent) + more
        wait_until(lambda: len(self.sent) >= goal or bool(self.raised), f"{self.topic}: nothing is sent", PATIENCE)

    def stop(self) -> None:
        """Stop sending, and wait until everything sent has an outcome."""
        self._stop.set()
        self._thread.join(2 * PATIENCE)
        assert not self._thread.is_alive() and not self.raised, self.raised
        self._flush()

    @property
    def stalls(self) -> str:
        """Return the longest and the 99th percentile of the times between two confirmations."""
        gaps = sorted(b - a for a, b in itertools.pairwise(self.confirmed_at) if b - a > 0.001)
        assert gaps, "nothing was confirmed"
        return f"longest {gaps[-1]:.2f} s, p99 {gaps[int(0.99 * len(gaps))]:.3f} s of {len(gaps)}"

    def wait_until_on_path(self) -> None:
        """Wait until records took the path under test, so that a fault meets them there."""
        wait_until(lambda: self.is_on_path or bool(self.raised), f"{self.topic}: {self.client.metrics()}", PATIENCE)

    def check_all_delivered(self, kafka: Serving) -> None:
        """Assert that every record was confirmed, and is in the log once, in order, at the offset of its future."""
        failures = [error for future in self.sent if (error := future.exception(0)) is not None]
        assert failures == []
        found = read(kafka, self.topic, self.partitions)
        for partition in range(self.partitions):
            mine = [number for number in range(len(self.sent)) if self._partition_of(number) == partition]
            assert found[partition] == [b"%d" % number for number in mine]
            offsets = [self.sent[number].result(0).offset for number in mine]
            assert all(offset in (at, UNKNOWN_OFFSET) for at, offset in enumerate(offsets)), offsets

    def check_outcomes_are_true(self, kafka: Serving) -> int:
        """Some may have failed: the log has what was confirmed and not what certainly failed, once and in order."""
        found, failed = read(kafka, self.topic, self.partitions), 0
        numbers = {partition: [int(value) for value in values] for partition, values in found.items()}
        for partition, log in numbers.items():
            assert len(log) == len(set(log)), f"{self.topic}-{partition}: doubled"
            assert log == sorted(log), f"{self.topic}-{partition}: out of order"
        written = {partition: set(log) for partition, log in numbers.items()}
        for number, future in enumerate(self.sent):
            partition, error = self._partition_of(number), future.exception(0)
            if error is None:
                offset = future.result(0).offset
                assert offset < 0 or numbers[partition][offset] == number
                assert number in written[partition]
            else:
                failed += 1
                assert error.maybe_persisted or number not in written[partition]
        return failed


class SingleLoad(Load):
    """One record after the other that does not linger: in the synchronous client, most take the compiled fast path."""

    run = 20
    options = {"linger_ms": 0, "batch_size": 16_384}
    on_fast_path = 0

    def _send_some(self, numbers: range) -> None:
        fast_path = fast_path_of(self.client.producer)
        for number in numbers:
            future = self._send(number)
            if fast_path is not None:  # one that was answered already is not seen, and not counted
                self.on_fast_path += any(record.delivery is future.batch for record in list(fast_path.records))
            if number % 7:  # else the next one is on its way together with it
                self.client.exception(future, PATIENCE)
            self._stop.wait(0.0005)

    @property
    def is_on_path(self) -> bool:
        return self.on_fast_path >= BURST or not ATOMIC_APPEND


class ColumnLoad(Load):
    """Columns for `send_many`, whose keys spread them over all partitions; each is more than one batch of each."""

    keys = [
        next(key for key in map(b"%d".__mod__, itertools.count()) if partition_for_key(key, PARTITIONS) == partition)
        for partition in range(PARTITIONS)
    ]

    def _send_some(self, numbers: range) -> None:
        column = range(numbers.start, numbers.start + 5 * len(numbers))
        keys = [self.keys[self._partition_of(number)] for number in column]
        outcome = self.client.send_many(self.topic, [b"%d" % number for number in column], keys)
        outcome.add_done_callback(self._note)
        self.sent += [outcome[position] for position in range(len(column))]


class SpreadLoad(Load):
    """More than a leader takes on one connection, to three partitions of each: they are spread over several."""

    partitions = 3 * PARTITIONS
    options = {"linger_ms": 0, "batch_size": 64, "max_in_flight_requests_per_connection": 2}
    widest = 0

    def _send_some(self, numbers: range) -> None:
        for start in range(numbers.start, numbers.start + 20 * len(numbers), len(numbers)):
            super()._send_some(range(start, start + len(numbers)))
            self.widest = max(self.widest, self.client.metrics()["connections_used"])

    @property
    def is_on_path(self) -> bool:
        return self.widest > PARTITIONS


KINDS: Final = {
    "sync": (SyncClient, Load),
    "async": (AsyncClient, Load),
    "single": (SyncClient, SingleLoad),
    "columns": (SyncClient, ColumnLoad),
    "spread": (SyncClient, SpreadLoad),
}
"""The loads that run at the same time, by name."""


@contextmanager
def loads(kafka: Serving, topic: str, *, may_fail: bool = False, **options: Any) -> Iterator[list[Load]]:
    """Every kind under load at a time, each with a topic of its own; all records have an outcome at the end.

    A few answers with more left to send are enough to open a connection, on a machine of any speed.
    """
    given = {"linger_ms": 1, "batch_size": 512, "reconnect_backoff_ms": 20, **options}
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setattr(sender, "OVERLOADED_RESPONSES", 3)
        running = []
        for name, (make, kind) in KINDS.items():
            create(kafka, f"{topic}-{name}", kind.partitions)
            client: Any = make(kafka.bootstrap_servers, **given | kind.options)
            stack.callback(client.end)
            running.append(kind(client, f"{topic}-{name}", name, may_fail=may_fail))
        for load in running:
            load.wait_for()
            load.wait_until_on_path()
        try:
            yield running
        finally:
            for load in running:
                load.stop()
