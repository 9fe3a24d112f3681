"""The same tokens at a real Kafka and at our broker: with one JWKS file, both accept and refuse the same ones."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Final

import pytest
from joserfc.jwk import ECKey, RSAKey

from pyclient import Admin, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_embedded.conftest import RawClient
from tests.identity_server import ISSUER, IdentityServer, Signer, claims_of, encoded
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import SHORT_LIVED, RealKafka, free_ports

PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer"
SIGNER: Final = Signer()
NOW: Final = int(time.time())
LATER: Final = NOW + 360_000  # long after the tests that run before


def token(**changes: Any) -> str:
    return SIGNER.token(**{"exp": LATER, **changes})


FIRST_RSA, SECOND_RSA = (Signer(RSAKey.generate_key(2048), kid, "RS256") for kid in ("1", "2"))
P384: Final = Signer(ECKey.generate_key("P-384"), "384", "ES384")
KEYS: Final = [
    {**Signer(RSAKey.generate_key(2048), "secret").public, "use": "enc"},
    {**FIRST_RSA.public, "use": "sig"},
    P384.public,
    SIGNER.public,
    SECOND_RSA.public,
]


def without_id(signer: Signer) -> str:
    return signer.sign(claims_of(exp=LATER), kid=None)


TOKENS: Final = {
    "EC without an id": without_id(SIGNER),
    "EC without an id, other curve": without_id(P384),
    "RSA without an id": without_id(FIRST_RSA),
    "second RSA without an id": without_id(SECOND_RSA),
    "second RSA": SECOND_RSA.token(exp=LATER),
    "good": token(),
    "several audiences": token(aud=["others", "kafka"]),
    "scopes": token(scope=["a", "b"]),
    "begins within the skew": token(exp=NOW + 36_000, nbf=NOW + 20),
    "another key": Signer().token(exp=LATER),
    "another key id": Signer(kid="second").token(exp=LATER),
    "ended": token(exp=NOW - 3600, iat=NOW - 7200),
    "not yet": token(nbf=NOW + 36_000, exp=NOW + 72_000),
    "audience": token(aud="others"),
    "no audience": token(aud=None),
    "issuer": token(iss="https://other.test"),
    "no user": token(sub=None),
    "empty user": token(sub=""),
    "no end": token(exp=None),
    "no beginning": token(iat=None),
    "unsecured": f"{encoded({'alg': 'none'})}.{encoded(claims_of(exp=LATER))}.",
    "truncated": token()[:-10],
    "no token": "a.b.c",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Address by kind of broker."""
    skip_without_kafka()
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    path.write_text(json.dumps({"keys": KEYS}))
    [port] = free_ports(1)
    oauth = {
        "sasl.oauthbearer.jwks.endpoint.url": path.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    settings = {
        "listeners": f"{{default}},SASL://127.0.0.1:{port}",
        "advertised.listeners": f"{{default}},SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "{default},SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required;",
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": (
            f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"
        ),
        **oauth,
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={path.as_uri()}"
    with (
        RealKafka(heap="512M", settings=settings, jvm=(*SHORT_LIVED, allowed)),
        EmbeddedCluster(
            security="SASL_PLAINTEXT",
            config={
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "connection.failed.authentication.delay.ms": "20",
                **oauth,
            },
        ) as cluster,
    ):
        yield {"Kafka": f"127.0.0.1:{port}", "ours": cluster.bootstrap_servers}


def log_in(servers: str, message: bytes) -> list[Any]:
    """Return the answers to a client's first message, up to the last one, and the minutes of the session."""
    client = RawClient(servers)
    try:
        assert client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
        first = client.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        seen = [first.error_code, first.error_message, bytes(first.auth_bytes)]
        if first.auth_bytes:
            last = client.call(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
            seen += [last.error_code, last.error_message]
        return [*seen, first.session_lifetime_ms / 60_000]
    finally:
        client.socket.close()


def assert_alike(found: dict[str, list[Any]]) -> None:
    (*ours, our_minutes), (*kafkas, kafkas_minutes) = found["ours"], found["Kafka"]
    assert ours == kafkas
    assert our_minutes == pytest.approx(kafkas_minutes, abs=1)  # one login is a moment after the other


@pytest.mark.parametrize("name", TOKENS)
def test_token_is_answered_alike(servers: dict[str, str], name: str) -> None:
    message = f"n,,\x01auth=Bearer {TOKENS[name]}\x01\x01".encode()
    found = {kind: log_in(address, message) for kind, address in servers.items()}
    assert_alike(found)


@pytest.mark.parametrize(
    "message",
    [
        "n,a=alice,\x01auth=Bearer {}\x01\x01",
        "n,a=bob,\x01auth=Bearer {}\x01\x01",
        "n,,\x01auth=bearer {}\x01traceId=a b\x01\x01",
        "n,,\x01auth=Bearer {}\x01",
        "y,,\x01auth=Bearer {}\x01\x01",
        "n,,\x01a1=b\x01auth=Bearer {}\x01\x01",
        "n,,\x01\x01",
    ],
)
def test_message_is_answered_alike(servers: dict[str, str], message: str) -> None:
    sent = message.replace("{}", TOKENS["good"]).encode()
    found = {kind: log_in(address, sent) for kind, address in servers.items()}
    assert_alike(found)


def test_client_credentials_serve_both(servers: dict[str, str]) -> None:
    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with IdentityServer(SIGNER) as server:
        for address in servers.values():
            with Producer(
                address,
                sasl_oauthbearer_token_endpoint_url=f"{server.url}/token",
                sasl_oauthbearer_client_id="alice",
                sasl_oauthbearer_client_secret="secret",
                **options,
            ) as producer:
                producer.send("credentials", b"1").result(60)
    for address in servers.values():
        with (
            Admin(address, sasl_oauth_token_provider=lambda: TOKENS["another key"], **options) as admin,
            pytest.raises(errors.ClusterUnreachable, match="invalid_token"),
        ):
            admin.list_topics()
