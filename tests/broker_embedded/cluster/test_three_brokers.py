"""Three brokers in threads: they replicate, elect, and come back; leaders move, links are cut, brokers come and go."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, NewTopic, Producer
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster import kafka_call
from pyclient.errors import ClientError, ClosedError, ConfigError, KafkaError, KafkaTimeout, NotController
from pyclient.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker_embedded.faults.http_control import Http
from tests.reading import read_all
from tests.waiting import until

SET, DELETE, BROKER = 0, 1, 4

FAST = {"replica.lag.time.max.ms": 500, "replica.fetch.wait.max.ms": 100}
PATIENT = {"broker.session.timeout.ms": 60_000}
"""On a busy machine, too, brokers keep their sessions; that of a killed one ends with its connection."""


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedCluster]:
    """Yield three brokers for all tests of the file."""
    config = {**FAST, "broker.session.timeout.ms": 6000}  # some tests wait until it is over, others for none to end
    with EmbeddedCluster(3, config=config, control_port=0) as cluster:
        yield cluster


@pytest.fixture
def topic(three: EmbeddedCluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield a topic with one partition on all brokers."""
    name = f"t{abs(hash(request.node.nodeid))}"
    create(three, name)
    yield name
    three.repair()


def create(cluster: EmbeddedCluster, name: str, partitions: int = 1) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, partitions)])
    for partition in range(partitions):
        cluster.wait_isr(name, partition, 3)


def send(cluster: EmbeddedCluster, topic: str, *values: bytes, **options: Any) -> list[int]:
    servers = cluster.bootstrap_servers
    timeouts = {"delivery_timeout_ms": 60_000, "request_timeout_ms": 2_000}
    with Producer[Any, Any](bootstrap_servers=servers, **timeouts, **options) as producer:
        return [each.result(60).offset for each in [producer.send(topic, value, partition=0) for value in values]]


