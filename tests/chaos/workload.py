"""Producers and consumers of a chaos run, of ours and of confluent-kafka, each in a thread; they note what they saw."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import confluent_kafka

from pyclient import Consumer, Producer, TopicPartition
from pyclient.errors import KafkaError
from tests.chaos.history import (
    COMMITTED,
    FAIL,
    IDEMPOTENT,
    INFO,
    OK,
    ONE,
    PLAIN,
    UNCOMMITTED,
    Call,
    History,
    Place,
    Read,
    Send,
    Value,
    parsed,
    payload,
)
from tests.chaos.their_log import ProducerLog

DELIVERY_SECONDS: Final = 60.0
RATE: Final = 60
"""Records a second of a producer, unless it has a rate of its own."""
SIZE: Final = 200
_AT_ONCE: Final = 500  # records of a call
_RETURN_SECONDS: Final = 60.0  # on average, between two returns of a reader to the beginning
ISOLATION: Final = {COMMITTED: "read_committed", UNCOMMITTED: "read_uncommitted"}
_KINDS: Final[dict[str, dict[str, Any]]] = {
    IDEMPOTENT: {"acks": "all", "enable_idempotence": True},
    PLAIN: {"acks": "all", "enable_idempotence": False},
    ONE: {"acks": "1", "enable_idempotence": False},
}


class Notes:
    """The history, written by many threads, and what has failed in them."""

    def __init__(self) -> None:
        self.history = History()
        self.failures: list[str] = []
        self.state: list[str] = []
        """The state of the cluster, as its nodes report it, if it did not begin to work or did not heal."""
        self._lock = threading.Lock()

    def add(self, *events: Any) -> None:
        with self._lock:
            self.history.add(*events)

    def fail(self, client: str, error: BaseException) -> None:
        with self._lock:
            self.failures.append(f"{client}: {error!r}")


class Worker:
    """A thread that works until it is stopped."""

    def __init__(self, name: str, notes: Notes) -> None:
        self.name = name
        self.notes = notes
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def join(self, seconds: float) -> None:
        """Wait for its end; one that is stuck is a failure."""
        if not self.ends_within(seconds):
            self.notes.fail(self.name, TimeoutError(f"still at work after {seconds:g} s"))

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end; return False if that has not come in time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:  # a finding of the run
            self.notes.fail(self.name, error)

    def work(self) -> None:
        raise NotImplementedError


class Sending(Worker):
    """Sends numbered values to random partitions of a topic, at a steady rate."""

    def __init__(
        self,
        name: str,
        notes: Notes,
        servers: str,
        topic: str,
        partitions: int,
        kind: str,
        seed: int,
        rate: float = RATE,
    ) -> None:
        super().__init__(name, notes)
        self.servers, self.topic, self.partitions, self.kind, self.rate = servers, topic, partitions, kind, rate
        self.transaction: str | None = None
        self.random = random.Random(seed)

    def places(self) -> Iterable[tuple[Value, Place]]:
        """Yield what to send next, at the rate, until the end."""
        number, began = 0, time.monotonic()
        while not self.stopping.is_set():
            place = Place(self.topic, self.random.randrange(self.partitions))
            yield Value(self.name, number), place
            number += 1
            self.stopping.wait(max(0.0, began + number / self.rate - time.monotonic()))

    def call(self, value: Value, place: Place) -> float:
        """Note that a value is being sent, and return the time."""
        began = time.monotonic()
        self.notes.add(Call(value, place, began, self.kind, self.transaction))
        return began

    def note(
        self,
        value: Value,
        place: Place,
        began: float,
        outcome: str,
        offset: int | None,
        error: str,
        transaction: str | None = None,
    ) -> None:
        ended = time.monotonic()
        self.notes.add(Send(value, place, self.kind, outcome, offset, began, ended, transaction, error))


class OurSender(Sending):
    """A producer of ours."""

    def work(self) -> None:
        options = _KINDS[self.kind]
        with Producer(
            bootstrap_servers=self.servers,
            client_id=self.name,
            delivery_timeout_ms=round(DELIVERY_SECONDS * 1000),
            request_timeout_ms=5_000,
            linger_ms=2,
            **options,
        ) as producer:
            for value, place in self.places():
                self._send(producer, value, place)

    def _send(self, producer: Producer, value: Value, place: Place) -> None:
        began, transaction = self.call(value, place), self.transaction

        def done(future: Any) -> None:
            error = future.exception(0)
            if error is None:
                self.note(value, place, began, OK, future.result(0).offset, "", transaction)
            else:
                outcome = INFO if getattr(error, "maybe_persisted", True) else FAIL
                self.note(value, place, began, outcome, None, repr(error), transaction)

        content = payload(value, place, SIZE)
        try:
            future = producer.send(place.topic, content, partition=place.partition)
        except KafkaError as error:
            self.note(value, place, began, FAIL, None, repr(error), transaction)
        else:
            future.add_done_callback(done)


class TheirSender(Sending):
    """A producer of confluent-kafka."""

    def work(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.servers,
                "client.id": self.name,
                **ProducerLog(self.name, self.notes.add).options(),
                "acks": "all",
                "enable.idempotence": self.kind == IDEMPOTENT,
                "delivery.timeout.ms": round(DELIVERY_SECONDS * 1000),
                "request.timeout.ms": 5_000,
                "linger.ms": 2,
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        for value, place in self.places():
            self._send(producer, value, place)
            producer.poll(0)
        producer.flush(DELIVERY_SECONDS + 5)

    def _send(self, producer: Any, value: Value, place: Place) -> None:
        began, transaction = self.call(value, place), self.transaction

        def done(error: Any, message: Any) -> None:
            if error is None:
                self.note(value, place, began, OK, message.offset(), "", transaction)
            else:
                self.note(value, place, began, INFO, None, str(error), transaction)

        try:
            producer.produce(place.topic, payload(value, place, SIZE), partition=place.partition, on_delivery=done)
        except confluent_kafka.KafkaException as error:  # it was fenced, and takes no record
            self.note(value, place, began, FAIL, None, str(error), transaction)
            raise


class OurReader(Worker):
    """A consumer of ours with all partitions of some topics, from the beginning.

    One with a seed returns there at times.
    """

    def __init__(
        self, name: str, notes: Notes, servers: str, topics: dict[str, int], isolation: str, seed: int | None = None
    ) -> None:
        super().__init__(name, notes)
        self.servers, self.topics, self.isolation = servers, topics, isolation
        self._random = None if seed is None else random.Random(seed)
        self._jumped: set[tuple[str, int]] = set()

    def work(self) -> None:
        polls, returns = 0, self._next_return()
        with self.consumer() as consumer:
            while not self.stopping.is_set():
                polls += 1
                if time.monotonic() > returns:
                    consumer.seek_to_beginning()
                    self._jumped |= consumer.assignment()
                    returns = self._next_return()
                self.notes.add(*self.reads(consumer.poll(0.2), polls))

    def _next_return(self) -> float:
        return math.inf if self._random is None else time.monotonic() + self._random.expovariate(1 / _RETURN_SECONDS)

    def consumer(self, **options: Any) -> Consumer[Any, Any]:
        """Return a consumer that has all partitions."""
        consumer: Consumer[Any, Any] = Consumer(
            bootstrap_servers=self.servers,
            client_id=self.name,
            auto_offset_reset="earliest",
            isolation_level=ISOLATION[self.isolation],  # type: ignore[arg-type]
            request_timeout_ms=5_000,
            fetch_max_wait_ms=50,
            **options,
        )
        consumer.assign(
            [TopicPartition(topic, index) for topic, count in self.topics.items() for index in range(count)]
        )
        return consumer

    def reads(self, records: Iterable[Any], poll: int, transaction: str | None = None) -> list[Read]:
        """Return what a poll has returned."""
        found = []
        for record in records:
            said = parsed(record.value)
            value, says = said or (None, None)
            at = (record.topic, record.partition)
            jumped = at in self._jumped
            self._jumped.discard(at)
            read = Read(
                self.name, poll, Place(*at), record.offset, value, says, self.isolation, jumped, time.monotonic()
            )
            found.append(replace(read, transaction=transaction))
        return found

    def drain(self, seconds: float) -> None:
        """Read everything to the ends, in the caller's thread."""
        deadline = time.monotonic() + seconds
        with self.consumer() as consumer:
            ends = consumer.end_offsets(consumer.assignment(), timeout=seconds)
            polls = 0
            while any(consumer.position(place, timeout=seconds) < end for place, end in ends.items()):
                polls += 1
                self.notes.add(*self.reads(consumer.poll(1.0), polls))
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name}: not at the ends {ends} after {seconds:g} s")


