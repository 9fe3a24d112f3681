"""What a producer promises while nodes of a real three-node Kafka hang, die, come back and are restarted in turn."""

from __future__ import annotations

import itertools
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from pyclient import Consumer, TopicPartition, errors
from pyclient.admin import NewTopic
from tests.kafka import topics
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka
from tests.kafka.topics import wait_until
from tests.producer.faces import FACES

PARTITIONS = 3
BURST = 30
SESSION = 4.0  # seconds without a heartbeat after which the controller takes a node for dead
PATIENCE = 150.0  # seconds; how long a busy machine may take for what is awaited


@pytest.fixture(scope="module")
def kafka() -> Iterator[RealKafka]:
    """Three nodes that lead and vote; a test leaves them all running."""
    skip_without_kafka()
    settings = {
        "min.insync.replicas": "2",
        "broker.session.timeout.ms": str(int(SESSION * 1000)),
        "broker.heartbeat.interval.ms": "500",
        "replica.lag.time.max.ms": "3000",
        "controlled.shutdown.retry.backoff.ms": "500",
    }
    with RealKafka(nodes=3, heap="512M", settings=settings) as kafka:
        yield kafka


def create(kafka: RealKafka, topic: str, partitions: int = PARTITIONS) -> None:
    """A topic that all nodes serve, with three replicas."""
    topics.create(kafka.bootstrap_servers, NewTopic(topic, partitions, 3))


def leaders_of(kafka: RealKafka, topic: str) -> list[int]:
    return topics.leaders_of(kafka.bootstrap_servers, topic)


def read(kafka: RealKafka, topic: str, partitions: int = PARTITIONS) -> dict[int, list[bytes]]:
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
    """A producer that sends numbered records to a topic of its own, from a thread, until it is told to stop."""

    def __init__(self, face: Any, topic: str, *, may_fail: bool = False) -> None:
        self.face, self.topic, self.may_fail = face, topic, may_fail
        self.sent: list[Any] = []
        self.confirmed_at: list[float] = []
        self.raised: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        face.partitions_for(topic)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for number in range(len(self.sent), len(self.sent) + BURST):
                    partition = number % PARTITIONS
                    self.sent.append(self.face.send(
                        self.topic, b"%d" % number, partition=partition,
                        on_delivery=lambda _: self.confirmed_at.append(time.monotonic()),
                    ))  # fmt: skip
                if len(self.sent) % (10 * BURST) == 0:
                    self._flush()
                self.face.exception(self.sent[max(0, len(self.sent) - 4 * BURST)], PATIENCE)
                self._stop.wait(0.002)
        except BaseException as error:
            self.raised.append(error)

    def _flush(self) -> None:
        try:
            self.face.flush(PATIENCE)
        except errors.DeliveryFailed:
            if not self.may_fail:
                raise

    def wait_for(self, more: int = 10 * BURST) -> None:
        """Until so many records more were sent and the first of them has an outcome."""
        goal = len(self.sent) + more
        wait_until(lambda: len(self.sent) >= goal or bool(self.raised), f"{self.topic}: nothing is sent", PATIENCE)

    def stop(self) -> None:
        """Sends nothing more; what was sent has an outcome afterwards."""
        self._stop.set()
        self._thread.join(2 * PATIENCE)
        assert not self._thread.is_alive() and not self.raised, self.raised
        self._flush()

    @property
    def longest_stall(self) -> float:
        """The most seconds between two confirmations."""
        times = self.confirmed_at
        return max((b - a for a, b in itertools.pairwise(times)), default=0.0)

    def check_all_delivered(self, kafka: RealKafka) -> None:
        """Every record was confirmed, and is in the log once, in the order of the calls, where its future says."""
        failures = [error for future in self.sent if (error := future.exception(0)) is not None]
        assert failures == []
        found = read(kafka, self.topic)
        for partition in range(PARTITIONS):
            assert found[partition] == [b"%d" % number for number in range(partition, len(self.sent), PARTITIONS)]
            offsets = [future.result(0).offset for future in self.sent[partition::PARTITIONS]]
            assert offsets == list(range(len(offsets)))

    def check_outcomes_are_true(self, kafka: RealKafka) -> int:
        """Some may have failed: the log has what was confirmed and not what certainly failed, once and in order."""
        found, failed = read(kafka, self.topic), 0
        numbers = {partition: [int(value) for value in values] for partition, values in found.items()}
        for partition, log in numbers.items():
            assert len(log) == len(set(log)), f"{self.topic}-{partition}: doubled"
            assert log == sorted(log), f"{self.topic}-{partition}: out of order"
        for number, future in enumerate(self.sent):
            partition, error = number % PARTITIONS, future.exception(0)
            if error is None:
                offset = future.result(0).offset
                assert offset < 0 or numbers[partition][offset] == number
                assert number in numbers[partition]
            else:
                failed += 1
                assert error.maybe_persisted or number not in numbers[partition]
        return failed


