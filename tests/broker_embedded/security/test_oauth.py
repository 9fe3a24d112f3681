"""OAUTHBEARER on the embedded broker: every client, what is refused and how, and sessions that end with the token."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import aiokafka
import aiokafka.abc
import confluent_kafka
import pytest
from joserfc.jwk import RSAKey
from kafka.net.sasl.oauth import AbstractTokenProvider

from pyclient import Admin, AsyncProducer, Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_embedded.conftest import RawClient
from tests.identity_server import ISSUER, JWT_BEARER, IdentityServer, KnownClient, Signer, claims_of, encoded
from tests.other_clients import send_by_aiokafka, send_by_confluent, send_by_kafka_python

ALL: Final = MetadataRequest(topics=None)
DELAY: Final = {"connection.failed.authentication.delay.ms": "20"}
SIGNER: Final = Signer()


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Yield a cluster with the keys of an identity server."""
    with (
        IdentityServer(SIGNER) as server,
        EmbeddedCluster(
            security="SASL_PLAINTEXT",
            config={
                **DELAY,
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys",
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "sasl.oauthbearer.expected.audience": "kafka",
                "connections.max.reauth.ms": "60000",
                "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
                ),
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
                ),
            },
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def raw(cluster: EmbeddedCluster) -> Iterator[RawClient]:
    client = RawClient(cluster.bootstrap_servers)
    yield client
    client.socket.close()


def send(client: RawClient, message: bytes) -> Any:
    assert client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
    return client.call(SaslAuthenticateRequest(auth_bytes=message), 2)


def log_in(client: RawClient, token: str) -> Any:
    return send(client, f"n,,\x01auth=Bearer {token}\x01\x01".encode())


# -- every client


def by_pyclient(servers: str, token: str, topic: str) -> None:
    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with Producer(servers, **options, sasl_oauth_token_provider=lambda: token) as producer:
        producer.send(topic, b"1").result(60)


def by_confluent(servers: str, token: str, topic: str) -> None:
    options = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: (token, time.time() + 600),
    }
    send_by_confluent(topic, options)


class TokenOfKafkaPython(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self.given = token

    def token(self) -> str:
        return self.given


def by_kafka_python(servers: str, token: str, topic: str) -> None:
    send_by_kafka_python(
        topic,
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=TokenOfKafkaPython(token),
    )


class TokenOfAiokafka(aiokafka.abc.AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self.given = token

    async def token(self) -> str:
        return self.given


def by_aiokafka(servers: str, token: str, topic: str) -> None:
    send_by_aiokafka(
        topic,
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=TokenOfAiokafka(token),
    )


CLIENTS = [by_pyclient, by_confluent, by_kafka_python, by_aiokafka]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_every_client_logs_in_by_its_token_provider(cluster: EmbeddedCluster, client: Any) -> None:
    topic = client.__name__
    client(cluster.bootstrap_servers, SIGNER.token(), topic)
    with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=lambda: SIGNER.token("bob"),
    ) as consumer:
        assert [record.value for record in consumer.poll(60)] == [b"1"]


@pytest.mark.parametrize("client", [by_pyclient, by_confluent], ids=lambda client: client.__name__)
def test_client_raises_an_error_for_an_invalid_token(cluster: EmbeddedCluster, client: Any) -> None:
    with pytest.raises((errors.ClusterUnreachable, confluent_kafka.KafkaException), match="invalid_token"):
        client(cluster.bootstrap_servers, Signer().token(), "t")


# -- client credentials


def with_pyclient(servers: str, url: str) -> None:
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "alice",
        "sasl.oauthbearer.client.credentials.client.secret": "hunter2",
        "sasl.oauthbearer.scope": "kafka",
    }
    with Producer(servers, config=options) as producer:
        producer.send("credentials", b"1").result(60)


def with_asyncio(servers: str, url: str) -> None:
    async def main() -> None:
        async with AsyncProducer(
            servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_oauthbearer_client_id="alice",
            sasl_oauthbearer_client_secret="hunter2",
            sasl_oauthbearer_scope="kafka",
        ) as producer:
            await producer.send("credentials", b"1")

    asyncio.run(main())


def with_confluent(servers: str, url: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": url,
            "sasl.oauthbearer.client.id": "alice",
            "sasl.oauthbearer.client.secret": "hunter2",
            "sasl.oauthbearer.scope": "kafka",
        }
    )
    producer.produce("credentials", b"1")
    assert producer.flush(60) == 0


