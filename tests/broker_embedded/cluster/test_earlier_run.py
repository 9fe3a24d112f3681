"""The start of a cluster whose directories or ports an earlier run still has."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.earlier_run import start_after_earlier_run
from pyclient.broker_embedded.log.data_directory import LOCK
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.errors import ConfigError
from pyclient.net.latch import Latch
from tests.free_ports import first_of_free_ports
from tests.waiting import PATIENCE, until


@pytest.fixture
def port() -> int:
    return first_of_free_ports(2)


@pytest.fixture
def cluster(tmp_path: Path, port: int) -> Iterator[EmbeddedCluster]:
    """Yield a cluster that has not started, on the data and ports of an earlier one."""
    EmbeddedCluster(2, data_dir=tmp_path, port=port).start().close()
    made = EmbeddedCluster(2, data_dir=tmp_path, port=port)
    yield made
    made.close()


def test_start_waits_for_a_node_of_an_earlier_run(
    cluster: EmbeddedCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = RealFileSystem().lock(str(tmp_path / "node-2" / LOCK))
    with ThreadPoolExecutor(1) as pool:
        start = pool.submit(start_after_earlier_run, cluster, Latch(), directory_seconds=PATIENCE)
        until(lambda: "for nodes of an earlier run to end" in caplog.text)
        assert not start.done()
        lock.release()
        assert start.result(PATIENCE)
    assert cluster.alive


def test_start_fails_on_a_directory_that_stays_in_use(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lock = RealFileSystem().lock(str(tmp_path / "node-2" / LOCK))
    with pytest.raises(ConfigError, match="node-2: in use by another broker, also after 0 s"):
        start_after_earlier_run(cluster, Latch(), directory_seconds=0.0)
    lock.release()
    assert start_after_earlier_run(cluster, Latch())


def test_start_tries_a_port_of_an_earlier_run_again(
    cluster: EmbeddedCluster, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with socket.create_server(("127.0.0.1", port)):
            start = pool.submit(start_after_earlier_run, cluster, Latch(), port_seconds=PATIENCE)
            until(lambda: "Address already in use: trying again" in caplog.text)
        assert start.result(PATIENCE)
    assert cluster.alive


def test_start_fails_at_once_on_a_port_of_another_program(
    tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A new directory has no earlier run."""
    with (
        closing(EmbeddedCluster(2, data_dir=tmp_path, port=port)) as cluster,
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(ConfigError, match="Address already in use"),
    ):
        start_after_earlier_run(cluster, Latch(), port_seconds=PATIENCE)
    assert "trying again" not in caplog.text


def test_signal_ends_the_wait_for_an_earlier_run(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lock = RealFileSystem().lock(str(tmp_path / "node-1" / LOCK))
    stopping = Latch()
    stopping.open()
    assert not start_after_earlier_run(cluster, stopping)
    assert not cluster.alive
    lock.release()
