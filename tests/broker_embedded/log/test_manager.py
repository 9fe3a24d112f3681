"""The logs of a data directory: found, opened, made, deleted, checkpointed; and whose directory it is."""

from __future__ import annotations

import os
import random
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.types import TopicPartition

ID = uuid.UUID(int=9)


def opened(fixture: Any, **options: Any) -> Any:
    """Return a manager that is open."""
    return fixture.start(**options)


def made(fixture: Any, manager: Any, topic: str = "t", partition: int = 0, topic_id: uuid.UUID = ID) -> Any:
    """Return a log with one record."""
    log = manager.create(topic, topic_id, partition, fixture.config)
    fixture.append(log, b"%s-%d" % (topic.encode(), partition))
    return log


def reopened(fixture: Any) -> Any:
    """Return a manager that is open again after one that made a log was closed."""
    manager = opened(fixture)
    made(fixture, manager)
    manager.close()
    return opened(fixture)


def test_logs_are_found_again_after_a_clean_stop(fixture: Any) -> None:
    manager = opened(fixture)
    assert (manager.was_clean, manager.get("t", 0), manager.logs) == (True, None, [])
    for partition in (0, 1):
        made(fixture, manager, "with-dash", partition)
    manager.close()
    again = opened(fixture)
    assert again.was_clean
    log = again.get("with-dash", 1)
    assert (log.topic, log.partition, log.topic_id, fixture.values(log)) == ("with-dash", 1, ID, [b"with-dash-1"])
    assert again.get("with-dash", 1) is log
    assert len(again.logs) == 2
    again.close()


def torn(fixture: Any) -> tuple[Any, Path]:
    """Return a log with a torn batch after its record, of a manager that was killed; and the file."""
    manager = opened(fixture)
    log = made(fixture, manager)
    manager.close(clean=False)
    path = Path(log.directory, f"{0:020}.log")
    path.write_bytes(path.read_bytes() + b"torn")
    return log, path


def test_logs_are_recovered_after_a_crash(fixture: Any) -> None:
    log, path = torn(fixture)
    again = opened(fixture)
    assert not again.was_clean
    assert (again.get("t", 0).end_offset, path.stat().st_size) == (1, log.size)
    again.close()
    assert opened(fixture).was_clean


def test_log_that_was_not_recovered_is_recovered_by_the_next_start(fixture: Any) -> None:
    torn(fixture)
    opened(fixture).close()
    again = opened(fixture)
    assert not again.was_clean
    assert again.get("t", 0).end_offset == 1
    again.close()


def test_starting_reads_no_log(fixture: Any) -> None:
    manager = opened(fixture)
    for partition in range(20):
        made(fixture, manager, partition=partition)
    manager.close()
    fixture.fs.bytes_read = 0
    again = opened(fixture)
    assert fixture.fs.bytes_read < 500
    again.topic_id_for = lambda _partition: ID
    again.reconcile({ID: "t"}, ())
    assert fixture.fs.bytes_read < 500
    assert repr(again).endswith("open=0 unopened=20>")
    again.close()


def test_checkpoints_hold_what_the_next_start_needs(fixture: Any) -> None:
    manager = opened(fixture)
    log = made(fixture, manager)
    for _ in range(3):
        fixture.append(log)
    log.flush()
    fixture.append(log)
    log.delete_records_before(2)
    manager.flush_checkpoints()
    texts = {path.name: path.read_text() for path in fixture.root.glob("*checkpoint")}
    assert texts == {
        "recovery-point-offset-checkpoint": "0\n1\nt 0 4\n",
        "replication-offset-checkpoint": "0\n1\nt 0 5\n",
        "log-start-offset-checkpoint": "0\n1\nt 0 2\n",
    }
    manager.close(clean=False)
    again = opened(fixture)
    log = again.get("t", 0)
    assert (log.start_offset, log.end_offset, log.recovery_point) == (2, 5, 4)
    assert again.checkpointed_high_watermark("t", 0) == 5
    assert again.checkpointed_high_watermark("t", 1) == 0
    again.close()


@pytest.mark.parametrize("content", [b"", b"0\n5\n", b"\xff\xfe", b"0\n1\nt 0 nonsense\n"])
def test_invalid_checkpoints_are_ignored(fixture: Any, content: bytes) -> None:
    manager = opened(fixture)
    made(fixture, manager)
    manager.close(clean=False)
    for name in ("recovery-point-offset", "replication-offset", "log-start-offset"):
        (fixture.root / f"{name}-checkpoint").write_bytes(content)
    again = opened(fixture)
    assert fixture.values(again.get("t", 0)) == [b"t-0"]
    again.close()


