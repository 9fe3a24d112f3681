"""EmbeddedCluster: starting, closing, crashing, in a thread and in a process."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controls import channel
from pyclient.errors import ClientError, ClosedError, ConfigError
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.nodes import node_of
from tests.garbage import loop_threads_first
from tests.waiting import until

ASK = MetadataRequest(topics=[])
MODES = pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])


@MODES
def test_a_cluster_serves_until_it_is_closed(connect: Any, processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        assert connect(cluster).call(ASK, 1).controller_id == 1
        assert cluster.alive
        directory = cluster.data_dir
        assert Path(directory).is_dir()
        assert "127.0.0.1:" in repr(cluster)
    assert not Path(directory).exists()
    assert "closed" in repr(cluster)
    with pytest.raises(ClosedError, match="closed"):
        _ = cluster.bootstrap_servers


@MODES
def test_closing_twice_is_once(processes: bool) -> None:
    cluster = EmbeddedCluster(processes=processes).start()
    cluster.close()
    cluster.close()
    assert not cluster.alive
    with pytest.raises(ClosedError):
        cluster.start()


def test_a_cluster_that_was_not_started_says_so() -> None:
    cluster = EmbeddedCluster()
    with pytest.raises(ClosedError, match="not started"):
        _ = cluster.bootstrap_servers
    cluster.close()


def test_starting_twice_is_once() -> None:
    with EmbeddedCluster() as cluster:
        bootstrap = cluster.bootstrap_servers
        assert cluster.start().bootstrap_servers == bootstrap


@pytest.mark.parametrize("brokers", [0, -1])
def test_a_cluster_without_brokers_is_refused(brokers: int) -> None:
    with pytest.raises(ConfigError, match="brokers"):
        EmbeddedCluster(brokers)


def test_options_are_checked_when_the_cluster_is_made() -> None:
    with pytest.raises(ConfigError, match=r"did you mean num\.partitions"):
        EmbeddedCluster(processes=True, config={"num.partition": 1})
    with pytest.raises(ConfigError, match="profile"):
        EmbeddedCluster(profile="fast")


@MODES
def test_an_address_that_is_taken_is_an_error_that_names_it(processes: bool) -> None:
    before = set(threading.enumerate())  # other tests' brokers may be running in this process
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ClientError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use$"):
            EmbeddedCluster(processes=processes, port=port).start()
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("pyclient-broker")]


@MODES
def test_a_given_data_directory_stays(connect: Any, data_dir: str, processes: bool) -> None:
    with EmbeddedCluster(processes=processes, data_dir=data_dir) as cluster:
        first = connect(cluster).call(ASK, 2).cluster_id
    assert Path(data_dir, "meta.properties").exists()
    with EmbeddedCluster(processes=processes, data_dir=data_dir) as cluster:
        assert connect(cluster).call(ASK, 2).cluster_id == first


def test_a_data_directory_belongs_to_one_cluster_at_a_time(data_dir: str) -> None:
    with (
        EmbeddedCluster(data_dir=data_dir),
        pytest.raises(ConfigError, match="data"),
        EmbeddedCluster(data_dir=data_dir),
    ):
        pass


def test_a_data_directory_belongs_to_its_node(data_dir: str) -> None:
    with EmbeddedCluster(data_dir=data_dir):
        pass
    with pytest.raises(ConfigError, match=r"node"):
        EmbeddedCluster(data_dir=data_dir, config={"node.id": 7}).start()


@MODES
def test_a_killed_broker_comes_back_on_its_port(connect: Any, processes: bool) -> None:
    with EmbeddedCluster(processes=processes) as cluster:
        client = connect(cluster)
        bootstrap = cluster.bootstrap_servers
        cluster.kill()
        assert client.is_closed()
        assert not cluster.alive
        cluster.start()
        assert cluster.bootstrap_servers == bootstrap
        assert connect(cluster).call(ASK, 1).controller_id == 1
        cluster.restart()
        assert cluster.bootstrap_servers == bootstrap
        assert connect(cluster).call(ASK, 1).controller_id == 1


def test_a_process_that_crashes_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(processes=True) as cluster:
        pid = cluster.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(lambda: caplog.records)
        assert not cluster.alive
    [record] = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert f"process {pid} ended by itself with status -9" in record.getMessage()


def test_kill_of_a_node_ends_its_process_by_sigkill(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    with EmbeddedCluster(processes=True) as cluster:
        cluster.kill(1)
        [killed] = started
        assert killed.returncode == -signal.SIGKILL
        cluster.start(1)
        cluster.stop(1)
        assert started[1].returncode == 0


def test_kill_ends_a_process_that_answers_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedCluster(processes=True) as cluster:
        assert cluster.pid is not None
        os.kill(cluster.pid, signal.SIGSTOP)
        if hasattr(os, "waitid"):  # not on macOS
            os.waitid(os.P_PID, cluster.pid, os.WSTOPPED | os.WNOWAIT)
        monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.1)
        cluster.kill(1)
        assert not cluster.alive
    assert "did not answer before its end" in caplog.text


def test_start_after_a_crash_closes_what_is_left_of_the_process() -> None:
    with EmbeddedCluster(processes=True) as cluster:
        assert cluster.pid is not None
        os.kill(cluster.pid, signal.SIGKILL)
        until(lambda: not cluster.alive)
        gc.collect()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            cluster.start()
            gc.collect()
        assert cluster.alive
    assert not [warning for warning in caught if "unclosed" in str(warning.message)]


def test_an_unclosed_cluster_warns_and_ends() -> None:
    cluster = EmbeddedCluster().start()
    directory = cluster.data_dir
    with pytest.warns(ResourceWarning, match="never closed"):
        del cluster
        gc.collect()
    assert not Path(directory).exists()


def test_an_unclosed_cluster_ends_whatever_is_collected_first() -> None:
    with loop_threads_first("pyclient.net.loop_thread"):
        cluster = EmbeddedCluster().start()
        directory = cluster.data_dir
        with pytest.warns(ResourceWarning, match="never closed"):
            del cluster
            gc.collect()
        assert not Path(directory).exists()
        gc.collect()  # its listener is closed: else the socket would warn now


@pytest.mark.parametrize("brokers", [1, 3])
def test_an_unclosed_cluster_ends_if_the_thread_of_a_node_collects_it(brokers: int) -> None:
    gc.collect()
    before = set(threading.enumerate())
    cluster = EmbeddedCluster(brokers=brokers).start()
    directory, loop = cluster.data_dir, node_of(cluster).loop
    its_threads = set(threading.enumerate()) - before
    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match="never closed"):
            del cluster
            loop.call_soon_threadsafe(gc.collect)
            until(lambda: not Path(directory).exists())
    finally:
        gc.enable()
    until(lambda: not any(each.is_alive() for each in its_threads))
    gc.collect()  # its sockets are closed: else they would warn now


SWITCH_INTERVAL = """
import sys
from pyclient.broker_embedded import EmbeddedCluster
before = sys.getswitchinterval()
with EmbeddedCluster():
    assert sys.getswitchinterval() < before
    with EmbeddedCluster():
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() < before
assert sys.getswitchinterval() == before
with EmbeddedCluster(processes=True):
    assert sys.getswitchinterval() == before
