"""Answers of a group coordinator that was replaced, and does not know it, are not taken for lost commits."""

from __future__ import annotations

import time
from dataclasses import replace

from pyclient import Admin, Consumer, NewTopic, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.broker import Broker
from tests.chaos.group_checkers import lost_commits, outdated_commits
from tests.chaos.history import OK, Commit, Place
from tests.chaos.observer import Observer
from tests.chaos.workload import Notes
from tests.waiting import PATIENCE, until

TOPIC, GROUP, OFFSETS = "busy", "readers", "__consumer_offsets"
SETTINGS = {"offsets.topic.num.partitions": 1, "broker.session.timeout.ms": 6_000}


def commit(servers: str, offset: int) -> Commit:
    """Commit an offset of the group, and return what is noted of it."""
    began = time.monotonic()
    with Consumer(bootstrap_servers=servers, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.commit({TopicPartition(TOPIC, 0): offset}, timeout=PATIENCE)
    return Commit(GROUP, "member", -1, Place(TOPIC, 0), offset, time.monotonic(), began, OK)


def test_coordinator_that_is_cut_off_has_outdated_offsets() -> None:
    notes = Notes()
    with EmbeddedCluster(3, config=SETTINGS) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 3)])
        first = commit(cluster.bootstrap_servers, 5)
        cluster.wait_isr(OFFSETS, 0, 3, PATIENCE)
        former = cluster.leader_of(OFFSETS, 0)
        assert former is not None
        others = [node for node in cluster.brokers if node.id != former]
        observer = Observer(notes, cluster, TOPIC, 1, [GROUP])
        observer.start()
        seen = notes.history.committed
        try:
            until(lambda: any(each.offset == 5 for each in list(seen)))
            for node in others:
                cluster.cut(former, node.id)
            until(lambda: all(_leader(node) not in (former, -1) for node in others), "no other node leads")
            second = commit(",".join(node.address for node in others), 9)
            until(lambda: any(each.node == former and each.began > second.at for each in list(seen)))
            until(lambda: any(each.offset == 9 and each.node != former for each in list(seen)))
        finally:
            observer.stop()
            observer.join(PATIENCE)
        cluster.heal()
    assert notes.failures == []
    history = notes.history.add(first, second)
    assert list(lost_commits(history)) == []
    found = list(outdated_commits(history))
    assert found
    text = (
        f"group readers, busy-0: the committed offset is 5 after 9 was acknowledged, by node {former} in leader epoch"
    )
    assert {each.rpartition(" ")[0] for each in found} == {text}
    history.committed[:] = [replace(each, leader_epoch=-1) for each in history.committed]
    assert len(list(lost_commits(history))) == len(found)


def _leader(node: Broker) -> int:
    partitions = node.call("GET", f"/topics/{OFFSETS}")["partitions"]
    return int(partitions[0]["leader"])
