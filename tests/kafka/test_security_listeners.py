"""Listeners of a real Kafka with TLS, mutual TLS and SASL: what works, and the causes of what cannot."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from pyclient import Admin, Producer, errors
from pyclient.cli.app import cli
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.conftest import RawClient
from tests.kafka.jars import VERSIONS
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka, free_ports
from tests.security_matrix import CELLS, OURS, VALUE, Cell, Secured

TLS: Final = Path(__file__).parents[1] / "net" / "tls"
NAMES: Final = {"TLS": "SSL", "MUTUAL": "SSL", "NAMELESS": "SSL", "SASL": "SASL_PLAINTEXT", "SASLTLS": "SASL_SSL"}
CA: Final = {"security_protocol": "SSL", "ssl_cafile": str(TLS / "ca.pem")}
MECHANISMS: Final = {
    "PLAIN": 'plain.PlainLoginModule required user_alice="secret"',
    "SCRAM-SHA-256": "scram.ScramLoginModule required",
    "SCRAM-SHA-512": "scram.ScramLoginModule required",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=kafka",
}
"""Mechanism -> the broker's login module, below org.apache.kafka.common.security."""


def _add_user(servers: str) -> None:
    """Give alice a password for SCRAM, by another client."""
    admin = AdminClient({"bootstrap.servers": servers})
    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion("alice", ScramCredentialInfo(kind, 8192), b"secret")
        for done in admin.alter_user_scram_credentials([wanted]).values():
            done.result(60)


def token() -> str:
    """Return a token without a signature, which a broker takes that has no other validator."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + 600})
    return "".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") + "." for part in parts)


def sasl_options(listener: str, mechanism: str, password: str = "secret") -> dict[str, Any]:
    options: dict[str, Any] = {"security_protocol": NAMES[listener], "sasl_mechanism": mechanism}
    if listener == "SASLTLS":
        options["ssl_cafile"] = str(TLS / "ca.pem")
    if mechanism == "OAUTHBEARER":
        return {**options, "sasl_oauth_token_provider": token}
    return {**options, "sasl_username": "alice", "sasl_password": password}


@pytest.fixture(scope="module", params=VERSIONS)
def addresses(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """The listener's address by its name."""
    skip_without_kafka(request.param)
    ports = dict(zip(NAMES, free_ports(len(NAMES)), strict=True))
    listeners = "".join(f",{name}://127.0.0.1:{port}" for name, port in ports.items())
    settings = {
        "listeners": "{default}" + listeners,
        "advertised.listeners": "{default}" + listeners,
        "listener.security.protocol.map": "{default}" + "".join(f",{name}:{kind}" for name, kind in NAMES.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(TLS / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(TLS / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.nameless.ssl.client.auth": "required",
        "listener.name.nameless.ssl.principal.mapping.rules": "RULE:^CN=nobody$/x/",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl.plain.connections.max.reauth.ms": "6000",
    }
    for listener in ("sasl", "sasltls"):
        for mechanism, module in MECHANISMS.items():
            name = f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"
            settings[name] = f"org.apache.kafka.common.security.{module};"
    with RealKafka(request.param, heap="512M", settings=settings) as kafka:
        _add_user(kafka.bootstrap_servers)
        yield {"PLAINTEXT": kafka.bootstrap_servers} | {name: f"127.0.0.1:{port}" for name, port in ports.items()}


OF_MATRIX: Final = {"SSL": "TLS", "SASL_PLAINTEXT": "SASL", "SASL_SSL": "SASLTLS"}
"""The listeners that have another name here than in the matrix."""


@pytest.mark.parametrize("client", OURS)
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.label)
def test_clients_produce_and_consume_with_security(addresses: dict[str, str], cell: Cell, client: str) -> None:
    address = addresses[OF_MATRIX.get(cell.listener, cell.listener)]
    assert OURS[client](cell, address, Secured(addresses, token), f"{client}-{cell.label}") == VALUE


def test_short_sasl_sessions_lose_no_record(addresses: dict[str, str]) -> None:
    """The broker closes a connection with a request after the end of its session, which is 6 s."""
    until, sent = time.monotonic() + 8, 0
    with Producer(addresses["SASL"], **sasl_options("SASL", "PLAIN")) as producer:
        while time.monotonic() < until:
            assert producer.send("sessions", b"%d" % sent, partition=0).result(60).offset == sent
            sent += 1
        assert producer.metrics()["batches_retried"] == 0


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("TLS", {}, "the port speaks TLS; set security_protocol='SSL'"),
        (
            "TLS",
            {"security_protocol": "SSL"},
            "its certificate is not accepted: .*; trust its authority with ssl_cafile",
        ),
        ("MUTUAL", CA, "it demands a client certificate that it trusts .*: set ssl_certfile and ssl_keyfile"),
        (
            "MUTUAL",
            {**CA, "ssl_certfile": str(TLS / "self-signed.pem")},
            "it demands a client certificate that it trust",
        ),
        ("SASL", {}, "its listener demands SASL: set security_protocol='SASL_PLAINTEXT'"),
        ("PLAINTEXT", sasl_options("SASL", "PLAIN"), "its listener is without SASL: set security_protocol='PLAINTEXT'"),
        ("SASL", sasl_options("SASL", "PLAIN", "wrong"), "SASL PLAIN as user 'alice' was refused by the broker: Auth"),
        ("SASL", sasl_options("SASL", "SCRAM-SHA-256", "wrong"), "SASL SCRAM-SHA-256 as user 'alice' was refused"),
        ("SASL", {**sasl_options("SASL", "OAUTHBEARER"), "sasl_oauth_token_provider": lambda: "a.b.c"}, "was refused"),
    ],
)
def test_permanent_connection_error_is_raised_at_once(
    addresses: dict[str, str], name: str, options: dict[str, Any], says: str
) -> None:
    with Admin(addresses[name], default_api_timeout_ms=3_600_000, **options) as admin:
        with pytest.raises(errors.ClusterUnreachable, match=says) as error:
            admin.list_topics()
        assert "not be a Kafka broker" not in str(error.value)