def read(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    return [record.value for record in read_all(cluster.bootstrap_servers, topic)]


def leader_of(cluster: EmbeddedCluster, topic: str, *, but: int | None = None) -> int:
    """Return the leader of partition 0 as soon as it has one, which is not `but`."""
    until(lambda: cluster.leader_of(topic, 0) not in (None, but), "no other broker leads")
    leader = cluster.leader_of(topic, 0)
    assert leader is not None
    return leader


def controller_of(cluster: EmbeddedCluster, *, but: int | None = None) -> int:
    """Return the active controller as soon as there is one, which is not `but`."""
    until(lambda: cluster.controller_id not in (None, but), "no other controller is active")
    controller = cluster.controller_id
    assert controller is not None
    return controller


def other_than(cluster: EmbeddedCluster, *nodes: int | None) -> int:
    return next(each.id for each in cluster.brokers if each.id not in nodes)


def test_a_topic_is_on_all_brokers_and_what_is_sent_is_read(three: EmbeddedCluster, topic: str) -> None:
    assert three.bootstrap_servers.count(",") == 2
    assert send(three, topic, b"a", b"b", b"c") == [0, 1, 2]
    assert read(three, topic) == [b"a", b"b", b"c"]
    assert controller_of(three) in (1, 2, 3)


def test_killed_leader_is_replaced_and_nothing_is_lost(three: EmbeddedCluster, topic: str) -> None:
    send(three, topic, b"before")
    leader = leader_of(three, topic)
    three.kill(leader)
    assert send(three, topic, b"after") == [1]
    assert leader_of(three, topic, but=leader) != leader
    assert read(three, topic) == [b"before", b"after"]
    three.start()
    assert sorted(three.wait_isr(topic, 0, 3)) == [1, 2, 3]


def test_killed_controller_is_replaced(three: EmbeddedCluster, topic: str) -> None:
    controller = controller_of(three)
    three.kill(controller)
    create_while_down = f"{topic}-later"
    with Admin(three.bootstrap_servers) as admin:
        # for a moment the new controller takes the killed node for alive, and may give it a replica
        admin.create_topics([NewTopic(create_while_down, 1, 2, configs={"min.insync.replicas": "1"})])
    assert controller_of(three, but=controller) != controller
    assert send(three, create_while_down, b"x") == [0]


def test_killed_nodes_neither_lead_nor_control() -> None:
    """Without a controller the metadata name the killed leader for ever."""
    with EmbeddedCluster(3, controllers=1, config=PATIENT) as cluster:
        create(cluster, "t")
        leader = cluster.leader_of("t", 0)
        assert leader in (1, 2, 3)
        cluster.kill(3000)
        assert cluster.controller_id is None
        cluster.kill(leader)
        assert cluster.leader_of("t", 0) is None


def test_records_are_sent_and_read_while_most_controllers_are_down() -> None:
    with EmbeddedCluster(3, controllers=3, config=PATIENT) as cluster:
        create(cluster, "t")
        leader, (first, second, third) = cluster.leader_of("t", 0), [each.id for each in cluster.nodes[3:]]
        with Producer(cluster.bootstrap_servers, request_timeout_ms=2_000) as producer:
            producer.send("t", b"before", partition=0).result(60)
            cluster.kill(first)
            cluster.kill(second)
            until(lambda: cluster.controller_id is None, "the controller that is left has no majority")
            assert cluster.node(third).alive
            for number in range(3):
                assert producer.send("t", b"meanwhile", partition=0).result(60).offset == 1 + number
            assert read(cluster, "t") == [b"before"] + [b"meanwhile"] * 3
            assert cluster.leader_of("t", 0) == leader
            with Admin(cluster.bootstrap_servers) as admin, pytest.raises(KafkaError):
                admin.create_topics([NewTopic("new")], timeout=2.0)
            cluster.start()
            create(cluster, "later")
            assert producer.send("t", b"after", partition=0).result(60).offset == 4


def test_nothing_is_acknowledged_with_two_brokers_down_until_one_is_back(three: EmbeddedCluster, topic: str) -> None:
    leader = leader_of(three, topic)
    followers = [each.id for each in three.brokers if each.id != leader]
    for node in followers:
        three.kill(node)
    with Producer(bootstrap_servers=three.bootstrap_servers, delivery_timeout_ms=60_000) as producer:
        future = producer.send(topic, b"waits", partition=0)
        with pytest.raises(KafkaTimeout):
            future.result(1.0)
        three.start(followers[0])
        assert future.result(60).offset == 0
    three.start()
    assert read(three, topic) == [b"waits"]


def test_a_leader_moves_to_an_in_sync_replica(three: EmbeddedCluster, topic: str) -> None:
    target = other_than(three, leader_of(three, topic))
    three.move_leader(topic, 0, target)
    assert three.leader_of(topic, 0) == target
    assert send(three, topic, b"x") == [0]
    with pytest.raises(ConfigError, match="cannot lead"):
        three.move_leader(topic, 0, 9)


def test_leader_moves_to_a_replica_once_it_is_in_sync(three: EmbeddedCluster, topic: str) -> None:
    frozen = three.freeze_follower(topic, 0)
    send(three, topic, b"x")
    until(lambda: frozen not in three.wait_isr(topic, 0, 2))
    with pytest.raises(KafkaTimeout, match="after 0 s"):
        three.move_leader(topic, 0, frozen, timeout=0)
    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(three.move_leader, topic, 0, frozen, 60)
        three.heal()
        moved.result()
    assert three.leader_of(topic, 0) == frozen


@pytest.mark.parametrize("api", ["AlterPartitionReassignments", "ElectLeaders"])
def test_moving_a_leader_survives_a_lost_answer(three: EmbeddedCluster, topic: str, api: str) -> None:
    target = other_than(three, leader_of(three, topic))
    with three.faults.disconnect(api, when="after") as lost:
        three.move_leader(topic, 0, target)
    assert lost.hits() == 1
    assert three.leader_of(topic, 0) == target


def test_moving_a_leader_waits_for_another_controller(three: EmbeddedCluster, topic: str) -> None:
    target = other_than(three, leader_of(three, topic))
    with three.faults.fail("ElectLeaders", NotController, times=2) as refused:
        three.move_leader(topic, 0, target)
    assert refused.hits() == 2
    assert three.leader_of(topic, 0) == target


def test_a_frozen_follower_leaves_the_isr_and_returns(three: EmbeddedCluster, topic: str) -> None:
    frozen = three.freeze_follower(topic, 0)
    send(three, topic, b"x")
    until(lambda: frozen not in three.wait_isr(topic, 0, 2), "the frozen follower leaves alone")
    three.heal()
    assert frozen in three.wait_isr(topic, 0, 3)


def test_follower_to_freeze_has_to_be_in_sync(three: EmbeddedCluster, topic: str) -> None:
    frozen = {three.freeze_follower(topic, 0)}
    send(three, topic, b"x")
    until(lambda: not frozen.intersection(three.wait_isr(topic, 0, 2)), "the frozen follower leaves alone")
    frozen.add(three.freeze_follower(topic, 0))
    send(three, topic, b"x", acks=1)
    three.wait_isr(topic, 0, 1)
    assert frozen == {1, 2, 3} - {leader_of(three, topic)}
    with pytest.raises(KafkaTimeout, match="after 0 s"):
        three.freeze_follower(topic, 0, timeout=0)
    three.heal()
    assert three.freeze_follower(topic, 0) in frozen
    with Admin(three.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("alone", assignments={0: [1]})])
    with pytest.raises(ConfigError, match="alone-0 has no follower: its only replica is 1"):
        three.freeze_follower("alone", 0)


