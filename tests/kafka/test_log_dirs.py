"""Several log directories that our broker wrote are a real Kafka's, and the other way round."""

from __future__ import annotations

from pathlib import Path

from pyclient import Consumer, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.parity.log_dirs import _partitions as partitions
from tests.broker_embedded.parity.scenario import Dialogue
from tests.kafka.runner import RealKafka
from tests.waiting import until

PARTITIONS = 4


def produce(servers: str, value: bytes) -> None:
    with Producer(servers) as producer:
        for index in range(PARTITIONS):
            producer.send("t", value, partition=index)


def read(servers: str, count: int) -> list[bytes]:
    values: list[bytes] = []
    with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        while len(values) < count:
            values += [record.value for record in consumer.poll(timeout=30)]
    return sorted(values)


def move_from_the_first(servers: str) -> list[list[str]]:
    """Move every partition of the first directory to the second one; where they are then."""
    dialogue = Dialogue(servers)
    try:
        here, _there = partitions(dialogue, "t")
        results = dialogue.request("DescribeLogDirs", 4, topics=None).results
        target = max(str(result.log_dir) for result in results)
        wanted = [{"path": target, "topics": [{"name": "t", "partitions": [int(index) for index in here]}]}]
        dialogue.request("AlterReplicaLogDirs", 2, dirs=wanted)
        until(lambda: [len(found) for found in partitions(dialogue, "t")] == [0, PARTITIONS])
        return partitions(dialogue, "t")
    finally:
        dialogue.close()


def test_kafka_and_ours_open_each_others_log_directories(tmp_path: Path, kafka_tools: None) -> None:
    data = tmp_path / "node1" / "data"
    data.parent.mkdir()
    ours = {"profile": "kafka", "config": {"log.dirs": f"{data},{data}-more"}}
    kafkas = {"heap": "512M", "directory": tmp_path, "settings": {"log.dirs": "{default},{default}-more"}}
    with EmbeddedCluster(**ours) as cluster:  # type: ignore[arg-type]
        dialogue = Dialogue(cluster.bootstrap_servers)
        dialogue.create_topic("t", PARTITIONS)
        produce(cluster.bootstrap_servers, b"1")
        assert [len(found) for found in partitions(dialogue, "t")] == [2, 2]
        dialogue.close()
        moved = move_from_the_first(cluster.bootstrap_servers)
    with RealKafka(**kafkas) as kafka:  # type: ignore[arg-type]
        dialogue = Dialogue(kafka.bootstrap_servers)
        until(lambda: partitions(dialogue, "t") == moved)
        dialogue.create_topic("u", 2)
        until(lambda: sum(map(len, partitions(dialogue, "u"))) == 2)
        placed = partitions(dialogue, "u")
        dialogue.close()
        produce(kafka.bootstrap_servers, b"2")
        assert read(kafka.bootstrap_servers, 8) == [b"1"] * 4 + [b"2"] * 4
    with EmbeddedCluster(**ours) as cluster:  # type: ignore[arg-type]
        dialogue = Dialogue(cluster.bootstrap_servers)
        assert [partitions(dialogue, topic) for topic in ("t", "u")] == [moved, placed]
        dialogue.close()
        produce(cluster.bootstrap_servers, b"3")
        assert read(cluster.bootstrap_servers, 12) == [b"1"] * 4 + [b"2"] * 4 + [b"3"] * 4
