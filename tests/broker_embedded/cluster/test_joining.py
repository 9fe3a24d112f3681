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

GUEST = 7


def test_a_broker_joins_by_the_identity_in_its_directory(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=1, controllers=1, replication_factor=1) as host:
        identity = render_identity(
            cluster_id=host.cluster_id, node_id=GUEST, directory_id=uuid.UUID(int=random.getrandbits(128), version=4)
        )
        (tmp_path / META_PROPERTIES).write_bytes(identity)
        config = {
            "node.id": GUEST,
            "process.roles": "broker",
            "controller.quorum.voters": host.controller_quorum_voters,
        }
        with EmbeddedCluster(data_dir=tmp_path, config=config) as guest:
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
