"""The further clients of a wide chaos run that are of confluent-kafka: transactions, members of groups, topics."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.chaos.history import (
    COMMITTED,
    FAIL,
    INFO,
    OK,
    TRANSACTIONAL,
    Assignment,
    Commit,
    CommitCall,
    Place,
    Read,
    TopicChange,
    Transaction,
    parsed,
)
from tests.chaos.their_log import ConsumerLog
from tests.chaos.wide_workload import ABORTED_SHARE, COOPERATIVE, OPEN_SECONDS, READING_SHARE
from tests.chaos.workload import Notes, TheirReader, TheirSender, Worker

_LIFE_SECONDS: Final = 30.0
_OPEN_SECONDS: Final = 6.0  # readers of committed records wait so long for what a producer leaves open
_CALL_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.3
_POLL_SECONDS: Final = 0.2
_AT_ONCE: Final = 500  # records between two commits at most
_KEPT: Final = 10  # of so many topics one is not deleted
_GENERATION: Final = slice(len(b"CGMDv2:"), len(b"CGMDv2:") + 4)
_SILENT: Final = logging.Logger("confluent-kafka", logging.CRITICAL + 1)  # a fenced producer logs at any level
_COMMON: Final[dict[str, Any]] = {
    "log_level": 0,
    "logger": _SILENT,
    "error_cb": lambda _error: None,  # without it a fatal error is raised by any call
    "topic.metadata.refresh.interval.ms": 1_000,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 6_000,
}


class TheirTransacting(TheirSender):
    """Producers with a transactional id each, one after the other; each leaves its last transaction open.

    The coordinator must abort that one in time, since no producer with its id comes again.
    """

    def __init__(self, name: str, notes: Notes, servers: str, topic: str, partitions: int, seed: int) -> None:
        super().__init__(name, notes, servers, topic, partitions, TRANSACTIONAL, seed)
        self._source = iter(self.places())
        self._lives = 0
        self._count = 0
        self._reader = TheirReader(name, notes, servers, {topic: partitions})
        self._polls = 0

    def work(self) -> None:
        consumer = self._reader.consumer()
        while not self.stopping.is_set():
            self._lives += 1
            producer = confluent_kafka.Producer(
                _COMMON
                | {
                    "bootstrap.servers": self.servers,
                    "client.id": self.name,
                    "transactional.id": f"{self.name}-{self._lives}",
                    "transaction.timeout.ms": round(_OPEN_SECONDS * 1000),
                    "request.timeout.ms": 5_000,
                    "linger.ms": 2,
                }
            )
            with suppress(KafkaException):  # the next producer goes on, and the coordinator aborts what this one began
                producer.init_transactions(_CALL_SECONDS)
                end = time.monotonic() + _LIFE_SECONDS
                while not self.stopping.is_set() and time.monotonic() < end:
                    self._transact(producer, consumer)
                self._transact(producer, consumer, leave=True)
            with suppress(KafkaException):  # it was fenced
                producer.flush(_CALL_SECONDS)
            producer.purge()
            producer.flush(_CALL_SECONDS)  # each send has an outcome then
            self.stopping.wait(_PAUSE_SECONDS)
        consumer.close()

    def _transact(self, producer: Any, consumer: Any, *, leave: bool = False) -> None:
        producer.begin_transaction()
        self._count += 1
        self.transaction = f"{self.name}-{self._count}"
        outcome, requested = FAIL, None  # as long as its commit was not requested
        try:
            for _ in range(1 if leave else self.random.randint(1, 4)):
                found = next(self._source, None)
                if found is not None:
                    self._send(producer, *found)
            if self.random.random() < READING_SHARE:
                self._read(producer, consumer)
            if leave:
                return
            if self.random.random() < ABORTED_SHARE:
                producer.abort_transaction(_CALL_SECONDS)
                return
            producer.flush(_CALL_SECONDS)
            outcome, requested = INFO, time.monotonic()
            producer.commit_transaction(_CALL_SECONDS)
            outcome = OK
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(_CALL_SECONDS)
        finally:
            self.notes.add(Transaction(self.transaction, outcome, requested))

    def _read(self, producer: Any, consumer: Any) -> None:
        """Read what can be seen of the transaction's own values, and wait before and after that."""
        producer.flush(_CALL_SECONDS)
        self.stopping.wait(self.random.uniform(0.0, OPEN_SECONDS))
        self._polls += 1
        self._reader.note(consumer.consume(_AT_ONCE, _POLL_SECONDS), self._polls, self.transaction)
        self.stopping.wait(self.random.uniform(0.0, OPEN_SECONDS))


