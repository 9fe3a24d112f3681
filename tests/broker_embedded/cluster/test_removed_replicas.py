"""Replicas that are moved or deleted, while their node is down or about to delete them, do not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.kafka_call import call, check_code
from pyclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.waiting import until

TOPIC = "t"


def create(cluster: EmbeddedCluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 3)])


def reassign(cluster: EmbeddedCluster, replicas: list[int]) -> None:
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    topic = ReassignableTopic(name=TOPIC, partitions=[partition])
    answer = call(cluster.node(1).config, AlterPartitionReassignmentsRequest(topics=[topic]))
    [result] = answer.responses[0].partitions
    check_code(result.error_code, result.error_message, "a reassignment")


def write(cluster: EmbeddedCluster, value: bytes) -> None:
    with Producer(cluster.bootstrap_servers) as producer:
        producer.send(TOPIC, value).result()


def names(cluster: EmbeddedCluster, node: int) -> list[str]:
    """Return the directories of the topic at a node."""
    return sorted(path.name for path in Path(cluster.node(node).data_dir).glob(f"{TOPIC}-0*"))


def test_replica_moved_while_its_node_was_down_is_set_aside(tmp_path: Path) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path) as cluster:
        create(cluster)
        write(cluster, b"a")
        cluster.wait_isr(TOPIC, 0, 3)
        cluster.kill(3)
        reassign(cluster, [1, 2])
        cluster.wait_isr(TOPIC, 0, 2)
        cluster.start()
        [kept] = names(cluster, 3)
        assert kept.endswith("-stray")
        reassign(cluster, [1, 2, 3])
        cluster.wait_isr(TOPIC, 0, 3)
        write(cluster, b"b")
        assert names(cluster, 3) == [f"{TOPIC}-0", kept]


def test_moved_replica_is_deleted_although_its_node_is_killed_before(tmp_path: Path) -> None:
    config = {"log.segment.delete.delay.ms": 60_000}
    with EmbeddedCluster(3, data_dir=tmp_path, config=config) as cluster:
        create(cluster)
        write(cluster, b"a")
        cluster.wait_isr(TOPIC, 0, 3)
        reassign(cluster, [1, 2])
        until(lambda: [name[-7:] for name in names(cluster, 3)] == ["-delete"])
        cluster.kill(3)
        cluster.start()
        cluster.node(3).call("POST", "/retention")
        until(lambda: names(cluster, 3) == [])


def values(cluster: EmbeddedCluster) -> list[bytes]:
    with Consumer[bytes, bytes](bootstrap_servers=cluster.bootstrap_servers) as consumer:
        place = TopicPartition(TOPIC, 0)
        consumer.assign([place])
        consumer.seek(place, 0)
        found: list[bytes] = []
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found += [record.value or b"" for record in consumer.poll(0.1)]
        return found


@pytest.mark.parametrize("end", ["killed", "stopped"])
@pytest.mark.parametrize("is_created_before_the_start", [True, False])
def test_topic_created_again_has_no_records_of_the_deleted_one(
    tmp_path: Path, end: str, is_created_before_the_start: bool
) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path) as cluster:
        create(cluster)
        for value in (b"old 0", b"old 1", b"old 2"):
            write(cluster, value)
        cluster.wait_isr(TOPIC, 0, 3)
        cluster.kill(3) if end == "killed" else cluster.stop(3)
        with Admin(cluster.bootstrap_servers) as admin:
            admin.delete_topics([TOPIC])
        if is_created_before_the_start:
            create(cluster)
            write(cluster, b"new 0")
        cluster.start()
        if not is_created_before_the_start:
            create(cluster)
            write(cluster, b"new 0")
        write(cluster, b"new 1")
        cluster.wait_isr(TOPIC, 0, 3)
        cluster.move_leader(TOPIC, 0, 3)
        assert values(cluster) == [b"new 0", b"new 1"]
