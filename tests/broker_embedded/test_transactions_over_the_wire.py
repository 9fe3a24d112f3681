"""Transactions in a log as seen by readers; the test writes them, as this broker has no transaction coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from pyclient import Consumer, TopicPartition
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from pyclient.protocol.messages.fetch import FetchRequest
from pyclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pyclient.records import ControlType, build_batch, control_key, iter_batches
from tests.broker_embedded.log.slow_disks import SECONDS, NodeOnDisk, start
from tests.broker_embedded.topics import create

__all__ = ["start"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:aiokafka"),
]

NOW = 1_700_000_000_000
ABORTED, COMMITTED, OPEN = 1, 2, 3  # producer ids
HISTORY = ("plain", ABORTED, COMMITTED, "abort", "commit", OPEN, "last")
"""The content of each offset: a record (of a producer's transaction), or an end marker."""

STABLE, END = 5, 7
SEEN = [b"plain", b"2"]
"""The records of a read-committed reader before the last transaction ends."""


def append(node: NodeOnDisk[Any], batch: bytes, origin: Any = "coordinator") -> None:
    def write() -> None:
        node.node.logs.get("t", 0).append(bytearray(batch), leader_epoch=0, now_ms=NOW, origin=origin)

    node.on_loop(write)


def write(node: NodeOnDisk[Any], number: int, what: str | int) -> None:
    """Append one entry of the history to the log."""
    if isinstance(what, str):
        append(node, build_batch([(None, what.encode())], timestamp_ms=NOW + number), "client")
        return
    options: dict[str, Any] = {"producer_id": what, "producer_epoch": 0, "transactional": True}
    append(node, build_batch([(None, b"%d" % what)], timestamp_ms=NOW + number, base_sequence=0, **options), "client")


def end(node: NodeOnDisk[Any], producer_id: int, *, commit: bool) -> None:
    """Append the end marker of a producer's transaction to the log."""
    key = control_key(ControlType.COMMIT if commit else ControlType.ABORT)
    options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
    append(node, build_batch([(key, bytes(6))], timestamp_ms=NOW, control=True, **options))


@pytest.fixture
def broker(start: Callable[[], NodeOnDisk[RealFileSystem]], connect: Any, produce: Any) -> NodeOnDisk[RealFileSystem]:
    """Return a node with `HISTORY` in topic `t`."""
    made = start()
    client = connect(made)
    create(client, "t")
    first, *others = HISTORY
    assert produce(client, "t", build_batch([(None, str(first).encode())], timestamp_ms=NOW)).error_code == 0
    for number, what in enumerate(others, 1):
        if what in ("abort", "commit"):
            end(made, ABORTED if what == "abort" else COMMITTED, commit=what == "commit")
        else:
            write(made, number, what)
    return made


def partition_of(client: Any, request: FetchRequest, version: int) -> Any:
    return client.call(request, version).responses[0].partitions[0]


def offsets_in(partition: Any) -> list[int]:
    return [header.base_offset for _, header in iter_batches(bytes(partition.records or b""))]


@pytest.mark.parametrize("version", [4, 7, 12])
def test_read_committed_fetch_ends_at_last_stable_offset(
    broker: Any, connect: Any, fetch_request: Any, version: int
) -> None:
    client = connect(broker)
    uncommitted = partition_of(client, fetch_request("t", {0: 0}), version)
    assert (offsets_in(uncommitted), uncommitted.aborted_transactions) == (list(range(END)), None)
    for at, aborted in ((0, [(ABORTED, 1)]), (3, [(ABORTED, 1)]), (4, [])):
        read = partition_of(client, fetch_request("t", {0: at}, isolation_level=1), version)
        assert (read.last_stable_offset, read.high_watermark) == (STABLE, END)
        assert offsets_in(read) == list(range(at, STABLE))
        assert [(each.producer_id, each.first_offset) for each in read.aborted_transactions] == aborted
    waits = partition_of(client, fetch_request("t", {0: STABLE}, isolation_level=1, max_wait_ms=10), version)
    assert (waits.error_code, bytes(waits.records or b"")) == (0, b"")


def test_parked_read_committed_fetch_completes_at_transaction_end(
    broker: Any, connect: Any, fetch_request: Any
) -> None:
    client = connect(broker)
    client.send(fetch_request("t", {0: STABLE}, isolation_level=1, max_wait_ms=1000 * SECONDS), 11)
    broker.until(lambda: len(broker.node.purgatory) == 1)
    end(broker, OPEN, commit=True)
    read = client.receive(FetchRequest, 11)[0].responses[0].partitions[0]
    assert (offsets_in(read), read.last_stable_offset) == ([5, 6, 7], 8)


def test_offsets_and_producers_reflect_open_transaction(broker: Any, connect: Any) -> None:
    client = connect(broker)

    def found(timestamp: int, isolation: int) -> int:
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topics = [ListOffsetsTopic(name="t", partitions=[partition])]
        answer = client.call(ListOffsetsRequest(replica_id=-1, topics=topics, isolation_level=isolation), 5)
        offset: int = answer.topics[0].partitions[0].offset
        return offset

    assert (found(-1, 0), found(-1, 1)) == (END, STABLE)
    assert (found(NOW + 6, 0), found(NOW + 6, 1)) == (6, -1)  # "last" is not stable yet
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
    producers = client.call(request, 0).topics[0].partitions[0].active_producers
    started = {each.producer_id: each.current_txn_start_offset for each in producers}
    assert started == {ABORTED: -1, COMMITTED: -1, OPEN: 5}


def test_transactions_are_restored_after_kill(
    broker: Any, start: Callable[[], Any], connect: Any, fetch_request: Any
) -> None:
    request = fetch_request("t", {0: 0}, isolation_level=1, max_wait_ms=20_000)  # the log may still be recovered
    before = partition_of(connect(broker), request, 11)
    after = partition_of(connect(start()), request, 11)
    assert bytes(after.records) == bytes(before.records)
    for name in ("last_stable_offset", "high_watermark", "aborted_transactions"):
        assert getattr(after, name) == getattr(before, name)


def test_other_clients_read_committed_records(broker: Any) -> None:
    servers = broker.bootstrap_servers
    assert {read.__name__: read(servers, len(SEEN)) for read in READERS} == dict.fromkeys(NAMES, SEEN)
    end(broker, OPEN, commit=False)
    seen = [*SEEN, b"last"]
    assert {read.__name__: read(servers, len(seen)) for read in READERS} == dict.fromkeys(NAMES, seen)


def ours(servers: str, count: int) -> list[bytes]:
    with Consumer(bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition("t", 0)])
        values: list[bytes] = []
        while len(values) < count:
            values += [record.value for record in reader.poll(timeout=SECONDS)]
        return values + [record.value for record in reader.poll(timeout=0.05)]


