"""Sail, a second engine that runs Python data sources, reads and writes by the same class."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.reading import read_all
from tests.spark.processes import CONNECT, run_with_packages

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PACKAGES = ("pysail==0.7.2", "pyspark-client==4.2.0", *CONNECT)
PROGRAM = Path(__file__).with_name("program_in_sail.py")


def test_sail_reads_and_writes_batches_and_streams() -> None:
    with EmbeddedCluster() as cluster:
        servers = cluster.bootstrap_servers
        with Producer(servers) as producer:
            producer.send_many("orders", [b"apples", b"pears", b"plums"], keys=[b"ann", b"bob", b"ann"])
        printed = run_with_packages(PACKAGES, sys.executable, "-W", "ignore", str(PROGRAM), servers)
        assert printed.splitlines()[-1] == "[('ann', 2), ('bob', 1)]"
        for topic in ("read-again", "streamed", "by-write", "by-rows"):
            assert [record.value for record in read_all(servers, topic, 1)] == [b"apples", b"pears", b"plums"], topic
