"""Secrets are in nothing that leaves a process: its output at DEBUG, the files that it writes, its answers."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pyclient.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.security.right_cases import CASES
from tests.broker_embedded.security.rights_client import errors_in_answer, make_topic
from tests.broker_embedded.security.tokens import log_in
from tests.e2e.test_secrets import PASSWORD, USER, WRONG, Output, forms
from tests.waiting import PATIENCE

TOKEN_KEY: Final = "k3y-of-delegation-tokens"

BROKER: Final = """
import logging, os, sys
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("pyclient").debug("this is printed")

def note(event, arguments):
    if event == "open" and not isinstance(arguments[0], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        print("file written:", arguments[0], file=sys.stderr)
    elif event in ("os.rename", "os.link", "os.symlink"):
        print("file written:", arguments[1], file=sys.stderr)

sys.addaudithook(note)
from pyclient.cli import main
main()
"""

CLIENTS: Final = """
import json, logging, os
logging.basicConfig(level=logging.DEBUG)
logging.getLogger("pyclient").debug("this is printed")
from pyclient import Admin, Consumer, Producer

options = json.loads(os.environ["OPTIONS"])
servers = os.environ["SERVERS"]
for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
    options["sasl_mechanism"] = mechanism
    with Producer(servers, **options) as producer:
        producer.send("t", b"1").result(60)
        print(producer, producer.health(), producer.metrics())
    with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest", group_id="g", **options) as consumer:
        assert consumer.poll(60)
        print(consumer, consumer.health(), consumer.metrics())
with Admin(servers, **{**options, "sasl_password": os.environ["WRONG"]}) as admin:
    admin.list_topics()  # the end of this process, by an error that is not caught
"""


class BrokerProcess(NamedTuple):
    """`pyclient broker` at DEBUG; its standard error, with the files that it writes, is in `stderr`."""

    servers: str
    control_url: str
    directory: Path
    stderr: Path
    stdout: list[str]

    def written(self) -> set[str]:
        """Return the paths of all files that were opened for writing, or got another name."""
        lines = self.stderr.read_text().splitlines()
        return {line.partition("file written: ")[2] for line in lines if "file written: " in line}


@contextmanager
def broker_process(path: Path) -> Iterator[BrokerProcess]:
    directory, stderr = path / "data", path / "stderr"
    environment = {
        **os.environ,
        "PYTHONASYNCIODEBUG": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYCLIENT_BROKER_USERS": json.dumps({USER: PASSWORD, "bob": WRONG}),
        "PYCLIENT_BROKER_OPTIONS": json.dumps({"delegation.token.secret.key": TOKEN_KEY}),
    }
    arguments = ["--port", "0", "--control-port", "0", "--security", "SASL_SSL", "--profile", "test"]
    with stderr.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", BROKER, "broker", *arguments, "--data-dir", str(directory)],
            stdout=subprocess.PIPE,
            stderr=file,
            env=environment,
            text=True,
        )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline().strip() for _ in range(2)]
        servers, control = (line.partition("=")[2] for line in lines)
        broker = BrokerProcess(servers, control, directory, stderr, lines)
        yield broker
    finally:
        process.terminate()
        rest, _ = process.communicate(timeout=PATIENCE)
    lines.append(rest)


def keys_in(directory: Path) -> list[bytes]:
    """Return the private keys of the authority and of the broker: whole, the number itself, the lines of the files."""
    found: list[bytes] = []
    for name in ("security-ca.key", "security-broker.pem"):
        content = (directory / name).read_bytes()
        key = serialization.load_pem_private_key(content, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        text = content.partition(b"-----END PRIVATE")[0].split(b"\n", 1)[1]
        found += [line for line in text.split(b"\n")[:2] if line]
        found.append(key.private_numbers().private_value.to_bytes(32, "big"))
        found.append(
            key.private_bytes(
                serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    return found


def test_secrets_are_in_no_output_of_processes_at_debug(tmp_path: Path) -> None:
    output = Output()
    with broker_process(tmp_path) as broker:
        options: Mapping[str, Any] = {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(broker.directory / "security-ca.pem"),
            "sasl_username": USER,
            "sasl_password": PASSWORD,
        }
        environment = {"SERVERS": broker.servers, "OPTIONS": json.dumps(options), "WRONG": WRONG}
        clients = subprocess.run(
            [sys.executable, "-c", CLIENTS],
            env={**os.environ, **environment, "PYTHONASYNCIODEBUG": "1"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        output.secrets += [TOKEN_KEY, *keys_in(broker.directory)]
    assert clients.returncode == 1
    assert "as user 'alice' was refused by the broker" in clients.stderr.partition("Traceback")[2]
    assert all("DEBUG:pyclient:this is printed" in each for each in (clients.stderr, broker.stderr.read_text()))
    output.add("clients, stdout", clients.stdout)
    output.add("clients, stderr", clients.stderr)
    output.add("broker, stdout", "\n".join(broker.stdout))
    output.add("broker, stderr", broker.stderr.read_text())
    assert output.leaks() == []


class RecordedTls(RawClient):
    """One connection over TLS; `received` has every frame."""

    def __init__(self, address: str, authority: Path) -> None:
        super().__init__(address)
        self.received: list[bytes] = []
        context = ssl.create_default_context(cafile=authority)
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")

    def receive_frame(self) -> bytes:
        self.received.append(super().receive_frame())
        return self.received[-1]


def answers_over_http(url: str) -> dict[str, bytes]:
    """Return the answer of each endpoint that only reads and needs no name."""

    def get(path: str) -> bytes:
        try:
            with urllib.request.urlopen(f"{url}{path}", timeout=PATIENCE) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as refused:  # for example, because no requests are logged
            return refused.read()

    first = get("/")
    found = {"/": first}
    for endpoint in json.loads(first)["endpoints"]:
        path = endpoint["path"]
        if endpoint["method"] == "GET" and "{" not in path and "wait" not in path:
            found[path] = get(path)
    return found


def test_private_keys_of_a_cluster_stay_in_its_data_directory(tmp_path: Path) -> None:
    with broker_process(tmp_path) as broker:
        client = RecordedTls(broker.servers, broker.directory / "security-ca.pem")
        assert log_in(client, USER, PASSWORD).error_code == 0
        make_topic(client)
        for number in ("", "1"):
            brokers = DescribeConfigsResource(resource_type=4, resource_name=number, configuration_keys=None)
            client.call(DescribeConfigsRequest(resources=[brokers], include_synonyms=True), 4)
        for case in CASES:
            errors_in_answer(client, case)
            make_topic(client)
        client.close()
        over_http = answers_over_http(broker.control_url)
    assert len(over_http) > 3
    assert len(client.received) > len(CASES)
    assert any(b"security-broker.pem" in each for each in client.received)
    answers = {**over_http, **{f"frame {number}": each for number, each in enumerate(client.received)}}
    sought = {form for key in keys_in(broker.directory) for form in forms(key)}
    found = [name for name, content in answers.items() if any(form in content for form in sought)]
    assert found == []
    assert any(form in (broker.directory / "security-ca.key").read_bytes() for form in sought)
    assert not any(b"PRIVATE KEY" in content for content in answers.values())
    places = (str(broker.directory), "/dev/", "/proc/")
    assert [path for path in broker.written() if not path.startswith(places)] == []
    assert any(path.startswith(str(broker.directory / "security-ca.key")) for path in broker.written())