def test_demand_for_a_client_certificate_by_tls_1_2_is_raised_at_once(addresses: dict[str, str]) -> None:
    context = ssl.create_default_context(cafile=TLS / "ca.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    options: dict[str, Any] = {"security_protocol": "SSL", "ssl_context": context}
    with (
        Admin(addresses["MUTUAL"], default_api_timeout_ms=3_600_000, **options) as admin,
        pytest.raises(errors.ClusterUnreachable, match="it demands a client certificate that it trusts"),
    ):
        admin.list_topics()


def test_client_whose_certificate_no_rule_names_is_closed(addresses: dict[str, str]) -> None:
    """The embedded broker closes it, too (tests/broker_embedded/security/test_certificates_of_clients.py)."""
    context = ssl.create_default_context(cafile=TLS / "ca.pem")
    context.load_cert_chain(TLS / "client.pem")
    client = RawClient(addresses["NAMELESS"])
    client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
    client.send(MetadataRequest(topics=None), 8)
    assert client.is_closed()
    client.close()


@pytest.mark.parametrize("name", ["PLAINTEXT", "SASL"])
def test_tls_to_a_plaintext_port_is_raised_at_once(addresses: dict[str, str], name: str) -> None:
    with (
        Admin(addresses[name], default_api_timeout_ms=3_600_000, **CA) as admin,
        pytest.raises(errors.ClusterUnreachable, match="without TLS; set security_protocol='PLAINTEXT'"),
    ):
        admin.list_topics()


def test_commands_administer_a_cluster_with_tls(addresses: dict[str, str], tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    options = {**CA, "ssl_certfile": str(TLS / "client.pem"), "bootstrap.servers": addresses["MUTUAL"]}
    properties.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    with Producer(addresses["PLAINTEXT"]) as producer:
        producer.send("administered", b"1").result(60)
    for arguments in (
        ("topics", "list"),
        ("topics", "describe", "administered"),
        ("topics", "add-partitions", "administered", "3"),
        ("groups", "list"),
        ("groups", "reset", "by-tls", "--topic", "administered", "--to-latest"),
        ("groups", "describe", "by-tls"),
    ):
        done = CliRunner().invoke(cli, [*arguments, "--command-config", str(properties)])
        assert done.exit_code == 0, (arguments, done.output)
