"""Executors in processes of their own, as on a cluster, read and write."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.spark.beside import run_beside
from tests.spark.conftest import create, needs_java, read_all

pytestmark = [*needs_java, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("program_of_executors.py")


def test_two_executors_copy_a_topic(kafka_cluster: EmbeddedCluster, tmp_path: Path) -> None:
    servers = kafka_cluster.bootstrap_servers
    for topic in ("numbers", "by-batch", "by-write", "by-stream"):
        create(servers, topic, 4)
    with Producer(servers) as producer:
        for partition in range(4):
            producer.send_many("numbers", [b"%d" % number for number in range(partition, 400, 4)], partition=partition)
    printed = run_beside((), sys.executable, str(PROGRAM), servers, str(tmp_path / "checkpoint"))
    assert printed.splitlines()[-1] == "2 executors"
    for topic in ("by-batch", "by-write", "by-stream"):
        found = read_all(servers, topic, 4, isolation_level="read_committed")
        assert sorted(int(record.value or b"-1") for record in found) == list(range(400)), topic
