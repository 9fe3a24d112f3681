"""The state that a run prints of a failed cluster: replicas, members with their epochs, and requests."""

from __future__ import annotations

import re

from pyclient import Admin, Consumer, NewTopic
from pyclient.broker_embedded import EmbeddedCluster
from tests.chaos.cluster_state import state_of


def test_state_shows_replicas_members_and_requests_of_nodes_that_run() -> None:
    config = {
        "broker.session.timeout.ms": 30_000,  # the coordinator stays, also on a busy machine
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "offsets.topic.num.partitions": 1,
    }
    with EmbeddedCluster(3, replication_factor=3, config=config) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("busy", 1, 3)])
        with Consumer[bytes, bytes](
            bootstrap_servers=cluster.bootstrap_servers, group_id="g", group_protocol="consumer", client_id="member"
        ) as consumer:
            consumer.subscribe(["busy"])
            while not consumer.assignment():
                consumer.poll(0.1)
            cluster.wait_isr("__consumer_offsets", 0, 3)
            coordinator = cluster.leader_of("__consumer_offsets", 0)
            other = next(node.id for node in cluster.brokers if node.id != coordinator)
            cluster.pause(other)
            lines = list(state_of(cluster, ["busy", "no-topic"], ["g"]))
            cluster.resume(other)
    text = "\n".join(lines)
    assert f"node {coordinator}, topic busy: partition 0, leader " in text
    assert f"node {coordinator}, topic no-topic: " in text
    assert f"node {other}" not in text  # it is paused
    epoch = re.search(r"\n  Stable, epoch ([0-9]+), of the assignment \1\n", text)  # 1, or more after a rejoin
    assert epoch is not None, text
    assert f"member_epoch={epoch[1]}, client_id='member'" in text
    assert any(
        line.startswith(f"node {coordinator}, group g, member: ") and line.endswith("ms ok") and "Heartbeat" in line
        for line in lines
    )
