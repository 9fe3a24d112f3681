"""Storage that fails: what could not be written or synced is never taken for written later, nor by the next start."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.checkpoints import OF_PARTITIONS
from pyclient.broker_embedded.log.compaction.cleaner import Cleaner
from pyclient.broker_embedded.log.compaction.log_to_clean import plan_cleaning
from pyclient.broker_embedded.log.file_records import DamagedSegment
from pyclient.broker_embedded.log.incremental_task import run_here
from pyclient.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker_embedded.log.slow_disks import HeldFileSystem, NodeOnDisk
from tests.broker_embedded.log.test_full_disk_on_a_node import SmallFileSystem
from tests.broker_embedded.topics import create, end_of

MARK = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
SEGMENT = f"{0:020}.log"


def test_failed_sync_is_remembered_by_a_clean_close(fixture: Any, caplog: Any) -> None:
    manager = fixture.start()
    log = manager.create("t", fixture.topic_id, 0, fixture.config)
    fixture.append(log, b"a")
    log.flush()
    fixture.append(log, b"b")
    fixture.fs.sync_fails = True
    with pytest.raises(errors.KafkaStorageError):
        log.flush()
    fixture.fs.sync_fails = False  # as on Linux, where the next fsync succeeds although pages were dropped
    with pytest.raises(errors.KafkaStorageError, match="offline"):
        log.flush()
    manager.flush_checkpoints()
    assert (fixture.root / RECOVERY_POINTS).read_text() == "0\n1\nt 0 1\n"
    manager.close()
    assert "t-0 is offline, the next start checks it" in caplog.text
    assert not (fixture.root / MARK).exists()
    assert (fixture.root / RECOVERY_POINTS).read_text() == "0\n1\nt 0 1\n"
    segment = fixture.root / "t-0" / SEGMENT
    segment.write_bytes(segment.read_bytes()[:-1] + b"?")  # what the disk really has
    again = fixture.start()
    assert not again.was_clean
    assert fixture.values(again.get("t", 0)) == [b"a"]
    again.close()


def test_a_sync_that_succeeds_after_a_failed_one_moves_no_recovery_point(fixture: Any) -> None:
    log = fixture.open()
    pending: list[Any] = []
    log.flush_later = pending.append
    fixture.configure(flush_ms=0)
    log.config = fixture.config
    fixture.append(log, b"a")
    for _ in range(2):
        log.flush_if_due(fixture.now)
    log.fail("a flush failed: EIO")
    [later] = pending
    later.done()
    assert log.recovery_point == 0


def test_failed_metadata_log_leaves_no_clean_shutdown_mark(connect: Any, data_dir: str) -> None:
    fs = HeldFileSystem("__cluster_metadata-0")
    fs.gate.set()
    node = NodeOnDisk(data_dir, fs)
    client = connect(node)
    fs.fails = True
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    [made] = client.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert made.error_code != 0
    fs.fails = False
    node.stop()
    assert not Path(data_dir, MARK).exists()
    with EmbeddedCluster(data_dir=data_dir):
        pass
    assert Path(data_dir, MARK).exists()


def test_clean_close_on_a_full_disk_closes_everything(
    connect: Any, produce: Any, batch: Any, data_dir: str, caplog: Any
) -> None:
    node = NodeOnDisk(data_dir, SmallFileSystem())
    client = connect(node)
    create(client, "t", 3)
    for partition in range(3):
        assert produce(client, "t", batch(b"a"), partition=partition).error_code == 0
    node.fs.full = True
    node.stop()
    assert all(f"t-{partition}: closing it failed" in caplog.text for partition in range(3))
    assert not Path(data_dir, MARK).exists()
    with EmbeddedCluster(data_dir=data_dir) as cluster:  # the lock is free, too
        client = connect(cluster)
        assert [end_of(client, "t", partition) for partition in range(3)] == [(0, 1)] * 3


REPLACE = """
import resource, sys
from pyclient.broker_embedded.log.filesystem import RealFileSystem
resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))  # the write that reaches it is a short one
try:
    RealFileSystem().replace(sys.argv[1], b"new" * 100)
except OSError as error:
    print(error.errno)