def test_heal_does_not_need_a_majority_of_the_controllers(three: EmbeddedCluster, topic: str) -> None:
    three.kill()
    three.start(1)  # it finds no active controller, and so it replicates nothing yet
    with pytest.raises(ClientError, match="has not found the active controller yet"):
        three.node(1).call("POST", "/replication/freeze")
    three.heal()
    three.start()
    assert three.wait_isr(topic, 0, 3)


def test_a_leader_that_is_cut_off_acknowledges_nothing_and_is_replaced(three: EmbeddedCluster, topic: str) -> None:
    leader = leader_of(three, topic)
    for broker in three.brokers:
        if broker.id != leader:
            three.cut(leader, broker.id)
    assert send(three, topic, b"x") == [0]
    three.heal()
    assert sorted(three.wait_isr(topic, 0, 3)) == [1, 2, 3]
    assert read(three, topic) == [b"x"]


def test_first_cut_moves_neither_the_controller_nor_leaders() -> None:
    """The two nodes reconnect over proxies, and keep their connections to the active controller."""
    lasting = {"controller.quorum.fetch.timeout.ms": 60_000, "replica.lag.time.max.ms": 60_000}
    config = {**PATIENT, **lasting, "internal.broker.closed.connection.grace.ms": 1}
    with EmbeddedCluster(3, config=config) as cluster:
        create(cluster, "t", 3)

        def state() -> list[Any]:
            known = [broker.call("GET", "/broker") for broker in cluster.brokers]
            leaders = [(each["leader"], each["leader_epoch"]) for each in cluster.wait_topic("t")["partitions"]]
            return [*((each["controller_id"], each["controller_epoch"]) for each in known), *leaders]

        until(lambda: len(set(state()[:3])) == 1, state)
        before = state()
        cluster.cut(*(broker.id for broker in cluster.brokers if broker.id != cluster.controller_id))
        cluster.heal()
        with Producer(cluster.bootstrap_servers) as producer:
            for number in range(9):
                producer.send("t", b"x", partition=number % 3).result(60)
        assert state() == before


def test_a_paused_node_is_replaced_and_returns(three: EmbeddedCluster, topic: str) -> None:
    leader = leader_of(three, topic)
    three.pause(leader)
    assert send(three, topic, b"x") == [0]
    three.resume(leader)
    assert sorted(three.wait_isr(topic, 0, 3)) == [1, 2, 3]


def test_nodes_that_are_not_there_are_named(three: EmbeddedCluster, topic: str) -> None:
    for call in (three.kill, three.pause, three.restart, three.stop, three.remove_broker):
        with pytest.raises(ConfigError, match="there is no node 7: the cluster has 1, 2, 3"):
            call(7)
    nothing: Any = None  # what leader_of returns in a moment without a leader
    for call in (three.kill, three.restart, three.start):
        with pytest.raises(ConfigError, match=r"no node None: .* \(leader_of and controller_id are None"):
            call(nothing)
    assert all(node.alive for node in three.brokers)
    with pytest.raises(ConfigError, match="no node 7"):
        three.cut(1, 7)
    with pytest.raises(ConfigError, match="two different ends"):
        three.cut(1, 1)
    with pytest.raises(ConfigError, match=r"no partition .*-5"):
        three.leader_of(topic, 5)
    with pytest.raises(ConfigError, match=r"controllers=3.*dynamic_quorum=True, and call remove_controller\(1\)"):
        three.remove_broker(1)


def test_one_node_has_no_links() -> None:
    with EmbeddedCluster() as cluster, pytest.raises(ConfigError, match="one node"):
        cluster.cut(1, 2)


