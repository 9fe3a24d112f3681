"""The controls over HTTP, as a test in another language uses them: seen by a client that is not ours."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from pyclient.protocol.messages.metadata import MetadataRequest

MODES = pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])


class Http:
    """A client of the controls."""

    def __init__(self, url: str) -> None:
        self.host = url.removeprefix("http://").rstrip("/")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            text = body if isinstance(body, (str, bytes)) or body is None else json.dumps(body)
            connection.request(method, path, text, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        host, _, port = self.host.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while more := sock.recv(65536):
                answer += more
        return answer


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(control_port=0) as cluster:
        yield cluster


@pytest.fixture
def control(cluster: EmbeddedCluster) -> Iterator[Http]:
    assert cluster.control_url is not None
    control = Http(cluster.control_url)
    yield control
    control.ask("DELETE", "/faults")


def confluent(bootstrap: str, **options: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "log_level": 0, **options})


def deliver(producer: Producer, topic: str) -> list[Any]:
    """What became of one record: (error, offset)."""
    seen: list[Any] = []
    producer.produce(topic, b"value", on_delivery=lambda error, message: seen.append((error, message.offset())))
    producer.flush(60)
    return seen


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
    with pytest.raises((KafkaException, AssertionError)):
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        [future] = admin.create_topics([NewTopic("new", 1, 1)], operation_timeout=1, request_timeout=3).values()
        future.result(30)


def test_a_held_request_is_let_go(cluster: EmbeddedCluster, control: Http) -> None:
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
        told: list[Any] = []
        producer.produce("paused", b"value", on_delivery=lambda error, message: told.append((error, message.offset())))
        assert producer.flush(0.5) == 1
        assert not told
        status, topic = control.ask("GET", "/topics/paused")  # the controls are served
        assert (status, topic["partitions"][0]["end_offset"]) == (200, 1)
        assert control.ask("GET", "/broker")[1]["paused"] is True
        assert control.ask("POST", "/broker/resume")[1]["paused"] is False
        assert client.receive(MetadataRequest, 1)[0].controller_id == 1
        assert late.receive(MetadataRequest, 1)[0].controller_id == 1
        assert producer.flush(60) == 0
        assert told == [(None, 1)]
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


def test_what_there_is_describes_itself(control: Http) -> None:
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


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "expected"),
    [
        ("GET", "/fault", None, 404, "did you mean /faults"),
        ("GET", "/topics/nobody-made-it", None, 404, "no topic 'nobody-made-it'"),
        ("DELETE", "/broker", None, 405, "only GET"),
        ("POST", "/faults", {"kind": "fial", "api": "Produce"}, 400, "did you mean fail"),
        ("POST", "/faults", {"kind": "fail", "api": "Prodce", "error": 6}, 400, "did you mean Produce"),
        ("POST", "/faults", {"kind": "fail", "api": "Vote", "error": 6}, 400, "does not serve it"),
        ("POST", "/faults", {"kind": "fail", "api": "Produce", "error": "NotLeader"}, 400, "no error of Kafka's"),
        ("POST", "/faults", {"kind": "fail", "api": "Produce"}, 400, "error: fail needs it"),
        ("POST", "/faults", {"kind": "drop", "topics": "t"}, 400, "did you mean topic"),
        ("POST", "/faults", {"kind": "drop", "times": 0}, 400, "times is 0"),
        ("POST", "/faults", "[1]", 400, "JSON object"),
        ("POST", "/faults", "{", 400, "no JSON"),
        ("POST", "/faults", "[" * 100_000, 400, "no JSON"),
        ("POST", "/time/advance", {"seconds": -1}, 400, "seconds is -1"),
        ("POST", "/time/advance", {}, 400, "seconds is None"),
        ("POST", "/time/advance", {"second": 1}, 400, "did you mean seconds"),
        ("GET", "/requests", None, 409, "start it first"),
        ("GET", "/faults/99", None, 404, "no fault 99"),
        ("GET", "/faults/x/wait", None, 404, "no fault x"),
        ("POST", "/requests/start", {"limit": 0}, 400, "limit is 0"),
        ("PUT", "/faults", None, 405, "PUT"),
        ("POST", "/faults", {"kind": ["fail"], "api": "Produce", "error": 6}, 400, "kind is ['fail']"),
        ("POST", "/faults", {"kind": "drop", "node": 2}, 400, "node is 2: this is broker 1"),
        ("POST", "/faults?kind=drop&times=x", None, 400, "times is 'x'"),
        ("POST", "/compact", {"topic": ["t"]}, 400, "topic is ['t']: it must be a text"),
        ("POST", "/broker/restart", {"clean": "no"}, 400, "clean is 'no'"),
        ("POST", "/broker/restart", {"down_seconds": "x"}, 400, "down_seconds is 'x'"),
        ("GET", "/topics/t/wait?timeout=4000", None, 400, "from 0 to 3600"),
    ],
)
def test_what_is_wrong_is_said(control: Http, method: str, path: str, body: Any, status: int, expected: str) -> None:
    found, answer = control.ask(method, path, body)
    assert found == status, answer
    assert expected in answer["error"]["message"]
    assert control.ask("GET", "/broker")[1]["running"]


@pytest.mark.parametrize("query", ["answered=maybe", "partition=x", "partition=-1", "error=zz", "api=Prod"])
def test_a_search_that_cannot_be_meant_is_refused(control: Http, query: str) -> None:
    control.ask("POST", "/requests/start")
    status, answer = control.ask("GET", f"/requests?{query}")
    assert status == 400
    assert query.split("=")[0] in answer["error"]["message"]
    control.ask("POST", "/requests/stop")


def test_a_fault_may_be_said_in_a_query(control: Http) -> None:
    query = "kind=delay&api=Produce&seconds=0.5&times=2&partition=0&topic=5&skip=1&node=1"
    status, fault = control.ask("POST", f"/faults?{query}")
    assert status == 200
    assert (fault["times"], fault["partition"], fault["topic"], fault["seconds"]) == (2, [0], "5", 0.5)


@pytest.mark.parametrize("processes", [False, True], ids=["thread", "process"])
def test_what_was_done_by_http_is_undone_by_the_cluster(processes: bool, connect: Any) -> None:
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


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:1"}, 200),
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "[::1]:5"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "none"}, 200),
    ],
)
def test_a_page_in_a_browser_cannot_use_it(control: Http, headers: dict[str, str], status: int) -> None:
    assert control.ask("GET", "/broker", **headers)[0] == status


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET //evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n: localhost\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n", 400),
        (b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{}", 400),
        (b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999999\r\n\r\n", 413),
        (b"POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n", 413),
        (b"POST /faults HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"\xff\xfe\x00\r\n\r\n", 400),
    ],
)
def test_bytes_that_make_no_sense_end_that_connection_only(control: Http, data: bytes, status: int) -> None:
    answer = control.raw(data)
    assert re.match(rb"HTTP/1\.1 (\d+) ", answer), answer[:100]
    assert answer.split(b" ")[1] == str(status).encode()
    assert b"Connection: close" in answer
    assert control.ask("GET", "/broker")[0] == 200


def test_every_beginning_of_a_request_is_survived(control: Http) -> None:
    whole = b'POST /faults HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17\r\n\r\n{"kind":"nothing"}'
    for end in range(0, len(whole) - 1, 3):
        answer = control.raw(whole[:end])
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
    assert control.ask("GET", "/faults") == (200, {"faults": []})


def test_a_connection_is_used_again(control: Http) -> None:
    host, _, port = control.host.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    for _ in range(3):
        connection.request("GET", "/broker")
        response = connection.getresponse()
        assert json.loads(response.read())["running"] is True
        assert not response.will_close
    connection.close()


def test_the_foreground_broker_tells_where_its_controls_are() -> None:
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
        assert process.wait(20) == 0
