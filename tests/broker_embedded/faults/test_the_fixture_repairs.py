"""The fixture `kafka_cluster` works for each test after any damage by the test before."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from pyclient import Producer

SEEN = []

@pytest.fixture
def producer(kafka_cluster):
    with Producer(kafka_cluster.bootstrap_servers, retry_backoff_ms=10) as producer:
        yield producer

@pytest.mark.parametrize("end", ["kill", "stop", "pause", "resume"])
def test_cluster_is_repaired(kafka_cluster, producer, end):
    assert not len(kafka_cluster.faults)
    assert kafka_cluster.brokers[0].state == "running"
    assert producer.send("orders", b"value").result(30).offset == 2 * len(SEEN)
    SEEN.append(end)
    kafka_cluster.requests.start()
    kafka_cluster.faults.hold("Produce", times=None)
    producer.send("orders", b"value")
    getattr(kafka_cluster.brokers[0], end)()

def test_without_the_fixture_passes():
    assert len(SEEN) == 4
"""


def test_each_test_finds_a_broker_that_works(tmp_path: Path) -> None:
    path = tmp_path / "test_users.py"
    path.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "5 passed" in done.stdout


def test_working_cluster_needs_no_repair(broker: object) -> None:
    broker.repair()  # type: ignore[attr-defined]
    assert broker.alive  # type: ignore[attr-defined]
