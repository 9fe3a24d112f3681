"""A second controller with the id of a running one: at the same address it cannot start, and nothing is changed."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.log.checkpoints import META_PROPERTIES, render_identity
from pyclient.errors import ConfigError
from tests.reading import read_all

PATIENT = {
    "broker.session.timeout.ms": 60_000,
    "controller.quorum.fetch.timeout.ms": 60_000,
    "replica.lag.time.max.ms": 60_000,
}


@pytest.mark.parametrize(
    ("controllers", "twin", "roles"),
    [(None, 2, "broker,controller"), (3, 3001, "controller")],
    ids=["combined", "dedicated"],
)
def test_controller_with_the_id_of_a_running_one_is_refused(
    tmp_path: Path, controllers: int | None, twin: int, roles: str
) -> None:
    with EmbeddedCluster(3, controllers=controllers, config=PATIENT) as host:
        with Admin(host.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
        send(host, b"one")
        voters = host.controller_quorum_voters
        before = host.controller_id, described(host)
        (tmp_path / META_PROPERTIES).write_bytes(
            render_identity(
                cluster_id=host.cluster_id,
                node_id=twin,
                directory_id=uuid.UUID(int=random.getrandbits(128), version=4),
            )
        )
        config = {"node.id": twin, "process.roles": roles, "controller.quorum.voters": voters}
        second = EmbeddedCluster(data_dir=tmp_path, config=config)
        address = next(each.partition("@")[2] for each in voters.split(",") if each.startswith(f"{twin}@"))
        with pytest.raises(ConfigError, match=f"cannot listen on {address}: Address already in use$"):
            second.start()
        assert not second.alive
        second.close()
        assert (host.controller_id, described(host)) == before
        assert sorted(host.wait_isr("t", 0, 3)) == [1, 2, 3]
        send(host, b"two")
        assert [record.value for record in read_all(host.bootstrap_servers, "t")] == [b"one", b"two"]


def send(cluster: EmbeddedCluster, value: bytes) -> None:
    with Producer(cluster.bootstrap_servers, delivery_timeout_ms=60_000) as producer:
        producer.send("t", value).result(60)


def described(cluster: EmbeddedCluster) -> object:
    """Return what the metadata say of the topic."""
    with Admin(cluster.bootstrap_servers) as admin:
        [topic] = admin.describe_topics(["t"]).values()
        return topic
