"""Several log directories: placement, moves of partitions in use, crashes, and a directory that fails."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from pyclient import Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controller.topics import directories_for
from pyclient.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from pyclient.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from pyclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from pyclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pyclient.protocol.messages.offset_fetch import OffsetFetchRequest
from pyclient.records import decode_key_values, iter_batches
from tests.broker_embedded.topics import create
from tests.waiting import until

HEX = "0123456789abcdef" * 2


def dirs(tmp_path: Path, names: str = "ab") -> dict[str, str]:
    return {"log.dirs": ",".join(str(tmp_path / name) for name in names)}


def where(client: Any, topic: str) -> dict[str, list[int]]:
    """Return the partitions of a topic by directory name; future logs under `future`."""
    found: dict[str, list[int]] = {}
    for result in client.call(DescribeLogDirsRequest(topics=None), 5).results:
        for each in (each for part in result.topics if part.name == topic for each in part.partitions):
            name = "future" if each.is_future_key else Path(result.log_dir).name
            found.setdefault(name, []).append(each.partition_index)
    return {name: sorted(numbers) for name, numbers in found.items()}


def move(client: Any, target: Path, topic: str, *partitions: int) -> list[int]:
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(target), topics=[wanted])])
    return [each.error_code for each in client.call(request, 2).results[0].partitions]


def values(client: Any, fetch_request: Any, topic: str, partition: int = 0, offset: int = 0) -> list[bytes | None]:
    """Return the values of all records from an offset on."""
    read: list[bytes | None] = []
    while True:
        answer = client.call(fetch_request(topic, {partition: offset}), 11).responses[0].partitions[0]
        assert answer.error_code == 0
        data = bytes(answer.records or b"")
        before = offset
        for position, header in iter_batches(data):
            offset = header.next_offset
            read += [value for _at, _time, _key, value in decode_key_values(data, position, header)]
        if offset == before:
            return read


def test_new_partition_goes_to_directory_with_fewest_partitions() -> None:
    from uuid import UUID

    first, second, third = (UUID(int=number) for number in (1, 2, 3))
    online = [(first, False), (second, False), (third, True)]
    sizes = {first: 3, second: 1}
    assert directories_for(4, online, sizes, assigned=False, replicas=1) == [second, second, first, second]
    assert directories_for(2, online, sizes, assigned=True, replicas=1) == [third, second]
    with pytest.raises(errors.InvalidReplicationFactor, match="cordoned"):
        directories_for(1, [(first, True)], sizes, assigned=False, replicas=1)


def test_directories_have_own_ids_and_same_cluster_id(tmp_path: Path) -> None:
    with EmbeddedCluster(config=dirs(tmp_path)):
        pass
    texts = [(tmp_path / name / "meta.properties").read_text().splitlines() for name in "ab"]
    assert [line for line in texts[0] if "directory.id" not in line] == [
        line for line in texts[1] if "directory.id" not in line
    ]
    assert texts[0] != texts[1]
    assert all((tmp_path / name / ".kafka_cleanshutdown").exists() for name in "ab")
    assert (tmp_path / "a" / "__cluster_metadata-0").exists()
    assert not (tmp_path / "b" / "__cluster_metadata-0").exists()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_partitions_stay_in_their_directories_after_restart(
    tmp_path: Path, connect: Any, fetch_request: Any, end: str
) -> None:
    with EmbeddedCluster(config=dirs(tmp_path), processes=end == "kill") as cluster:
        client = connect(cluster)
        create(client, "t", 5)
        with Producer(cluster.bootstrap_servers) as producer:
            for index in range(5):
                producer.send("t", b"%d" % index, partition=index)
        before = where(client, "t")
        assert sorted(map(len, before.values())) == [2, 3]
        if end == "kill":
            cluster.kill()
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        assert where(client, "t") == before
        assert [values(client, fetch_request, "t", index) for index in range(5)] == [[b"%d" % n] for n in range(5)]


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_partition_is_moved_while_records_are_produced(
    tmp_path: Path, connect: Any, fetch_request: Any, end: str
) -> None:
    """An idempotent producer continues during several moves; no record is lost or duplicated."""
    sent: list[bytes] = []
    done = threading.Event()

    def produce(servers: str) -> None:
        with Producer(servers, linger_ms=1) as producer:
            while not done.is_set() or len(sent) < 3000:
                names = [b"%d" % number for number in range(len(sent), len(sent) + 50)]
                futures = [producer.send("t", name + b"x" * 500) for name in names]
                for future in futures:
                    future.result(60)
                sent.extend(names)

    with EmbeddedCluster(config=dirs(tmp_path), processes=end == "kill") as cluster:
        client = connect(cluster)
        create(client, "t")
        thread = threading.Thread(target=produce, args=(cluster.bootstrap_servers,))
        thread.start()
        try:
            for target in "baba":
                count = len(sent)
                until(lambda count=count: len(sent) > count + 100)  # type: ignore[misc]
                other = "ab".replace(target, "")
                assert move(client, tmp_path / target, "t", 0) == [0]
                until(lambda target=target: where(client, "t") == {target: [0]})  # type: ignore[misc]
                assert not (tmp_path / other / "t-0").exists()
        finally:
            done.set()
            thread.join()
        assert [value.rstrip(b"x") for value in values(client, fetch_request, "t") if value] == sent
        if end == "kill":
            cluster.kill()
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        assert where(client, "t") == {"a": [0]}
        assert [value.rstrip(b"x") for value in values(client, fetch_request, "t") if value] == sent


def test_moved_partition_without_records_keeps_its_offsets(tmp_path: Path, connect: Any, fetch_request: Any) -> None:
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        create(client, "t", 3)
        assert values(client, fetch_request, "t", 2) == []  # opens the log
        with Producer(cluster.bootstrap_servers) as producer:
            producer.send("t", b"x", partition=0)
            producer.send("t", b"y", partition=0).result(60)
            before = where(client, "t")
            [home] = [name for name, numbers in before.items() if 0 in numbers]
            other = "ab".replace(home, "")
            partition = DeleteRecordsPartition(partition_index=0, offset=2)
            request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=9)
            assert client.call(request, 2).topics[0].partitions[0].error_code == 0
            assert move(client, tmp_path / other, "t", 0, 1, 2) == [0, 0, 0]
            until(lambda: where(client, "t") == {other: [0, 1, 2]})  # partitions 1 and 2 have no records
            assert (tmp_path / other / "t-2" / "partition.metadata").exists()
            for index, offset in enumerate((2, 0, 0)):
                assert producer.send("t", b"z", partition=index).result(60).offset == offset
        assert (tmp_path / other / "t-1").exists()
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        assert where(client, "t") == {other: [0, 1, 2]}
        for index, offset in enumerate((2, 0, 0)):
            assert values(client, fetch_request, "t", index, offset) == [b"z"]


def test_failed_directory_takes_only_its_partitions_offline(
    tmp_path: Path, connect: Any, fetch_request: Any, produce: Any, batch: Any
) -> None:
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        create(client, "t", 4)
        for index in range(4):
            assert produce(client, "t", batch(b"x"), partition=index).error_code == 0
        before = where(client, "t")
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_text("a file")
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        for index in range(4):
            code = produce(client, "t", batch(b"y"), partition=index).error_code
            assert code == (errors.KafkaStorageError.code if index in before["b"] else 0)
        assert where(client, "t") == {"a": before["a"]}
        results = client.call(DescribeLogDirsRequest(topics=None), 5).results
        assert {Path(each.log_dir).name: each.error_code for each in results} == {"a": 0, "b": 56}
        assert move(client, tmp_path / "b", "t", before["a"][0]) == [errors.KafkaStorageError.code]
        create(client, "new", 2)
        assert where(client, "new") == {"a": [0, 1]}
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        assert where(client, "t") == before
        assert [len(values(client, fetch_request, "t", index)) for index in range(4)] == [
            1 + (index in before["a"]) for index in range(4)
        ]


def test_group_of_offline_partition_is_not_reported_empty(tmp_path: Path, connect: Any) -> None:
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        for n in range(20):
            assert client.call(FindCoordinatorRequest(key=f"g{n}"), 1).error_code == 0
        assert set(where(client, "__consumer_offsets")) == {"a", "b"}
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_text("a file")
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        codes = {client.call(OffsetFetchRequest(group_id=f"g{n}", topics=None), 5).error_code for n in range(20)}
        assert codes == {0, errors.NotCoordinator.code}


def test_interrupted_move_is_restarted(tmp_path: Path, connect: Any, fetch_request: Any) -> None:
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        create(client, "t")
        with Producer(cluster.bootstrap_servers) as producer:
            for n in range(100):
                producer.send("t", b"%d" % n)
        [home] = where(client, "t")
    other = "ab".replace(home, "")
    copy = tmp_path / other / f"t-0.{HEX}-future"
    shutil.copytree(tmp_path / home / "t-0", copy)
    (copy / f"{0:020}.log").write_bytes((copy / f"{0:020}.log").read_bytes()[:40])
    foreign = tmp_path / other / f"photos-0.{HEX}-future"
    foreign.mkdir()
    (foreign / "one.jpg").write_text("x")
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        until(lambda: where(client, "t") == {other: [0]})
        assert values(client, fetch_request, "t") == [b"%d" % n for n in range(100)]
    assert not copy.exists()
    assert (foreign / "one.jpg").exists()


def test_log_in_two_directories_is_served_from_directory_in_metadata(
    tmp_path: Path, connect: Any, fetch_request: Any
) -> None:
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        create(client, "t", 2)
        with Producer(cluster.bootstrap_servers) as producer:
            for index in range(2):
                producer.send("t", b"%d" % index, partition=index)
        before = where(client, "t")
    for index in range(2):
        [home] = [name for name, numbers in before.items() if index in numbers]
        shutil.copytree(tmp_path / home / f"t-{index}", tmp_path / "ab".replace(home, "") / f"t-{index}")
    with EmbeddedCluster(config=dirs(tmp_path)) as cluster:
        client = connect(cluster)
        assert where(client, "t") == before
        assert [values(client, fetch_request, "t", index) for index in range(2)] == [[b"0"], [b"1"]]
    assert len(list(tmp_path.glob("*/t-*-stray"))) == 2


def test_cordoned_directory_gets_no_partitions(tmp_path: Path, connect: Any) -> None:
    config = {**dirs(tmp_path, "abc"), "cordoned.log.dirs": str(tmp_path / "b")}
    with EmbeddedCluster(config=config) as cluster:
        client = connect(cluster)
        create(client, "t", 4)
        assert where(client, "t") == {"a": [0, 2], "c": [1, 3]}
        assert move(client, tmp_path / "b", "t", 0) == [errors.InvalidReplicaAssignment.code]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"log.dirs": "{0}/a,{0}/a/"}, "twice"),
        ({"log.dirs": "{0}/a,{0}/b", "cordoned.log.dirs": "{0}/c"}, "must be present in log.dirs"),
        ({"log.dirs": "{0}/a", "cordoned.log.dirs": "a,b"}, "Missing entries : a, b"),
    ],
)
def test_invalid_directories_are_refused(tmp_path: Path, config: dict[str, str], text: str) -> None:
    with pytest.raises(errors.ConfigError, match=text):
        EmbeddedCluster(config={name: value.format(tmp_path) for name, value in config.items()})


def test_data_dir_is_first_of_log_dirs(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="has to be the first"):
        EmbeddedCluster(data_dir=tmp_path / "c", config=dirs(tmp_path))
    with EmbeddedCluster(data_dir=tmp_path / "a", config=dirs(tmp_path)) as cluster:
        assert Path(cluster.data_dir) == tmp_path / "a"


def test_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with EmbeddedCluster(config={**dirs(tmp_path, "b"), "node.id": "7"}):
        pass
    with pytest.raises(errors.ConfigError, match=r"belongs to node.id 7"), EmbeddedCluster(config=dirs(tmp_path)):
        pass
    with EmbeddedCluster(config=dirs(tmp_path, "a")) as cluster:
        with pytest.raises(errors.ConfigError, match="in use by another broker"):
            EmbeddedCluster(config=dirs(tmp_path, "ca")).start()
        assert cluster.bootstrap_servers
