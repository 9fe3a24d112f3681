"""Executors in processes of their own, as on a cluster, read and write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.reading import read_all
from tests.spark.conftest import create, needs_java
from tests.spark.processes import run_with_packages, workers_on_two_hosts

pytestmark = [*needs_java, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("program_of_executors.py")
SPECULATION = Path(__file__).with_name("program_of_speculation.py")


@pytest.fixture
def servers() -> Iterator[str]:
    """Yield the address of a cluster of its own for each test, as the programs name the topics."""
    with EmbeddedCluster() as cluster:
        yield cluster.bootstrap_servers


def prepare(servers: str, *topics: str) -> None:
    """Create the topics and `numbers`, which gets 400 records in 4 partitions."""
    for topic in ("numbers", *topics):
        create(servers, topic, 4)
    with Producer(servers) as producer:
        for partition in range(4):
            producer.send_many("numbers", [b"%d" % number for number in range(partition, 400, 4)], partition=partition)


def test_two_executors_copy_a_topic(servers: str, tmp_path: Path) -> None:
    prepare(servers, "by-batch", "by-write", "by-stream")
    printed = run_with_packages((), sys.executable, str(PROGRAM), servers, str(tmp_path / "checkpoint"))
    assert printed.splitlines()[-1] == "2 executors"
    for topic in ("by-batch", "by-write", "by-stream"):
        found = read_all(servers, topic, 4, isolation_level="read_committed")
        assert sorted(int(record.value or b"-1") for record in found) == list(range(400)), topic


def test_copies_of_hanging_tasks_lose_and_repeat_nothing(servers: str, tmp_path: Path) -> None:
    """Speculative execution: two attempts at a task are at work at the same time, and the later one ends first."""
    prepare(servers, "at-least-once", "by-batch", "by-stream")
    with workers_on_two_hosts(tmp_path) as master:
        printed = run_with_packages((), sys.executable, str(SPECULATION), master, servers, str(tmp_path))
    assert printed.splitlines()[-1] == "3 copies"
    for topic in ("by-batch", "by-stream"):
        found = read_all(servers, topic, 4, isolation_level="read_committed")
        assert sorted(int(record.value or b"-1") for record in found) == list(range(400)), topic
    assert {int(record.value or b"-1") for record in read_all(servers, "at-least-once", 4)} == set(range(400))