@pytest.mark.parametrize("client", [with_pyclient, with_asyncio, with_confluent], ids=lambda client: client.__name__)
def test_client_credentials_are_exchanged_for_a_token(cluster: EmbeddedCluster, client: Any) -> None:
    with IdentityServer(SIGNER) as server:
        client(cluster.bootstrap_servers, f"{server.url}/token")
        assert server.asked
        for asked in server.asked:
            assert asked.authorization == "Basic " + base64.b64encode(b"alice:hunter2").decode()
            assert asked.form == {"grant_type": "client_credentials", "scope": "kafka"}


# -- assertions in place of a secret

CLASS: Final = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"


def sync_producer(servers: str, config: dict[str, Any], is_grant: bool) -> None:
    chosen = {"sasl.oauthbearer.jwt.retriever.class": CLASS} if is_grant else {}
    with Producer(servers, config={**config, **chosen}) as producer:
        producer.send("assertions", b"1").result(60)


def async_producer(servers: str, config: dict[str, Any], is_grant: bool) -> None:
    async def main() -> None:
        chosen = {"sasl.oauthbearer.jwt.retriever.class": CLASS} if is_grant else {}
        async with AsyncProducer(servers, config={**config, **chosen}) as producer:
            await producer.send("assertions", b"1")

    asyncio.run(main())


def confluent_producer(servers: str, config: dict[str, Any], is_grant: bool) -> None:
    """Send the same, by librdkafka's name of the grant."""
    assert is_grant
    chosen = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.grant.type": JWT_BEARER}
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **config, **chosen})
    producer.produce("assertions", b"1")
    assert producer.flush(60) == 0


@pytest.mark.parametrize(
    ("client", "is_grant"),
    [
        (sync_producer, False),
        (sync_producer, True),
        (async_producer, False),
        (async_producer, True),
        (confluent_producer, True),
    ],
    ids=lambda value: getattr(value, "__name__", {True: "jwt-bearer", False: "credentials"}.get(value)),
)
def test_assertions_are_exchanged_for_a_token(
    cluster: EmbeddedCluster, tmp_path: Path, client: Any, is_grant: bool
) -> None:
    key, path = RSAKey.generate_key(2048), tmp_path / "key.pem"
    path.write_bytes(key.as_pem(private=True))
    with IdentityServer(SIGNER) as server:
        known = server.answer = KnownClient(server, key, "RS256")
        config = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"{server.url}/token",
            "sasl.oauthbearer.assertion.private.key.file": str(path),
            "sasl.oauthbearer.assertion.claim.aud": f"{server.url}/token",
            "sasl.oauthbearer.assertion.claim.iss": "alice",
            "sasl.oauthbearer.assertion.claim.sub": "alice",
            "sasl.oauthbearer.assertion.claim.jti.include": True,
        }
        client(cluster.bootstrap_servers, config, is_grant)
        assert known.claims
        assert {asked.form["grant_type"] for asked in server.asked} == {
            JWT_BEARER if is_grant else "client_credentials"
        }
        assert known.headers[0] == {"alg": "RS256", "typ": "JWT"}
        assert known.claims[0].keys() == {"iss", "sub", "aud", "iat", "exp", "nbf", "jti"}


# -- the answers


