"""Batches that take long to decompress are checked on the I/O thread: other clients are served, in order."""

from __future__ import annotations

import os
import platform
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pyclient.records import Compression, build_batch
from tests.broker_embedded.nodes import node_of
from tests.broker_embedded.topics import create
from tests.records.raw_batches import batch as raw_batch
from tests.records.raw_batches import field, record

LARGE = build_batch([(b"k", bytes(4 << 20))], timestamp_ms=1_700_000_000_000, compression=Compression.GZIP)
"""Four MiB of zeros in a few kilobytes."""


def request_of(topic: str, *batches: bytes, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def answers_of(response: Any) -> list[tuple[int, int, int]]:
    return [(each.index, each.error_code, each.base_offset) for each in response.responses[0].partition_responses]


@pytest.fixture
def gate(broker: Any) -> Iterator[threading.Event]:
    """Keep the broker's I/O thread busy until the event is set."""
    opened = threading.Event()
    node = node_of(broker)
    node.loop.call_soon_threadsafe(node.logs.disk_thread.submit, lambda: opened.wait(30), lambda *_: None)
    yield opened
    opened.set()


def is_answered(client: Any) -> bool:
    client.socket.setblocking(False)
    try:
        return bool(client.socket.recv(1))
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(30)


def test_other_clients_are_served_while_large_batch_is_checked(
    broker: Any, client: Any, connect: Callable[..., Any], topic: str, batch: Any, gate: threading.Event
) -> None:
    client.send(request_of(topic, LARGE), 9)
    client.send(request_of(topic, batch(b"next")), 9)
    other = connect(broker)
    assert answers_of(other.call(request_of(topic, batch(b"small")), 9)) == [(0, 0, 0)]
    assert other.call(MetadataRequest(topics=[]), 9).brokers
    assert not is_answered(client)
    gate.set()
    assert answers_of(client.receive(ProduceRequest, 9)[0]) == [(0, 0, 1)]
    assert answers_of(client.receive(ProduceRequest, 9)[0]) == [(0, 0, 2)]


def test_partitions_of_request_keep_their_order(client: Any, topic: str, batch: Any) -> None:
    assert answers_of(client.call(request_of(topic, LARGE, batch(b"small")), 9)) == [(0, 0, 0), (1, 0, 0)]
    assert answers_of(client.call(request_of(topic, batch(b"small"), LARGE), 9)) == [(0, 0, 1), (1, 0, 1)]


def test_repeated_large_requests_are_all_appended(client: Any, topic: str) -> None:
    for number in range(5):  # from the third on they are like one before them
        assert answers_of(client.call(request_of(topic, LARGE), 9)) == [(0, 0, number)]


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_large_batch_that_cannot_be_decompressed_is_refused(client: Any, topic: str, codec: Compression) -> None:
    noise = raw_batch(codec=codec, packed=os.urandom(900_000))
    [answer] = client.call(request_of(topic, noise), 9).responses[0].partition_responses
    assert answer.error_code == errors.InvalidRecord.code
    assert f"{codec.name.lower()} data" in answer.error_message
    junk = raw_batch(record(value=field(bytes(4 << 20))) + b"\0", count=1, codec=codec)
    [answer] = client.call(request_of(topic, junk), 9).responses[0].partition_responses
    assert answer.error_code == errors.InvalidRecord.code
    assert "1 bytes are left after its last record" in answer.error_message


def test_large_batch_without_acks_is_appended_or_closes_connection(
    broker: Any, client: Any, connect: Callable[..., Any], topic: str, batch: Any
) -> None:
    client.send(request_of(topic, LARGE, acks=0), 9)
    assert answers_of(client.call(request_of(topic, batch(b"next")), 9)) == [(0, 0, 1)]
    client.send(request_of(topic, raw_batch(codec=Compression.GZIP, packed=bytes(900_000)), acks=0), 9)
    assert client.is_closed()


def test_topic_deleted_during_check_is_unknown(
    broker: Any, client: Any, connect: Callable[..., Any], topic: str, gate: threading.Event
) -> None:
    client.send(request_of(topic, LARGE), 9)
    other = connect(broker)
    assert other.call(MetadataRequest(topics=[]), 9).brokers  # the batch is being checked by now
    deleted = other.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 5)
    assert deleted.responses[0].error_code == 0
    gate.set()
    [(_, code, _)] = answers_of(client.receive(ProduceRequest, 9)[0])
    assert code == errors.UnknownTopicOrPartition.code


def test_large_batch_is_answered_once_it_is_on_disk(client: Any, topic: str) -> None:
    create(client, f"{topic}-f", flush_messages="1")
    assert answers_of(client.call(request_of(f"{topic}-f", LARGE), 9)) == [(0, 0, 0)]


def test_large_batch_is_recompressed_for_its_topic(client: Any, topic: str, fetch_request: Any) -> None:
    create(client, f"{topic}-z", compression_type="zstd")
    assert answers_of(client.call(request_of(f"{topic}-z", LARGE), 9)) == [(0, 0, 0)]
    [found] = client.call(fetch_request(f"{topic}-z", {0: 0}), 11).responses
    assert found.partitions[0].records[22] & 7 == Compression.ZSTD


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the option is of glibc's malloc")
def test_broker_process_reuses_memory_of_decompressed_batches(connect: Callable[..., Any]) -> None:
    rng = random.Random(1)
    values = [
        (None, b'{"id": %d, "score": 0.%d}' % (rng.randrange(10**9), rng.randrange(10**9))) for _ in range(16_000)
    ]
    batch = build_batch(values, timestamp_ms=1_700_000_000_000, compression=Compression.LZ4)
    with EmbeddedCluster(processes=True) as cluster:
        client = connect(cluster)
        create(client, "t")

        def faults() -> int:
            return int(Path(f"/proc/{cluster.pid}/stat").read_text().rpartition(") ")[2].split()[7])

        for count in (20, 50):
            before = faults()
            for _ in range(count):
                client.send(request_of("t", batch), 9)
            for _ in range(count):
                assert answers_of(client.receive(ProduceRequest, 9)[0])[0][1] == 0
        assert faults() - before < 50 * 50, "each batch has some 200 pages, twice"
