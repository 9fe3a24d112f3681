"""A killed node serves at once: logs are recovered while it serves, and requests that need one wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.filesystem import RealFile, RealFileSystem
from pyclient.protocol import codec, framing
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import build_batch, iter_batches
from pyclient.types import TopicPartition
from tests.broker_embedded.log.slow_disks import SECONDS, NodeOnDisk
from tests.broker_embedded.nodes import node_of
from tests.broker_embedded.topics import create, end_offset
from tests.readable import is_readable

SLOW = TopicPartition("slow", 0)
BATCHES = 5
LONGEST_WAIT = 60.0
"""Seconds that a request waits for a log here: some of it passes by itself on a busy machine."""
RETRY = errors.NotLeaderOrFollower.code


class HeldFile(RealFile):
    """A file that is not read off the loop before the filesystem's gate is open."""

    __slots__ = ()

    def pread(self, length: int, position: int) -> bytes:
        fs = self._fs
        assert isinstance(fs, HeldFileSystem)
        if threading.current_thread().name == "pyclient-log-disk" and "/slow-0/" in self.path:
            fs.reached.set()
            assert fs.gate.wait(SECONDS)
            if fs.fails:
                raise OSError(5, "an unreadable sector", self.path)
        return super().pread(length, position)


class HeldFileSystem(RealFileSystem):
    """A disk that is slow to read one partition."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.reached, self.gate, self.fails = threading.Event(), threading.Event(), False

    def file(self, path: str) -> HeldFile:
        return HeldFile(self, path)

    def list_directories(self, path: str) -> list[str]:
        return sorted(super().list_directories(path))  # the order in which logs are recovered


class Restarted(NodeOnDisk[HeldFileSystem]):
    """The node after a crash, while one of its logs is being recovered; released at the latest by `close`."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(data_dir, HeldFileSystem())
        assert self.fs.reached.wait(SECONDS)

    def close(self, *, clean: bool = True) -> None:
        self.fs.gate.set()
        self.stop(clean=clean)


@pytest.fixture
def node(data_dir: str, connect: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Restarted]:
    """Yield a node that was killed with batches in two logs, and cannot read one of them yet."""
    monkeypatch.setattr("pyclient.broker_embedded.replication.unopened_logs.LONGEST_WAIT", LONGEST_WAIT)
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        for topic in ("slow", "quick"):
            create(client, topic)
            for n in range(BATCHES):
                assert client.call(produce(topic, b"%d" % n), 9).responses[0].partition_responses[0].error_code == 0
        cluster.kill()
    restarted = Restarted(data_dir)
    yield restarted
    if restarted.thread.running:
        restarted.close()


def produce(topic: str, value: bytes) -> ProduceRequest:
    batch = build_batch([(None, value)], timestamp_ms=1_700_000_000_000)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)


def fetch(*topics: str, wait: float, offset: int = 0, min_bytes: int = 1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=int(wait * 1000),
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[wanted]) for topic in topics],
    )


def answers(response: Any) -> dict[str, Any]:
    return {topic.topic: topic.partitions[0] for topic in response.responses}


def has_answer(client: Any) -> bool:
    return is_readable(client.socket)


def waits(node: Restarted, client: Any) -> bool:
    """Return True if the connection's request is there and unanswered."""
    port = client.socket.getsockname()[1]
    [connection] = [each for each in node.node.connections.values() if each.stream.peername.endswith(f":{port}")]
    return "waiting" in repr(connection)


def test_only_requests_for_a_log_wait_for_its_recovery(node: Restarted, connect: Any) -> None:
    patient, other = connect(node), connect(node)
    patient.send(produce("slow", b"more"), 9)
    node.until(lambda: waits(node, patient))
    assert other.call(MetadataRequest(topics=[], allow_auto_topic_creation=False), 9).brokers
    assert end_offset(other, "quick") == BATCHES
    assert other.call(produce("quick", b"more"), 9).responses[0].partition_responses[0].base_offset == BATCHES
    assert answers(other.call(fetch("quick", wait=0), 12))["quick"].high_watermark == BATCHES + 1
    assert not has_answer(patient)
    node.fs.gate.set()
    answer = patient.receive(ProduceRequest, 9)[0].responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, BATCHES)


def test_unused_logs_are_recovered_and_the_next_stop_is_clean(node: Restarted, data_dir: str) -> None:
    assert not node.node.logs.was_clean
    assert list(node.node.logs.unopened) == [SLOW]
    node.fs.gate.set()
    node.until(lambda: not node.node.logs.unopened)
    assert {log.topic for log in node.node.logs.opened} == {"slow", "quick"}
    node.close()
    again = EmbeddedCluster(data_dir=data_dir)
    with again:
        assert node_of(again).logs.was_clean


def test_fetch_returns_other_partitions_and_waits_for_the_missing_one(node: Restarted, connect: Any) -> None:
    client = connect(node)
    received = answers(client.call(fetch("slow", "quick", wait=SECONDS), 12))
    assert (received["slow"].error_code, received["quick"].error_code) == (RETRY, 0)
    assert len(list(iter_batches(bytes(received["quick"].records)))) == BATCHES
    assert answers(client.call(fetch("slow", wait=0.001), 12))["slow"].error_code == RETRY
    client.send(fetch("slow", "quick", wait=SECONDS, offset=BATCHES - 1, min_bytes=100_000), 12)
    node.until(lambda: waits(node, client))
    client.send(fetch("slow", wait=SECONDS), 12)
    waiter = connect(node)
    waiter.send(fetch("slow", wait=SECONDS), 12)
    node.until(lambda: waits(node, waiter))
    assert not has_answer(waiter)
    node.fs.gate.set()
    received = answers(waiter.receive(FetchRequest, 12)[0])
    assert len(list(iter_batches(bytes(received["slow"].records)))) == BATCHES
    assert not has_answer(client)  # which wants more than there is
    connect(node).call(produce("slow", b"x" * 100_000), 9)
    received = answers(client.receive(FetchRequest, 12)[0])  # it hears of appends to the log that it has waited for
    assert (received["slow"].error_code, received["slow"].high_watermark) == (0, BATCHES + 1)