@pytest.mark.parametrize(
    "make_token",
    [
        lambda: Signer().token(),
        lambda: SIGNER.token(exp=time.time() - 100),
        lambda: SIGNER.token(aud="others"),
        lambda: f"{encoded({'alg': 'none'})}.{encoded(claims_of())}.",
        lambda: SIGNER.token(padding="x" * 40_000),
        lambda: SIGNER.token()[:-4],
        lambda: "a",
    ],
    ids=["key", "expired", "audience", "unsecured", "huge", "truncated", "nonsense"],
)
def test_refused_token_is_answered_in_two_steps(raw: RawClient, make_token: Callable[[], str]) -> None:
    """RFC 7628: the server says why, the client sends a byte, and the server ends it."""
    first = log_in(raw, make_token())
    assert (first.error_code, first.session_lifetime_ms) == (0, 0)
    assert json.loads(bytes(first.auth_bytes)) == {"status": "invalid_token"}
    last = raw.call(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
    assert last.error_code == errors.SaslAuthenticationFailed.code
    assert last.error_message == '{"status":"invalid_token"}'
    assert raw.is_closed()


def test_valid_token_after_a_refused_one_is_refused(raw: RawClient) -> None:
    log_in(raw, "bad")
    good = f"n,,\x01auth=Bearer {SIGNER.token()}\x01\x01".encode()
    assert raw.call(SaslAuthenticateRequest(auth_bytes=good), 2).error_code == errors.SaslAuthenticationFailed.code
    assert raw.is_closed()


def test_request_after_a_refused_token_closes_the_connection(raw: RawClient) -> None:
    log_in(raw, "bad")
    raw.send(ALL, 12)
    assert raw.is_closed()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer {}\x01\x01",
        b"n,,\x01auth=Bearer {}\x01",
        b"n,,auth=Bearer {}\x01\x01",
        b"n,,\x01auth=Basic {}\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer {} {}\x01\x01",
        b"n,,\x01auth=Bearer {}\x01auth=Bearer {}\x01\x01",
        b"n,,\x01auth=Bearer {}\x01a1=b\x01\x01",
        b"n,,\x01auth=Bearer {}\x01\x01\x01",
        b"n,,\x01auth=Bearer \xff{}\x01\x01",
        b"n,a=,\x01auth=Bearer {}\x01\x01",
    ],
)
def test_malformed_message_is_refused_as_by_kafka(raw: RawClient, message: bytes) -> None:
    answer = send(raw, message.replace(b"{}", SIGNER.token().encode()))
    assert answer.error_code == errors.SaslAuthenticationFailed.code
    assert "invalid credentials with SASL mechanism OAUTHBEARER" in answer.error_message
    assert raw.is_closed()


def test_extensions_and_own_name_are_accepted(raw: RawClient) -> None:
    answer = send(raw, f"n,a=alice,\x01auth=bEARER  {SIGNER.token()}\x01traceId=a b=c\x01\x01".encode())
    assert answer.error_code == 0
    assert raw.call(ALL, 12).cluster_id


def test_another_authorization_id_is_refused(raw: RawClient) -> None:
    answer = send(raw, f"n,a=bob=2C,\x01auth=Bearer {SIGNER.token()}\x01\x01".encode())
    assert answer.error_code == errors.SaslAuthenticationFailed.code
    assert "authorization id (bob,) that is different from the token's principal name (alice)" in answer.error_message


# -- sessions


def test_session_is_the_shorter_of_token_and_limit(cluster: EmbeddedCluster) -> None:
    for seconds, least, most in ((600, 60_000, 60_000), (20, 15_000, 20_000)):
        client = RawClient(cluster.bootstrap_servers)
        answer = log_in(client, SIGNER.token(exp=time.time() + seconds))
        assert least <= answer.session_lifetime_ms <= most
        client.socket.close()


def test_token_ends_the_session_without_a_limit_and_a_new_one_renews_it() -> None:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=["alice", "bob"], config=DELAY) as cluster:

        def token(user: str) -> str:
            found: str = cluster.client_options(user)["sasl_oauth_token_provider"]()[0]
            return found

        client, other = RawClient(cluster.bootstrap_servers), RawClient(cluster.bootstrap_servers)
        for each in (client, other):
            assert 3_500_000 < log_in(each, token("alice")).session_lifetime_ms <= 3_600_000
        cluster.advance_time(3000)
        assert log_in(client, token("alice")).session_lifetime_ms > 3_500_000
        cluster.advance_time(700)
        assert client.call(ALL, 12).cluster_id
        other.send(ALL, 12)
        assert other.is_closed()
        answer = log_in(client, token("bob"))
        assert "Cannot change principals" in answer.error_message
        client.socket.close()
        other.socket.close()


def retries_until_renewed(cluster: EmbeddedCluster, seconds: int) -> int:
    """Send until a session of so many seconds is renewed with a new token; return how many batches were sent again."""
    given: list[str] = []

    def provider() -> tuple[str, float]:
        end = time.time() + seconds
        given.append(SIGNER.token(exp=end))
        return given[-1], end

    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with Producer(cluster.bootstrap_servers, sasl_oauth_token_provider=provider, **options) as producer:
        while len(given) < 2:
            producer.send("renewed", b"1").result(60)
        producer.send("renewed", b"2").result(60)
        return int(producer.metrics()["batches_retried"])


