"""Our broker under a JVM controller whose voters are in the metadata log (KIP-853)."""

from __future__ import annotations

from pathlib import Path

from pyclient import Admin, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.kafka import tools
from tests.kafka.mixed import COMMON, Mixed, check_leaders_under_load
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import Quorum, RealKafka
from tests.kafka.topics import wait_until

JVM, OURS = 9, 1
METADATA = "__cluster_metadata-0"


def snapshots_in(data_dir: Path) -> dict[str, bytes]:
    """Return the snapshots of the metadata, but for the one that formatting writes."""
    files = (data_dir / METADATA).glob("*.checkpoint")
    return {file.name: file.read_bytes() for file in files if not file.name.startswith(f"{0:020}")}


def formatted(directory: Path, quorum: Quorum, node_id: int) -> dict[str, str]:
    """Format a directory of a broker by Kafka's tool, and return the options of that broker."""
    joins = {
        "node.id": str(node_id),
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
        **quorum.setting,
    }
    properties = directory.with_suffix(".properties")
    lines = {**joins, "log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0"}
    properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    tools.run("storage", "format", "-t", quorum.cluster_id, "-c", str(properties))
    return joins


def test_our_broker_joins_a_standalone_jvm_by_its_snapshot(tmp_path: Path, topic: str, group: str) -> None:
    """As Kafka's quick start formats a node; the snapshot has the voters, registrations and topics."""
    skip_without_kafka()
    settings = COMMON | {"metadata.log.max.record.bytes.between.snapshots": "3000"}
    one_replica = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")
    settings |= dict.fromkeys((*one_replica, "transaction.state.log.min.isr"), "1")
    with RealKafka(heap="256M", settings=settings, dynamic_quorum=True, first_id=JVM) as jvm:
        with Admin(jvm.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(f"old-{number}", 1, 1) for number in range(60)])
            admin.delete_topics([f"old-{number}" for number in range(50)])
        wait_until(lambda: bool(snapshots_in(jvm.data_dir(JVM))), "Kafka writes no snapshot")
        directory = tmp_path / "ours"
        directory.mkdir()
        only_fetched = {"metadata.log.max.record.bytes.between.snapshots": str(1 << 30)}  # ours writes none of its own
        config = formatted(directory, jvm.quorum, OURS) | settings | only_fetched
        with EmbeddedCluster(processes=True, data_dir=directory, config=config) as ours:
            mine, theirs = snapshots_in(directory), snapshots_in(jvm.data_dir(JVM))
            assert mine
            common = set(mine) & set(theirs)
            assert all(mine[name] == theirs[name] for name in common)
            with Admin(ours.bootstrap_servers) as admin:
                assert {f"old-{number}" for number in range(50, 60)} <= set(admin.list_topics())
                assert not {f"old-{number}" for number in range(50)} & set(admin.list_topics())
                assert [voter.replica_id for voter in admin.describe_metadata_quorum().voters] == [JVM]
            directories = {OURS: directory, JVM: jvm.data_dir(JVM)}
            mixed = Mixed(f"{jvm.bootstrap_servers},{ours.bootstrap_servers}", ours.brokers, directories)
            check_leaders_under_load(mixed, topic, group, leaders=(OURS, JVM), replicas=(JVM, OURS))
