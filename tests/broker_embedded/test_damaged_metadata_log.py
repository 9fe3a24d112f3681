"""A damaged metadata log: damage that a crash explains is dropped, any other prevents a start and changes nothing."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.broker import BrokerNode
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.controller.image import MetadataImage
from pyclient.broker_embedded.controller.metadata_log import MetadataLog
from pyclient.broker_embedded.controller.metadata_recovery import DamagedMetadataLog
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.clock import SYSTEM_CLOCK
from pyclient.net.loop_thread import LoopThread
from pyclient.protocol.messages.metadata_log import TopicRecord
from pyclient.records import iter_batches
from tests.broker_embedded.test_data_directories import tree
from tests.broker_embedded.topics import create, end_of

FS = RealFileSystem(durable=False)
SEGMENT = f"__cluster_metadata-0/{0:020}.log"
MARK = ".kafka_cleanshutdown"
NAMES = ("first", "second", "third")


def opened(root: Path, image: MetadataImage, *, clean: bool) -> MetadataLog:
    return MetadataLog.open(str(root), image, fs=FS, clock=SYSTEM_CLOCK, node_id=1, clean=clean)


def topics_of(root: Path, *, clean: bool) -> list[str]:
    image = MetadataImage()
    opened(root, image, clean=clean).close(clean=False)
    return list(image.topics)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a metadata log with a batch for each of the topics."""
    directory = tmp_path / "whole"
    directory.mkdir()
    log = opened(directory, MetadataImage(), clean=True)
    for name in NAMES:
        log.append([TopicRecord(name=name, topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, name))])
    log.close()
    return directory


@pytest.fixture
def damaged(root: Path, tmp_path: Path) -> Iterator[Callable[[bytes], Path]]:
    """Return a function that copies the directory with other content of the log."""
    copy = tmp_path / "damaged"

    def make(content: bytes) -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(root, copy)
        (copy / SEGMENT).write_bytes(content)
        return copy

    yield make


def test_flipped_bit_never_removes_topic(root: Path, damaged: Callable[[bytes], Path]) -> None:
    """Only a lower leader epoch of the first batch is not detected: nothing depends on it."""
    whole = (root / SEGMENT).read_bytes()
    rng = random.Random(1)
    for position in range(len(whole)):
        content = bytearray(whole)
        content[position] ^= 1 << rng.randrange(8)
        for clean in (False, True):
            directory = damaged(bytes(content))
            before = tree(directory)
            try:
                assert topics_of(directory, clean=clean) == list(NAMES)
                assert 12 <= position < 16, position
            except DamagedMetadataLog as error:
                assert (error.path, error.position) == (str(directory / SEGMENT), error.position)
                assert error.position <= position
                assert f"damaged at byte {error.position}" in str(error)
                assert tree(directory) == before


def test_torn_last_batch_is_dropped_after_crash(root: Path, damaged: Callable[[bytes], Path]) -> None:
    whole = (root / SEGMENT).read_bytes()
    last = [position for position, _ in iter_batches(whole)][-1]
    for end in range(last, len(whole)):
        assert topics_of(damaged(whole[:end]), clean=False) == ["first", "second"]
        if end > last:
            with pytest.raises(DamagedMetadataLog):
                topics_of(damaged(whole[:end]), clean=True)