@contextmanager
def loads(kafka: RealKafka, topic: str, *, may_fail: bool = False, **options: Any) -> Iterator[list[Load]]:
    """Both faces under load, each with a topic of its own; all records have an outcome at the end."""
    given = {"linger_ms": 1, "batch_size": 512, "reconnect_backoff_ms": 20, **options}
    with ExitStack() as stack:
        running = []
        for make in FACES:
            create(kafka, f"{topic}-{make.name}")
            face: Any = make(kafka.bootstrap_servers, **given)
            stack.callback(face.end)
            running.append(Load(face, f"{topic}-{make.name}", may_fail=may_fail))
        for load in running:
            load.wait_for()
        try:
            yield running
        finally:
            for load in running:
                load.stop()


@contextmanager
def frozen(kafka: RealKafka, *nodes: int) -> Iterator[None]:
    """These nodes stand still, with their connections open."""
    for node in nodes:
        kafka.pause(node)
    try:
        yield
    finally:
        for node in nodes:
            kafka.resume(node)


def test_two_of_three_nodes_that_freeze_and_thaw_again_and_again_leave_no_gap_and_no_duplicate(
    kafka: RealKafka, topic: str
) -> None:
    """Guarantee 4: no duplicate and no gap while 2 of 3 nodes freeze for longer than the request timeout and the
    session, thaw for less, and freeze again (45 s and 20 s, scaled to sessions of 4 s)."""
    with loads(kafka, topic, request_timeout_ms=2000, delivery_timeout_ms=120_000) as running:
        for first in (1, 2, 3):
            with frozen(kafka, first, first % 3 + 1):
                time.sleep(1.5 * SESSION)  # the length of the fault
            time.sleep(0.5 * SESSION)  # and of the pause between two
    for load in running:
        load.check_all_delivered(kafka)


def test_a_leader_that_freezes_for_less_than_its_session_gets_every_batch_once(kafka: RealKafka, topic: str) -> None:
    """Guarantee 4: the same leader thaws with the requests of given-up connections still in its sockets."""
    with loads(kafka, topic, request_timeout_ms=1000, delivery_timeout_ms=120_000) as running:
        for round_ in range(4):
            with frozen(kafka, leaders_of(kafka, running[0].topic)[round_ % PARTITIONS]):
                time.sleep(0.5 * SESSION)  # the length of the fault
            for load in running:
                load.wait_for(BURST)
    for load in running:
        load.check_all_delivered(kafka)


def test_batches_that_run_out_of_time_while_leaders_freeze_are_never_doubled(kafka: RealKafka, topic: str) -> None:
    """Guarantees 3, 4 and 6: some records fail, and what their futures say of the log is true all the same."""
    failed = 0
    options: dict[str, Any] = {"request_timeout_ms": 600, "delivery_timeout_ms": 1500, "max_block_ms": 60_000}
    with loads(kafka, topic, may_fail=True, **options) as running:
        for round_ in range(4):
            with frozen(kafka, leaders_of(kafka, running[0].topic)[round_ % PARTITIONS]):
                time.sleep(0.6 * SESSION)  # the length of the fault
            for load in running:
                load.wait_for(BURST)
    for load in running:
        failed += load.check_outcomes_are_true(kafka)
    assert failed, "no record ran out of time: the test tested nothing"


def test_a_leader_that_is_killed_and_returns_leaves_no_gap_and_no_duplicate(kafka: RealKafka, topic: str) -> None:
    """Guarantee 4: kill -9, another leader, the old one back, without an error that anybody sees."""
    with loads(kafka, topic, request_timeout_ms=2000, delivery_timeout_ms=120_000) as running:
        victim = leaders_of(kafka, running[0].topic)[0]
        kafka.kill(victim)
        wait_until(lambda: victim not in leaders_of(kafka, running[0].topic), f"node {victim} still leads")
        for load in running:
            load.wait_for()
        kafka.restart(victim)
        for load in running:
            load.wait_for()
    for load in running:
        load.check_all_delivered(kafka)