def test_the_cluster_is_controlled_by_http(three: EmbeddedCluster, topic: str) -> None:
    assert three.control_url is not None
    control = Http(three.control_url)
    status, answer = control.ask("GET", "/cluster")
    assert status == 200
    assert [node["state"] for node in answer["nodes"]] == ["running"] * 3
    leader = leader_of(three, topic)
    status, answer = control.ask("GET", f"/cluster/leader?topic={topic}&partition=0")
    assert (status, answer["leader"]) == (200, leader)
    assert control.ask("POST", "/cluster/kill", {"node": answer["leader"]})[0] == 200
    assert three.node(answer["leader"]).state == "down"
    assert control.ask("POST", "/cluster/start")[0] == 200
    status, answer = control.ask("GET", f"/cluster/wait-isr?topic={topic}&partition=0&size=3&timeout=30")
    assert (status, sorted(answer["isr"])) == (200, [1, 2, 3])
    assert control.ask("GET", f"/nodes/2/topics/{topic}")[1]["topic"] == topic


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "expected"),
    [
        ("POST", "/cluster/kill", {"node": 9}, 400, "there is no node 9"),
        ("POST", "/cluster/kill", {"node": None}, 400, "node is None: it must be a whole number"),
        ("POST", "/cluster/pause", {}, 400, "node is missing: give it"),
        ("POST", "/cluster/cut", {"a": 1, "c": 2}, 400, "c: POST /cluster/cut has no such field"),
        ("POST", "/cluster/slow", {"a": 1, "b": 2}, 400, "latency_ms is missing: give it"),
        ("POST", "/cluster/slow", {"a": 1, "b": 2, "latency_ms": True}, 400, "latency_ms is True: it must be a number"),
        ("POST", "/cluster/slow", {"a": 1, "b": 2, "latency_ms": 1, "bandwidth": -0.5}, 400, "bandwidth is -0.5"),
        ("POST", "/cluster/remove-broker", {"node": 2, "timeout": "soon"}, 400, "timeout is 'soon'"),
        ("GET", "/cluster/kill", None, 405, "only POST"),
        ("GET", "/clustered", None, 404, "/cluster"),
        ("GET", "/nodes/x/topics", None, 404, "/nodes/ID/"),
        ("GET", "/nodes/9/topics", None, 400, "there is no node 9"),
    ],
)
def test_invalid_request_gets_a_status_and_a_reason(
    three: EmbeddedCluster, method: str, path: str, body: Any, status: int, expected: str
) -> None:
    assert three.control_url is not None
    answered, answer = Http(three.control_url).ask(method, path, body)
    assert answered == status
    assert expected in answer["error"]["message"]


def test_a_broker_joins_and_leaves(three: EmbeddedCluster) -> None:
    broker = three.add_broker()
    assert broker.id == 4
    with Admin(three.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("with-four", assignments={0: [4, 1, 2]})])
    three.wait_isr("with-four", 0, 3)
    assert three.leader_of("with-four", 0) == 4
    send(three, "with-four", b"x")
    with three.faults.disconnect("UnregisterBroker", when="after") as lost:
        three.remove_broker(4)
    assert lost.hits() == 1
    assert 4 not in three.wait_isr("with-four", 0, 3)
    assert read(three, "with-four") == [b"x"]
    assert [each.id for each in three.brokers] == [1, 2, 3]


def test_broker_that_was_stopped_in_order_gets_replicas_of_new_topics(three: EmbeddedCluster, topic: str) -> None:
    """It has handed its leadership over, and is fenced: as a killed one it gets replicas, but leads nothing."""
    three.move_leader(topic, 0, 3)
    three.stop(3)
    # on a busy machine the broker may give up before it hands over, and is fenced later
    until(lambda: not any(3 in dict(broker.call("GET", "/broker")["brokers"]) for broker in three.brokers[:2]))
    new = f"{topic}-new"
    with Admin(three.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(new, 3, 3)])
        partitions = admin.describe_topics([new])[new].partitions
        assert not any(3 in each.isr for each in partitions)
        # on a busy machine the others may be out of sync for a moment
        until(lambda: [sorted(each.isr) for each in admin.describe_topics([new])[new].partitions] == [[1, 2]] * 3)
    assert [sorted(each.replicas) for each in partitions] == [[1, 2, 3]] * 3
    assert {each.replicas[-1] for each in partitions} == {3}
    send(three, new, b"x")
    three.start(3)
    for partition in range(3):
        three.wait_isr(new, partition, 3)


