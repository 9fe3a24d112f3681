"""The controls over HTTP refuse values that make no sense: no field of any endpoint makes them fail."""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controls.controls import ENDPOINTS

ENDING = {"/broker/stop", "/broker/kill", "/broker/start", "/broker/restart"}
NUMBERS = ["1e400", "-1e400", "NaN", "Infinity", "9" * 4000, "1e18", "-1", "0.5", "9223372036854775808"]
TEXTS = [json.dumps(each) for each in ("9" * 5000, "²", "\ud800", "\x1b[2J\n", "", "x" * 20_000)]
OTHERS = ["null", "true", "[]", "{}", "[[]]", '[{"a": 1}]']
NAMES = ["9" * 5000, "²", "\x1b[2J\n", "x" * 5000, "..", "%"]


@pytest.fixture(scope="module")
def control() -> Iterator[str]:
    with EmbeddedCluster(control_port=0) as cluster:
        assert cluster.control_url is not None
        yield urlsplit(cluster.control_url).netloc


def asked(address: str, method: str, path: str, body: str = "") -> int:
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request(method, path, body.encode())
        response = connection.getresponse()
        json.loads(response.read())
        return response.status
    finally:
        connection.close()


@pytest.mark.parametrize("endpoint", [each for each in ENDPOINTS if each.path not in ENDING], ids=lambda e: e.path)
def test_no_value_of_a_field_makes_a_control_fail(
    endpoint: Any, control: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for field in endpoint.fields:
        for value in (*NUMBERS, *TEXTS, *OTHERS):
            others = "" if field == "timeout" or "timeout" not in endpoint.fields else ', "timeout": 0'
            status = asked(
                control, endpoint.method, endpoint.path.replace("{}", "1"), f'{{"{field}": {value}{others}}}'
            )
            assert status < 500, f"{field}={value[:50]}: {status}"
    for name in NAMES if "{}" in endpoint.path else ():
        wait = "?timeout=0" if "timeout" in endpoint.fields else ""
        status = asked(control, endpoint.method, endpoint.path.replace("{}", quote(name, safe="")) + wait)
        assert status < 500, name[:50]
    asked(control, "POST", "/broker/resume")
    asked(control, "DELETE", "/faults")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert all(record.getMessage().isprintable() for record in caplog.records)