"""


def test_partially_written_replacement_is_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", REPLACE, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "27"  # EFBIG
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint"]


def test_a_checkpoint_round_that_is_late_does_not_undo_a_newer_one(fixture: Any) -> None:
    """The disk thread writes a checkpoint from before the topic was recreated; the loop has written since."""
    manager = fixture.start()
    log = manager.create("t", fixture.topic_id, 0, fixture.config)
    for _ in range(3):
        fixture.append(log)
    log.flush()
    manager.flush_checkpoints()
    late = manager.checkpoint_steps()
    work = late.send(None)
    while work is None:
        work = late.send(None)
    manager.delete_topic("t", fixture.topic_id)
    manager.create("t", uuid.UUID(int=99), 0, fixture.config)
    newer = (fixture.root / RECOVERY_POINTS).read_text()
    work.work()
    assert (fixture.root / RECOVERY_POINTS).read_text() == newer == "0\n0\n"
    manager.close()


def test_deleted_partitions_stay_in_memory_until_next_checkpoint_only(fixture: Any) -> None:
    manager = fixture.start()
    for partition in range(3):
        log = manager.create("t", fixture.topic_id, partition, fixture.config)
        fixture.append(log)
        log.flush()
        log.cleaned_to = 1
    manager.flush_checkpoints()
    [home] = manager.directories.online
    late = manager.checkpoint_steps()
    work = late.send(None)
    while work is None:
        work = late.send(None)
    manager.delete_topic("t", fixture.topic_id)
    work.work()
    assert late.send(None) is not None
    assert [home.has_forgotten(name) for name in OF_PARTITIONS] == [True, True, False, True]
    late.close()
    assert (fixture.root / RECOVERY_POINTS).read_text().count("\nt ") == 3  # begun before the topic was deleted
    manager.flush_checkpoints()
    assert not any(home.has_forgotten(name) for name in OF_PARTITIONS)
    assert not any("\nt " in (fixture.root / name).read_text() for name in OF_PARTITIONS)
    manager.close()


@pytest.mark.parametrize("synced_off_the_loop", [False, True])
def test_new_partition_directory_is_durable_before_its_first_record(fixture: Any, synced_off_the_loop: bool) -> None:
    fixture.configure(flush_messages=1)
    fixture.fs.durable = synced_off_the_loop
    manager = fixture.start()
    for partition in (0, 1):
        fixture.fs.synced_directories.clear()
        log = manager.create("t", fixture.topic_id, partition, fixture.config)
        fixture.append(log, b"a")
        manager.disk_thread.wait_until_idle()
        assert log.high_watermark == 1
        assert {str(fixture.root), log.directory} <= set(fixture.fs.synced_directories)
        fixture.fs.synced_directories.clear()
        fixture.append(log, b"b")
        manager.disk_thread.wait_until_idle()
        assert set(fixture.fs.synced_directories) == {log.directory}
    manager.close()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_base_offset_breaks_no_more_than_its_batch(new_fixture: Any, number: int) -> None:
    for bit in range(64):
        fixture = new_fixture()
        fixture.configure(index_interval_bytes=0)
        log = fixture.open()
        places = []
        for value in (b"a", b"b", b"c"):
            places.append(log.size)
            fixture.append(log, value)
        log.close()
        path = Path(fixture.directory, SEGMENT)
        content = bytearray(path.read_bytes())
        content[places[number] + bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        log = fixture.open()
        with contextlib.suppress(errors.KafkaError):  # of the damaged batch
            assert fixture.values(log)[:number] == [b"a", b"b", b"c"][:number]
        fixture.append(log, b"d")
        assert log.high_watermark == log.end_offset
        log.close()
        fixture.close()


def test_compaction_of_a_file_that_became_shorter_ends(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",))
    log = fixture.open()
    for value in (b"1", b"2"):
        fixture.append(log, value, key=b"k")
    log.roll()
    fixture.append(log, b"3", key=b"k")
    path = Path(fixture.directory, SEGMENT)
    path.write_bytes(path.read_bytes()[:71])  # the first batch
    plan = plan_cleaning(list(log.segments), log.config, first_dirty=0, limit=2, now_ms=fixture.now)
    cleaning = Cleaner(log, plan, fs=fixture.fs, most_keys=100, now_ms=fixture.now)
    with pytest.raises(DamagedSegment, match=r"ends \d+ bytes early"):
        run_here(cleaning.steps())


@pytest.mark.parametrize("how", ["retention", "restart"])
def test_a_producer_is_forgotten_after_producer_id_expiration_ms(
    connect: Any, produce: Any, batch: Any, data_dir: str, how: str
) -> None:
    with EmbeddedCluster(data_dir=data_dir, config={"producer.id.expiration.ms": 60_000}) as cluster:
        client = connect(cluster)
        create(client, "t")
        now = int(time.time() * 1000)
        first = batch(b"a", producer_id=4, producer_epoch=0, base_sequence=0, timestamp_ms=now)
        later = batch(b"b", producer_id=4, producer_epoch=0, base_sequence=7, timestamp_ms=now)
        assert produce(client, "t", first).error_code == 0
        for seconds, code in ((30, errors.OutOfOrderSequenceNumber.code), (31, 0)):
            cluster.advance_time(seconds)
            if how == "retention":
                cluster.retention_now()
            else:
                cluster.restart()
                client = connect(cluster)
            assert produce(client, "t", later).error_code == code
