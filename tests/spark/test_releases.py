"""Older releases of pyspark, each installed beside the one of the environment, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from tests.spark.beside import run_beside
from tests.spark.conftest import create, needs_java, read_all

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
    printed = run_beside(packages, sys.executable, str(PROGRAM), servers, topic, str(tmp_path))
    assert f"pyspark {release}" in printed
    numbers = range(200)
    expected = [*numbers, *(1000 + number for number in numbers), *(2000 + number for number in numbers)]
    found = sorted(int(record.value or b"-1") for record in read_all(servers, topic, 2))
    assert found == (expected if has_data_sources else list(numbers))