def test_cluster_comes_back_without_the_brokers_that_were_removed(tmp_path: Path) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path) as cluster:
        for number in range(2):
            assert cluster.add_broker().id == 4
            with Admin(cluster.bootstrap_servers) as admin:
                admin.create_topics([NewTopic(f"t{number}", assignments={0: [4, 1, 2]})])
            send(cluster, f"t{number}", b"x")
            cluster.remove_broker(4)
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
            *(f"node-{node}" for node in (1, 2, 3)),
            "removed-4",
            "removed-4-2",
        ]
    with EmbeddedCluster(3, data_dir=tmp_path) as cluster:
        assert [read(cluster, f"t{number}") for number in range(2)] == [[b"x"], [b"x"]]


def test_first_broker_is_removed_where_controllers_are_other_nodes() -> None:
    with EmbeddedCluster(3, controllers=1) as cluster:
        create(cluster, "t")
        send(cluster, "t", b"x")
        cluster.remove_broker(1)
        assert sorted(cluster.wait_isr("t", 0, 2)) == [2, 3]
        assert read(cluster, "t") == [b"x"]


def test_replicas_are_spread_over_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    with (
        EmbeddedCluster(4, racks=["a", "a", "b", "b"], replication_factor=2, config=PATIENT) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic("two", 8)])
        partitions = admin.describe_topics(["two"])["two"].partitions
        assert [{racks[node] for node in each.replicas} for each in partitions] == [{"a", "b"}] * 8
        assert cluster.add_broker("c").id == 5
        admin.create_topics([NewTopic("three", 4, 3)])
        partitions = admin.describe_topics(["three"])["three"].partitions
        assert [{racks[node] for node in each.replicas} for each in partitions] == [{"a", "b", "c"}] * 4


def test_options_of_each_broker_are_changed_through_any_broker(three: EmbeddedCluster) -> None:
    """The active controller decides on options of other brokers, too: as for a reassignment with a throttle."""
    name = "follower.replication.throttled.rate"
    for operation, value in ((SET, "1000000"), (DELETE, None)):
        for broker in three.brokers:
            resources = [
                AlterConfigsResource(
                    resource_type=BROKER,
                    resource_name=str(each.id),
                    configs=[AlterableConfig(name=name, config_operation=operation, value=value)],
                )
                for each in three.brokers
            ]
            answer = kafka_call.call(
                broker.config, IncrementalAlterConfigsRequest(resources=resources, validate_only=False)
            )
            assert [(each.error_code, each.error_message) for each in answer.responses] == [(0, None)] * 3


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["threads", "processes"])
def test_a_cluster_comes_back_with_all_data(tmp_path: Path, processes: bool) -> None:
    with EmbeddedCluster(3, data_dir=tmp_path, processes=processes) as cluster:
        create(cluster, "kept")
        send(cluster, "kept", b"1", b"2")
        cluster.kill()
        with pytest.raises(ClientError):
            cluster.leader_of("kept", 0)
        cluster.start()
        send(cluster, "kept", b"3")
    with EmbeddedCluster(3, data_dir=tmp_path, processes=processes) as cluster:
        assert read(cluster, "kept") == [b"1", b"2", b"3"]


@pytest.mark.slow
def test_dedicated_controllers_serve_no_clients() -> None:
    with EmbeddedCluster(1, controllers=3) as cluster:
        assert [node.id for node in cluster.nodes] == [1, 3000, 3001, 3002]
        assert cluster.controller_id in (3000, 3001, 3002)
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1, 1)])
        cluster.kill(cluster.controller_id)
        assert send(cluster, "t", b"x") == [0]


def test_cluster_that_could_not_start_needs_no_close(tmp_path: Path) -> None:
    (tmp_path / "node-2").write_text("a file where the node needs a directory")
    cluster = EmbeddedCluster(3, data_dir=tmp_path)
    with pytest.raises(ClientError, match="node-2"):
        cluster.start()
    assert repr(cluster) == "<EmbeddedCluster 3 brokers in threads, not started>"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del cluster
        gc.collect()
    (tmp_path / "node-2").unlink()
    with EmbeddedCluster(3, data_dir=tmp_path) as second:
        create(second, "t")


def test_cluster_of_which_one_broker_was_started_has_its_address() -> None:
    cluster = EmbeddedCluster(3)
    with pytest.raises(ClosedError, match="was not started"):
        _ = cluster.bootstrap_servers
    try:
        cluster.start(2)
        assert cluster.bootstrap_servers == cluster.node(2).address
        assert repr(cluster) == f"<EmbeddedCluster 3 brokers in threads, {cluster.node(2).address}>"
        cluster.start()
        assert cluster.bootstrap_servers == ",".join(each.address for each in cluster.brokers)
    finally:
        cluster.close()
