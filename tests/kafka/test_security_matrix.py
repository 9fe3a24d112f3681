"""Kafka's console tools on our broker: a record written and read over each protocol, with each way to authenticate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.kafka import tools
from tests.kafka.needs import skip_without_kafka
from tests.security_matrix import CA, CELLS, PASSWORD, USER, Cell, Secured, secured_broker

PACKAGE: Final = "org.apache.kafka.common.security"
MODULES: Final = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    skip_without_kafka()
    with secured_broker(tmp_path_factory.mktemp("keys")) as broker:
        yield broker


def options_of(cell: Cell, token: Path) -> dict[str, str]:
    """Return the options of Java's clients. The token is in a file."""
    options = {"security.protocol": cell.protocol}
    if cell.uses_tls:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": CA}
    if cell.certificate is not None:
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": cell.certificate}
    if cell.mechanism is not None:
        login = "" if cell.mechanism == "OAUTHBEARER" else f' username="{USER}" password="{PASSWORD}"'
        options["sasl.mechanism"] = cell.mechanism
        options["sasl.jaas.config"] = f"{PACKAGE}.{MODULES[cell.mechanism]} required{login};"
    if cell.mechanism == "OAUTHBEARER":
        options["sasl.login.callback.handler.class"] = f"{PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler"
        options["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
    return options


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.label)
def test_console_tools_produce_and_consume_with_security(secured: Secured, cell: Cell, tmp_path: Path) -> None:
    token, properties = tmp_path / "token", tmp_path / "client.properties"
    token.write_text(secured.token())
    properties.write_text("".join(f"{name}={value}\n" for name, value in options_of(cell, token).items()))
    jvm = (*tools.QUICK, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token.as_uri()}")
    at = ("--bootstrap-server", secured.addresses[cell.listener], "--topic", cell.label)
    once = ("--from-beginning", "--max-messages", "1", "--timeout-ms", "100000")
    producer = tools.start("console-producer", *at, "--command-config", str(properties), jvm=jvm)
    consumer = tools.start("console-consumer", *at, "--command-config", str(properties), *once, jvm=jvm)
    tools.finish(producer, stdin="secured\n")
    assert tools.finish(consumer).out.split() == ["secured"]