def test_a_fetch_that_may_not_wait_waits_for_logs_of_which_none_is_there(node: Restarted, connect: Any) -> None:
    client = connect(node)
    received = answers(client.call(fetch("slow", "quick", wait=0), 12))
    assert (received["slow"].error_code, received["quick"].error_code) == (RETRY, 0)
    client.send(fetch("slow", wait=0), 12)
    node.until(lambda: waits(node, client))
    assert not has_answer(client)
    node.fs.gate.set()
    received = answers(client.receive(FetchRequest, 12)[0])
    assert (received["slow"].error_code, len(list(iter_batches(bytes(received["slow"].records))))) == (0, BATCHES)


def test_request_that_waits_too_long_gets_a_retriable_error(node: Restarted, connect: Any) -> None:
    client = connect(node)
    client.send(produce("slow", b"more"), 9)
    node.until(lambda: waits(node, client))
    node.on_loop(lambda: node.node.timers.advance(LONGEST_WAIT + 1))
    assert client.receive(ProduceRequest, 9)[0].responses[0].partition_responses[0].error_code == RETRY
    node.fs.gate.set()
    assert end_offset(client, "slow") == BATCHES


def test_client_that_disconnects_while_it_waits_has_written_nothing(node: Restarted, connect: Any) -> None:
    client = connect(node)
    client.send(produce("slow", b"more"), 9)
    node.until(lambda: waits(node, client))
    client.close()
    node.until(lambda: not node.node.connections)
    node.fs.gate.set()
    assert end_offset(connect(node), "slow") == BATCHES


def test_topic_may_be_recreated_while_its_log_is_recovered(node: Restarted, connect: Any) -> None:
    waiter, client = connect(node), connect(node)
    waiter.send(produce("slow", b"more"), 9)
    node.until(lambda: waits(node, waiter))
    [deleted] = client.call(DeleteTopicsRequest(topic_names=["slow"], timeout_ms=1000), 4).responses
    assert deleted.error_code == 0
    create(client, "slow")
    assert end_offset(client, "slow") == 0
    node.fs.gate.set()
    answer = waiter.receive(ProduceRequest, 9)[0].responses[0].partition_responses[0]
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_unreadable_log_is_reported_and_retried_by_the_next_request(node: Restarted, connect: Any) -> None:
    client = connect(node)
    client.send(produce("slow", b"more"), 9)
    node.until(lambda: waits(node, client))
    node.fs.fails = True
    node.fs.gate.set()
    answer = client.receive(ProduceRequest, 9)[0].responses[0].partition_responses[0]
    assert answer.error_code == errors.KafkaStorageError.code
    node.until(lambda: list(node.node.logs.unopened) == [SLOW])
    node.fs.fails = False
    assert end_offset(client, "slow") == BATCHES


def test_the_size_of_a_log_is_known_before_it_is_open(node: Restarted, connect: Any) -> None:
    [received] = connect(node).call(DescribeLogDirsRequest(topics=None), 4).results
    sizes = {topic.name: topic.partitions[0].partition_size for topic in received.topics}
    assert sizes["slow"] == sizes["quick"] > 0
    assert SLOW in node.node.logs.unopened


@pytest.mark.parametrize("clean", [True, False])
def test_a_node_may_stop_while_a_log_is_recovered_and_loses_nothing(
    node: Restarted, data_dir: str, connect: Any, clean: bool
) -> None:
    client = connect(node)
    client.send(produce("slow", b"more"), 9)
    node.until(lambda: waits(node, client))
    node.close(clean=clean)
    frame = client.receive_frame()  # it may have been served just before the end
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        assert end_offset(client, "quick") == BATCHES
        assert end_offset(client, "slow") in ((BATCHES + 1,) if frame else (BATCHES, BATCHES + 1))


def test_a_frame_is_the_same_whether_its_partition_was_waited_for_or_not(node: Restarted, connect: Any) -> None:
    """The other requests for partitions wait, too; each by its own message."""
    from pyclient.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )
    from pyclient.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
    from pyclient.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
    )

    epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
    requests: list[tuple[Any, int]] = [
        (OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="slow", partitions=[epoch])]), 4),
        (DescribeProducersRequest(topics=[TopicRequest(name="slow", partition_indexes=[0])]), 0),
        (
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(name="slow", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
                ],
                timeout_ms=1000,
            ),
            2,
        ),
    ]
    clients = []
    for request, version in requests:
        client = connect(node)
        client.send(request, version)
        clients.append(client)
        node.until(lambda client=client: waits(node, client))  # type: ignore[misc]
    node.fs.gate.set()
    for client, (request, version) in zip(clients, requests, strict=True):
        early, _ = client.receive(type(request), version)
        late = client.call(request, version)
        assert codec.encode(early, version) == codec.encode(late, version)
        assert framing.encode_response(late, version, 1)
