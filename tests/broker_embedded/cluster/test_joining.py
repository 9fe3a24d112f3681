"""A broker with a formatted data directory joins a cluster by `controller.quorum.voters`, as a node of Kafka does."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.checkpoints import META_PROPERTIES, render_identity
from pyclient.broker_embedded.log.data_directory import cluster_of
from pyclient.broker_embedded.log.filesystem import RealFileSystem
from pyclient.errors import ConfigError
from tests.patience import retry_until_error

GUEST = 7


def joining(directory: Path, cluster_id: str, node_id: int, voters: str) -> EmbeddedCluster:
    """Return a broker that has not started, with a formatted directory."""
    directory_id = uuid.UUID(int=random.getrandbits(128), version=4)
    identity = render_identity(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
    (directory / META_PROPERTIES).write_bytes(identity)
    config = {"node.id": node_id, "process.roles": "broker", "controller.quorum.voters": voters}
    return EmbeddedCluster(data_dir=directory, config=config)


def test_a_broker_joins_by_the_identity_in_its_directory(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1, controllers=1, replication_factor=1) as host:
        joiner = joining(tmp_path, host.cluster_id, GUEST, host.controller_quorum_voters)
        with joiner as guest:
            assert guest.cluster_id == host.cluster_id
            with Admin(host.bootstrap_servers) as admin:
                admin.create_topics([NewTopic("both", assignments={0: [GUEST, 1]})])
            with Producer(host.bootstrap_servers) as producer:
                producer.send("both", b"one", partition=0).result(30)
            host.wait_isr("both", 0, 2)
            guest.restart()
            with Consumer(bootstrap_servers=guest.bootstrap_servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("both", 0)])
                assert [record.value for record in consumer.poll(30)] == [b"one"]


def test_second_broker_with_an_id_is_refused_with_the_reason(tmp_path: Path) -> None:
    patient = {"broker.session.timeout.ms": 60_000}  # also on a busy machine the first one keeps its session
    with EmbeddedCluster(brokers=1, controllers=1, replication_factor=1, config=patient) as host:
        twin = joining(tmp_path, host.cluster_id, 1, host.controller_quorum_voters)
        retry_until_error(
            lambda: twin.start(timeout=4.0), r"refused=\{1: .a broker with this node\.id is registered.*give one"
        )
        assert not twin.alive
        with Admin(host.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("goes-on")])
        with Producer(host.bootstrap_servers) as producer:
            assert producer.send("goes-on", b"one").result(30).offset == 0
        host.kill(1)
        twin.start()  # the session of the first one ends with its connection: then the id is free
        twin.close()


def test_a_directory_of_another_cluster_is_refused_at_once(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1, controllers=1, replication_factor=1) as host:
        another = "AAAAAAAAAAAAAAAAAAAAAA"
        guest = joining(tmp_path, another, GUEST, host.controller_quorum_voters)
        expected = rf"broker 7 cannot join: the data directory is of cluster {another}, controller 3000 of another one"
        with pytest.raises(ConfigError, match=expected):
            guest.start(timeout=300.0)
        assert not guest.alive
        guest.close()
        assert [each.id for each in host.brokers if each.alive] == [1]


def test_a_directory_keeps_its_cluster_unless_another_one_is_demanded(tmp_path: Path) -> None:
    fs, directory = RealFileSystem(), str(tmp_path)
    assert cluster_of(fs, directory, "derived", given=False) == "derived"
    assert cluster_of(fs, directory, None, given=False) is None
    (tmp_path / META_PROPERTIES).write_bytes(
        render_identity(cluster_id="stored", node_id=1, directory_id=uuid.UUID(int=5, version=4))
    )
    assert cluster_of(fs, directory, "derived", given=False) == "stored"
    assert cluster_of(fs, directory, "demanded", given=True) == "demanded"


def test_a_node_alone_has_an_id_and_takes_no_others(tmp_path: Path) -> None:
    with EmbeddedCluster(data_dir=tmp_path) as alone:
        assert len(alone.cluster_id) == 22
        assert alone.controller_quorum_voters == ""
    with pytest.raises(ConfigError, match=r"process\.roles"):
        EmbeddedCluster(config={"process.roles": "broker"})
