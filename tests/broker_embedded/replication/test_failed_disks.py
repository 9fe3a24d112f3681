"""Disks of one of three brokers fail: its partitions are led by others, and nothing acknowledged is lost."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster, broker
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.cluster.runners import ThreadRunner
from pyclient.broker_embedded.log.filesystem import Buffer, RealFile, RealFileSystem
from pyclient.errors import ConfigError
from tests.waiting import until

FAILING: set[str] = set()
"""Prefixes of the paths that cannot be written."""


class FailingFile(RealFile):
    """A file on a disk that can fail."""

    __slots__ = ()

    def pwrite(self, data: Buffer, position: int) -> None:
        if any(self.path.startswith(each) for each in FAILING):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        super().pwrite(data, position)


class FailingFileSystem(RealFileSystem):
    """A file system whose writes fail for the paths in `FAILING`."""

    def file(self, path: str) -> FailingFile:
        return FailingFile(self, path)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Yield three brokers with two log directories each."""
    more = tmp_path_factory.mktemp("more")
    properties = {node: {"log.dirs": str(more / f"second-{node}")} for node in (1, 2, 3)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(broker, "RealFileSystem", FailingFileSystem)
        config = {"broker.session.timeout.ms": 6000}  # on a busy machine, too, leaders change by faults only
        with EmbeddedCluster(3, config=config, node_properties=properties) as cluster:
            yield cluster
    FAILING.clear()


def create(cluster: EmbeddedCluster, name: str, partitions: int) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions, 3)])
    for partition in range(partitions):
        cluster.wait_isr(name, partition, 3)


def send(cluster: EmbeddedCluster, topic: str, partitions: int, value: bytes) -> None:
    with Producer(cluster.bootstrap_servers, delivery_timeout_ms=60_000) as producer:
        for future in [producer.send(topic, value, partition=index) for index in range(partitions)]:
            future.result(60)


def read(cluster: EmbeddedCluster, topic: str, partitions: int, count: int) -> list[bytes]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        found: list[bytes] = []
        while len(found) < count:
            found += [record.value or b"" for record in consumer.poll(30)]
        return sorted(found)


def on(cluster: EmbeddedCluster, node: int) -> BrokerNode:
    runner = cluster.node(node).runner
    assert isinstance(runner, ThreadRunner)
    return runner.node


def is_in_second(cluster: EmbeddedCluster, node: int, partition: str) -> bool:
    """Return True if a node's replica is in its second directory."""
    return Path(on(cluster, node).config.other_dirs[0], partition).exists()


def test_leader_with_a_full_disk_hands_over_and_comes_back(three: EmbeddedCluster) -> None:
    create(three, "full", 1)
    send(three, "full", 1, b"a")
    leader = three.leader_of("full", 0)
    assert leader is not None
    FAILING.add(next(f"{path}/full-0/" for path in on(three, leader).config.log_dirs if Path(path, "full-0").exists()))
    send(three, "full", 1, b"b")
    until(lambda: three.leader_of("full", 0) not in (leader, None), "another broker leads")
    FAILING.clear()
    send(three, "full", 1, b"c")
    assert leader in three.wait_isr("full", 0, 3)
    assert read(three, "full", 1, 3) == [b"a", b"b", b"c"]


def test_partitions_of_a_failed_log_directory_are_led_by_others(three: EmbeddedCluster) -> None:
    create(three, "many", 6)
    send(three, "many", 6, b"a")
    leaders = [three.leader_of("many", index) for index in range(6)]
    place, node = next(
        (index, leader)
        for index, leader in enumerate(leaders)
        if leader is not None and is_in_second(three, leader, f"many-{index}")
    )
    stays = [index for index in range(6) if not is_in_second(three, node, f"many-{index}")]
    host = on(three, node)

    def fail() -> None:
        for opened in host.logs.opened:
            if (opened.topic, opened.partition) == ("many", place):
                opened.fail("a flush failed")  # as its `flush` does

    host.loop.call_soon_threadsafe(fail)
    until(lambda: three.leader_of("many", place) not in (node, None))
    send(three, "many", 6, b"b")
    assert read(three, "many", 6, 12) == [b"a"] * 6 + [b"b"] * 6
    assert all(node in three.wait_isr("many", index, 3) for index in stays)
    three.restart(node)
    for index in range(6):
        assert node in three.wait_isr("many", index, 3)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({9: {"num.partitions": "2"}}, "node_properties has a node 9: the cluster has 1, 2, 3"),
        ({2: {"node.id": "7"}}, "node.id: in a cluster of several nodes each has its own"),
        ({2: {"num.partitons": "2"}}, "num.partitons"),
    ],
)
def test_impossible_options_of_nodes(properties: dict[int, dict[str, str]], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        EmbeddedCluster(3, node_properties=properties)