def test_a_rolling_restart_surfaces_no_error(
    kafka: RealKafka, topic: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Guarantee 15: every node is stopped and started in turn under load; `send` and `flush` raise nothing and no
    future fails. The longest pause between two confirmations is reported."""
    with loads(kafka, topic) as running:
        for node in (1, 2, 3):
            kafka.stop(node)
            for load in running:
                load.wait_for()
            kafka.restart(node)
            for load in running:
                load.wait_for()
    for load in running:
        load.check_all_delivered(kafka)
        stall = f"{load.longest_stall:.2f} s among {len(load.sent)} records"
        record_testsuite_property(f"longest stall of a producer over a rolling restart, {load.face.name}", stall)


def checked(name: str, number: int) -> bytes:
    """A value of 600 bytes that names its topic and carries the CRC of the rest."""
    body = f"{name} {number} ".encode().ljust(590, b"%d" % (number % 10))
    return body + b" %08x" % zlib.crc32(body)


def is_whole(value: bytes, name: str) -> bool:
    body, _, crc = value.rpartition(b" ")
    return body.startswith(name.encode() + b" ") and int(crc, 16) == zlib.crc32(body)


@pytest.mark.parametrize("make", FACES, ids=lambda face: face.name)
def test_a_pooled_buffer_is_never_reused_while_its_request_is_under_way(
    kafka: RealKafka, topic: str, make: Any
) -> None:
    """Guarantee 1: the leader of A freezes past the delivery timeout while B takes records through a tiny pool; then it
    goes on, and every value of A and B carries its own topic's CRC, and the pool is full again."""
    a, b = f"{topic}-a", f"{topic}-b"
    create(kafka, a)
    create(kafka, b)
    frozen_node = leaders_of(kafka, a)[0]
    others = [number for number, leader in enumerate(leaders_of(kafka, b)) if leader != frozen_node]
    face = make(
        kafka.bootstrap_servers, batch_size=700, buffer_memory=8 * 700, linger_ms=0,
        request_timeout_ms=1000, delivery_timeout_ms=1000, max_block_ms=120_000, send_buffer_bytes=4096,
    )  # fmt: skip
    numbers = itertools.count()

    def send(name: str, partition: int) -> Any:
        return face.send(name, checked(name, next(numbers)), partition=partition)

    def wait_until_taken(name: str, partition: int) -> None:
        """The time limit, short since it is what the test needs to run out, may be too short for a busy Kafka too."""
        wait_until(lambda: not face.exception(send(name, partition), PATIENCE), f"{name}-{partition} takes nothing")

    try:
        for name, partition in ((a, 0), *((b, other) for other in others)):
            wait_until_taken(name, partition)
        with frozen(kafka, frozen_node):
            stalled = [send(a, 0) for _ in range(4)]
            written = [send(b, others[number % len(others)]) for number in range(200)]
            timeouts = [face.exception(future, PATIENCE) for future in stalled]
            written += [send(b, others[0]) for _ in range(100)]
            assert all(isinstance(error, errors.DeliveryTimeout) for error in timeouts)
        for future in written:
            face.exception(future, PATIENCE)  # some wait for the frozen replica, and may run out of time
        wait_until(lambda: not face.health()["buffer_bytes_used"], "memory did not come back")
        wait_until_taken(a, 0)
    finally:
        face.end()
    for name in (a, b):
        for values in read(kafka, name).values():
            assert all(is_whole(value, name) for value in values)
            assert len(values) == len(set(values))


@pytest.mark.parametrize("make", FACES, ids=lambda face: face.name)
def test_sequences_and_epochs_wrap_as_the_broker_expects(kafka: RealKafka, topic: str, make: Any) -> None:
    """Guarantee 8: from sequence 2^31-3 and epoch 32766 on, over both ends, to a new producer id."""
    create(kafka, topic, 1)
    face = make(kafka.bootstrap_servers, linger_ms=0, batch_size=0)
    try:
        face.partitions_for(topic)
        wait_until(lambda: face.health()["producer_id"] >= 0, "no producer id")
        first_id = face.health()["producer_id"]
        face.core.sender.identity.epoch = 32_766
        sequence = face.core.topics[topic].queues[0].sequence
        assert sequence.prepare(0, face.core.sender.identity, [])
        sequence.next = 2**31 - 3
        values = []
        for number in range(30):
            if number in (10, 20):  # as if the broker missed a number, so that a new epoch is needed
                with face.core.lock:
                    sequence.broke()
            values.append(b"%d" % number)
            assert face.result(face.send(topic, values[-1], partition=0)).offset == number
        assert sequence.producer_id != first_id and sequence.epoch < 100 and sequence.next == 10
    finally:
        face.end()
    assert read(kafka, topic, 1)[0] == values


@pytest.mark.parametrize("make", FACES, ids=lambda face: face.name)
def test_a_topic_made_anew_starts_with_new_sequences(kafka: RealKafka, topic: str, make: Any) -> None:
    """Guarantee 17: no error, no stale sequence, and every offset is one of the new topic."""
    create(kafka, topic)
    face = make(kafka.bootstrap_servers, linger_ms=0, request_timeout_ms=5000)
    try:
        for number in range(5):
            face.result(face.send(topic, b"old %d" % number, partition=0))
        topics.delete(kafka.bootstrap_servers, topic)
        create(kafka, topic)
        futures = [face.send(topic, b"new %d" % number, partition=0) for number in range(50)]
        assert [face.result(future, PATIENCE).offset for future in futures] == list(range(50))
    finally:
        face.end()
    assert read(kafka, topic)[0] == [b"new %d" % number for number in range(50)]
