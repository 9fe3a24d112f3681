"""Faults that did not happen say so: damage that changed nothing, and a controller that was killed too late."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos import damage, metadata_changes
from tests.chaos import probe as probe_module
from tests.chaos.disk_faults import DiskFaults
from tests.chaos.metadata_changes import PARTITIONS, MetadataChanges
from tests.chaos.probe import Probe
from tests.chaos.slow_disks import SlowDisks
from tests.chaos.targets import Harmless, Targets
from tests.chaos.workload import Notes


@pytest.fixture
def targets() -> Iterator[Targets]:
    with EmbeddedCluster(3, replication_factor=3) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("busy", 1, 3)])
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("busy", b"%d" % number).result()
        yield Targets(cluster, "busy", 1, random.Random(1))


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def probe(targets: Targets, notes: Notes) -> Probe:
    return Probe(targets.cluster, targets, notes)


def test_damage_that_changes_no_file_is_no_fault(targets: Targets, probe: Probe, tmp_path: Path) -> None:
    faults = DiskFaults(targets.cluster, targets, SlowDisks(tmp_path), probe)
    with pytest.raises(Harmless, match="no file of node"):
        faults.damage_busy(lambda _directory, _chosen: None)
    targets.cluster.start()
    faults.damage_busy(damage.flip_last_segment)
    targets.wait_in_sync()


def test_damage_that_a_running_node_does_not_find_is_no_fault(
    targets: Targets, probe: Probe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = DiskFaults(targets.cluster, targets, SlowDisks(tmp_path), probe)
    faults.flip_running(0.0)
    monkeypatch.setattr(damage, "flip_last_segment", lambda _directory, _chosen: None)
    with pytest.raises(Harmless, match="has found no damage"):
        faults.flip_running(0.0)


def create_topic(changes: MetadataChanges) -> None:
    """Do the fault until the controller is killed before it answers, which may be too late on a busy machine."""
    for _ in range(10):
        try:
            changes.create_topic(0.0)
        except Harmless:
            changes.cluster.heal()
            changes.cluster.start()
        else:
            return
    pytest.fail("the controller has answered before each kill")


def test_controller_killed_after_its_answer_is_no_fault(
    targets: Targets, probe: Probe, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = MetadataChanges(targets.cluster, targets, probe)
    create_topic(changes)
    assert [each.partitions for each in notes.history.topic_changes] == [PARTITIONS]
    monkeypatch.setattr(metadata_changes, "_COMMIT_MS", 0)
    monkeypatch.setattr(metadata_changes, "_LATEST_KILL", 5.0)
    monkeypatch.setattr(changes.random, "random", lambda: 1.0)
    with pytest.raises(Harmless, match="has answered CreateTopics"):
        changes.create_topic(0.0)


def test_topic_that_the_next_controller_has_created_is_noted(
    targets: Targets, probe: Probe, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = MetadataChanges(targets.cluster, targets, probe)

    def complete(_api: str, _request: object) -> None:
        with Admin(targets.cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("made-1", PARTITIONS, 3)])

    monkeypatch.setattr(changes, "_killed_in_the_middle", complete)
    changes.create_topic(0.0)
    assert [(each.topic, each.partitions) for each in notes.history.topic_changes] == [("made-1", PARTITIONS)]


def test_lost_record_of_a_probe_is_found(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    probe.create(NewTopic("probed", 2, 3))
    sent = probe.send("probed", [0, 1])
    probe.check_has("probed", sent)
    probe.delete_before("probed", 1, 1)
    probe.check_has("probed", {at: value for at, value in sent.items() if at != (1, 0)})
    for seconds in (2.0, 10.0, 60.0):  # on a busy machine the others may not be read at first, either
        monkeypatch.setattr(probe_module, "HEALING_SECONDS", seconds)
        with pytest.raises(AssertionError, match="acknowledged records are lost") as lost:
            probe.check_has("probed", sent)
        if "1 acknowledged" in str(lost.value):
            break
    assert "1 acknowledged records are lost" in str(lost.value)
