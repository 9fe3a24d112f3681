"""A disk that is full: clients get an error, nothing that was acknowledged is lost, and with room all goes on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Consumer, Producer, TopicPartition, errors
from pyclient.broker_embedded.log.filesystem import RealFile, RealFileSystem
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pyclient.records import decode_batch, iter_batches
from tests.broker_embedded.log.slow_disks import SECONDS, NodeOnDisk

STORAGE_ERROR = errors.KafkaStorageError.code


class SmallFile(RealFile):
    """A file that takes half of what is written to it when the disk is full."""

    __slots__ = ()

    def pwrite(self, data: Any, position: int) -> None:
        fs = self._fs
        assert isinstance(fs, SmallFileSystem)
        if fs.full:
            fs.refused += 1
            super().pwrite(memoryview(data)[: len(data) // 2], position)
            raise fs.no_space(self.path)
        super().pwrite(data, position)


class SmallFileSystem(RealFileSystem):
    """A disk that may be full."""

    def __init__(self) -> None:
        super().__init__(durable=False)
        self.full, self.refused = False, 0

    def file(self, path: str) -> SmallFile:
        return SmallFile(self, path)

    def replace(self, path: str, content: bytes, *, sync: bool = True) -> None:
        if self.full:
            raise self.no_space(path)
        super().replace(path, content, sync=sync)

    def no_space(self, path: str) -> OSError:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class Broker(NodeOnDisk[SmallFileSystem]):
    """A node on a disk that may be full."""

    def __init__(self, data_dir: str) -> None:
        self.running = True
        super().__init__(data_dir, SmallFileSystem())

    def stop(self, *, clean: bool = True) -> None:
        self.running = False
        super().stop(clean=clean)


@pytest.fixture
def start(data_dir: str) -> Iterator[Callable[[], Broker]]:
    """Start a node on the test's data directory."""
    made: list[Broker] = []

    def one() -> Broker:
        made.append(Broker(data_dir))
        return made[-1]

    yield one
    for broker in made:
        broker.fs.full = False
        if broker.running:
            broker.stop()


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic])


def commit(client: Any, offset: int) -> int:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    code: int = client.call(request, 7).topics[0].partitions[0].error_code
    return code


def values(client: Any, fetch_request: Any) -> list[bytes]:
    [answer] = client.call(fetch_request("t", {0: 0}), 11).responses[0].partitions
    assert answer.error_code == 0
    data = bytes(answer.records)
    return [bytes(each.value) for at, head in iter_batches(data) for each in decode_batch(data, at, head, "t", 0)]


def test_writers_get_an_error_and_continue_when_there_is_room(
    start: Callable[[], Broker], connect: Any, produce: Any, batch: Any, fetch_request: Any
) -> None:
    broker = start()
    client = connect(broker)
    assert client.call(creation("t"), 7).topics[0].error_code == 0
    assert produce(client, "t", batch(b"before")).error_code == 0
    assert client.call(FindCoordinatorRequest(key="g"), 1).error_code == 0
    assert commit(client, 1) == 0
    broker.fs.full = True
    for _ in range(2):
        answer = produce(client, "t", batch(b"lost"))
        assert (answer.error_code, answer.base_offset) == (STORAGE_ERROR, -1)
        assert client.call(creation("more"), 7).topics[0].error_code == STORAGE_ERROR
        assert commit(client, 2) == errors.NotCoordinator.code
    assert values(client, fetch_request) == [b"before"]
    assert client.call(MetadataRequest(topics=[]), 1).controller_id == 1
    broker.fs.full = False
    assert produce(client, "t", batch(b"after")).base_offset == 1
    assert client.call(creation("more"), 7).topics[0].error_code == 0
    assert client.call(FindCoordinatorRequest(key="g"), 1).error_code == 0
    assert commit(client, 2) == 0
    broker.stop(clean=False)
    again = start()
    assert values(connect(again), fetch_request) == [b"before", b"after"]
    with Consumer(bootstrap_servers=again.bootstrap_servers, group_id="g") as consumer:
        [position] = consumer.committed([TopicPartition("t", 0)]).values()
    assert position is not None
    assert position.offset == 2
    assert {"t", "more"} <= again.node.image.topics.keys()


def test_a_producer_that_tries_again_writes_every_record_once(
    start: Callable[[], Broker], connect: Any, fetch_request: Any
) -> None:
    broker = start()
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"0", partition=0).result(SECONDS)
        before = broker.fs.refused
        broker.fs.full = True
        sent = [producer.send("t", b"%d" % number, partition=0) for number in range(1, 50)]
        broker.until(lambda: broker.fs.refused > before + 1)
        broker.fs.full = False
        assert [future.result(SECONDS).offset for future in sent] == list(range(1, 50))
    assert values(connect(broker), fetch_request) == [b"%d" % number for number in range(50)]