def test_the_checkpoints_of_logs_that_were_not_opened_stay(fixture: Any) -> None:
    manager = opened(fixture)
    for partition in (0, 1):
        made(fixture, manager, partition=partition)
    manager.close()
    again = opened(fixture)
    again.get("t", 1)
    again.close()
    assert "t 0 1\n" in (fixture.root / "recovery-point-offset-checkpoint").read_text()


def test_a_deleted_topic_leaves_its_name_at_once_and_the_disk_later(fixture: Any) -> None:
    fixture.configure(file_delete_delay_ms=1000)
    manager = opened(fixture, defaults=fixture.config, rng=random.Random(1))
    for topic in ("gone", "kept"):
        made(fixture, manager, topic)
    read = manager.get("gone", 0).read(0, 1000)
    manager.delete_topic("gone", ID)
    assert manager.get("gone", 0) is None
    [deleted] = [name for name in os.listdir(fixture.root) if name.startswith("gone")]
    assert deleted.startswith("gone-0.")
    assert deleted.endswith("-delete")
    assert len(deleted) == len("gone-0.-delete") + 32
    assert b"gone-0" in read.parts[0].read()
    read.parts[0].release()
    assert made(fixture, manager, "gone", topic_id=uuid.UUID(int=10)).end_offset == 1
    manager.remove_deleted(fixture.now + 999)
    assert deleted in os.listdir(fixture.root)
    manager.remove_deleted(fixture.now + 1000)
    assert deleted not in os.listdir(fixture.root)
    manager.close()
    assert sorted(name for name in os.listdir(fixture.root) if "-" in name and "checkpoint" not in name) == [
        "gone-0",
        "kept-0",
    ]


def test_an_interrupted_deletion_is_finished_at_the_next_start(fixture: Any) -> None:
    fixture.configure(file_delete_delay_ms=10**9)
    manager = opened(fixture, defaults=fixture.config)
    made(fixture, manager, "a" * 249)
    manager.delete_topic("a" * 249, ID)
    manager.close(clean=False)
    assert [len(name) for name in os.listdir(fixture.root) if name.endswith("-delete")] == [255]
    again = opened(fixture)
    again.reconcile({}, ())
    again.remove_deleted(fixture.now)
    assert not [name for name in os.listdir(fixture.root) if name.endswith("-delete")]
    again.close()


def test_a_topic_that_was_never_opened_can_be_deleted(fixture: Any) -> None:
    again = reopened(fixture)
    again.delete_topic("t", ID)
    assert again.logs == []
    assert not (fixture.root / "t-0").exists()
    again.close()


def test_files_of_a_deleted_topic_do_not_come_back_under_its_name(fixture: Any) -> None:
    again = reopened(fixture)
    again.reconcile({}, {ID})
    log = again.create("t", uuid.UUID(int=10), 0, fixture.config)
    assert log.end_offset == 0
    fixture.append(log, b"new")
    assert fixture.values(log) == [b"new"]
    again.close()


@pytest.mark.parametrize("clean", [True, False])
def test_log_of_a_replaced_topic_is_renamed_to_stray(fixture: Any, clean: bool) -> None:
    """The metadata do not say that it was deleted: they come from a snapshot."""
    manager = opened(fixture)
    fixture.append(made(fixture, manager), b"old")
    manager.close(clean=clean)
    again = opened(fixture)
    new = uuid.UUID(int=10)
    again.topic_id_for = lambda _partition: new
    again.reconcile({new: "t"}, (), has_others=True)
    assert not again.offline
    log = again.create("t", new, 0, fixture.config)
    fixture.append(log, b"new")
    assert fixture.values(log) == [b"new"]
    [stray] = fixture.root.glob("t-0.*-stray")
    assert (stray / "partition.metadata").exists()
    again.close()


def test_log_that_has_the_id_of_another_topic_is_offline(fixture: Any) -> None:
    """The topic of its id exists: its directory was renamed."""
    manager = opened(fixture)
    fixture.append(made(fixture, manager), b"old")
    manager.close()
    again = opened(fixture)
    new = uuid.UUID(int=10)
    again.topic_id_for = lambda _partition: new
    again.reconcile({new: "t", ID: "u"}, (), has_others=True)
    assert list(again.offline) == [TopicPartition("t", 0)]
    again.close()


