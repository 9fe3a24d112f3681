"""Kafka's TransactionalMessageCopier on three brokers of ours, as in Kafka's system test of transactions.

A copier and the transaction coordinator are killed while they work, and some transactions are aborted on purpose. The
copy must be what the original is, in its order.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from pyclient import Admin, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka import tools
from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka
from tests.reading import read_all
from tests.waiting import until_decided

COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
PARTITIONS: Final = 2
MESSAGES: Final = 6_000
PER_TRANSACTION: Final = 100
GROUP_MODE: Final = ("--group-mode", "--use-group-metadata")
ALL: Final = {partition: list(range(partition, MESSAGES, PARTITIONS)) for partition in range(PARTITIONS)}


@pytest.fixture(scope="module")
def ours() -> Iterator[EmbeddedCluster]:
    """Three brokers in processes, one of which coordinates all transactions."""
    config = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 1}
    with EmbeddedCluster(brokers=3, processes=True, config=config) as cluster:
        yield cluster


def start(servers: str, version: str, topic: str, number: int, mode: tuple[str, ...]) -> subprocess.Popen[str]:
    topics = ("--input-topic", topic, "--input-partition", str(number), "--output-topic", f"{topic}-copy")
    ids = ("--transactional-id", f"{topic}-{number}", "--consumer-group", topic)
    sizes = ("--transaction-size", str(PER_TRANSACTION), "--transaction-timeout", "10000", "--enable-random-aborts")
    return tools.start(COPIER, "--broker-list", servers, *topics, *ids, *sizes, *mode, version=version)


def wait_until_it_copies(copier: subprocess.Popen[str]) -> None:
    """Read the copier's lines until one says that some transactions are committed."""
    assert copier.stdout is not None
    for line in copier.stdout:
        if json.loads(line)["totalProcessed"] >= 3 * PER_TRANSACTION:
            return
    raise AssertionError("the copier ended before it had copied anything")


def committed(servers: str, topic: str) -> dict[int, list[int]]:
    """Return the committed records of each partition; no transaction may be open."""
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    until_decided(servers, places)
    for record in read_all(servers, topic, PARTITIONS, isolation_level="read_committed"):
        found[record.partition].append(int(record.value or b""))
    return found


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("version", "mode"), [(VERSIONS[0], GROUP_MODE), (VERSIONS[1], ())])
def test_kafkas_copier_copies_exactly_once(
    ours: EmbeddedCluster, version: str, mode: tuple[str, ...], topic: str
) -> None:
    skip_without_kafka(version)
    servers = ours.bootstrap_servers
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(each, PARTITIONS, 3) for each in (topic, f"{topic}-copy")])
    with Producer(servers) as producer:
        for partition, numbers in ALL.items():
            producer.send_many(topic, [b"%d" % number for number in numbers], partition=partition)
    copiers = [start(servers, version, topic, 0, mode)]
    try:
        wait_until_it_copies(copiers[0])
        copiers.append(start(servers, version, topic, 1, mode))
        copiers[0].kill()
        copiers[0].communicate()
        coordinator = ours.leader_of("__transaction_state", 0)
        assert coordinator is not None
        ours.kill(coordinator)
        copiers[0] = start(servers, version, topic, 0, mode)
        ours.start(coordinator)
        with ThreadPoolExecutor() as pool:
            outputs = list(pool.map(tools.finish, copiers))
    finally:
        for copier in copiers:
            copier.kill()
    assert all('"stage":"ShutdownComplete"' in output.out for output in outputs)
    assert committed(servers, f"{topic}-copy") == ALL
