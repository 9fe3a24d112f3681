"""A start changes nothing in a data directory but what is certainly its own and dead."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyclient import errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.checkpoints import render_topic_id
from pyclient.protocol.messages.delete_topics import DeleteTopicsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker_embedded.topics import create, end_of

ENDS = pytest.mark.parametrize("end", ["stopped", "killed"])
HEX = "0123456789abcdef" * 2
SEGMENT = f"{0:020}.log"


def delete(client: Any, name: str) -> None:
    [answer] = client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5).responses
    assert answer.error_code == 0, answer


def tree(directory: Path) -> dict[str, bytes]:
    """Return every file below a directory, and what is in it."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def end_it(cluster: EmbeddedCluster, end: str) -> None:
    cluster.brokers[0].stop() if end == "stopped" else cluster.kill()


@ENDS
def test_directories_of_others_stay_as_they_are(connect: Any, data_dir: str, end: str, caplog: Any) -> None:
    names = ["photos-2019", "thesis-2", "notes-delete", f"x-3.{HEX[1:]}-delete", f"-delete.{HEX}-delete", "lost+found"]
    names += ["a b-1", "t-01", "t-x", "t-99999999999", f"t-0.{HEX}-stray", f"t-0.{HEX}-future", "empty-7", "..-1"]
    root = Path(data_dir)
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        create(connect(cluster), "t")
        end_it(cluster, end)
        for name in names:
            (root / name).mkdir()
            if name != "empty-7":
                (root / name / "mine.txt").write_text(name)
        (root / "file-0").write_bytes(b"")
        cluster.start()
        cluster.kill()
        cluster.start()
        cluster.advance_time(86_400)
        assert connect(cluster).call(MetadataRequest(topics=[]), 1).controller_id == 1
    for name in names:
        assert (root / name).is_dir(), name
        assert name == "empty-7" or (root / name / "mine.txt").read_text() == name
    assert sum("photos-2019 is no log of this broker" in message for message in caplog.messages) == 2


@ENDS
@pytest.mark.parametrize("has_metadata", [True, False])
def test_logs_of_unknown_partitions_are_set_aside_and_kept(
    connect: Any, produce: Any, batch: Any, data_dir: str, end: str, has_metadata: bool, caplog: Any
) -> None:
    root = Path(data_dir)
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        create(client, "known")
        assert produce(client, "known", batch(b"a")).error_code == 0
        end_it(cluster, end)
        stray = root / "unknown-3"
        stray.mkdir()
        (stray / SEGMENT).write_bytes((root / "known-0" / SEGMENT).read_bytes())
        if has_metadata:
            (stray / "partition.metadata").write_bytes(render_topic_id(uuid.UUID(int=77)))
        before = tree(stray)
        cluster.start()
        [kept] = root.glob("unknown-3*")
        assert kept.name.startswith("unknown-3.")
        assert kept.name.endswith("-stray")
        assert len(kept.name) == len("unknown-3.-stray") + 32
        assert tree(kept) == before
        assert [message.count("unknown-3") for message in caplog.messages if "is kept as" in message] == [3]
        client = connect(cluster)
        create(client, "unknown", 4)
        assert produce(client, "unknown", batch(b"b"), partition=3).base_offset == 0
        end_it(cluster, end)
        cluster.start()
        cluster.advance_time(86_400)
        assert end_of(connect(cluster), "known") == (0, 1)
    assert tree(kept) == before


def test_a_directory_that_is_not_empty_and_no_broker_s_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    (tmp_path / "t-0").mkdir()
    with pytest.raises(errors.ConfigError, match=r"letter\.txt.*no meta\.properties"):
        EmbeddedCluster(data_dir=tmp_path).start()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != ".lock") == ["letter.txt", "t-0"]


