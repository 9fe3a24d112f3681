"""A lack of file descriptors: connections and logs work with those that there are, and recover."""

from __future__ import annotations

import gc
import logging
import os
import resource
import socket
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.broker_embedded.network.descriptors import LATE_MODULES, OTHERS, FileDescriptors
from pyclient.broker_embedded.scheduling.request_slices import RequestSlices
from pyclient.protocol import framing
from pyclient.protocol.messages.fetch import FetchRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker_embedded.topics import create
from tests.waiting import until

ASK = MetadataRequest(topics=[])
FEW = 400  # descriptors


@pytest.mark.parametrize("name", LATE_MODULES)
def test_modules_that_are_imported_late_exist(name: str) -> None:
    assert import_module(name)


class Now:
    """A loop whose callbacks are called by hand."""

    def __init__(self) -> None:
        self.due: list[Any] = []

    def call_soon(self, callback: Any) -> None:
        self.due.append(callback)

    def run(self) -> None:
        while self.due:
            self.due.pop(0)()


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Let the process open `FEW` descriptors in addition to those that earlier tests left open."""
    gc.collect()  # else those of earlier tests may be closed in the middle of this one
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    already_open = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FEW + already_open, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_files_that_are_not_retained_make_room(tmp_path: Any) -> None:
    fs = RealFileSystem(most_open_files=8)
    files = [fs.file(str(tmp_path / str(number))) for number in range(8)]
    for file in files:
        file.fileno()
    assert not fs.few_descriptors_left
    for file in files[:2]:
        file.retain()
    assert fs.few_descriptors_left  # a quarter
    fs.limit_open_files(4)
    assert sum(file.is_open for file in files) == 4
    assert all(file.is_open for file in files[:2])
    assert fs.close_idle_files() == 2
    for file in files[:2]:
        file.release()
    assert not fs.few_descriptors_left
    fs.limit_open_files(100)
    for file in files:
        file.fileno()
    assert sum(file.is_open for file in files) == 8  # never more than at first


def test_a_released_file_is_closed_where_too_many_are_open(tmp_path: Any) -> None:
    fs = RealFileSystem(most_open_files=4)
    files = [fs.file(str(tmp_path / str(number))) for number in range(6)]
    for file in files:
        file.retain()
        file.fileno()
    assert fs.has_too_many_open
    for file in files:
        file.release()
    assert sum(file.is_open for file in files) == 4


def test_connections_leave_an_eighth_of_the_descriptors_to_the_logs(tmp_path: Any) -> None:
    fs = RealFileSystem(most_open_files=512)
    descriptors = FileDescriptors(fs, RequestSlices(Now()), limit=1024)  # type: ignore[arg-type]
    assert descriptors.most_connections == 1024 - 128 - OTHERS
    files = [fs.file(str(tmp_path / str(number))) for number in range(200)]
    for file in files:
        file.fileno()
    descriptors.connections_are(0)
    assert sum(file.is_open for file in files) == 200
    descriptors.connections_are(descriptors.most_connections)
    assert sum(file.is_open for file in files) == 128
    fs.close_idle_files()


def test_everything_is_loaded_while_the_reserve_is_given_up_for_it(tmp_path: Any) -> None:
    loop = Now()
    descriptors = FileDescriptors(RealFileSystem(), RequestSlices(loop), limit=1024)  # type: ignore[arg-type]
    descriptors.refill()
    assert repr(descriptors) == "<FileDescriptors limit=1024 reserve=8>"
    late = "pyclient.broker_embedded.handlers.describe_quorum"
    sys.modules.pop(late, None)
    assert not descriptors.run_out()  # no file was open
    loop.run()
    assert late in sys.modules
    assert repr(descriptors) == "<FileDescriptors limit=1024 reserve=8>"
    descriptors.close()


@pytest.mark.usefixtures("few_descriptors")
def test_one_slow_reader_of_many_partitions_leaves_descriptors_to_others(connect: Any, batch: Any) -> None:
    partitions = FEW
    with EmbeddedCluster() as cluster:
        client = connect(cluster)
        create(client, "many", partitions)
        records = batch(bytes(120_000))  # of 400 of them, a socket's buffers take some 35
        for first in range(0, partitions, 50):
            data = [PartitionProduceData(index=index, records=records) for index in range(first, first + 50)]
            request = ProduceRequest(
                acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="many", partition_data=data)]
            )
            answer = client.call(request, 9).responses[0]
            assert {each.error_code for each in answer.partition_responses} == {0}
        slow = connect(cluster)
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        fetch = fetch_all(partitions)
        slow.send(fetch, 11)
        slow.socket.recv(1, socket.MSG_PEEK)  # the answer begins, and is not read
        others = [connect(cluster) for _ in range(50)]
        for other in others:
            assert other.call(ASK, 9).controller_id == 1
        response = others[0].call(fetch, 11)  # is answered from what may be read
        found = response.responses[0].partitions
        assert {each.error_code for each in found} == {0}
        assert found[0].records
        slow.close()
        assert len(others[0].call(fetch, 11).responses[0].partitions) == partitions


def fetch_all(partitions: int) -> FetchRequest:
    from pyclient.protocol.messages.fetch import FetchPartition, FetchTopic

    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[
            FetchTopic(
                topic="many",
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(partitions)
                ],
            )
        ],
    )


@pytest.mark.usefixtures("few_descriptors")
def test_clients_connect_again_as_soon_as_there_are_descriptors(connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster() as cluster, caplog.at_level(logging.ERROR):
        served = connect(cluster)
        assert served.call(ASK, 9).controller_id == 1
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        waiting = [socket.socket() for _ in range(40)]  # their ends at the broker need as many
        held = []
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        try:
            for each in waiting:
                each.settimeout(30)
                each.connect((host, int(port)))
                each.sendall(b"".join(framing.encode_request(ASK, 9, 1, "waiting")))  # type: ignore[arg-type]
            until(lambda: "cannot accept connections" in caplog.text)
            assert served.call(ASK, 9).controller_id == 1
        finally:
            for fd in held:
                os.close(fd)
        assert all(each.recv(4) for each in waiting)
        assert caplog.text.count("cannot accept connections") == 1
        for each in waiting:
            each.close()
