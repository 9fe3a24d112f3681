"""Requests that the controls over HTTP refuse: invalid ones, those of a browser, and malformed bytes."""

from __future__ import annotations

import http.client
import json
import re
from typing import Any

import pytest

from tests.broker_embedded.faults.http_control import Http


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
def test_invalid_request_gets_a_status_and_a_reason(
    control: Http, method: str, path: str, body: Any, status: int, expected: str
) -> None:
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
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 400),
        (b"\xff\xfe\x00\r\n\r\n", 400),
    ],
)
def test_bytes_that_make_no_sense_end_that_connection_only(control: Http, data: bytes, status: int) -> None:
    answer = control.raw(data)
    assert re.match(rb"HTTP/1\.1 (\d+) ", answer), answer[:100]
    assert answer.split(b" ")[1] == str(status).encode()
    assert b"connection: close" in answer.lower()
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
