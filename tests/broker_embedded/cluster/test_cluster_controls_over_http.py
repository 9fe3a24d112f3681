"""Each control of a whole cluster works over HTTP: its effect is seen at the brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from tests.broker_embedded.faults.http_control import Http
from tests.waiting import until

FAST = {"replica.lag.time.max.ms": 500, "replica.fetch.wait.max.ms": 100}
LASTING = {"broker.session.timeout.ms": 6000, "controller.quorum.fetch.timeout.ms": 60_000}
"""On a busy machine, too, leaders and the active controller stay where they are.

The sessions end soon enough for a restart of all nodes: brokers that could not hand over register when theirs are over.
"""


class Controls:
    """A client of the controls of a cluster, which knows it by HTTP only."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._http = Http(cluster.control_url)  # type: ignore[arg-type]
        self.servers = cluster.bootstrap_servers

    def get(self, path: str) -> Any:
        status, answer = self._http.ask("GET", path)
        assert status == 200, answer
        return answer

    def post(self, path: str, **values: Any) -> Any:
        status, answer = self._http.ask("POST", path, values)
        assert status == 200, answer
        return answer

    def states(self) -> dict[int, str]:
        """Return the states of the nodes, by id."""
        return {each["node_id"]: each["state"] for each in self.get("/cluster")["nodes"]}

    def leader(self, topic: str) -> int | None:
        """Return the leader of partition 0."""
        found: int | None = self.get(f"/cluster/leader?topic={topic}&partition=0")["leader"]
        return found

    def isr(self, topic: str, size: int) -> list[int]:
        """Wait until partition 0 has that many in-sync replicas, and return them."""
        answer = self.get(f"/cluster/wait-isr?topic={topic}&partition=0&size={size}&timeout=60")
        return sorted(answer["isr"])

    def controller(self) -> int:
        """Return the active controller as soon as there is one."""
        found: int = until(lambda: self.get("/cluster")["controller_id"], "no controller is active")
        return found

    def broker_epoch(self, node: int) -> int:
        """Return the broker epoch, which a restart changes, as soon as the node is not fenced."""
        epoch: int = until(lambda: self.get(f"/nodes/{node}/broker")["broker_epoch"], f"node {node} is fenced")
        return epoch

    def create(self, topic: str, *replicas: int) -> None:
        """Create a topic with one partition, led by the first of the replicas."""
        with Admin(self.servers) as admin:
            admin.create_topics([NewTopic(topic, assignments={0: list(replicas)})])
        self.isr(topic, len(replicas))

    def send(self, topic: str) -> None:
        """Send a record with acks=all."""
        with Producer(self.servers, delivery_timeout_ms=60_000, request_timeout_ms=2_000) as producer:
            producer.send(topic, b"x", partition=0).result(60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(3, config={**FAST, **LASTING}, control_port=0) as cluster:
        yield cluster


@pytest.fixture
def controls(cluster: EmbeddedCluster) -> Iterator[Controls]:
    yield Controls(cluster)
    cluster.repair()


def test_stop_hands_the_leadership_over_and_start_brings_the_node_back(controls: Controls) -> None:
    controls.create("stopped", 1, 2, 3)
    states = {each["node_id"]: each["state"] for each in controls.post("/cluster/stop", node=1)["nodes"]}
    assert states == {1: "down", 2: "running", 3: "running"}
    until(lambda: controls.leader("stopped") in (2, 3), "another broker leads")
    controls.send("stopped")
    controls.post("/cluster/start", node=1)
    assert controls.isr("stopped", 3) == [1, 2, 3]


def test_restart_of_one_node_or_of_all_changes_broker_epochs(controls: Controls) -> None:
    before = [controls.broker_epoch(node) for node in (1, 2, 3)]
    controls.post("/cluster/restart", node=2)
    after = [controls.broker_epoch(node) for node in (1, 2, 3)]
    assert [new > old for old, new in zip(before, after, strict=True)] == [False, True, False]
    controls.post("/cluster/restart")
    assert [controls.broker_epoch(node) > epoch for node, epoch in zip((1, 2, 3), after, strict=True)] == [True] * 3


def test_paused_leader_is_replaced_and_follows_when_it_is_resumed() -> None:
    with EmbeddedCluster(3, config=FAST, control_port=0) as cluster:
        controls = Controls(cluster)
        controls.create("paused", 3, 1, 2)
        controls.post("/cluster/pause", node=3)
        assert controls.states() == {1: "running", 2: "running", 3: "paused"}
        until(lambda: controls.leader("paused") in (1, 2), "another broker leads")
        controls.send("paused")
        controls.post("/cluster/resume", node=3)
        assert controls.states()[3] == "running"
        assert controls.isr("paused", 3) == [1, 2, 3]


def test_follower_behind_a_slow_link_leaves_the_isr(controls: Controls) -> None:
    controller = controls.controller()
    leader, follower = (node for node in (1, 2, 3) if node != controller)
    controls.create("slow", leader, follower, controller)
    controls.post("/cluster/slow", a=leader, b=follower, latency_ms=60_000.5, bandwidth=1e6)
    controls.send("slow")
    until(lambda: controls.isr("slow", 2) == sorted([leader, controller]), "the follower leaves the ISR alone")
    assert controls.leader("slow") == leader
    controls.post("/cluster/heal")
    assert controls.isr("slow", 3) == [1, 2, 3]


@pytest.mark.parametrize("one_way", [False, True])
def test_follower_behind_a_cut_leaves_the_isr_until_heal(controls: Controls, one_way: bool) -> None:
    controller = controls.controller()  # it reaches both ends of the link
    leader, follower = (node for node in (1, 2, 3) if node != controller)
    topic = f"cut-{one_way}"
    controls.create(topic, leader, follower, controller)
    controls.post("/cluster/cut", a=leader, b=follower, one_way=one_way)
    controls.send(topic)
    until(lambda: controls.isr(topic, 2) == sorted([leader, controller]), "the follower leaves the ISR alone")
    controls.post("/cluster/heal")
    assert controls.isr(topic, 3) == [1, 2, 3]


def test_frozen_follower_leaves_the_isr_until_heal(controls: Controls) -> None:
    controls.create("frozen", 1, 2, 3)
    frozen = controls.post("/cluster/freeze-follower", topic="frozen", partition=0)["node"]
    controls.send("frozen")
    until(lambda: controls.isr("frozen", 2) == sorted({1, 2, 3} - {frozen}), "the frozen follower leaves alone")
    controls.post("/cluster/heal")
    assert controls.isr("frozen", 3) == [1, 2, 3]


def test_moved_leader_leads(controls: Controls) -> None:
    controls.create("moved", 1, 2, 3)
    target = next(node for node in (1, 2, 3) if node != controls.leader("moved"))
    controls.post("/cluster/move-leader", topic="moved", partition=0, node=target)
    assert controls.leader("moved") == target
    controls.send("moved")


def test_added_broker_gets_partitions_and_a_removed_one_leaves_them(controls: Controls) -> None:
    added = controls.post("/cluster/add-broker", rack="r4")["node"]
    assert added == 4
    assert controls.states() == dict.fromkeys((1, 2, 3, 4), "running")
    controls.create("added", 4, 1, 2)
    assert controls.isr("added", 3) == [1, 2, 4]
    controls.send("added")
    states = {each["node_id"]: each["state"] for each in controls.post("/cluster/remove-broker", node=4)["nodes"]}
    assert states == dict.fromkeys((1, 2, 3), "running")
    assert controls.isr("added", 3) == [1, 2, 3]

    def seen_by_node_1() -> tuple[list[int], int]:
        [partition] = controls.get("/nodes/1/topics/added")["partitions"]
        return sorted(partition["replicas"]), partition["end_offset"]

    until(lambda: seen_by_node_1() == ([1, 2, 3], 1), seen_by_node_1)
