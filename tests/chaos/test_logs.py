"""Batches, records of compacted topics and ranges are read from the logs of brokers that have stopped."""

from __future__ import annotations

from pathlib import Path

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.history import Log, Place
from tests.chaos.logs import batches_of, logs_in, records_of

OFFSETS = "__consumer_offsets"
CONFIG = {"offsets.topic.num.partitions": 1}


def test_logs_of_a_stopped_node_are_read_with_empty_and_internal_ones(tmp_path: Path) -> None:
    with EmbeddedCluster(1, data_dir=tmp_path, config=CONFIG) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("busy", 1, 1)])
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(3):
                producer.send("busy", b"%d" % number).result()
        with Consumer[bytes, bytes](
            bootstrap_servers=cluster.bootstrap_servers, group_id="g", enable_auto_commit=False
        ) as consumer:
            consumer.assign([TopicPartition("busy", 0)])
            for offset in (1, 2):
                consumer.commit({TopicPartition("busy", 0): offset})
        directory = Path(cluster.node(cluster.nodes[0].id).data_dir)
    (directory / "empty-0").mkdir()
    assert [batch.offset for batch in batches_of(directory, 1, ["busy"])] == [0, 1, 2]
    first, second = [each for each in records_of(directory, 1, [OFFSETS]) if each.key >= 0]
    assert first.key == second.key
    assert first.content != second.content
    ranges = {each.place: each for each in logs_in(directory, 1, ["busy", "empty", OFFSETS])}
    assert ranges[Place("busy", 0)] == Log(1, Place("busy", 0), 0, 3)
    assert ranges[Place("empty", 0)] == Log(1, Place("empty", 0), 0, 0)
    assert ranges[Place(OFFSETS, 0)].end > second.offset
