"""`pyclient broker --brokers 3`: a cluster in the foreground, which comes back after Ctrl-C and after a SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer
from tests.broker_embedded.faults.http_control import Http
from tests.free_ports import first_of_free_ports
from tests.reading import read_all
from tests.waiting import PATIENCE, until

BROKER = "from pyclient.cli import main; main()"


@contextmanager
def cluster(data_dir: Path, end: signal.Signals) -> Iterator[str]:
    """Yield the bootstrap servers of three brokers on a directory, whose parent process gets a signal at the end."""
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


@contextmanager
def started(*options: str) -> Iterator[tuple[subprocess.Popen[str], str, Http]]:
    """Start three brokers. Yield the parent process, the bootstrap servers and the controls; kill the parent after."""
    command = [sys.executable, "-c", BROKER, "broker", "--brokers", "3", "--control-port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            servers, url = (process.stdout.readline().strip().partition("=")[2] for _ in range(2))
            assert url, "the cluster did not start"
            yield process, servers, Http(url)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["parent", "all"])
@pytest.mark.parametrize(
    "options",
    [("--profile", "test"), ("--profile", "kafka", "--set", "broker.session.timeout.ms=33000")],
    ids=["test", "kafka"],
)
def test_killed_cluster_starts_again_at_once_with_all_records(
    tmp_path: Path, options: tuple[str, ...], killed: str
) -> None:
    """The nodes may still be ending then, and with Kafka's defaults registrations wait for the end of old sessions."""
    ports = ("--port", str(first_of_free_ports(3)))
    values = [b"%d" % number for number in range(5000)]
    with started(*ports, *options, "--data-dir", str(tmp_path)) as (parent, servers, http):
        pids = [node["pid"] for node in http.ask("GET", "/cluster")[1]["nodes"]]
        with Admin(servers) as admin:
            admin.create_topics([NewTopic("kept", 1)])
        with Producer(servers, linger_ms=0, delivery_timeout_ms=600_000) as producer:
            sent = [producer.send("kept", value) for value in values[:100]]
            assert [future.result(60).offset for future in sent] == [*range(100)]
            sent += [producer.send("kept", value) for value in values[100:]]
            for pid in (parent.pid, *(pids if killed == "all" else ())):
                os.kill(pid, signal.SIGKILL)
            acknowledged = sum(future.done() for future in sent)
            with started(*ports, *options, "--data-dir", str(tmp_path)) as (again, servers_again, _http):
                assert servers_again == servers
                found = [record.value for record in read_all(servers, "kept")]
                assert found[:acknowledged] == values[:acknowledged]
                assert [future.result(300).offset for future in sent] == [*range(5000)]
                assert [record.value for record in read_all(servers, "kept")] == values
                again.send_signal(signal.SIGINT)
                assert again.wait(PATIENCE) == 0


@pytest.mark.slow
def test_node_that_ends_by_itself_is_started_again(tmp_path: Path) -> None:
    """The others serve on while it cannot start, here since its directory has become that of another node."""
    identity, log = tmp_path / "data" / "node-2" / "meta.properties", tmp_path / "stderr"
    command = [sys.executable, "-c", BROKER, "broker", "--brokers", "3", "--port", "0", "--control-port", "0"]
    command += ["--profile", "test", "--data-dir", str(tmp_path / "data")]
    with (
        log.open("wb") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            servers, url = (process.stdout.readline().strip().partition("=")[2] for _ in range(2))
            http = Http(url)
            with Admin(servers) as admin:
                admin.create_topics([NewTopic("kept", 1)])
            for can_start in (True, False):
                whole = identity.read_text()
                if not can_start:
                    identity.write_text(whole.replace("node.id=2", "node.id=7"))
                pid = node_2(http)["pid"]
                os.kill(pid, signal.SIGKILL)
                if not can_start:
                    until(lambda: "node 2 cannot start, the next attempt is in" in log.read_text())
                    send(servers, b"meanwhile")
                    identity.write_text(whole)
                until(lambda pid=pid: node_2(http)["pid"] != pid and in_sync(http) == 3)  # type: ignore[misc]
            assert process.poll() is None
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
    assert log.read_text().count("starting node 2 again") >= 3


def node_2(http: Http) -> Any:
    """Return the state of node 2."""
    status, answer = http.ask("GET", "/cluster")
    assert status == 200, answer
    return next(node for node in answer["nodes"] if node["node_id"] == 2)


def in_sync(http: Http) -> int:
    """Return how many in-sync replicas the topic has, 0 while a node is down."""
    if node_2(http)["state"] != "running":
        return 0
    status, answer = http.ask("GET", "/cluster/wait-isr?topic=kept&partition=0&size=3&timeout=1")
    return len(answer["isr"]) if status == 200 else 0


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
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "a node that is alone has no voters" in done.stderr


def test_several_brokers_are_refused_what_they_cannot_have() -> None:
    command = [sys.executable, "-c", BROKER, "broker", "--brokers", "3", "--replication-factor", "4", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "replication_factor is 4" in done.stderr
    assert "Traceback" not in done.stderr
