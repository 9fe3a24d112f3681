"""Kafka's own tools for administrators do their work on three brokers of ours."""

from __future__ import annotations

import json
import re
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.records import iter_batches
from pyclient.records.crc import crc32c
from tests.kafka import tools
from tests.kafka.needs import skip_without_kafka
from tests.kafka.topics import wait_until

CLUSTER = "org.apache.kafka.tools.ClusterTool"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
RECORD = bytes(10_000)
_BEFORE_THE_COMMAND = ("features", "metadata-quorum")
"""Tools whose options come before the command."""


@pytest.fixture(scope="module")
def ours() -> Iterator[EmbeddedCluster]:
    """Three brokers in processes; a test leaves them all running."""
    skip_without_kafka()
    config = {
        "replica.lag.time.max.ms": 1500,
        "metadata.log.max.record.bytes.between.snapshots": 2000,
        "broker.session.timeout.ms": 30_000,  # leaders and the controller stay while tools run on a busy machine
        "controller.quorum.fetch.timeout.ms": 10_000,
    }
    with EmbeddedCluster(brokers=3, processes=True, config=config) as cluster:
        yield cluster


def tool(ours: EmbeddedCluster, name: str, *arguments: str) -> str:
    """Return the output of a tool, which has to succeed."""
    server = ("--bootstrap-server", ours.bootstrap_servers)
    given = (*server, *arguments) if name in _BEFORE_THE_COMMAND else (*arguments, *server)
    return tools.run(name, *given).out


def create(ours: EmbeddedCluster, topic: str, *replicas: int, records: int = 0) -> None:
    """Create a topic with one partition on these brokers, the first of which leads."""
    with Admin(ours.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: replicas}, configs={"min.insync.replicas": "1"})])
    ours.wait_isr(topic, 0, len(replicas))
    write(ours, topic, records)


def write(ours: EmbeddedCluster, topic: str, records: int) -> None:
    with Producer(ours.bootstrap_servers) as producer:
        for _ in range(records):
            producer.send(topic, RECORD, partition=0)
        producer.flush()


def test_quorum_and_features_are_described(ours: EmbeddedCluster) -> None:
    output = tool(ours, "metadata-quorum", "describe", "--status")
    assert re.search(rf"LeaderId:\s+{ours.controller_id}\b", output)
    assert re.search(rf"ClusterId:\s+{re.escape(ours.cluster_id)}\b", output)
    assert {int(each) for each in re.findall(r'"id": ?(\d)', output.partition("CurrentVoters")[2])} == {1, 2, 3}
    output = tool(ours, "metadata-quorum", "describe", "--replication")
    rows = [line.split() for line in output.splitlines()[1:]]
    assert sorted(int(row[0]) for row in rows) == [1, 2, 3]
    assert sorted(row[-1] for row in rows) == ["Follower", "Follower", "Leader"]
    assert re.search(
        r"Feature: metadata\.version\s.*FinalizedVersionLevel: 4\.3-IV0", tool(ours, "features", "describe")
    )


def test_voters_of_a_dynamic_quorum_are_described_and_removed() -> None:
    skip_without_kafka()
    with EmbeddedCluster(1, controllers=1, dynamic_quorum=True) as growing:
        added = growing.add_controller()
        output = tool(growing, "metadata-quorum", "describe", "--status")
        assert re.findall(r'"id": ?(\d+)', output.partition("CurrentVoters")[2].partition("CurrentObservers")[0]) == [
            "3000",
            str(added.id),
        ]
        rows = [line.split() for line in tool(growing, "metadata-quorum", "describe", "--replication").splitlines()[1:]]
        directory_id = next(row[1] for row in rows if row[0] == str(added.id))
        leaving = ("--controller-id", str(added.id), "--controller-directory-id", directory_id)
        removed = tool(growing, "metadata-quorum", "remove-controller", *leaving)
        assert re.match(rf"Removed\s+KRaft controller {added.id} with directory id {directory_id}", removed)
        with Admin(growing.bootstrap_servers) as admin:
            assert [voter.replica_id for voter in admin.describe_metadata_quorum().voters] == [3000]


