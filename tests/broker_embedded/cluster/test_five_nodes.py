"""Five brokers: two may fail, and an acknowledged record is there as long as one in-sync replica has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.reading import read_all
from tests.waiting import PATIENCE, until

IDS = [1, 2, 3, 4, 5]
TOPIC = "t"
CONFIG = {"broker.session.timeout.ms": 60_000, "controller.quorum.fetch.timeout.ms": 4_000}
"""On a busy machine, too, brokers keep their sessions; that of a killed one ends with its connection."""

both = pytest.mark.parametrize(
    "processes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "processes"]
)


def create(cluster: EmbeddedCluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 5)])
    assert sorted(cluster.wait_isr(TOPIC, 0, 5, PATIENCE)) == IDS


def send(cluster: EmbeddedCluster, value: bytes) -> None:
    with Producer(cluster.bootstrap_servers, delivery_timeout_ms=120_000, request_timeout_ms=2_000) as producer:
        producer.send(TOPIC, value).result(PATIENCE)


def values(cluster: EmbeddedCluster) -> list[bytes]:
    return [record.value for record in read_all(cluster.bootstrap_servers, TOPIC)]


def kill_leader(cluster: EmbeddedCluster) -> int:
    """Kill the leader, and wait until another node leads. Return the killed one."""
    leader = until(lambda: cluster.leader_of(TOPIC, 0), "the partition has no leader")
    cluster.kill(leader)
    until(lambda: cluster.leader_of(TOPIC, 0) not in (None, leader), "no other node leads")
    return leader


@both
def test_cluster_goes_on_without_two_leaders_that_are_voters(processes: bool) -> None:
    with EmbeddedCluster(5, min_insync_replicas=3, config=CONFIG, processes=processes) as cluster:
        assert cluster.controller_quorum_voters.count("@") == 5
        create(cluster)
        sent = [b"0"]
        send(cluster, sent[0])
        killed = []
        for number in (1, 2):
            killed.append(kill_leader(cluster))
            sent.append(b"%d" % number)
            send(cluster, sent[-1])
        assert values(cluster) == sent
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("new", 1, 3)])  # three of five controllers are a majority
        cluster.start()
        assert sorted(cluster.wait_isr(TOPIC, 0, 5, PATIENCE)) == IDS
        for node_id in killed:
            cluster.move_leader(TOPIC, 0, node_id, PATIENCE)
            assert values(cluster) == sent


@both
def test_last_in_sync_replica_keeps_what_was_acknowledged(tmp_path: Path, processes: bool) -> None:
    """The logs of the four others are gone: these may not lead before it is back."""
    with EmbeddedCluster(
        5, data_dir=tmp_path, min_insync_replicas=2, controllers=1, config=CONFIG, processes=processes
    ) as cluster:
        create(cluster)
        sent = [b"%d" % number for number in range(4)]
        killed = []
        for value in sent:
            send(cluster, value)
            killed.append(kill_leader(cluster))
            shutil.rmtree(Path(cluster.node(killed[-1]).data_dir, f"{TOPIC}-0"))
        [last] = {*IDS} - {*killed}
        assert cluster.leader_of(TOPIC, 0) == last
        cluster.kill(last)
        for node_id in killed:
            cluster.start(node_id)
        assert cluster.leader_of(TOPIC, 0) is None
        cluster.start(last)
        assert sorted(cluster.wait_isr(TOPIC, 0, 5, PATIENCE)) == IDS
        assert values(cluster) == sent
        for node_id in killed:
            cluster.move_leader(TOPIC, 0, node_id, PATIENCE)
            assert values(cluster) == sent
