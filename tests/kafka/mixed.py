"""A cluster with nodes of Apache Kafka and nodes of ours: its leaders, and a comparison of the replicas' bytes."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pyclient import Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded.cluster.partition_moves import PartitionMoves
from pyclient.broker_embedded.cluster.views import Views
from tests.kafka import topics
from tests.kafka.loads import PARTITIONS, PATIENCE, SingleLoad
from tests.kafka.topics import wait_until
from tests.producer.producer_clients import SyncClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyclient.broker_embedded.cluster.broker import Broker
    from pyclient.broker_embedded.config.broker_config import BrokerConfig

COMMON: Final = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
"""Settings of all nodes, which soon notice that another one is gone, and are not fenced on a busy machine.

A node of Kafka that starts before an internal topic exists finds coordinators by its own number of partitions, so all
nodes need the same one.
"""
REPLICATION: Final = {"min.insync.replicas": "2", "segment.bytes": "1048576"}


class Mixed:
    """The nodes: `ours` as the cluster's own handles, and where each node keeps its logs, by its id."""

    def __init__(self, bootstrap_servers: str, ours: Sequence[Broker], directories: Mapping[int, Path]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.directories = directories
        self._views = Views(ours)
        self._moves = PartitionMoves(self._views, self._config)
        self._ours = ours

    def _config(self) -> BrokerConfig:
        return next(broker.config for broker in self._ours if broker.reachable)

    def create(self, topic: str, *replicas: int) -> None:
        """Create a topic whose partitions have these replicas, the first of which leads."""
        assignments = dict.fromkeys(range(PARTITIONS), replicas)
        topics.create(self.bootstrap_servers, NewTopic(topic, assignments=assignments, configs=REPLICATION))
        self.wait_isr(topic, *replicas)

    def wait_isr(self, topic: str, *replicas: int) -> None:
        """Wait until these are the in-sync replicas of every partition."""
        wanted = set(replicas)

        def reached() -> bool:
            partitions = self._views.topic(topic)["partitions"]
            return len(partitions) > 0 and all(set(partition["isr"]) == wanted for partition in partitions)

        wait_until(reached, f"{topic}: the in-sync replicas are not {sorted(wanted)}", PATIENCE)

    def wait_other_leader(self, topic: str, node: int) -> None:
        """Wait until every partition has a leader, which is not that node."""

        def reached() -> bool:
            leaders = [partition["leader"] for partition in self._views.topic(topic)["partitions"]]
            return len(leaders) > 0 and node not in leaders and -1 not in leaders

        wait_until(reached, f"{topic}: node {node} still leads", PATIENCE)

    def lead(self, topic: str, node: int) -> None:
        """Make that node the leader of every partition, by reassignment and election."""
        for partition in self._views.topic(topic)["partitions"]:
            self._moves.move_leader(topic, partition["partition"], node, PATIENCE)

    def check_equal_logs(self, topic: str, *nodes: int, written: bool = True) -> None:
        """Assert that the logs of each partition's replicas have the same bytes, at the latest when followers are done.

        With `written` every partition has some.
        """
        partitions = [partition["partition"] for partition in self._views.topic(topic)["partitions"]]
        for partition in partitions:
            places = [self.directories[node] / f"{topic}-{partition}" for node in nodes]
            wait_until(
                lambda places=places: len({*map(_bytes_of, places)}) == 1,  # type: ignore[misc]
                f"{topic}-{partition}: the logs differ",
            )
            assert _bytes_of(places[0]) or not written


def _bytes_of(directory: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def load_on(mixed: Mixed, topic: str) -> SingleLoad:
    """Start an idempotent producer with acks=all that sends numbers until it is stopped."""
    options = {"request_timeout_ms": 3000, "delivery_timeout_ms": 120_000, "reconnect_backoff_ms": 20}
    return SingleLoad(SyncClient(mixed.bootstrap_servers, **options | SingleLoad.options), topic, "mixed")


class TransactionalLoad:
    """A producer that sends a number to each partition in every transaction, and aborts each third one."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic = topic
        self.committed = 0
        self.raised: list[BaseException] = []
        self._producer = Producer(servers, transactional_id=f"load-{topic}", request_timeout_ms=5000)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> TransactionalLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._producer.close()

    def _run(self) -> None:
        try:
            self._producer.init_transactions()
            while not self._stop.wait(0.005):
                with self._producer.transaction():
                    self._send(self.committed)
                self.committed += PARTITIONS
                if self.committed % (3 * PARTITIONS) == 0:
                    self._abort_one()
        except BaseException as error:
            self.raised.append(error)

    def _send(self, first: int) -> None:
        for number in range(PARTITIONS):
            self._producer.send(self.topic, b"%d" % (first + number), partition=number)

    def _abort_one(self) -> None:
        with suppress(AbortedOnPurpose), self._producer.transaction():
            self._send(self.committed)
            raise AbortedOnPurpose

    def wait_for(self, more: int) -> None:
        """Wait until so many transactions more were committed."""
        goal = self.committed + more * PARTITIONS
        wait_until(lambda: self.committed >= goal or bool(self.raised), f"{self.topic}: nothing is committed", PATIENCE)
        assert not self.raised, self.raised

    def stop(self) -> int:
        """Stop; return the number of committed records."""
        self._stop.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive() and not self.raised, self.raised
        return self.committed


class AbortedOnPurpose(Exception):
    """Ends a transaction that is not to be committed."""


class GroupReader:
    """A member of a group that reads a topic from a thread, and commits what it has read, until it has everything."""

    def __init__(self, servers: str, topic: str, group: str, protocol: str = "classic") -> None:
        self.topic = topic
        self.seen: Counter[bytes] = Counter()
        self.raised: list[BaseException] = []
        self.consumer = Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=group,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        self._goal: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while self._goal is None or self.seen.total() < self._goal:
                records = self.consumer.poll(0.2)
                self.seen.update(record.value or b"" for record in records)
                if records:
                    self.consumer.commit()
        except BaseException as error:
            self.raised.append(error)

    def wait_for(self, more: int) -> None:
        """Wait until so many records more were read."""
        goal = self.seen.total() + more
        wait_until(lambda: self.seen.total() >= goal or bool(self.raised), f"{self.topic}: nothing is read", PATIENCE)
        assert not self.raised, self.raised

    def check(self, sent: int) -> None:
        """Assert that every record came once, and is committed."""
        self._goal = sent
        self._thread.join(PATIENCE)
        try:
            assert not self._thread.is_alive(), f"{self.seen.total()} of {sent} records came: {self.consumer.health()}"
            assert not self.raised, self.raised
            assert self.seen == Counter(b"%d" % number for number in range(sent))
            wait_until(self._has_committed_all, f"{self.topic}: not everything is committed", PATIENCE)
        finally:
            self.consumer.close()

    def _has_committed_all(self) -> bool:
        """Read what is behind the last record, such as an aborted transaction, commit, and compare with the ends."""
        assert not self.consumer.poll(0.2)
        self.consumer.commit()
        places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]
        committed = self.consumer.committed(places)
        return {place: committed[place].offset for place in places} == self.consumer.end_offsets(places)


def check_leaders_under_load(
    mixed: Mixed, topic: str, group: str, leaders: Sequence[int], replicas: Sequence[int]
) -> None:
    """Have nodes lead in turn while clients write and read; every record is there once, and all replicas are equal."""
    mixed.create(topic, *replicas)
    load = load_on(mixed, topic)
    readers = [
        GroupReader(mixed.bootstrap_servers, topic, f"{group}-{protocol}", protocol)
        for protocol in ("classic", "consumer")
    ]
    for leader in leaders:
        load.wait_for(60)
        mixed.lead(topic, leader)
    load.wait_for(60)
    load.stop()
    load.check_all_delivered(mixed)
    for reader in readers:
        reader.check(len(load.sent))
    mixed.wait_isr(topic, *replicas)
    mixed.check_equal_logs(topic, *replicas)
    load.client.end()