def copied(directory: Path, target: Path) -> list[Path]:
    """Copy a metadata log with a snapshot: the next snapshot removes the files before it at any moment."""
    files: list[Path] = []

    def copy() -> bool:
        files.clear()
        try:
            found = (*directory.glob("0*.checkpoint"), *directory.glob("*.log"))
            files.extend(Path(shutil.copy(file, target)) for file in found)
        except FileNotFoundError:
            return False
        return any(file.suffix == ".checkpoint" for file in files)

    wait_until(copy, "no snapshot is written")
    return files


def test_metadata_log_and_snapshots_are_dumped(ours: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    with Admin(ours.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(f"{topic}-{number}", 1, 3) for number in range(30)])
    directory = Path(ours.brokers[0].data_dir) / "__cluster_metadata-0"
    files = ",".join(map(str, copied(directory, tmp_path)))
    output = tools.run("dump-log", "--cluster-metadata-decoder", "--files", files).out
    assert '"type":"TOPIC_RECORD"' in output
    assert '"type":"REGISTER_BROKER_RECORD"' in output
    assert "SnapshotFooter" in output


def test_preferred_leader_is_elected(ours: EmbeddedCluster, topic: str) -> None:
    create(ours, topic, 2, 1, 3)
    ours.restart(2)
    ours.wait_isr(topic, 0, 3)
    assert ours.leader_of(topic, 0) != 2
    chosen = ("--topic", topic, "--partition", "0")
    output = tool(ours, "leader-election", "--election-type", "preferred", *chosen)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in output
    wait_until(lambda: ours.leader_of(topic, 0) == 2, "the preferred broker does not lead")


def test_unclean_leader_is_elected_on_demand_only(ours: EmbeddedCluster, topic: str) -> None:
    create(ours, topic, 2, 3, records=3)
    ours.stop(3)
    ours.wait_isr(topic, 0, 1)
    write(ours, topic, 2)
    ours.kill(2)
    try:
        ours.start(3)
        unavailable = ("--describe", "--topic", topic, "--unavailable-partitions")
        wait_until(lambda: "Leader: none" in tool(ours, "topics", *unavailable), "the dead broker leads")
        output = tool(ours, "leader-election", "--election-type", "unclean", "--topic", topic, "--partition", "0")
        assert "Successfully completed leader election (UNCLEAN)" in output
        wait_until(lambda: ours.leader_of(topic, 0) == 3, "no leader was elected")
        under = tool(ours, "topics", "--describe", "--topic", topic, "--under-replicated-partitions")
        assert re.search(r"Leader: 3\s+Replicas: 2,3\s+Isr: 3\b", under)
    finally:
        ours.start(2)
    ours.wait_isr(topic, 0, 2)


def test_partitions_are_reassigned_with_a_throttle(ours: EmbeddedCluster, topic: str, tmp_path: Path) -> None:
    create(ours, topic, 1, 2, records=100)
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 3]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    chosen = ("--reassignment-json-file", str(tmp_path / "plan.json"))
    output = tool(ours, REASSIGN, *chosen, "--execute", "--throttle", "1000000")
    assert f"Successfully started partition reassignment for {topic}-0" in output
    limits = tool(ours, "configs", "--entity-type", "brokers", "--entity-name", "3", "--describe")
    assert "follower.replication.throttled.rate=" in limits
    said: list[str] = []

    def completed() -> bool:
        said.append(tool(ours, REASSIGN, *chosen, "--verify"))
        return f"Reassignment of partition {topic}-0 is completed." in said[-1]

    wait_until(completed, "the reassignment does not end")
    assert "Clearing broker-level throttles on brokers 1,2,3" in said[-1]
    described = tool(ours, "topics", "--describe", "--topic", topic)
    assert re.search(r"Replicas: 2,3\s+Isr: (2,3|3,2)\b", described)
    assert "throttled" not in described
    limits = tool(ours, "configs", "--entity-type", "brokers", "--entity-name", "3", "--describe")
    assert "throttled.rate" not in limits
    wait_until(lambda: not (Path(ours.brokers[0].data_dir) / f"{topic}-0").exists(), "the old replica is still there")


