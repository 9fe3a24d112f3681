"""`flush.messages` on a node: answered records are on the disk, and no other request waits for the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.fetch import FetchRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.produce import ProduceRequest
from pyclient.records import iter_batches
from tests.broker_embedded.log.slow_disks import SECONDS, HeldFileSystem, NodeOnDisk
from tests.broker_embedded.topics import create
from tests.readable import is_readable


class Broker(NodeOnDisk[HeldFileSystem]):
    """A node on a disk whose syncs wait, with the topics `held` (`flush.messages` as given) and `free`."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(data_dir, HeldFileSystem("/held-0/"))

    def create(self, client: Any, messages: int) -> None:
        flush = [CreatableTopicConfig(name="flush.messages", value=str(messages))]
        topics = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=configs)
            for name, configs in (("held", flush), ("free", []))
        ]
        assert all(topic.error_code == 0 for topic in client.call(CreateTopicsRequest(topics=topics), 7).topics)

    def close(self) -> None:
        self.fs.gate.set()
        self.stop()


@pytest.fixture
def broker(data_dir: str) -> Iterator[Broker]:
    made = Broker(data_dir)
    yield made
    made.close()


@pytest.fixture
def request_of(batch: Any) -> Callable[[str, bytes], ProduceRequest]:
    from pyclient.protocol.messages.produce import PartitionProduceData, TopicProduceData

    def make(topic: str, value: bytes) -> ProduceRequest:
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch(value))])]
        return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)

    return make


def has_answer(client: Any) -> bool:
    return is_readable(client.socket)


def answer_of(client: Any) -> Any:
    return client.receive(ProduceRequest, 9)[0].responses[0].partition_responses[0]


def fetched(client: Any, fetch_request: Any) -> int:
    [answer] = client.call(fetch_request("held", {0: 0}), 11).responses[0].partitions
    assert answer.error_code == 0
    return len(list(iter_batches(bytes(answer.records or b""))))


def test_batch_is_acked_and_readable_when_durable_others_do_not_wait(
    broker: Broker, connect: Any, request_of: Any, fetch_request: Any
) -> None:
    client, other = connect(broker), connect(broker)
    broker.create(client, 1)
    client.send(request_of("held", b"a"), 9)
    assert broker.fs.reached.acquire(timeout=SECONDS)
    assert other.call(request_of("free", b"b"), 9).responses[0].partition_responses[0].error_code == 0
    assert other.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9).brokers
    assert fetched(other, fetch_request) == 0
    assert not has_answer(client)
    other.send(fetch_request("held", {0: 0}, max_wait_ms=SECONDS * 1000), 11)
    broker.fs.gate.set()
    assert (answer_of(client).error_code, broker.fs.syncs) == (0, 1)
    assert other.receive(FetchRequest, 11)[0].responses[0].partitions[0].high_watermark == 1


def test_batches_that_come_during_a_flush_share_the_next_one(broker: Broker, connect: Any, request_of: Any) -> None:
    clients = [connect(broker) for _ in range(5)]
    broker.create(clients[0], 1)
    for count, client in enumerate(clients):
        client.send(request_of("held", b"a"), 9)
        broker.until(lambda count=count: broker.node.logs.get("held", 0) is not None)  # type: ignore[misc]
        broker.until(lambda count=count: broker.node.logs.get("held", 0).end_offset == count + 1)  # type: ignore
    assert not any(has_answer(client) for client in clients)
    broker.fs.gate.set()
    assert [answer_of(client).base_offset for client in clients] == list(range(5))
    assert broker.fs.syncs == 2


def test_only_every_nth_record_waits_for_a_flush(
    broker: Broker, connect: Any, request_of: Any, fetch_request: Any
) -> None:
    client, other = connect(broker), connect(broker)
    broker.create(client, 3)
    for offset in range(2):
        assert client.call(request_of("held", b"a"), 9).responses[0].partition_responses[0].base_offset == offset
    assert broker.fs.syncs == 0
    client.send(request_of("held", b"a"), 9)
    assert broker.fs.reached.acquire(timeout=SECONDS)
    other.send(request_of("held", b"a"), 9)
    broker.until(lambda: broker.node.logs.get("held", 0).end_offset == 4)
    assert not has_answer(client)
    assert not has_answer(other)  # later records are not committed before it
    assert fetched(connect(broker), fetch_request) == 2
    broker.fs.gate.set()
    assert [answer_of(each).base_offset for each in (client, other)] == [2, 3]
    assert broker.fs.syncs == 1


def test_batch_that_fails_on_the_disk_is_an_error_and_not_readable(
    broker: Broker, connect: Any, request_of: Any, fetch_request: Any
) -> None:
    client = connect(broker)
    broker.create(client, 1)
    broker.fs.fails = True
    broker.fs.gate.set()
    answer = client.call(request_of("held", b"a"), 9).responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (errors.KafkaStorageError.code, -1)
    assert fetched(client, fetch_request) == 0
    again = client.call(request_of("held", b"a"), 9).responses[0].partition_responses[0]
    assert again.error_code == errors.KafkaStorageError.code
    assert client.call(request_of("free", b"b"), 9).responses[0].partition_responses[0].error_code == 0


def test_requests_that_differ_in_their_batch_alone_wait_too(broker: Broker, connect: Any, request_of: Any) -> None:
    client = connect(broker)
    broker.create(client, 1)
    broker.fs.gate.set()
    for offset in range(5):
        assert client.call(request_of("held", b"a"), 9).responses[0].partition_responses[0].base_offset == offset
    broker.fs.gate.clear()
    syncs = broker.fs.syncs
    client.send(request_of("held", b"a"), 9)
    broker.until(lambda: broker.fs.syncs > syncs)
    assert not has_answer(client)
    broker.fs.gate.set()
    assert answer_of(client).base_offset == 5


def test_flush_of_a_deleted_log_is_dropped(
    broker: Broker, connect: Any, request_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client, other = connect(broker), connect(broker)
    broker.create(client, 1)
    create(client, "late", flush_messages="1")
    client.send(request_of("held", b"a"), 9)
    assert broker.fs.reached.acquire(timeout=SECONDS)
    other.send(request_of("late", b"b"), 9)  # its flush waits for that of the other topic
    broker.until(lambda: broker.node.logs.get("late", 0).end_offset == 1)
    deleter = connect(broker)
    deleter.send(DeleteTopicsRequest(topic_names=["late"], timeout_ms=1000), 5)
    broker.until(lambda: "late" not in broker.node.image.topics)
    broker.fs.gate.set()
    assert answer_of(client).error_code == 0
    assert deleter.receive(DeleteTopicsRequest, 5)[0].responses[0].error_code == 0
    broker.on_loop(broker.node.logs.disk_thread.wait_until_idle)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
