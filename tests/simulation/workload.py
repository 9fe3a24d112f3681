"""The clients of a simulated run, each in a process of its own; they note in a history what they saw."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from pyclient import AsyncAdmin, AsyncConsumer, AsyncProducer, NewTopic, RebalanceListener, TopicPartition
from pyclient.errors import InvalidReplicationFactor, KafkaError
from tests.chaos.history import (
    COMMITTED,
    FAIL,
    IDEMPOTENT,
    INFO,
    OK,
    PLAIN,
    TRANSACTIONAL,
    UNCOMMITTED,
    Assignment,
    Call,
    Commit,
    History,
    Place,
    Read,
    Send,
    Transaction,
    Value,
    parsed,
    payload,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.simulation.cluster import Cluster

TOPIC: Final = "events"
PARTITIONS: Final = 3
GROUP: Final = "members"
DELIVERY_SECONDS: Final = 60.0
_PAUSE: Final = 0.15
_IDLE: Final = 0.25
_ISOLATION: Final[dict[str, Any]] = {COMMITTED: "read_committed", UNCOMMITTED: "read_uncommitted"}
_COMMON: Final[dict[str, Any]] = {"request_timeout_ms": 2_000, "reconnect_backoff_max_ms": 500}
PRODUCER: Final[dict[str, Any]] = {
    **_COMMON,
    "linger_ms": 2,
    "delivery_timeout_ms": round(DELIVERY_SECONDS * 1000),
    "max_block_ms": round(DELIVERY_SECONDS * 1000),
}
CONSUMER: Final[dict[str, Any]] = {**_COMMON, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 250}


class Client:
    """A client in a process that may be killed: what it has begun and not finished then has an unknown outcome."""

    def __init__(self, cluster: Cluster, history: History, name: str) -> None:
        self.name = name
        self.cluster = cluster
        self.world = cluster.world
        self.history = history
        self.process = cluster.client(name)
        self.rng = self.process.new_rng()
        self.stopping = False
        self.task: asyncio.Task[Any] | None = None
        self._open: dict[Value, Send] = {}

    def start(self) -> None:
        """Begin to work."""
        self.task = self.process.spawn(self.work(), self.name)

    @property
    def over(self) -> bool:
        """True once it has ended, or was killed."""
        return not self.process.alive or (self.task is not None and self.task.done())

    def kill(self) -> None:
        """End its process. Its open sends are of unknown outcome."""
        self.process.kill()
        for send in self._open.values():
            self.history.add(send)
        self._open.clear()

    async def work(self) -> None:
        """Work until `stopping`."""
        raise NotImplementedError

    def place(self) -> Place:
        """Return a random partition."""
        return Place(TOPIC, self.rng.randrange(PARTITIONS))

    async def send(self, producer: AsyncProducer, value: Value, kind: str, transaction: str | None = None) -> None:
        """Send a value to a random partition, and note its outcome when it has one."""
        place, began = self.place(), self.world.now
        self.history.add(Call(value, place, began))
        self._open[value] = Send(value, place, kind, INFO, began=began, ended=began, transaction=transaction)

        def done(outcome: str, offset: int | None, error: object) -> None:
            if self.process.alive:
                self._open.pop(value, None)
                text = "" if error is None else repr(error)
                ended = self.world.now
                self.history.add(Send(value, place, kind, outcome, offset, began, ended, transaction, text))

        def delivered(future: Any) -> None:
            error = future.exception(0)
            if error is None:
                done(OK, future.result(0).offset, None)
            else:
                done(INFO if getattr(error, "maybe_persisted", True) else FAIL, None, error)

        try:
            future = await producer.send(place.topic, payload(value, place), partition=place.partition)
        except KafkaError as error:
            done(FAIL, None, error)
        else:
            future.add_done_callback(delivered)

    def note(self, records: Iterable[Any], poll: int, isolation: str, jumped: set[tuple[str, int]]) -> None:
        """Note what a poll has returned."""
        for record in records:
            value, says = parsed(record.value) or (None, None)
            at = (record.topic, record.partition)
            moved = at in jumped
            jumped.discard(at)
            self.history.add(
                Read(self.name, poll, Place(*at), record.offset, value, says, isolation, moved, self.world.now)
            )


class Creator(Client):
    """Creates topics."""

    def __init__(self, cluster: Cluster, history: History, name: str, *topics: str) -> None:
        super().__init__(cluster, history, name)
        self._topics = topics

    async def work(self) -> None:
        async with AsyncAdmin(self.cluster.bootstrap, **_COMMON) as admin:
            while True:
                try:
                    await admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in self._topics])
                except InvalidReplicationFactor:  # not all nodes have registered yet
                    await asyncio.sleep(_PAUSE)
                else:
                    return


class Producing(Client):
    """Sends values at a steady rate, idempotently or not."""

    kind = IDEMPOTENT

    async def work(self) -> None:
        options = {**PRODUCER, "acks": "all", "enable_idempotence": self.kind == IDEMPOTENT}
        async with AsyncProducer(self.cluster.bootstrap, **options) as producer:
            number = 0
            while not self.stopping:
                for _ in range(self.rng.choice((1, 1, 2, 5))):
                    await self.send(producer, Value(self.name, number), self.kind)
                    number += 1
                await asyncio.sleep(self.rng.uniform(0.5, 1.5) * _PAUSE)


class ProducingPlainly(Producing):
    """Sends with acks=all and without producer id, so that retries may write twice."""

    kind = PLAIN


class Transacting(Client):
    """Sends values in transactions, of which some are aborted."""

    def __init__(self, cluster: Cluster, history: History, name: str) -> None:
        super().__init__(cluster, history, name)
        self._number = 0
        self._count = 0
        self._current: tuple[str, str] | None = None

    def kill(self) -> None:
        super().kill()
        if self._current is not None:
            self.history.add(Transaction(*self._current))

    async def work(self) -> None:
        while not self.stopping:
            options = {**PRODUCER, "transactional_id": self.name, "transaction_timeout_ms": 5_000}
            async with AsyncProducer(self.cluster.bootstrap, **options) as producer:
                try:
                    await producer.init_transactions(DELIVERY_SECONDS)
                    while not self.stopping:
                        await self._transaction(producer)
                        await asyncio.sleep(self.rng.uniform(0.5, 1.5) * _PAUSE)
                except KafkaError as error:  # this producer cannot go on: another one with its id can
                    self.world.note(f"{self.name}: a new producer, after {error!r}")
            await asyncio.sleep(_PAUSE)

    async def _transaction(self, producer: AsyncProducer) -> None:
        self._count += 1
        name = f"{self.name}-{self._count}"
        await producer.begin_transaction()
        self._current = (name, FAIL)
        try:
            for _ in range(self.rng.randint(1, 4)):
                await self.send(producer, Value(self.name, self._number), TRANSACTIONAL, name)
                self._number += 1
                await asyncio.sleep(self.rng.choice((0.0, 0.0, 0.02)))  # before the next producer with this id
            if self.rng.random() < 0.2:
                await producer.abort_transaction(DELIVERY_SECONDS)
                self._end(name, FAIL)
                return
        except KafkaError:
            try:
                await producer.abort_transaction(DELIVERY_SECONDS)
            finally:
                self._end(name, FAIL)  # its commit was not requested
            return
        self._current = (name, INFO)
        try:
            await producer.commit_transaction(DELIVERY_SECONDS)
        except KafkaError as error:
            self.world.note(f"{self.name}: the commit of {name} failed: {error!r}")
            self._end(name, INFO)
            if not producer_can_go_on(error):
                raise
            await producer.abort_transaction(DELIVERY_SECONDS)
        else:
            self._end(name, OK)

    def _end(self, name: str, outcome: str) -> None:
        self._current = None
        self.history.add(Transaction(name, outcome))


def producer_can_go_on(error: KafkaError) -> bool:
    """Return True if the producer only has to abort its transaction."""
    return error.action.name == "ABORT"


class Reading(Client):
    """A consumer of all partitions from their beginning."""

    isolation = COMMITTED

    async def work(self) -> None:
        options = {**CONSUMER, "isolation_level": _ISOLATION[self.isolation]}
        async with AsyncConsumer(bootstrap_servers=self.cluster.bootstrap, **options) as consumer:
            consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
            poll, jumped = 0, set[tuple[str, int]]()
            while not self.stopping:
                poll += 1
                if self.rng.random() < 0.02:
                    consumer.seek_to_beginning()
                    jumped = {(TOPIC, index) for index in range(PARTITIONS)}
                self.note(await consumer.poll(_IDLE), poll, self.isolation, jumped)


class ReadingUncommitted(Reading):
    """A consumer that sees aborted records, too."""

    isolation = UNCOMMITTED


class Draining(Client):
    """Reads everything to the ends, once."""

    isolation = COMMITTED

    async def work(self) -> None:
        options = {**CONSUMER, "isolation_level": "read_committed"}
        async with AsyncConsumer(bootstrap_servers=self.cluster.bootstrap, **options) as consumer:
            consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
            ends = await consumer.end_offsets(sorted(consumer.assignment()), timeout=DELIVERY_SECONDS)
            poll = 0
            for place, end in sorted(ends.items()):
                while await consumer.position(place, timeout=DELIVERY_SECONDS) < end:
                    poll += 1
                    self.note(await consumer.poll(_IDLE), poll, COMMITTED, set())


class Member(Client, RebalanceListener):
    """A member of a group, which commits after each poll."""

    options: Final[dict[str, Any]] = {}

    def __init__(self, cluster: Cluster, history: History, name: str, protocol: str) -> None:
        super().__init__(cluster, history, name)
        self.protocol = protocol
        self._jumped: set[tuple[str, int]] = set()
        self._consumer: AsyncConsumer[Any, Any] | None = None

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._jumped |= set(partitions)
        consumer = self._consumer
        if consumer is not None:
            places = tuple(Place(*each) for each in sorted(consumer.assignment()))
            self.world.note(f"{self.name}: generation {consumer.group_metadata().generation_id} has {places}")
            self.history.add(Assignment(GROUP, self.name, consumer.group_metadata().generation_id, places))

    async def work(self) -> None:
        options: dict[str, Any] = {
            **CONSUMER,
            "group_protocol": self.protocol,
            "group_id": GROUP,
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
        }
        if self.protocol == "classic":
            options["partition_assignment_strategy"] = "cooperative-sticky"
            options |= {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500}
        async with AsyncConsumer(bootstrap_servers=self.cluster.bootstrap, **options) as consumer:
            self._consumer = consumer
            consumer.subscribe([TOPIC], listener=self)
            poll = 0
            while not self.stopping:
                poll += 1
                try:
                    self.note(await consumer.poll(_IDLE), poll, COMMITTED, self._jumped)
                    await self._commit(consumer)
                except KafkaError as error:
                    self.world.note(f"{self.name}: {error!r}")
            self._consumer = None

    async def _commit(self, consumer: AsyncConsumer[Any, Any]) -> None:
        owned = sorted(consumer.assignment())
        positions = {each: await consumer.position(each, timeout=5) for each in owned}
        generation, began = consumer.group_metadata().generation_id, self.world.now
        await consumer.commit(dict(positions), timeout=5)
        # while this member was stalled another one may have committed: the order of the two is not known
        overlapping = {each.place for each in self.history.commits if each.at > began}
        for place, offset in positions.items():
            if Place(*place) not in overlapping:
                self.history.add(Commit(GROUP, self.name, generation, Place(*place), offset, at=self.world.now))