class TheirMember(Worker):
    """A member of a group of either protocol; it commits after each poll, and notes what became of each commit.

    A member that is stuck by its own log is replaced by a new one.
    """

    def __init__(
        self,
        name: str,
        notes: Notes,
        servers: str,
        topic: str,
        group: str,
        protocol: str,
        *,
        assignor: str = COOPERATIVE,
    ) -> None:
        super().__init__(name, notes)
        self.servers, self.topic, self.group, self.protocol = servers, topic, group, protocol
        self._assignor = assignor
        self._polls = 0
        self._positions: dict[Place, int] = {}
        self._jumped: set[Place] = set()
        self._owned: set[Place] = set()

    def _assigned(self, consumer: Any, partitions: Iterable[Any]) -> None:
        for each in partitions:
            place = Place(each.topic, each.partition)
            self._owned.add(place)
            self._jumped.add(place)
            self._positions.pop(place, None)
        generation = _generation(consumer)
        if generation >= 0:  # else it was put out of the group meanwhile
            self.notes.add(Assignment(self.group, self.name, generation, tuple(sorted(self._owned))))

    def _revoked(self, _consumer: Any, partitions: Iterable[Any]) -> None:
        for each in partitions:
            place = Place(each.topic, each.partition)
            self._owned.discard(place)
            self._positions.pop(place, None)

    def work(self) -> None:
        while not self.stopping.is_set():
            log = ConsumerLog(self.name, self.notes.add)
            consumer = confluent_kafka.Consumer(self._options() | log.options())
            consumer.subscribe([self.topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
            while not (self.stopping.is_set() or log.is_stuck):
                self._poll(consumer)
                self._commit(consumer)
            consumer.close()
            self._positions.clear()
            self._owned.clear()

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"group.protocol": self.protocol}
        if self.protocol == "classic":
            options["partition.assignment.strategy"] = self._assignor
            options |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        return {
            **_COMMON,
            "bootstrap.servers": self.servers,
            "client.id": self.name,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            **options,
        }

    def _poll(self, consumer: Any) -> None:
        for at in range(_AT_ONCE):
            self._polls += 1
            message = consumer.poll(0 if at else _POLL_SECONDS)
            if message is None:
                return
            error = message.error()
            if error is None:
                self._note(message)
            elif error.fatal():
                raise KafkaException(error)

    def _note(self, message: Any) -> None:
        place, offset = Place(message.topic(), message.partition()), message.offset()
        value, says = parsed(message.value()) or (None, None)
        jumped = place in self._jumped
        self._jumped.discard(place)
        self._positions[place] = offset + 1
        self.notes.add(
            Read(
                self.name,
                self._polls,
                place,
                offset,
                value,
                says,
                COMMITTED,
                jumped,
                time.monotonic(),
                place in self._owned,
            )
        )

    def _commit(self, consumer: Any) -> None:
        positions = dict(self._positions)
        if not positions:
            return
        generation, began = _generation(consumer), time.monotonic()
        offsets = [confluent_kafka.TopicPartition(*place, offset) for place, offset in positions.items()]
        self.notes.add(CommitCall(self.group, self.name, tuple(positions), tuple(positions.values()), began))
        outcome = INFO
        with suppress(KafkaException):  # the member was put out of the group, or its coordinator is away
            if not any(each.error for each in consumer.commit(offsets=offsets, asynchronous=False)):
                outcome = OK
        at = time.monotonic()
        if outcome == INFO:
            generation = max(generation, _generation(consumer))  # it was sent in one of these
        self.notes.add(
            *(
                Commit(self.group, self.name, generation, place, offset, at, began, outcome)
                for place, offset in positions.items()
            )
        )


class TheirAltering(Worker):
    """Creates topics, adds partitions, and deletes most of them, one after the other; the answers are not verified."""

    def __init__(self, name: str, notes: Notes, servers: str) -> None:
        super().__init__(name, notes)
        self.servers = servers

    def work(self) -> None:
        admin = AdminClient(_COMMON | {"bootstrap.servers": self.servers, "client.id": self.name})
        number = 0
        while not self.stopping.wait(_PAUSE_SECONDS):
            number += 1
            self._alter(admin, f"altered-{number}", keep=not number % _KEPT)

    def _alter(self, admin: Any, topic: str, *, keep: bool) -> None:
        if not self._change(topic, 1, admin.create_topics([NewTopic(topic, 1, 3)])):
            return
        if not self._change(topic, 2, admin.create_partitions([NewPartitions(topic, 2)])):
            return
        if not keep:
            self._change(topic, 0, admin.delete_topics([topic]))

    def _change(self, topic: str, partitions: int, asked: Any) -> bool:
        """Note a change. Return True if it was acknowledged."""
        outcome = INFO
        with suppress(KafkaException):
            asked[topic].result()
            outcome = OK
        self.notes.add(TopicChange(topic, partitions, outcome))
        return outcome == OK


def _generation(consumer: Any) -> int:
    """Return the generation, or the member's epoch, out of what librdkafka writes down for another process."""
    return int.from_bytes(consumer.consumer_group_metadata()[_GENERATION], sys.byteorder, signed=True)