def test_a_file_system_s_own_directory_does_not_make_a_directory_refused(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    with EmbeddedCluster(data_dir=tmp_path):
        pass
    assert (tmp_path / "lost+found").is_dir()


def test_partition_in_a_directory_of_another_node_is_offline(
    connect: Any, produce: Any, batch: Any, data_dir: str
) -> None:
    photos = Path(data_dir, "photos-1")
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        photos.mkdir()
        (photos / "a.jpg").write_bytes(b"jpg")
        client = connect(cluster)
        create(client, "photos", 2)
        assert produce(client, "photos", batch(b"a"), partition=0).error_code == 0
        assert produce(client, "photos", batch(b"a"), partition=1).error_code == errors.KafkaStorageError.code
        cluster.restart()
        client = connect(cluster)
        assert end_of(client, "photos", 1)[0] == errors.KafkaStorageError.code
        assert tree(photos) == {"a.jpg": b"jpg"}
        cluster.kill()
        cluster.start()
        client = connect(cluster)
        assert end_of(client, "photos", 0) == (0, 1)
        assert end_of(client, "photos", 1)[0] == errors.KafkaStorageError.code
        delete(client, "photos")
        cluster.advance_time(86_400)
        cluster.restart()
    assert tree(photos) == {"a.jpg": b"jpg"}


def contradict(path: Path) -> None:
    path.write_bytes(render_topic_id(uuid.UUID(int=77)))


def make_unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


@ENDS
@pytest.mark.parametrize("damage", [contradict, make_unreadable])
def test_a_partition_whose_metadata_file_is_damaged_is_offline_and_kept(
    connect: Any, produce: Any, batch: Any, data_dir: str, end: str, damage: Callable[[Path], None]
) -> None:
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        topic_id = create(client, "t", 2).topic_id
        for partition in (0, 1):
            assert produce(client, "t", batch(b"a"), partition=partition).error_code == 0
        end_it(cluster, end)
        directory = Path(data_dir, "t-0")
        damage(directory / "partition.metadata")
        before = tree(directory)
        cluster.start()
        client = connect(cluster)
        assert end_of(client, "t", 1) == (0, 1)
        assert end_of(client, "t", 0)[0] == errors.KafkaStorageError.code
        assert produce(client, "t", batch(b"b")).error_code == errors.KafkaStorageError.code
        assert tree(directory) == before
        end_it(cluster, end)
        if (directory / "partition.metadata").is_dir():
            (directory / "partition.metadata").rmdir()
        (directory / "partition.metadata").write_bytes(render_topic_id(topic_id))
        cluster.start()
        client = connect(cluster)
        assert end_of(client, "t", 0) == (0, 1)
        assert produce(client, "t", batch(b"b")).base_offset == 1


@ENDS
def test_deleting_a_topic_leaves_a_directory_that_contradicts(
    connect: Any, produce: Any, batch: Any, data_dir: str, end: str
) -> None:
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        create(client, "t")
        produce(client, "t", batch(b"a"))
        end_it(cluster, end)
        contradict(Path(data_dir, "t-0", "partition.metadata"))
        before = tree(Path(data_dir, "t-0"))
        cluster.start()
        delete(connect(cluster), "t")
        cluster.advance_time(86_400)
        end_it(cluster, end)
        cluster.start()
        cluster.advance_time(86_400)
        assert connect(cluster).call(MetadataRequest(topics=[]), 1).controller_id == 1
    [kept] = Path(data_dir).glob("t-0*")
    assert tree(kept) == before


@ENDS
@pytest.mark.parametrize("recreated", [False, True])
def test_a_deletion_that_a_crash_interrupted_is_finished(
    connect: Any, produce: Any, batch: Any, data_dir: str, end: str, recreated: bool
) -> None:
    """The metadata log says that the topic was removed: its directory is dead."""
    root = Path(data_dir)
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        topic_id = create(client, "t").topic_id
        produce(client, "t", batch(b"a"))
        content = tree(root / "t-0")
        delete(client, "t")
        if recreated:
            create(client, "t")
        end_it(cluster, "killed")
        (root / "t-0").mkdir()
        for name, data in content.items():
            (root / "t-0" / name).write_bytes(data)
        assert (root / "t-0" / "partition.metadata").read_bytes() == render_topic_id(topic_id)
        cluster.start()
        client = connect(cluster)
        if recreated:
            assert produce(client, "t", batch(b"b")).base_offset == 0
        end_it(cluster, end)
        cluster.start()
    assert [path.name for path in root.glob("t-0*")] == (["t-0"] if recreated else [])


def test_a_marked_directory_of_a_living_topic_gets_its_name_back(
    connect: Any, produce: Any, batch: Any, data_dir: str
) -> None:
    """A loss of power may keep the directory's new name and lose the record that the topic was removed."""
    root = Path(data_dir)
    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        create(client, "t")
        produce(client, "t", batch(b"a"))
        cluster.kill()
        (root / "t-0").rename(root / f"t-0.{HEX}-delete")
        cluster.start()
        cluster.advance_time(86_400)
        assert end_of(connect(cluster), "t") == (0, 1)


def test_unreadable_partition_of_groups_does_not_prevent_the_start(connect: Any, data_dir: str) -> None:
    from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest

    with EmbeddedCluster(data_dir=data_dir) as cluster:
        client = connect(cluster)
        while client.call(FindCoordinatorRequest(key="g", key_type=0), 2).error_code:
            pass
        [topic] = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")]), 12).topics
        cluster.kill()
        for index in range(len(topic.partitions)):
            directory = Path(data_dir, f"__consumer_offsets-{index}")
            directory.mkdir(exist_ok=True)
            (directory / "partition.metadata").write_bytes(render_topic_id(uuid.UUID(int=5)))
        cluster.start()
        create(connect(cluster), "t")
