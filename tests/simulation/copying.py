"""Copiers of a simulated run: they read a topic in a group and write another, with their offsets in the transactions.

The copy must be what readers of committed records see of the original, in its order, whatever happens to the copiers.
A copy has the offset of its original for its key, so that a record that a producer has written twice is two originals.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pyclient import (
    AsyncConsumer,
    AsyncProducer,
    ProducerRecord,
    RebalanceListener,
    Record,
    TopicPartition,
    async_process_transactionally,
)
from pyclient.errors import KafkaError, TransactionAborted
from tests.simulation.workload import CONSUMER, DELIVERY_SECONDS, PARTITIONS, PRODUCER, TOPIC, Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from tests.chaos.history import History
    from tests.simulation.cluster import Cluster

COPIES: Final = "copies"
GROUP: Final = "copiers"
_POLL: Final = 0.25
_PAUSE: Final = 0.15
_ABORTED_SHARE: Final = 0.02  # of all records: each aborts its transaction

Copied = tuple[int, bytes]
"""The offset of the original, and the value."""

Copy = dict[int, dict[int, Copied]]
"""By partition and offset: the record, which is its own original in the topic that is copied."""


class Copying(Client, RebalanceListener):
    """A copier, until it is stopped, killed, or succeeded by one with the same transactional id."""

    def __init__(self, cluster: Cluster, history: History, name: str, protocol: str) -> None:
        super().__init__(cluster, history, name)
        self.protocol = protocol
        self.on_rebalance: Callable[[], object] = lambda: None
        """Called when a rebalance takes or gives partitions."""
        self.is_succeeded = False
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End after the present transaction."""
        self.stopping = True
        self.process.call(self._stop.set)

    def successor(self) -> Copying:
        """Start another copier with this one's transactional id; this one, if it lives, ends when it is fenced."""
        self.is_succeeded = True
        following = Copying(self.cluster, self.history, self.name, self.protocol)
        following.start()
        return following

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self.on_rebalance()

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.on_rebalance()

    async def work(self) -> None:
        options: dict[str, Any] = {**CONSUMER, "group_protocol": self.protocol, "max_poll_records": 8}
        if self.protocol == "classic":
            options |= {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500}
        while not self.stopping:
            try:
                async with (
                    AsyncConsumer[bytes, bytes](
                        bootstrap_servers=self.cluster.bootstrap,
                        group_id=GROUP,
                        isolation_level="read_committed",
                        enable_auto_commit=False,
                        **options,
                    ) as consumer,
                    AsyncProducer(
                        self.cluster.bootstrap, transactional_id=self.name, transaction_timeout_ms=5_000, **PRODUCER
                    ) as producer,
                ):
                    consumer.subscribe([TOPIC], listener=self)
                    await async_process_transactionally(
                        consumer, producer, self._copy, poll_timeout=_POLL, attempts=1000, stop=self._stop, signals=()
                    )
            except KafkaError as error:
                self.world.note(f"{self.name}: {error!r}")
                if self.is_succeeded:
                    return
            await asyncio.sleep(_PAUSE)

    async def _copy(self, record: Record[bytes, bytes]) -> AsyncIterator[ProducerRecord]:
        if self.rng.random() < _ABORTED_SHARE:
            raise TransactionAborted("aborted on purpose")
        if self.rng.random() < 0.2:
            seconds = self.rng.choice((0.02, 0.1))
            await asyncio.sleep(seconds)  # faults meet open transactions
        yield ProducerRecord(COPIES, record.value, b"%d" % record.offset, partition=record.partition)


class ReadingCommitted(Client):
    """Reads all committed records of a topic: with `ends` up to the present ones, else until it is stopped."""

    def __init__(self, cluster: Cluster, history: History, name: str, topic: str, *, ends: bool) -> None:
        super().__init__(cluster, history, name)
        self.seen: Copy = {index: {} for index in range(PARTITIONS)}
        self.originals: set[tuple[int, int]] = set()
        """The partitions and offsets of the originals of what it has seen."""
        self._topic = topic
        self._ends = ends

    def has_all_of(self, other: ReadingCommitted) -> bool:
        """Return True if it has seen the original, or a copy, of every record that another reader has seen."""
        return other.originals <= self.originals

    async def work(self) -> None:
        places = [TopicPartition(self._topic, index) for index in range(PARTITIONS)]
        options: dict[str, Any] = {**CONSUMER, "isolation_level": "read_committed"}
        async with AsyncConsumer[bytes, bytes](bootstrap_servers=self.cluster.bootstrap, **options) as consumer:
            consumer.assign(places)
            ends = await consumer.end_offsets(places, timeout=DELIVERY_SECONDS) if self._ends else {}
            while not self.stopping:
                for record in await consumer.poll(_POLL):
                    original = int(record.key or b"-1") if self._topic == COPIES else record.offset
                    self.seen[record.partition][record.offset] = original, record.value or b""
                    self.originals.add((record.partition, original))
                if self._ends and not [at for at in places if await consumer.position(at, timeout=5) < ends[at]]:
                    return


def copy_violations(before: Copy, after: Copy, copy: Copy, meanwhile: Copy) -> Iterable[str]:
    """Yield a sentence for each difference of a copy from the original, and of what a reader saw meanwhile.

    All that was there `before` the copiers were stopped must be copied. Of what was written later, as by a request that
    came late, a beginning may be copied: the original is read again `after` the copy.
    """
    for index in range(PARTITIONS):
        original, found = _in_order(after[index]), _in_order(copy[index])
        at, counts = f"{COPIES}-{index}", Counter(found)
        last = max([*before[index].values(), *found], default=(-1, b""))
        wanted = [each for each in original if each <= last]
        if lost := sorted({*wanted, *before[index].values()} - set(found)):
            yield f"copy: {at} misses {len(lost)} records, among them {_text(lost[0])}"
        if invented := sorted(set(found) - set(original)):
            yield f"copy: {at} has {len(invented)} records that the original has not, among them {_text(invented[0])}"
        if twice := sorted(each for each, count in counts.items() if count > 1):
            yield f"copy: {at} has {len(twice)} records more than once, among them {_text(twice[0])}"
        if found != wanted and Counter(wanted) == counts:
            yield f"copy: {at} is not in the order of the original"
        if gone := [offset for offset, record in meanwhile[index].items() if copy[index].get(offset) != record]:
            yield f"copy: {at}: a reader saw records that are not committed, at {gone[:5]}"


def _in_order(records: Mapping[int, Copied]) -> list[Copied]:
    return [record for _offset, record in sorted(records.items())]


def _text(record: Copied) -> str:
    return f"{record[1]!r} (offset {record[0]} of {TOPIC})"
