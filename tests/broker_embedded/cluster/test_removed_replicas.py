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


def wait_snapshot(cluster: EmbeddedCluster, nodes: set[int]) -> None:
    """Change the metadata until these controllers have the present state in snapshots only."""
    with Admin(cluster.bootstrap_servers) as admin:
        end = admin.describe_metadata_quorum().high_watermark
        for number in range(1000):
            admin.create_topics([NewTopic(f"{TOPIC}-other-{number}", 1, 1)])
            admin.delete_topics([f"{TOPIC}-other-{number}"])
            if all(snapshot_end(cluster, node) >= end for node in nodes):
                return
    raise AssertionError("no snapshot was written")


def snapshot_end(cluster: EmbeddedCluster, node: int) -> int:
    """Return the end offset of a node's newest metadata snapshot, 0 if there is none."""
    directory = Path(cluster.node(node).data_dir) / "__cluster_metadata-0"
    return max((int(path.name.split("-")[0]) for path in directory.glob("*.checkpoint")), default=0)


def create_assigned(cluster: EmbeddedCluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, assignments={0: [1, 2, 3]})])


@pytest.mark.parametrize("end", ["killed", "stopped", "paused"])
@pytest.mark.parametrize("has_snapshot", [True, False], ids=["snapshot", "records"])
def test_topic_created_again_is_replicated_by_a_node_that_missed_it(
    tmp_path: Path, end: str, has_snapshot: bool
) -> None:
    """The node sees both changes at once; a snapshot does not even say that there were two topics of that name."""
    config = {"broker.session.timeout.ms": 60_000, "replica.lag.time.max.ms": 1000}
    if has_snapshot:
        config["metadata.log.max.record.bytes.between.snapshots"] = 3000
    with EmbeddedCluster(3, data_dir=tmp_path, config=config) as cluster:
        create_assigned(cluster)
        for value in (b"old 0", b"old 1", b"old 2"):
            write(cluster, value)
        cluster.wait_isr(TOPIC, 0, 3)
        leave = {"killed": cluster.kill, "stopped": cluster.stop, "paused": cluster.pause}[end]
        with Admin(cluster.bootstrap_servers) as admin:
            active = admin.describe_metadata_quorum().leader_id
        late = 3 if active == 2 else 2
        leave(late)
        with Admin(cluster.bootstrap_servers) as admin:
            # The fetch that the node has sent already gets this topic. A killed node is fenced a little later only, so
            # that the topic could be placed there and have no leader.
            admin.create_topics([NewTopic("other", assignments={0: [active]})])
            admin.delete_topics([TOPIC])
        create_assigned(cluster)
        write(cluster, b"new 0")
        if has_snapshot:
            wait_snapshot(cluster, {1, 2, 3} - {late})
        cluster.resume(late) if end == "paused" else cluster.start(late)
        write(cluster, b"new 1")
        cluster.wait_isr(TOPIC, 0, 3)
        assert (snapshot_end(cluster, late) > 0) == has_snapshot
        cluster.move_leader(TOPIC, 0, late)
        assert values(cluster) == [b"new 0", b"new 1"]
        until(lambda: f"{TOPIC}-0" in names(cluster, late))
