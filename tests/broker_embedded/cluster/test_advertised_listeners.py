"""Several listeners per node with advertised addresses: clients get those of the listener that they have asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.parity.scenario import Dialogue
from tests.waiting import until

NAMES = ("INTERNAL", "OUTSIDE", "THIRD")
IDS = (1, 2, 3)


def advertised(name: str, node: int) -> tuple[str, int]:
    """Return the address of a node that a listener advertises; nothing is there."""
    return f"{name.lower()}-{node}.example", 9000 + node


@pytest.fixture(
    scope="module", params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "processes"]
)
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Yield three brokers with three listeners; those for clients only advertise other addresses than they have."""
    config = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in NAMES),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in (*NAMES, "CONTROLLER")),
        "inter.broker.listener.name": "INTERNAL",
    }
    properties = {
        node: {
            "advertised.listeners": ",".join(
                "{}://{}:{}".format(name, *advertised(name, node)) for name in NAMES if name != "INTERNAL"
            )
        }
        for node in IDS
    }
    with EmbeddedCluster(3, config=config, node_properties=properties, processes=request.param) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
        cluster.wait_isr("t", 0, 3)
        yield cluster


def bound(cluster: EmbeddedCluster, name: str, node: int) -> str:
    """Return the address at which a node listens."""
    listeners = cluster.node(node).config.listeners.clients
    return next(f"{each.host}:{each.port}" for each in listeners if each.name == name)


def expected(cluster: EmbeddedCluster, name: str) -> dict[int, tuple[str, int]]:
    """Return the addresses that clients of a listener get."""
    if name != "INTERNAL":
        return {node: advertised(name, node) for node in IDS}
    places = {node: bound(cluster, name, node).split(":") for node in IDS}
    return {node: (host, int(port)) for node, (host, port) in places.items()}


def place(node: Any) -> tuple[str, int]:
    return node.host, node.port


def check(cluster: EmbeddedCluster, name: str, node: int) -> None:
    """Check what a node answers to clients of one of its listeners."""
    wanted = expected(cluster, name)
    dialogue = Dialogue(bound(cluster, name, node))
    try:
        until(lambda: _metadata(dialogue) == wanted, lambda: _metadata(dialogue))
        until(lambda: _described(dialogue) == wanted, lambda: _described(dialogue))
        for key_type in (0, 1):
            keys = [f"key-{number}" for number in range(8)]
            until(lambda keys=keys, key_type=key_type: _coordinators(dialogue, keys, key_type, wanted))  # type: ignore[misc]
    finally:
        dialogue.close()


def _metadata(dialogue: Dialogue) -> dict[int, tuple[str, int]]:
    """Return the addresses of the brokers that are not fenced."""
    return {each.node_id: place(each) for each in dialogue.request("Metadata", 13, topics=[]).brokers}


def _described(dialogue: Dialogue) -> dict[int, tuple[str, int]]:
    """Return the same by DescribeCluster."""
    answer = dialogue.request("DescribeCluster", 2, endpoint_type=1)
    return {each.broker_id: place(each) for each in answer.brokers}


def _coordinators(dialogue: Dialogue, keys: list[str], key_type: int, wanted: dict[int, tuple[str, int]]) -> bool:
    """Return True if all coordinators are known; each has the address of its node then."""
    found = dialogue.request("FindCoordinator", 6, key_type=key_type, coordinator_keys=keys).coordinators
    if any(each.error_code for each in found):
        return False
    assert all(place(each) == wanted[each.node_id] for each in found)
    return True


@pytest.mark.parametrize("name", NAMES)
def test_clients_get_the_addresses_of_their_listener(cluster: EmbeddedCluster, name: str) -> None:
    for node in IDS:
        check(cluster, name, node)


def test_addresses_stay_after_a_restart_and_records_are_replicated(cluster: EmbeddedCluster) -> None:
    before = expected(cluster, "INTERNAL")
    cluster.restart(2)
    assert expected(cluster, "INTERNAL") == before
    cluster.wait_isr("t", 0, 3)
    for name in NAMES:
        check(cluster, name, 1)
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        producer.send("t", b"1").result(30)
    with Consumer("t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        until(lambda: [record.value for record in consumer.poll(1)] == [b"1"])