class TheirReader(Worker):
    """A consumer of confluent-kafka with all partitions of some topics, from the beginning."""

    def __init__(self, name: str, notes: Notes, servers: str, topics: dict[str, int]) -> None:
        super().__init__(name, notes)
        self.servers, self.topics = servers, topics

    def work(self) -> None:
        consumer = self.consumer()
        polls = 0
        while not self.stopping.is_set():
            polls += 1
            self.note(consumer.consume(_AT_ONCE, 0.2), polls)
        consumer.close()

    def consumer(self) -> Any:
        """Return a consumer that has all partitions."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "client.id": self.name,
                "log_level": 0,
                "group.id": f"group-of-{self.name}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 50,
            }
        )
        consumer.assign(
            [
                confluent_kafka.TopicPartition(topic, index, confluent_kafka.OFFSET_BEGINNING)
                for topic, count in self.topics.items()
                for index in range(count)
            ]
        )
        return consumer

    def note(self, messages: Iterable[Any], poll: int, transaction: str | None = None) -> None:
        """Note what a poll has returned."""
        for message in messages:
            if message.error() is None:
                value, says = parsed(message.value()) or (None, None)
                place, at = Place(message.topic(), message.partition()), time.monotonic()
                read = Read(self.name, poll, place, message.offset(), value, says, COMMITTED, at=at)
                self.notes.add(replace(read, transaction=transaction))