def test_broker_that_has_left_is_unregistered(ours: EmbeddedCluster) -> None:
    assert ours.cluster_id in tool(ours, CLUSTER, "cluster-id")
    broker = ours.add_broker()
    listed = tool(ours, CLUSTER, "list-endpoints")
    assert re.search(rf"^{broker.id}\s+127\.0\.0\.1\s", listed, re.MULTILINE)
    running = tools.run(CLUSTER, "unregister", "--id", "99", "--bootstrap-server", ours.bootstrap_servers, check=False)
    assert "BrokerIdNotRegisteredException" in running.out + running.err
    broker.stop()
    assert f"Broker {broker.id} is no longer registered." in tool(ours, CLUSTER, "unregister", "--id", str(broker.id))
    wait_until(lambda: f"\n{broker.id} " not in tool(ours, CLUSTER, "list-endpoints"), "it is still listed")


@contextmanager
def verification(ours: EmbeddedCluster, topic: str) -> Iterator[Callable[[str], None]]:
    """Run the tool, which compares the checksums of all replicas' batches from the first one on until it is ended.

    Yield a function that waits for a line in which a pattern is found.
    """
    arguments = ("--broker-list", ours.bootstrap_servers, "--topics-include", topic, "--report-interval-ms", "500")
    process = tools.start(VERIFICATION, *arguments, "--time", "-2")
    lines = process.stdout
    assert lines is not None
    try:
        yield lambda pattern: check_found(re.compile(pattern), lines)
    finally:
        process.kill()
        process.communicate()


def check_found(pattern: re.Pattern[str], lines: Iterable[str]) -> None:
    """Read lines, about one a second, until one matches."""
    read: list[str] = []
    for line in islice(lines, 120):
        read.append(line)
        if pattern.search(line):
            return
    raise AssertionError(f"the tool has not shown {pattern.pattern}: {read[:20]}")


def test_replicas_are_verified(ours: EmbeddedCluster, topic: str) -> None:
    create(ours, topic, 1, 2, 3, records=20)
    with verification(ours, topic) as wait_for_line:
        wait_for_line(rf"max lag is 0 for partition {topic}-0 at offset 20\b")


def test_verification_shows_the_lag_of_a_frozen_follower(ours: EmbeddedCluster, topic: str) -> None:
    create(ours, topic, 1, 2, 3, records=20)
    ours.freeze_follower(topic, 0)
    try:
        write(ours, topic, 20)
        ours.wait_isr(topic, 0, 2)
        with verification(ours, topic) as wait_for_line:
            wait_for_line(rf"max lag is [1-9]\d* for partition {topic}-0 at offset (\d|1\d|20)\b")
            ours.heal()
            wait_for_line(rf"max lag is 0 for partition {topic}-0 at offset 40\b")
    finally:
        ours.heal()


def test_verification_finds_a_replica_with_another_record(ours: EmbeddedCluster, topic: str) -> None:
    """The changed batch has a valid checksum, so that the replica itself sees no damage."""
    create(ours, topic, 1, 2, 3, records=20)
    ours.wait_isr(topic, 0, 3)
    ours.kill(3)
    [segment] = Path(ours.node(3).data_dir, f"{topic}-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    *_, (position, _header) = iter_batches(content)
    content[-2] ^= 1  # the end of the last record's value; after it comes the number of headers
    struct.pack_into(">I", content, position + 17, crc32c(content[position + 21 :]))
    segment.write_bytes(content)
    ours.start(3)
    ours.wait_isr(topic, 0, 3)
    with verification(ours, topic) as wait_for_line:
        wait_for_line(
            rf"partition {topic}-0 has unmatched checksum at offset 19; replica \d's checksum \d+; replica \d's"
        )
    with Admin(ours.bootstrap_servers) as admin:
        admin.delete_topics([topic])
