"""With one configuration Kafka's Java client and ours send the same assertions to an identity server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from joserfc.jwk import RSAKey

from pyclient import Admin
from pyclient.broker_embedded import EmbeddedCluster
from tests.identity_server import IdentityServer, KnownClient, Signer
from tests.kafka import tools
from tests.kafka.needs import skip_without_kafka

PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
ALLOWED: Final = "-Dorg.apache.kafka.sasl.oauthbearer.allowed."
SECRETS: Final = ("assertion", "client_assertion")
TIMES: Final = ("iat", "exp", "nbf", "jti")


def shape(known: KnownClient, asked: list[Any]) -> list[Any]:
    """Return what a client sent first, without the assertion itself and with times as differences."""
    form = {name: "..." if name in SECRETS else value for name, value in asked[0].form.items()}
    claims = known.claims[0]
    others = {name: value for name, value in claims.items() if name not in TIMES}
    return [form, known.headers[0], others, claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]]


@pytest.mark.parametrize("grant", ["ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever", None])
def test_java_client_and_ours_send_the_same_assertions(tmp_path: Path, grant: str | None) -> None:
    skip_without_kafka()
    key, signer = RSAKey.generate_key(2048), Signer()
    key_file, template = tmp_path / "key.pem", tmp_path / "template.json"
    key_file.write_bytes(key.as_pem(private=True))
    added = {"header": {"kid": "k", "alg": "none"}, "payload": {"iss": "alice", "exp": 1, "groups": ["a"]}}
    template.write_text(json.dumps(added))
    with IdentityServer(signer) as server:
        config = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required ;",
            "sasl.login.callback.handler.class": f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"{server.url}/token",
            "sasl.oauthbearer.scope": "a b",
            "sasl.oauthbearer.assertion.private.key.file": str(key_file),
            "sasl.oauthbearer.assertion.template.file": str(template),
            "sasl.oauthbearer.assertion.claim.aud": f"{server.url}/token",
            "sasl.oauthbearer.assertion.claim.iss": "replaced by the template",
            "sasl.oauthbearer.assertion.claim.sub": "alice",
            "sasl.oauthbearer.assertion.claim.exp.seconds": "200",
            **({} if grant is None else {"sasl.oauthbearer.jwt.retriever.class": f"{PACKAGE}.{grant}"}),
        }
        if grant != "JwtBearerJwtRetriever":
            config["sasl.oauthbearer.client.credentials.client.id"] = "alice"
        properties = tmp_path / "client.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        served = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys",
        }
        with EmbeddedCluster(security="SASL_PLAINTEXT", config=served) as cluster:
            java = server.answer = KnownClient(server, key, "RS256")
            files = f"{ALLOWED}files={key_file},{template}"
            urls = f"{ALLOWED}urls={server.url}/token"
            at = ("--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(properties))
            tools.finish(tools.start("topics", *at, "--list", jvm=("-Xmx256M", files, urls)), timeout=60)
            first, server.asked[:] = shape(java, server.asked), []
            ours = server.answer = KnownClient(server, key, "RS256")
            with Admin(cluster.bootstrap_servers, config=config) as admin:
                admin.list_topics()
            assert shape(ours, server.asked) == first
