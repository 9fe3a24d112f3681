"""A bit flips in the metadata log of one of three controllers: the others go on, and it gets the metadata from them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller.metadata_recovery import DamagedMetadataLog
from tests.broker_embedded.test_data_directories import tree
from tests.reading import read_all
from tests.waiting import until

METADATA = "__cluster_metadata-0"
PYCLIENT = [sys.executable, "-c", "from pyclient.cli import main; main()"]


def recover(directory: Path) -> None:
    command = [*PYCLIENT, "recover-metadata", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def remove(directory: Path) -> None:
    shutil.rmtree(directory / METADATA)


def add(cluster: EmbeddedCluster, topic: str) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 1, 3)])
    send(cluster, topic)


def send(cluster: EmbeddedCluster, topic: str) -> None:
    with Producer(cluster.bootstrap_servers, delivery_timeout_ms=60_000, request_timeout_ms=5_000) as producer:
        producer.send(topic, topic.encode()).result(60)


def read(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in read_all(cluster.bootstrap_servers, topic)]


def flip(path: Path, text: bytes) -> None:
    """Flip a bit of a record that has `text`."""
    content = bytearray(path.read_bytes())
    position = content.index(text)
    assert position < len(content) - 200, "other batches follow it"
    content[position] ^= 1
    path.write_bytes(content)


def log_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((directory / METADATA).glob("*.log")))


@pytest.mark.parametrize("is_active", [True, False], ids=["active", "follower"])
@pytest.mark.parametrize("repair", [recover, remove])
def test_damaged_voter_follows_the_leader_again(
    tmp_path: Path, repair: Callable[[Path], None], is_active: bool
) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path, config={"broker.session.timeout.ms": 6000}) as cluster:
        for topic in ("first", "second"):
            add(cluster, topic)
            cluster.wait_isr(topic, 0, 3)
        active = until(lambda: cluster.controller_id, "no controller is active")
        damaged = active if is_active else next(node for node in (1, 2, 3) if node != active)
        assert damaged is not None
        directory = tmp_path / f"node-{damaged}"
        cluster.kill(damaged)
        flip(directory / METADATA / f"{0:020}.log", b"first")
        before = tree(directory)
        add(cluster, "third")
        with pytest.raises(DamagedMetadataLog, match=r"is damaged at byte \d+: .* Nothing was changed\. "):
            cluster.start(damaged)
        assert tree(directory) == before
        send(cluster, "first")
        repair(directory)
        cluster.start(damaged)
        for topic in ("first", "second", "third"):
            assert sorted(cluster.wait_isr(topic, 0, 3)) == [1, 2, 3]
        other = next(node for node in (1, 2, 3) if node not in (damaged, cluster.controller_id))
        cluster.kill(other)  # from now on nothing is decided without the controller that was damaged
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("fourth", 1, 3)])
        cluster.start(other)
        send(cluster, "fourth")
        assert [read(cluster, topic) for topic in ("first", "second", "third", "fourth")] == [
            [b"first"] * 2,
            [b"second"],
            [b"third"],
            [b"fourth"],
        ]
        assert not list(directory.glob("*-stray"))
        until(lambda: len({log_of(tmp_path / f"node-{node}") for node in (1, 2, 3)}) == 1, "the metadata logs differ")
