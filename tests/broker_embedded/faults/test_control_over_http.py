"""The controls over HTTP, as a test in another language uses them: seen by a client that is not ours."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.faults.http_control import Http, confluent, deliver

MODES = pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])


@MODES
def test_another_client_sees_a_fault_that_was_made_by_http(processes: bool) -> None:
    with EmbeddedCluster(control_port=0, processes=processes) as cluster:
        assert cluster.control_url is not None
        control = Http(cluster.control_url)
        status, fault = control.ask(
            "POST",
            "/faults",
            {"kind": "fail", "api": "Produce", "error": "NOT_ENOUGH_REPLICAS", "topic": "orders", "times": 2},
        )
        assert status == 200
        assert control.ask("POST", "/requests/start", {"limit": 100}) == (200, {"limit": 100})
        producer = confluent(cluster.bootstrap_servers)
        assert deliver(producer, "orders") == [(None, 0)]
        status, seen = control.ask("GET", f"/faults/{fault['id']}/wait?hits=2&timeout=30")
        assert (status, seen["hits"], seen["over"], seen["error"]) == (200, 2, True, "NotEnoughReplicas")
        status, found = control.ask("GET", "/requests?api=Produce&topic=orders&answered=true")
        assert status == 200
        assert [each["errors"] for each in found["requests"]] == [["NotEnoughReplicas"]] * 2 + [[]]
        assert {each["client_id"] for each in found["requests"]} == {"rdkafka"}
        status, topic = control.ask("GET", "/topics/orders/wait?records=1&timeout=30")
        assert (status, topic["partitions"][0]["end_offset"]) == (200, 1)


def test_a_final_error_reaches_the_other_client_s_user(cluster: EmbeddedCluster, control: Http) -> None:
    producer = confluent(cluster.bootstrap_servers)
    assert deliver(producer, "final") == [(None, 0)]
    control.ask("POST", "/faults", {"kind": "fail", "api": "Produce", "error": 29, "topic": "final"})
    [(error, _offset)] = deliver(producer, "final")
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
    control.ask(
        "POST", "/faults", {"kind": "fail", "api": ["CreateTopics", "InitProducerId"], "error": 41, "times": None}
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    [future] = admin.create_topics([NewTopic("new", 1, 1)]).values()
    with pytest.raises(KafkaException) as caught:
        future.result(30)
    assert caught.value.args[0].code() == KafkaError.NOT_CONTROLLER


def test_a_held_request_is_released(cluster: EmbeddedCluster, control: Http) -> None:
    producer = confluent(cluster.bootstrap_servers)
    assert deliver(producer, "held") == [(None, 0)]
    _, fault = control.ask("POST", "/faults", {"kind": "hold", "api": "Produce"})
    seen: list[Any] = []
    sending = threading.Thread(target=lambda: seen.extend(deliver(producer, "held")))
    sending.start()
    assert control.ask("GET", f"/faults/{fault['id']}/wait")[1]["held"] == 1
    assert not seen
    assert control.ask("POST", f"/faults/{fault['id']}/release")[1]["over"] is True
    sending.join(60)
    assert seen == [(None, 1)]
    assert control.ask("DELETE", f"/faults/{fault['id']}")[0] == 200
    assert control.ask("GET", f"/faults/{fault['id']}")[0] == 404


def test_the_broker_is_restarted_by_http_and_its_faults_stay(cluster: EmbeddedCluster, control: Http) -> None:
    producer = confluent(cluster.bootstrap_servers, **{"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50})
    assert deliver(producer, "restarted") == [(None, 0)]
    _, fault = control.ask("POST", "/faults", {"kind": "delay", "api": "Produce", "seconds": 0, "times": None})
    status, state = control.ask("POST", "/broker/restart", {"clean": False, "down_seconds": 0.05})
    assert (status, state["running"], state["bootstrap_servers"]) == (200, True, cluster.bootstrap_servers)
    assert deliver(producer, "restarted") == [(None, 1)]
    assert control.ask("GET", f"/faults/{fault['id']}/wait")[1]["hits"] >= 1
    assert control.ask("POST", "/broker/stop")[1]["running"] is False
    assert control.ask("GET", "/topics")[0] == 409
    assert not cluster.alive
    assert control.ask("POST", "/broker/start")[1]["running"] is True
    assert cluster.alive


def test_a_broker_is_paused_for_a_while(cluster: EmbeddedCluster, control: Http, connect: Any) -> None:
    client = connect(cluster)
    assert control.ask("POST", "/broker/pause", {"seconds": 0.2})[0] == 200
    client.call(MetadataRequest(topics=[]), 1)


@MODES
def test_a_paused_broker_keeps_connections_and_answers_after_resume_only(processes: bool, connect: Any) -> None:
    with EmbeddedCluster(control_port=0, processes=processes) as cluster:
        control = Http(str(cluster.control_url))
        client = connect(cluster)
        client.call(MetadataRequest(topics=[]), 1)
        producer = confluent(cluster.bootstrap_servers)
        assert deliver(producer, "paused") == [(None, 0)]
        for _ in range(2):
            assert control.ask("POST", "/broker/pause")[1]["paused"] is True
        client.send(MetadataRequest(topics=[]), 1)
        late = connect(cluster)  # taken by the kernel
        late.send(MetadataRequest(topics=[]), 1)
        delivered: list[Any] = []
        producer.produce(
            "paused", b"value", on_delivery=lambda error, message: delivered.append((error, message.offset()))
        )
        assert producer.flush(0.5) == 1
        assert not delivered
        status, topic = control.ask("GET", "/topics/paused")  # the controls are served
        assert (status, topic["partitions"][0]["end_offset"]) == (200, 1)
        assert control.ask("GET", "/broker")[1]["paused"] is True
        assert control.ask("POST", "/broker/resume")[1]["paused"] is False
        assert client.receive(MetadataRequest, 1)[0].controller_id == 1
        assert late.receive(MetadataRequest, 1)[0].controller_id == 1
        assert producer.flush(60) == 0
        assert delivered == [(None, 1)]
        assert control.ask("POST", "/broker/resume")[0] == 200


def test_a_fetch_that_waits_is_answered_after_the_pause(cluster: EmbeddedCluster, control: Http, connect: Any) -> None:
    deliver(confluent(cluster.bootstrap_servers), "fetched")
    client = connect(cluster)
    part = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
    waiting = FetchTopic(topic="fetched", partitions=[part])
    client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[waiting]), 11)
    control.ask("POST", "/broker/pause")
    control.ask("POST", "/time/advance", {"seconds": 60})  # its time is over, its answer stays here
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(30)
    control.ask("POST", "/broker/resume")
    assert client.receive(FetchRequest, 11)[0].error_code == 0


def test_the_end_of_a_pause_is_what_was_said_last(cluster: EmbeddedCluster, control: Http) -> None:
    control.ask("POST", "/broker/pause", {"seconds": 0.1})
    control.ask("POST", "/broker/pause")
    assert control.ask("POST", "/broker/pause", {"seconds": -1})[0] == 400
    assert control.ask("POST", "/broker/restart", {"clean": False, "down_seconds": 0.2})[1]["paused"] is False
    control.ask("POST", "/broker/pause")
    cluster.repair()
    assert control.ask("GET", "/broker")[1]["paused"] is False
    control.ask("POST", "/broker/pause")
    assert control.ask("POST", "/broker/stop")[0] == 200
    assert control.ask("POST", "/broker/resume")[0] == 409
    assert control.ask("POST", "/broker/start")[1]["paused"] is False


def test_time_moves_and_a_group_is_waited_for(cluster: EmbeddedCluster, control: Http) -> None:
    assert control.ask("GET", "/groups/nobody%2Fknows")[1]["state"] == "Dead"
    assert control.ask("GET", "/groups/nobody%2Fknows/wait?state=dead,empty&members=0")[0] == 200
    status, problem = control.ask("GET", "/groups/g/wait?state=stable&timeout=0.05")
    assert (status, problem["error"]["type"]) == (408, "KafkaTimeout")
    assert "state=Dead" in problem["error"]["message"]
    before = control.ask("GET", "/broker")[1]["time_ms"]
    after = control.ask("POST", "/time/advance", {"seconds": 60})[1]["time_ms"]
    assert after - before >= 60_000
    assert control.ask("POST", "/retention")[0] == 200
    assert control.ask("POST", "/compact")[1] == {"rounds": 0}
    assert control.ask("POST", "/compact", {"topic": "nobody-made-it"})[0] == 404


def test_root_endpoint_lists_kinds_apis_and_endpoints(control: Http) -> None:
    status, found = control.ask("GET", "/")
    assert status == 200
    assert {"fail", "delay", "drop", "disconnect", "hold"} == set(found["kinds"])
    assert found["apis"]["OffsetCommit"]["limited_by"] == ["group", "partition", "topic"]
    assert found["broker"]["running"] is True
    listed = {(each["method"], each["path"]) for each in found["endpoints"]}
    assert ("POST", "/faults") in listed
    for method, path in listed:
        if method == "GET" and "wait" not in path and path not in ("/requests", "/"):
            assert control.ask(method, path.replace("{}", "1"))[0] in (200, 404), path


def test_a_fault_may_be_said_in_a_query(control: Http) -> None:
    query = "kind=delay&api=Produce&seconds=0.5&times=2&partition=0&topic=5&skip=1&node=1"
    status, fault = control.ask("POST", f"/faults?{query}")
    assert status == 200
    assert (fault["times"], fault["partition"], fault["topic"], fault["seconds"]) == (2, [0], "5", 0.5)


@MODES
def test_cluster_undoes_pause_and_stop_by_http(processes: bool, connect: Any) -> None:
    with EmbeddedCluster(processes=processes, control_port=0) as cluster:
        control = Http(cluster.control_url or "")
        [broker] = cluster.brokers
        client = connect(cluster)
        control.ask("POST", "/broker/pause")
        broker.resume()
        assert client.call(MetadataRequest(topics=[]), 1).controller_id == 1
        control.ask("POST", "/broker/stop")
        broker.start()
        assert connect(cluster).call(MetadataRequest(topics=[]), 1).controller_id == 1
        control.ask("POST", "/faults", {"kind": "drop", "times": None})
        cluster.faults.clear()
        assert control.ask("GET", "/faults")[1] == {"faults": []}
        control.ask("POST", "/time/advance", {"seconds": 10})
        cluster.advance_time(5)
        broker.restart()
        assert control.ask("GET", "/broker")[1]["advanced_seconds"] == 15


def test_foreground_broker_prints_the_url_of_its_controls() -> None:
    command = [
        sys.executable,
        "-m",
        "pyclient.broker_embedded",
        "--port",
        "0",
        "--control-port",
        "0",
        "--profile",
        "test",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            bootstrap, url = (process.stdout.readline().strip() for _ in range(2))
            assert bootstrap.startswith("bootstrap.servers=127.0.0.1:")
            control = Http(url.removeprefix("control.url="))
            lost = {"kind": "disconnect", "api": "Produce", "when": "after"}
            assert control.ask("POST", "/faults", lost)[0] == 200
            options = {"enable.idempotence": True, "retry.backoff.ms": 10}
            producer = confluent(bootstrap.removeprefix("bootstrap.servers="), **options)
            assert deliver(producer, "orders") == [(None, 0)]
            assert deliver(producer, "orders") == [(None, 1)]  # the batch that came twice is in the log once
            assert control.ask("GET", "/faults")[1]["faults"][0]["hits"] == 1
        finally:
            process.terminate()
        assert process.wait(120) == 0
