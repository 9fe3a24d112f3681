"""`pyclient broker --brokers 3`: a cluster in the foreground, which comes back after Ctrl-C and after a SIGKILL."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer
from tests.broker_embedded.faults.http_control import Http

BROKER = "from pyclient.cli import main; main()"


@contextmanager
def cluster(data_dir: Path, end: signal.Signals) -> Iterator[str]:
    """The bootstrap servers of three brokers on a directory, whose parent process gets a signal at the end."""
    command = [sys.executable, "-c", BROKER, "broker", "--brokers", "3", "--port", "0", "--profile", "test"]
    with subprocess.Popen([*command, "--data-dir", str(data_dir)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("bootstrap.servers=")
            yield line.strip().removeprefix("bootstrap.servers=")
        finally:
            process.send_signal(end)
            process.wait(60)
    assert process.returncode == (0 if end is signal.SIGINT else -end)


@pytest.mark.slow
def test_a_cluster_in_the_foreground_comes_back_with_all_data(tmp_path: Path) -> None:
    with cluster(tmp_path, signal.SIGINT) as servers:
        assert servers.count(",") == 2
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("kept", 1)])
        send(servers, b"1")
    with cluster(tmp_path, signal.SIGKILL) as servers:
        send(servers, b"2")
    with cluster(tmp_path, signal.SIGINT) as servers:
        send(servers, b"3")
        found: list[bytes | None] = []
        with Consumer("kept", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            while len(found) < 3:
                found += [record.value for record in consumer.poll(30)]
        assert found == [b"1", b"2", b"3"]


def send(servers: str, value: bytes) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("kept", value).result(60)


def test_controllers_of_a_cluster_in_the_foreground_can_change(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKER, "broker", "--controllers", "1", "--dynamic-quorum", "--profile", "test"]
    command += ["--port", "0", "--control-port", "0", "--data-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().strip() for _ in range(2)]
            http = Http(lines[1].removeprefix("control.url="))
            assert http.ask("POST", "/cluster/add-controller", {}) == (200, {"node": 3001})
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_dynamic_quorum_of_a_broker_alone_is_refused() -> None:
    command = [sys.executable, "-c", BROKER, "broker", "--dynamic-quorum", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "a node that is alone has no voters" in done.stderr


def test_several_brokers_are_refused_what_they_cannot_have() -> None:
    command = [sys.executable, "-c", BROKER, "broker", "--brokers", "3", "--replication-factor", "4", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "replication_factor is 4" in done.stderr
    assert "Traceback" not in done.stderr
