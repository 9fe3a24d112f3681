"""Minimal cases of bugs that `make torture` found: damage and failing disks that cost more than they had to."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.log.slow_disks import HeldFileSystem, NodeOnDisk
from tests.broker_embedded.test_data_directories import end_of

SEGMENT = f"{0:020}.log"


@pytest.mark.parametrize("max_bytes", [1, 100, 160, 1 << 20])
def test_batches_in_front_of_damage_can_be_read(fixture: Any, max_bytes: int) -> None:
    fixture.configure(index_interval_bytes=1)
    log = fixture.open()
    for value in (b"a", b"b", b"c"):
        fixture.append(log, value)
    log.roll()
    fixture.append(log, b"d")
    log.close()
    path = Path(fixture.directory, SEGMENT)
    path.write_bytes(path.read_bytes() + bytes(100))
    log = fixture.open()
    for offset, value in enumerate((b"a", b"b", b"c")):
        data = log.read_bytes(offset, max_bytes)
        assert value in data[:71], (offset, data)


def test_an_index_that_could_not_be_read_once_is_read_again(fixture: Any) -> None:
    fixture.configure(index_interval_bytes=1)
    log = fixture.open()
    for time in range(3):
        fixture.append(log, b"a", timestamp_ms=fixture.now + time)
    log.roll()
    fixture.append(log, b"d", timestamp_ms=fixture.now + 3)
    log.close()
    log = fixture.open()
    read = fixture.fs.read

    def fails(path: str) -> bytes | None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    fixture.fs.read = fails
    with pytest.raises(OSError, match="Input/output"):
        log.offset_for_timestamp(fixture.now + 1)
    fixture.fs.read = read
    assert log.offset_for_timestamp(fixture.now + 1).offset == 1


def test_offline_log_is_not_compacted_and_reports_it(fixture: Any) -> None:
    fixture.configure(cleanup_policy=("compact",))
    manager = fixture.start()
    log = manager.create("t", fixture.topic_id, 0, fixture.config)
    for value in (b"1", b"2"):
        fixture.append(log, value, key=b"k")
        log.roll()
    fixture.fs.renames_left = 3
    for _ in range(2):  # the rename that fails, and the next try
        with pytest.raises((errors.KafkaStorageError, OSError)):
            manager.compact_now()
    assert log.failure is not None
    manager.close()


def test_record_of_a_topic_whose_creation_was_not_synced_is_not_acked(
    connect: Any, produce: Any, batch: Any, data_dir: str
) -> None:
    """The record is on the disk, and its topic is not: it would be lost with it."""
    fs = HeldFileSystem("__cluster_metadata-0")
    fs.gate.set()
    node = NodeOnDisk(data_dir, fs)
    client = connect(node)
    fs.fails = True
    flush = [CreatableTopicConfig(name="flush.messages", value="1")]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=flush)
    [made] = client.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert made.error_code == errors.KafkaStorageError.code
    answer = produce(client, "t", batch(b"a"))
    assert (answer.error_code, answer.base_offset) == (errors.KafkaStorageError.code, -1)
    fs.fails = False
    node.stop(clean=False)


def test_a_record_of_a_topic_whose_creation_is_synced_is_acknowledged(
    connect: Any, produce: Any, batch: Any, data_dir: str
) -> None:
    fs = HeldFileSystem("__cluster_metadata-0")
    fs.gate.set()
    node = NodeOnDisk(data_dir, fs)
    client = connect(node)
    flush = [CreatableTopicConfig(name="flush.messages", value="1")]
    for name in ("t", "u"):
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=flush)
        [made] = client.call(CreateTopicsRequest(topics=[topic]), 7).topics
        assert made.error_code == 0
    assert produce(client, "t", batch(b"a")).base_offset == 0
    fs.fails = True
    topic = CreatableTopic(name="v", num_partitions=1, replication_factor=1, assignments=[], configs=flush)
    [made] = client.call(CreateTopicsRequest(topics=[topic]), 7).topics
    assert made.error_code == errors.KafkaStorageError.code
    assert produce(client, "u", batch(b"b")).base_offset == 0  # of this one the disk knows
    fs.fails = False
    node.stop()
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        assert [end_of(connect(cluster), name) for name in ("t", "u")] == [(0, 1)] * 2


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_start_in_a_checkpoint_does_not_drop_a_log(fixture: Any, clean: bool) -> None:
    manager = fixture.start()
    log = manager.create("t", fixture.topic_id, 0, fixture.config)
    for value in (b"a", b"b", b"c"):
        fixture.append(log, value)
    log.delete_records_before(1)
    manager.flush_checkpoints()
    manager.close(clean=clean)
    path = fixture.root / "log-start-offset-checkpoint"
    for start, values in (("9", [b"a", b"b", b"c"]), ("1", [b"b", b"c"])):
        path.write_text(f"0\n1\nt 0 {start}\n")
        again = fixture.start()
        assert fixture.values(again.get("t", 0)) == values
        again.close(clean=False)


def test_start_that_cannot_sync_the_metadata_log_is_not_clean(connect: Any, data_dir: str) -> None:
    fs = HeldFileSystem("__cluster_metadata-0")
    fs.gate.set()
    fs.fails = True
    with pytest.raises(errors.KafkaStorageError):
        NodeOnDisk(data_dir, fs)
    assert not Path(data_dir, ".kafka_cleanshutdown").exists()
    path = Path(data_dir, "__cluster_metadata-0", SEGMENT)
    path.write_bytes(bytes(path.stat().st_size))  # what the disk has
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        assert connect(cluster).call(MetadataRequest(topics=[]), 1).controller_id == 1