def confluent(servers: str, count: int) -> list[bytes]:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_committed"}
    with closing(Consumer(settings)) as reader:
        reader.assign([TopicPartition("t", 0, 0)])
        return [message.value() for message in reader.consume(count, SECONDS) + reader.consume(1, 0.05)]


def kafka_python(servers: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer, TopicPartition

    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    with closing(KafkaConsumer(bootstrap_servers=servers, **options)) as reader:
        reader.assign([TopicPartition("t", 0)])
        values: list[bytes] = []
        while len(values) < count:
            values += _values(reader.poll(timeout_ms=1000 * SECONDS))
        return values + _values(reader.poll(timeout_ms=50))


def _values(found: Any) -> list[bytes]:
    return [record.value for records in found.values() for record in records]


def aiokafka(servers: str, count: int) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> list[bytes]:
        options: dict[str, Any] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        reader = AIOKafkaConsumer(bootstrap_servers=servers, **options)
        reader.assign([TopicPartition("t", 0)])
        async with reader:
            values = [(await asyncio.wait_for(reader.getone(), SECONDS)).value for _ in range(count)]
            return values + _values(await reader.getmany(timeout_ms=50))

    return asyncio.run(read())


READERS = (ours, confluent, kafka_python, aiokafka)
NAMES = [read.__name__ for read in READERS]
