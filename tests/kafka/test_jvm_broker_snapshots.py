"""A broker of Apache Kafka joins when the beginning of our metadata log is in a snapshot: it fetches that one."""

from __future__ import annotations

from pathlib import Path

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka.mixed import COMMON, Mixed, load_on
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import Quorum, RealKafka
from tests.kafka.topics import wait_until

JVM, OURS = 9, 1
METADATA = "__cluster_metadata-0"
BYTES = 2000  # so many of the metadata log make a snapshot, some topics of one partition


def snapshots_in(data_dir: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (data_dir / METADATA).glob("0*.checkpoint")}


def test_jvm_broker_begins_with_a_snapshot_of_ours(topic: str) -> None:
    """It has the same bytes of the snapshot, and every topic that is left."""
    skip_without_kafka()
    config = COMMON | {"metadata.log.max.record.bytes.between.snapshots": BYTES}
    with EmbeddedCluster(1, controllers=1, processes=True, replication_factor=1, config=config) as ours:
        with Admin(ours.bootstrap_servers) as admin:
            for number in range(60):
                admin.create_topics([NewTopic(f"old-{number}", 1, 1, configs={"retention.ms": "1000000"})])
            admin.delete_topics([f"old-{number}" for number in range(50)])
        controller = Path(ours.nodes[-1].data_dir)
        wait_until(lambda: not (controller / METADATA / f"{0:020}.log").exists(), "the log still begins at 0")
        quorum = Quorum(ours.cluster_id, ours.controller_quorum_voters)
        with RealKafka(joins=quorum, first_id=JVM, heap="256M", settings=COMMON) as jvm:
            mine, theirs = snapshots_in(controller), snapshots_in(jvm.data_dir(JVM))
            common = set(mine) & set(theirs)
            assert common, (sorted(mine), sorted(theirs))
            assert all(mine[name] == theirs[name] for name in common)
            directories = {OURS: Path(ours.brokers[0].data_dir), JVM: jvm.data_dir(JVM)}
            mixed = Mixed(f"{ours.bootstrap_servers},{jvm.bootstrap_servers}", ours.brokers, directories)
            with Admin(jvm.bootstrap_servers) as admin:
                assert set(admin.list_topics()) == {f"old-{number}" for number in range(50, 60)}
            mixed.create(topic, JVM, OURS)
            load = load_on(mixed, topic)
            load.wait_for(60)
            mixed.lead(topic, OURS)
            load.wait_for(60)
            load.stop()
            load.check_all_delivered(mixed)
            mixed.check_equal_logs(topic, OURS, JVM)
            load.client.end()
