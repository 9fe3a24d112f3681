"""The controls over HTTP refuse values that make no sense: no field of any endpoint makes them fail."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.controls import http as http_controls
from pyclient.broker_embedded.controls.controls import ENDPOINTS
from pyclient.errors import ConfigError

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


def test_control_port_without_its_libraries_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "pyclient.broker_embedded.controls.http", raising=False)
    with pytest.raises(ConfigError, match=r"pip install 'pyclient-kafka\[http\]'"):
        EmbeddedCluster(control_port=0).start()


def test_broker_without_control_port_imports_no_http_server() -> None:
    program = (
        "import sys; from pyclient.broker_embedded import EmbeddedCluster\n"
        "with EmbeddedCluster() as cluster: cluster.faults.clear()\n"
        "with EmbeddedCluster(processes=True) as cluster: cluster.faults.clear()\n"
        "assert not {'starlette', 'uvicorn', 'h11', 'anyio'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_cluster_ends_while_a_request_waits(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedCluster(control_port=0) as cluster, ThreadPoolExecutor(1) as pool:
        address = urlsplit(str(cluster.control_url)).netloc
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("GET", "/groups/g/wait?state=stable&timeout=600")
        assert asked(address, "GET", "/broker") == 200  # it was accepted after the request that waits
        waiting = pool.submit(connection.getresponse)
        cluster.close()
        with pytest.raises((OSError, http.client.HTTPException)):
            waiting.result(60)
        connection.close()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_large_answer_is_encoded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_controls, "SLICE_SECONDS", 0.0)
    answer = {"requests": [{"name": str(number)} for number in range(100)]}
    steps = 0

    async def others() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    async def encode() -> bytes:
        task = asyncio.create_task(others())
        try:
            return await http_controls.encoded(answer)
        finally:
            task.cancel()

    assert json.loads(asyncio.run(encode())) == answer
    assert steps > 100