@pytest.mark.parametrize("deleted", ["while it runs", "while it was down"])
def test_checkpoints_of_a_deleted_topic_are_not_those_of_the_next_one(fixture: Any, deleted: str) -> None:
    """Not even if the node dies before it writes them again: records before the old start would be gone."""
    manager = opened(fixture)
    log = made(fixture, manager)
    fixture.append(log)
    log.flush()
    log.delete_records_before(2)
    manager.flush_checkpoints()
    if deleted == "while it runs":
        manager.delete_topic("t", ID)
    else:
        manager.close()
        manager = opened(fixture)
        manager.reconcile({}, {ID})
    log = manager.create("t", uuid.UUID(int=10), 0, fixture.config)
    assert (log.start_offset, log.recovery_point) == (0, 0)
    fixture.append(log, b"new")
    manager.close(clean=False)
    again = opened(fixture)
    log = again.get("t", 0)
    assert (log.start_offset, fixture.values(log)) == (0, [b"new"])
    assert again.checkpointed_high_watermark("t", 0) == 0
    again.close()


def test_a_topic_of_the_same_id_keeps_its_files(fixture: Any) -> None:
    again = reopened(fixture)
    assert again.create("t", ID, 0, fixture.config).end_offset == 1
    again.close()


def test_found_logs_get_their_configs(fixture: Any) -> None:
    again = reopened(fixture)
    wanted = fixture.configure(retention_ms=5)
    again.config_for = lambda topic: wanted
    assert again.get("t", 0).config is wanted
    again.close()


def test_retention_goes_over_all_logs_and_past_one_that_fails(fixture: Any, caplog: Any) -> None:
    fixture.configure(retention_ms=10)
    manager = opened(fixture, defaults=fixture.config)
    logs = [made(fixture, manager, partition=partition) for partition in range(3)]
    shutil.rmtree(logs[1].directory)
    assert manager.run_retention(fixture.now + 1000) == 2
    assert "t-1" in caplog.text
    assert [log.start_offset for log in logs] == [1, 0, 1]
    manager.close()


def test_one_directory_that_cannot_be_opened_does_not_stop_the_others(fixture: Any, caplog: Any) -> None:
    manager = opened(fixture)
    for partition in (0, 1):
        made(fixture, manager, partition=partition)
    manager.close()
    metadata = fixture.root / "t-0" / "partition.metadata"
    metadata.unlink()
    metadata.mkdir()
    again = opened(fixture)
    assert [log.partition for log in again.logs] == [1]
    assert "t-0" in caplog.text
    with pytest.raises(errors.KafkaStorageError):
        again.get("t", 0)
    again.close(clean=False)


def test_log_is_flushed_after_flush_ms(fixture: Any) -> None:
    fixture.configure(flush_ms=50)
    manager = opened(fixture)
    log = made(fixture, manager)
    for now in (0, 50):
        manager.flush_due(fixture.now + now)
    assert log.recovery_point == 1
    manager.close()


def test_closed_segments_are_synced_in_the_background(fixture: Any) -> None:
    manager = opened(fixture, fs=RealFileSystem())
    log = made(fixture, manager)
    for _ in range(3):
        log.roll()
        fixture.append(log)
    manager.close()
    assert log.recovery_point == 4
    again = opened(fixture, fs=RealFileSystem())
    log = again.get("t", 0)
    log.roll()
    again.disk_thread.close(wait=True)
    assert log.recovery_point == 4
    again.close()


def test_directory_is_used_by_one_manager_at_a_time(fixture: Any) -> None:
    manager = opened(fixture)
    with pytest.raises(errors.ConfigError, match="in use by another broker"):
        opened(fixture)
    manager.close()
    opened(fixture).close()


def test_a_directory_belongs_to_its_node_and_its_cluster(fixture: Any) -> None:
    manager = opened(fixture, node_id=3)
    cluster_id, directory_id = manager.directories.cluster_id, manager.directories.directory_id
    assert len(cluster_id) == 22
    manager.close()
    again = opened(fixture, node_id=3)
    assert (again.directories.cluster_id, again.directories.directory_id) == (cluster_id, directory_id)
    again.close()
    with pytest.raises(errors.ConfigError, match=r"node\.id 3, this broker has 4"):
        opened(fixture, node_id=4)
    with pytest.raises(errors.ConfigError, match=r"cluster\.id"):
        opened(fixture, node_id=3, cluster_id="another")
    opened(fixture, node_id=3, cluster_id=cluster_id).close()


def test_ids_come_from_the_random_generator(fixture: Any, new_fixture: Any) -> None:
    found = []
    for one in (fixture, new_fixture()):
        manager = opened(one, rng=random.Random(5))
        found.append((manager.directories.cluster_id, manager.directories.directory_id))
        manager.close()
    assert found[0] == found[1]
    with pytest.raises(RuntimeError, match="not open"):
        _ = fixture.manager().directories.cluster_id


def test_invalid_directory_id_is_reported(fixture: Any) -> None:
    (fixture.root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\ndirectory.id=%%\n")
    with pytest.raises(errors.ConfigError, match=r"directory\.id"):
        opened(fixture)
    (fixture.root / "meta.properties").unlink()
    opened(fixture).close()