def test_producer_renews_its_session_with_new_tokens(cluster: EmbeddedCluster) -> None:
    """On a busy machine it may be too late in a short session: only 15 % of the time is left when it begins."""
    assert any(retries_until_renewed(cluster, seconds) == 0 for seconds in (5, 10, 20))


# -- a cluster that signs tokens itself


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_users_without_passwords_have_tokens(protocol: str, tmp_path: Path) -> None:
    acls = [("topic", "t", "User:alice", "all")]
    for _ in range(2):  # the second one takes the key that is there
        with EmbeddedCluster(
            security=protocol, users=["alice", "bob"], acls=acls, data_dir=tmp_path, config=DELAY
        ) as cluster:
            servers = cluster.bootstrap_servers
            with Producer(servers, **cluster.client_options("alice")) as producer:
                producer.send("t", b"1").result(60)
            with Admin(servers, **cluster.client_options("bob")) as admin:
                assert admin.list_topics() == []
            with pytest.raises(errors.ConfigError, match="the users have tokens and no passwords"):
                cluster.client_options("alice", "PLAIN")
            with pytest.raises(errors.ConfigError, match="user 'carol' is not one"):
                cluster.client_options("carol")
    files = sorted(path for path in tmp_path.iterdir() if path.name.startswith("security-tokens"))
    assert [(path.name, path.stat().st_mode & 0o777) for path in files] == [
        ("security-tokens.jwks", 0o600),
        ("security-tokens.key", 0o600),
    ]
    assert set(json.loads(files[0].read_text())["keys"][0]) == {"crv", "kid", "kty", "use", "x", "y"}


def test_users_with_passwords_may_have_tokens_too() -> None:
    config = {**DELAY, "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users={"alice": "secret"}, config=config) as cluster:
        for mechanism in (None, "OAUTHBEARER"):
            with Admin(cluster.bootstrap_servers, **cluster.client_options("alice", mechanism)) as admin:
                assert admin.list_topics() == []


def test_tokens_of_another_cluster_are_refused() -> None:
    with (
        EmbeddedCluster(security="SASL_PLAINTEXT", users=["alice"], config=DELAY) as cluster,
        EmbeddedCluster(security="SASL_PLAINTEXT", users=["alice"], config=DELAY) as other,
        Admin(cluster.bootstrap_servers, **other.client_options("alice")) as admin,
        pytest.raises(errors.ClusterUnreachable, match="invalid_token"),
    ):
        admin.list_topics()


# -- what cannot be configured


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://keys.example/jwks", "use https:"),
        ("https://u:p@keys.example/jwks", "has a user or a password"),
        ("ftp://keys.example/jwks", "not an https:, http: or file: URL"),
        ("file:keys", "absolute path"),
        ("keys.json", "not an https:, http: or file: URL"),
    ],
)
def test_untrusted_url_of_keys_is_refused(url: str, says: str) -> None:
    config = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": url}
    with pytest.raises(errors.ConfigError, match=says) as caught:
        EmbeddedCluster(security="SASL_PLAINTEXT", config=config)
    assert "sasl.oauthbearer.jwks.endpoint.url" in str(caught.value)


def test_missing_url_of_keys_is_named() -> None:
    cluster = EmbeddedCluster(security="SASL_PLAINTEXT", config={"sasl.enabled.mechanisms": "OAUTHBEARER"})
    with pytest.raises(errors.ConfigError, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url is missing"):
        cluster.start()


def test_unsecured_login_of_kafka_is_refused() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    with pytest.raises(errors.ConfigError, match="option unsecuredLoginStringClaim_sub of OAuthBearerLoginModule"):
        EmbeddedCluster(
            security="SASL_PLAINTEXT",
            config={
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                    f'{module} unsecuredLoginStringClaim_sub="admin";'
                ),
            },
        )


def test_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cluster.token_key", "network.jwt_validation", "network.jwks", "network.oauth"):
        monkeypatch.delitem(sys.modules, f"pyclient.broker_embedded.{name}", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "joserfc"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "joserfc", None)
    says = r"needs the package joserfc .*pip install 'pyclient-kafka\[security\]'"
    with pytest.raises(errors.ConfigError, match=says):
        EmbeddedCluster(security="SASL_PLAINTEXT", users=["alice"]).start()