"""


def test_the_switch_interval_is_low_only_while_a_broker_runs_in_a_thread() -> None:
    done = subprocess.run([sys.executable, "-c", SWITCH_INTERVAL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run_module(*arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pyclient.broker_embedded", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_foreground_broker_says_where_it_is_and_ends_on_a_signal(number: signal.Signals) -> None:
    with run_module("--port", "0", "--profile", "test", "--set", "num.partitions=2") as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("bootstrap.servers=127.0.0.1:")
        port = int(line.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port)).close()
        process.send_signal(number)
        out, error = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, b""), error


def test_the_foreground_broker_ends_with_its_parent_when_asked_to() -> None:
    with run_module("--port", "0", "--profile", "test", "--with-parent") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        process.stdin.close()
        assert process.wait(timeout=120) == 0
        process.stdin = None
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--set", "num.partition=1"), b"did you mean num.partitions"),
        (("--set", "num.partitions"), b"KEY=VALUE"),
        (("--port", "70000"), b"port is 70000"),
        (("--host", "203.0.113.7"), b"cannot listen on 203.0.113.7"),
    ],
)
def test_the_foreground_broker_says_what_is_wrong_and_fails(arguments: tuple[str, ...], expected: bytes) -> None:
    with run_module("--port", "0", *arguments) as process:
        out, error = process.communicate(timeout=120)
    assert process.returncode != 0
    assert out == b""
    assert expected in error
    assert b"Traceback" not in error


def test_open_cluster_is_closed_at_interpreter_exit(tmp_path: Path) -> None:
    code = (
        "from pyclient.broker_embedded import EmbeddedCluster\n"
        "for processes in (False, True):\n"
        "    globals()[f'c{processes}'] = EmbeddedCluster(processes=processes).start()\n"
        "    print(globals()[f'c{processes}'].data_dir)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=True)
    directories = done.stdout.decode().split()
    assert len(directories) == 2
    assert not any(Path(directory).exists() for directory in directories)


def test_broker_process_starts_from_a_process_with_many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    held: list[int] = []
    try:
        while not held or held[-1] < 1100:
            held.append(os.dup(0))
        with EmbeddedCluster(processes=True) as cluster:
            assert cluster.bootstrap_servers
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