@pytest.mark.parametrize("zeros", [512, 1000, 5000])
def test_unwritten_sectors_are_dropped_after_crash(root: Path, damaged: Callable[[bytes], Path], zeros: int) -> None:
    whole = (root / SEGMENT).read_bytes()
    directory = damaged(whole + bytes(zeros))
    assert topics_of(directory, clean=False) == list(NAMES)
    with pytest.raises(DamagedMetadataLog):
        topics_of(damaged(whole + bytes(zeros)), clean=True)
    log = opened(directory, MetadataImage(), clean=False)
    log.append([TopicRecord(name="large" * 40, topic_id=uuid.UUID(int=i)) for i in range(20)])
    log.close(clean=False)
    content = (directory / SEGMENT).read_bytes()
    position = [at for at, _ in iter_batches(content)][-1]
    sector = -(-(position + 61) // 512) * 512
    quorum = (directory / "__cluster_metadata-0" / "quorum-state").read_bytes()  # of the second start
    torn = damaged(content[:sector] + bytes(len(content) - sector))
    (torn / "__cluster_metadata-0" / "quorum-state").write_bytes(quorum)
    assert topics_of(torn, clean=False) == list(NAMES)


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b"7", b'{"leaderEpoch":"x"}', b'{"leaderEpoch":99999999999}', b"\xff"]
)
def test_damaged_quorum_state_is_reported_and_changes_nothing(tmp_path: Path, content: bytes) -> None:
    with EmbeddedCluster(data_dir=tmp_path):
        pass
    path = tmp_path / "__cluster_metadata-0" / "quorum-state"
    path.write_bytes(content)
    before = tree(tmp_path)
    for _ in range(2):
        with pytest.raises(errors.ConfigError, match=r"quorum-state cannot be read"):
            EmbeddedCluster(data_dir=tmp_path).start()
        assert tree(tmp_path) == before


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_damaged_metadata_log_prevents_start_and_changes_nothing(
    connect: Any, produce: Any, batch: Any, tmp_path: Path, end: str
) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        client = connect(cluster)
        create(client, "t")
        assert produce(client, "t", batch(b"a")).error_code == 0
        cluster.brokers[0].stop() if end == "stopped" else cluster.kill()
        assert (tmp_path / MARK).exists() is (end == "stopped")
        flip(tmp_path / SEGMENT, 80)
        before = tree(tmp_path)
        for _ in range(3):
            with pytest.raises(DamagedMetadataLog, match=r"damaged at byte 0: .*pyclient recover-metadata"):
                cluster.start()
            assert tree(tmp_path) == before
        flip(tmp_path / SEGMENT, 80)
        cluster.start()
        assert end_of(connect(cluster), "t") == (0, 1)


def test_failed_start_keeps_clean_shutdown_file(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path):
        pass
    thread = LoopThread("node")
    thread.start()
    config = BrokerConfig.build(None, data_dir=str(tmp_path), host="127.0.0.1", port=0, profile="test")

    class Late(BrokerNode):
        def _load_groups(self) -> None:
            raise RuntimeError("late")

    async def start() -> None:
        await Late(config, loop=thread.loop).start()

    try:
        with pytest.raises(RuntimeError, match="late"):
            thread.run(start, timeout=30)
    finally:
        thread.stop(30)
    assert (tmp_path / MARK).exists()
    with EmbeddedCluster(data_dir=tmp_path):
        pass


PYCLIENT = [sys.executable, "-c", "from pyclient.cli import main; main()"]


def recover(root: Path) -> subprocess.CompletedProcess[str]:
    command = [*PYCLIENT, "recover-metadata", str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_recover_metadata_truncates_log_and_keeps_removed_bytes(
    connect: Any, produce: Any, batch: Any, tmp_path: Path
) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as cluster:
        client = connect(cluster)
        for name in NAMES:
            create(client, name)
            assert produce(client, name, batch(b"a")).error_code == 0
        assert "is in use by a broker" in recover(tmp_path).stderr
        cluster.brokers[0].stop()
        assert "nothing was changed" in recover(tmp_path).stdout
        whole = (tmp_path / SEGMENT).read_bytes()
        at = whole.index(b"second")
        flip(tmp_path / SEGMENT, at)
        damaged = (tmp_path / SEGMENT).read_bytes()
        logs = {name: tree(tmp_path / f"{name}-0") for name in NAMES}
        done = recover(tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "1 topics are left: first" in done.stdout
        [kept] = tmp_path.glob(f"{SEGMENT}.cut-at-*")
        assert str(kept) in done.stdout
        assert (tmp_path / SEGMENT).read_bytes() + kept.read_bytes() == damaged
        cluster.start()
        client = connect(cluster)
        assert end_of(client, "first") == (0, 1)
        create(client, "second")
        assert produce(client, "second", batch(b"b")).base_offset == 0
        for name in NAMES[1:]:
            [stray] = tmp_path.glob(f"{name}-0.*-stray")
            assert tree(stray) == logs[name]
    refused = recover(tmp_path / "__cluster_metadata-0")
    assert refused.returncode == 1
    assert "has no meta.properties" in refused.stderr
