"""`pyclient broker --security`: users, ACLs and options come from the environment, certificates from the directory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, Consumer, Producer, errors

BROKER = [sys.executable, "-c", "from pyclient.cli import main; main()", "broker", "--port", "0"]
USERS = {"alice": "hers", "bob": "his"}


@contextmanager
def broker(*arguments: str, **variables: object) -> Iterator[str]:
    """Yield the bootstrap servers of a broker in a process, which gets environment variables as JSON."""
    environment = {**os.environ, **{name: json.dumps(value) for name, value in variables.items()}}
    process = subprocess.Popen([*BROKER, *arguments], stdout=subprocess.PIPE, env=environment)
    try:
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        assert first.startswith("bootstrap.servers=127.0.0.1:"), first
        yield first.strip().removeprefix("bootstrap.servers=")
    finally:
        process.kill()
        process.communicate()


def login(security: str, directory: Path, user: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "security_protocol": security,
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password or USERS[user],
    }
    return options | ({"ssl_cafile": str(directory / "security-ca.pem")} if security == "SASL_SSL" else {})


@pytest.mark.parametrize("security", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_broker_command_serves_the_users_of_its_environment(security: str, tmp_path: Path) -> None:
    with broker(
        "--security", security, "--data-dir", str(tmp_path), "--profile", "test", PYCLIENT_BROKER_USERS=USERS
    ) as servers:
        with Producer(servers, **login(security, tmp_path, "alice", "PLAIN")) as producer:
            producer.send("t", b"1").result(60)
        options = login(security, tmp_path, "bob", "SCRAM-SHA-512")
        with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest", **options) as consumer:
            assert [record.value for record in consumer.poll(60)] == [b"1"]
        with (
            Admin(servers, **login(security, tmp_path, "alice", "PLAIN", "wrong")) as admin,
            pytest.raises(errors.ClusterUnreachable, match="as user 'alice' was refused"),
        ):
            admin.list_topics()


@pytest.mark.parametrize("brokers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_broker_command_takes_acls_and_options_from_its_environment(tmp_path: Path, brokers: int) -> None:
    with broker(
        "--brokers",
        str(brokers),
        "--security",
        "SASL_PLAINTEXT",
        "--data-dir",
        str(tmp_path),
        PYCLIENT_BROKER_USERS=USERS,
        PYCLIENT_BROKER_ACLS=[["topic", "t", "User:bob", "read"]],
        PYCLIENT_BROKER_OPTIONS={"super.users": "User:alice"},
    ) as servers:
        with Producer(servers, **login("SASL_PLAINTEXT", tmp_path, "alice", "PLAIN")) as producer:
            for topic in ("t", "hidden"):
                producer.send(topic, b"1").result(60)
        with Admin(servers, **login("SASL_PLAINTEXT", tmp_path, "bob", "PLAIN")) as admin:
            assert admin.list_topics() == ["t"]
        with Admin(servers, **login("SASL_PLAINTEXT", tmp_path, "alice", "PLAIN")) as admin:
            assert [acl.principal for acl in admin.describe_acls()] == ["User:bob"]


def test_broker_command_without_users_says_what_to_set(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYCLIENT_BROKER_USERS"}
    done = subprocess.run(
        [*BROKER, "--security", "SASL_PLAINTEXT", "--data-dir", str(tmp_path)],
        capture_output=True,
        timeout=90,
        check=False,
        env=environment,
    )
    assert done.returncode != 0
    assert b"PYCLIENT_BROKER_USERS" in done.stderr
