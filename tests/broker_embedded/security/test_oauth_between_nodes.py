"""Nodes of a cluster that log in to each other by OAUTHBEARER: with client credentials, and with a token in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from tests.identity_server import ISSUER, IdentityServer, Signer
from tests.waiting import until

PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
SIGNER: Final = Signer()
BETWEEN_NODES: Final = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.mechanism.controller.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": "kafka",
}


@pytest.fixture(scope="module")
def server() -> Iterator[IdentityServer]:
    """Yield an identity server whose client is the user `node`."""
    with IdentityServer(SIGNER) as server:
        yield server


def by_credentials(server: IdentityServer, _directory: Path) -> dict[str, str]:
    """Return Kafka's usual options: the module has the client's id and secret."""
    jaas = f'{PACKAGE}.OAuthBearerLoginModule required clientId="node" clientSecret="hidden" scope="kafka";'
    settings = {"sasl.oauthbearer.token.endpoint.url": f"{server.url}/token"}
    for listener in ("sasl_plaintext", "controller"):
        prefix = f"listener.name.{listener}.oauthbearer."
        settings[f"{prefix}sasl.jaas.config"] = jaas
        settings[f"{prefix}sasl.login.callback.handler.class"] = f"{PACKAGE}.OAuthBearerLoginCallbackHandler"
    return settings


def by_options(server: IdentityServer, _directory: Path) -> dict[str, str]:
    """Return the options of KIP-1258."""
    return {
        "sasl.oauthbearer.token.endpoint.url": f"{server.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "node",
        "sasl.oauthbearer.client.credentials.client.secret": "hidden",
        "sasl.login.retry.backoff.ms": "10",
    }


def by_file(_server: IdentityServer, directory: Path) -> dict[str, str]:
    path = directory / "token"
    path.write_text(SIGNER.token("node"))
    return {"sasl.oauthbearer.token.endpoint.url": path.as_uri()}


@pytest.mark.parametrize("login", [by_credentials, by_options, by_file], ids=lambda login: login.__name__)
def test_three_nodes_replicate_with_tokens(server: IdentityServer, tmp_path: Path, login: Any) -> None:
    server.answer = lambda _asked: (200, {"access_token": SIGNER.token("node"), "expires_in": 600})
    server.asked.clear()
    settings = {
        **BETWEEN_NODES,
        "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys",
        "super.users": "User:node",
        **login(server, tmp_path),
    }
    alice: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": SIGNER.token,
    }
    rights = [("topic", "t", "User:alice", "all")]
    with EmbeddedCluster(3, security="SASL_PLAINTEXT", users=["alice"], acls=rights, config=settings) as cluster:
        with Admin(cluster.bootstrap_servers, **alice) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
        cluster.wait_isr("t", 0, 3)
        with Producer(cluster.bootstrap_servers, **alice) as producer:
            producer.send("t", b"1").result(60)
        leader = until(lambda: cluster.leader_of("t", 0), "no broker leads")
        cluster.kill(leader)
        with Consumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **alice
        ) as consumer:
            assert [record.value for record in consumer.poll(60)] == [b"1"]
    assert bool(server.asked) == (login is not by_file)


def test_missing_token_endpoint_is_named() -> None:
    config = BrokerConfig.build(
        {**BETWEEN_NODES, "sasl.oauthbearer.jwks.endpoint.url": "file:///keys"},
        data_dir="d",
        security="SASL_PLAINTEXT",
    )
    with pytest.raises(errors.ConfigError, match=r"SASL_PLAINTEXT demands .* sasl\.oauthbearer\.token\.endpoint\.url"):
        config.login_at(config.listeners.between_brokers)


def test_secret_of_a_node_is_not_in_the_representation_of_a_configuration() -> None:
    jaas = f'{PACKAGE}.OAuthBearerLoginModule required clientId="node" clientSecret="hidden";'
    config = BrokerConfig.build(
        {
            **BETWEEN_NODES,
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": jaas,
            "sasl.oauthbearer.client.credentials.client.secret": "hidden",
        },
        data_dir="d",
        security="SASL_PLAINTEXT",
    )
    assert "hidden" not in repr(config) + repr(config.listeners) + repr(config.listeners.clients[0].logins)
