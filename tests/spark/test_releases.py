"""Older releases of pyspark, each installed next to the one of the environment, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyclient import Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.reading import read_all
from tests.spark.conftest import create, needs_java
from tests.spark.processes import run_with_packages

pytestmark = [*needs_java, pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("program_of_a_release.py")


@pytest.mark.parametrize(
    ("release", "bridge", "has_data_sources"), [("3.5.9", "0.10.9.7", False), ("4.1.4", "0.10.9.9", True)]
)
def test_an_older_release_writes_and_reads(
    kafka_cluster: EmbeddedCluster, tmp_path: Path, release: str, bridge: str, has_data_sources: bool
) -> None:
    servers, topic = kafka_cluster.bootstrap_servers, f"release-{release}"
    create(servers, topic, 2)
    packages = (f"pyspark=={release}", f"py4j=={bridge}")
    data = stored_numbers(tmp_path / "broker")
    printed = run_with_packages(packages, sys.executable, str(PROGRAM), servers, topic, str(tmp_path), data)
    assert f"stored 45\npyspark {release}" in printed
    numbers, ten = range(200), range(10)
    expected = [*numbers, *sorted([3000 + number for number in ten] * 3)]  # twice at least once, once exactly once
    if has_data_sources:
        expected += [1000 + number for number in numbers] + [2000 + number for number in numbers]
        expected += [4000 + number for number in ten] + [5000 + number for number in ten]
    committed = read_all(servers, topic, 2, isolation_level="read_committed")
    assert sorted(int(record.value or b"-1") for record in committed) == sorted(expected)


def stored_numbers(folder: Path) -> str:
    """Return the directory of a broker that was stopped, with the numbers 0 to 9 in its topic `stored`."""
    with EmbeddedCluster(data_dir=str(folder)) as cluster, Producer(cluster.bootstrap_servers) as producer:
        producer.send_many("stored", [str(number).encode() for number in range(10)])
        producer.flush()
    return str(folder)
