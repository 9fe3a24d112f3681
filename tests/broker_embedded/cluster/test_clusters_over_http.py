"""Whole clusters are created and destroyed over HTTP, next to the controls of the broker that serves them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyclient import Consumer, Producer, TopicPartition
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.cluster.clusters import Clusters
from pyclient.broker_embedded.controls.endpoint import NotFound
from pyclient.errors import ConfigError, TopicAuthorizationFailed
from tests.broker_embedded.faults.http_control import Http
from tests.waiting import PATIENCE


@pytest.fixture(scope="module")
def http() -> Iterator[Http]:
    with EmbeddedCluster(control_port=0) as cluster:
        yield Http(cluster.control_url)


def created(http: Http, **options: Any) -> dict[str, Any]:
    status, answer = http.ask("POST", "/clusters", options)
    assert status == 200, answer
    return answer  # type: ignore[no-any-return]


def test_clusters_are_independent_and_can_be_destroyed(http: Http) -> None:
    first, second = created(http), created(http, id="second", config={"num.partitions": 3})
    assert second["id"] == "second"
    assert first["id"] != "second"
    for cluster, value in ((first, b"1"), (second, b"2")):
        with Producer(cluster["bootstrap_servers"]) as producer:
            producer.send("t", value, partition=0).result(60)
    with Consumer(bootstrap_servers=second["bootstrap_servers"], auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert [record.value for record in consumer.poll(30)] == [b"2"]
    assert [each["id"] for each in http.ask("GET", "/clusters")[1]] == sorted([first["id"], "second"])
    status, topic = http.ask("GET", "/clusters/second/nodes/1/topics/t")
    assert (status, len(topic["partitions"])) == (200, 3)
    assert http.ask("POST", f"{first['controls']}/cluster/kill", {"node": 1})[0] == 200
    assert http.ask("GET", first["controls"])[1]["nodes"][0]["state"] != second["nodes"][0]["state"]
    for cluster in (first, second):
        assert http.ask("DELETE", cluster["controls"]) == (200, {})
        assert http.ask("GET", cluster["controls"])[0] == 404
    assert http.ask("GET", "/clusters") == (200, [])


def test_a_cluster_of_three_brokers(http: Http) -> None:
    cluster = created(http, brokers=3, node_properties={"2": {"num.partitions": 7}})
    assert cluster["bootstrap_servers"].count(",") == 2
    with Producer(cluster["bootstrap_servers"]) as producer:
        assert producer.send("t", b"x").result(60).offset == 0
    path = f"{cluster['controls']}/cluster/wait-isr?topic=t&partition=0&size=3&timeout=60"
    assert sorted(http.ask("GET", path)[1]["isr"]) == [1, 2, 3]
    assert http.ask("DELETE", cluster["controls"])[0] == 200


def test_a_cluster_whose_controllers_can_change(http: Http) -> None:
    cluster = created(http, brokers=1, controllers=1, dynamic_quorum=True)
    assert http.ask("POST", f"{cluster['controls']}/cluster/add-controller", {}) == (200, {"node": 3001})
    assert http.ask("DELETE", cluster["controls"])[0] == 200


@pytest.mark.parametrize("brokers", [1, 3])
def test_cluster_with_acls_refuses_a_user_without_the_right(http: Http, brokers: int) -> None:
    users = {"alice": "a-secret", "bob": "b-secret"}
    rights = [["topic", "t", "User:alice", operation] for operation in ("create", "write", "describe")]
    cluster = created(http, brokers=brokers, security="SASL_PLAINTEXT", users=users, acls=rights)
    login: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    with Producer(cluster["bootstrap_servers"], sasl_username="alice", sasl_password="a-secret", **login) as producer:
        assert producer.send("t", b"x").result(60).offset == 0
    with (
        Producer(cluster["bootstrap_servers"], sasl_username="bob", sasl_password="b-secret", **login) as producer,
        pytest.raises(TopicAuthorizationFailed, match="'t'"),
    ):
        producer.send("t", b"y").result(60)
    assert http.ask("DELETE", cluster["controls"])[0] == 200


def test_cluster_is_there_when_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    original = EmbeddedCluster.start

    def start(cluster: EmbeddedCluster) -> EmbeddedCluster:
        begun.set()
        assert may_go_on.wait(PATIENCE)
        return original(cluster)

    monkeypatch.setattr(EmbeddedCluster, "start", start)
    clusters = Clusters()
    try:
        with ThreadPoolExecutor(1) as pool:
            creation = pool.submit(clusters.create, {"id": "slow"})
            try:
                assert begun.wait(PATIENCE)
                assert clusters.all() == []
                for call in (clusters.describe, clusters.destroy):
                    with pytest.raises(NotFound):
                        call("slow")
                with pytest.raises(ConfigError, match="there is a cluster with this id"):
                    clusters.create({"id": "slow"})
            finally:
                may_go_on.set()
            assert creation.result(PATIENCE)["id"] == "slow"
        assert [each["id"] for each in clusters.all()] == ["slow"]
    finally:
        clusters.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", "/clusters", {"broker": 3}, 400, "did you mean brokers"),
        ("POST", "/clusters", {"brokers": 0}, 400, "brokers is 0"),
        ("POST", "/clusters", {"data_dir": "/tmp"}, 400, "no such field"),
        ("POST", "/clusters", {"config": ["x"]}, 400, "must be a JSON object"),
        ("POST", "/clusters", {"node_properties": {"x": {}}}, 400, "node_properties has 'x'"),
        ("POST", "/clusters", {"acls": {"topic": "t"}}, 400, "it must be a JSON list like [["),
        ("POST", "/clusters", {"acls": ["read"]}, 400, "it must be a JSON list like [["),
        ("POST", "/clusters", {"acls": [["topic", "t", "User:alice"]]}, 400, "acls: "),
        ("POST", "/clusters", {"acls": []}, 400, "give users, too"),
        ("POST", "/clusters", {"id": "../x"}, 400, "letters, digits"),
        ("DELETE", "/clusters/none", None, 404, "there is no cluster 'none'"),
        ("GET", "/clusters/none/nodes/1/topics", None, 404, "there is no cluster 'none'"),
        ("POST", "/clusters/none", None, 405, "only GET and DELETE"),
        ("DELETE", "/clusters", None, 405, "only GET and POST"),
    ],
)
def test_impossible_requests(http: Http, method: str, path: str, body: Any, status: int, text: str) -> None:
    got, answer = http.ask(method, path, body)
    assert (got, text in answer["error"]["message"]) == (status, True), answer
    assert http.ask("GET", "/clusters") == (200, [])
