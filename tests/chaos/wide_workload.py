"""The further clients of a wide chaos run: transactions, and members of groups of both protocols."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from pyclient import Consumer, Producer, RebalanceListener, TopicPartition
from pyclient.errors import KafkaError
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
    Transaction,
    parsed,
)
from tests.chaos.workload import DELIVERY_SECONDS, Notes, OurReader, OurSender, Worker

COOPERATIVE: Final = "cooperative-sticky"
EAGER: Final = "range"
TRANSACTION_SECONDS: Final = 10.0
TRANSACTIONAL_GROUP: Final = "group-transactional"
ABORTED_SHARE: Final = 0.15
READING_SHARE: Final = 0.3  # of the transactions: they read, and wait before and after that
OPEN_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.2
_RESUBSCRIBED_SHARE: Final = 1 / 500  # of the polls of a member
_CALL_SECONDS: Final = 5.0


class TransactionInput(OurReader):
    """The consumer of a transactional producer, in whose thread it works: its positions are part of transactions."""

    def __init__(self, name: str, notes: Notes, servers: str, topics: dict[str, int], group: str) -> None:
        super().__init__(name, notes, servers, topics, COMMITTED)
        self.group = group
        self._polls = 0
        self._must_return = True

    def open(self) -> Consumer[Any, Any]:
        return self.consumer(group_id=self.group, enable_auto_commit=False)

    def read(self, consumer: Consumer[Any, Any], transaction: str) -> dict[TopicPartition, int]:
        """Read records in a transaction, and return the positions to be committed by it."""
        if self._must_return:
            for place, committed in consumer.committed(timeout=_CALL_SECONDS).items():
                consumer.seek(place, 0 if committed is None else committed.offset)
                self._jumped.add((place.topic, place.partition))
        self._must_return = True  # unless the transaction is committed
        self._polls += 1
        records = consumer.poll(_POLL_SECONDS)
        self.notes.add(*self.reads(records, self._polls, transaction))
        return {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}

    def note_commit(self, offsets: dict[TopicPartition, int], began: float, outcome: str) -> None:
        """Note the positions that a transaction has committed, or may have; aborted ones must not be visible."""
        self._must_return = outcome != OK
        if outcome != FAIL:
            at = time.monotonic()
            self.notes.add(
                *(
                    Commit(self.group, self.name, -1, Place(*place), offset, at, began, outcome)
                    for place, offset in offsets.items()
                )
            )


class Transacting(OurSender):
    """A producer of ours that sends a few values to several partitions in each transaction, and aborts some.

    In some it reads what it could see of its own values, waits, and commits its positions with the transaction.
    """

    def __init__(self, name: str, notes: Notes, servers: str, topic: str, partitions: int, seed: int) -> None:
        super().__init__(name, notes, servers, topic, partitions, TRANSACTIONAL, seed)
        self._source = iter(self.places())
        self._count = 0
        self._input = TransactionInput(name, notes, servers, {topic: partitions}, TRANSACTIONAL_GROUP)

    def work(self) -> None:
        with self._input.open() as consumer:
            while not self.stopping.is_set():
                with (
                    Producer(
                        bootstrap_servers=self.servers,
                        client_id=self.name,
                        transactional_id=self.name,
                        transaction_timeout_ms=round(TRANSACTION_SECONDS * 1000),
                        delivery_timeout_ms=round(DELIVERY_SECONDS * 1000),
                        max_block_ms=round(DELIVERY_SECONDS * 1000),
                        request_timeout_ms=5_000,
                        linger_ms=2,
                    ) as producer,
                    suppress(KafkaError),
                ):  # this producer cannot go on; another with its id can
                    producer.init_transactions(DELIVERY_SECONDS)
                    while not self.stopping.is_set():
                        self._transact(producer, consumer)
                self.stopping.wait(0.1)

    def _transact(self, producer: Producer, consumer: Consumer[Any, Any]) -> None:
        producer.begin_transaction()
        self._count += 1
        self.transaction = f"{self.name}-{self._count}"
        outcome, requested = FAIL, None  # as long as its commit was not requested
        read: dict[TopicPartition, int] = {}
        began = time.monotonic()
        try:
            for _ in range(self.random.randint(1, 4)):
                found = next(self._source, None)
                if found is not None:
                    self._send(producer, *found)
            if self.random.random() < READING_SHARE:
                producer.flush(DELIVERY_SECONDS)  # its own values are in the log
                self.stopping.wait(self.random.uniform(0.0, OPEN_SECONDS))
                began, read = time.monotonic(), self._input.read(consumer, self.transaction)
                self.stopping.wait(self.random.uniform(0.0, OPEN_SECONDS))
                if read:
                    began = time.monotonic()
                    producer.send_offsets_to_transaction(read, consumer.group_metadata(), DELIVERY_SECONDS)
            if self.random.random() < ABORTED_SHARE:
                producer.abort_transaction(DELIVERY_SECONDS)
                return
            producer.flush(DELIVERY_SECONDS)
            outcome, requested = INFO, time.monotonic()
            producer.commit_transaction(DELIVERY_SECONDS)
            outcome = OK
        except KafkaError as error:
            if error.action.name != "ABORT":
                raise
            producer.abort_transaction(DELIVERY_SECONDS)
        finally:
            self.notes.add(Transaction(self.transaction, outcome, requested))
            if read:
                self._input.note_commit(read, began, outcome)


class GroupMember(Worker, RebalanceListener):
    """A member of a group of either protocol; it commits after each poll, and notes what became of each commit.

    One with a seed leaves the group at times and subscribes again. One with an instance id is a static member.
    In a classic group all members have the same assignor.
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
        seed: int | None = None,
        instance: str | None = None,
        assignor: str = COOPERATIVE,
    ) -> None:
        super().__init__(name, notes)
        self.servers, self.topic, self.group, self.protocol = servers, topic, group, protocol
        self._assignor = assignor
        self._instance = instance
        self._random = None if seed is None else random.Random(seed)
        self._jumped: set[tuple[str, int]] = set()
        self._consumer: Consumer[Any, Any] | None = None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._jumped |= {(each.topic, each.partition) for each in partitions}
        if self._consumer is not None:
            places = tuple(Place(*each) for each in sorted(self._consumer.assignment()))
            with suppress(KafkaError):  # it was put out of the group meanwhile
                generation = self._consumer.group_metadata().generation_id
                self.notes.add(Assignment(self.group, self.name, generation, places))

    def work(self) -> None:
        options: dict[str, Any] = {"group_protocol": self.protocol}
        if self.protocol == "classic":
            options["partition_assignment_strategy"] = self._assignor
            options |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
        if self._instance is not None:
            options["group_instance_id"] = self._instance
        with Consumer[Any, Any](
            bootstrap_servers=self.servers,
            client_id=self.name,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            request_timeout_ms=5_000,
            fetch_max_wait_ms=50,
            **options,
        ) as consumer:
            self._consumer = consumer
            consumer.subscribe([self.topic], listener=self)
            polls = 0
            while not self.stopping.is_set():
                polls += 1
                self._note(consumer.poll(0.2), polls, consumer)
                self._commit(consumer)
                if self._random is not None and self._random.random() < _RESUBSCRIBED_SHARE:
                    with suppress(KafkaError):  # the coordinator is away: the group expels the member in time
                        consumer.unsubscribe()
                    consumer.subscribe([self.topic], listener=self)

    def _note(self, records: Iterable[Any], poll: int, consumer: Consumer[Any, Any]) -> None:
        found, assigned = [], consumer.assignment()
        for record in records:
            value, says = parsed(record.value) or (None, None)
            at = (record.topic, record.partition)
            jumped = at in self._jumped
            self._jumped.discard(at)
            found.append(
                Read(
                    self.name,
                    poll,
                    Place(*at),
                    record.offset,
                    value,
                    says,
                    COMMITTED,
                    jumped,
                    time.monotonic(),
                    at in assigned,
                )
            )
        self.notes.add(*found)

    def _commit(self, consumer: Consumer[Any, Any]) -> None:
        """Commit the positions. They are those of the last poll: what was not read by then is not committed."""
        try:
            owned = sorted(consumer.assignment())
            positions = {place: consumer.position(place, timeout=_CALL_SECONDS) for place in owned}
            generation, began = consumer.group_metadata().generation_id, time.monotonic()
        except KafkaError:
            return  # the coordinator is away, or it is not a member now
        places = [Place(*each) for each in owned]
        self.notes.add(CommitCall(self.group, self.name, tuple(places), tuple(positions.values()), began))
        outcome = INFO
        with suppress(KafkaError):  # the member was put out of the group, or its coordinator is away
            consumer.commit(dict(positions), timeout=_CALL_SECONDS)
            outcome = OK
        at = time.monotonic()
        if outcome == INFO:
            with suppress(KafkaError):  # it is not a member now
                generation = max(generation, consumer.group_metadata().generation_id)  # it was sent in one of these
        self.notes.add(
            *(
                Commit(self.group, self.name, generation, Place(*each), offset, at, began, outcome)
                for each, offset in positions.items()
            )
        )
