"""OAUTHBEARER with an identity server that is not ours: Authlib's authorization server, whose keys the broker reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin
from authlib.oauth2.rfc6749.grants import ClientCredentialsGrant
from authlib.oauth2.rfc7523 import JWTBearerClientAssertion, JWTBearerGrant, private_key_jwt_sign
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from flask import Flask, request
from joserfc.jwk import ECKey, KeySet, RSAKey
from werkzeug.serving import WSGIRequestHandler, make_server

from pyclient import Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from tests.identity_server import ISSUER

SECRET: Final = "hunter2+/ %"
CLIENT_KEY: Final = RSAKey.generate_key(2048)
SERVER_KEYS: Final = KeySet([ECKey.generate_key("P-256", {"kid": "first", "use": "sig"})])
GRANT: Final = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"


class Service(ClientMixin):
    """The client that the server knows, and the user that it may act for."""

    def get_client_id(self) -> str:
        return "service"

    def get_user_id(self) -> str:
        return "alice"

    def get_allowed_scope(self, scope: str) -> str:
        return scope if scope == "kafka" else ""

    def check_client_secret(self, secret: str) -> bool:
        return secret == SECRET

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method in Credentials.TOKEN_ENDPOINT_AUTH_METHODS

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in {Credentials.GRANT_TYPE, Grant.GRANT_TYPE}


SERVICE: Final = Service()
CLIENTS: Final = {"service": SERVICE}


class Tokens(JWTBearerTokenGenerator):
    def get_jwks(self) -> KeySet:
        return SERVER_KEYS

    def get_audiences(self, _client: Any, _user: Any, _scope: Any) -> str:
        return "kafka"


class Credentials(ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", JWTBearerClientAssertion.CLIENT_AUTH_METHOD]


class Assertions:
    """The application's answers to Authlib about assertions: their audience, and the key of a client."""

    def get_audiences(self) -> list[str]:
        return [request.base_url]

    def resolve_client_public_key(self, _client: Service) -> RSAKey:
        return RSAKey.import_key(CLIENT_KEY.as_dict(private=False))


class ClientAssertion(Assertions, JWTBearerClientAssertion):
    used: ClassVar[set[str]] = set()

    def validate_jti(self, _claims: Any, jti: str) -> bool:
        is_new = jti not in self.used
        self.used.add(jti)
        return is_new


class Grant(Assertions, JWTBearerGrant):
    def resolve_issuer_client(self, issuer: str) -> Service | None:
        return CLIENTS.get(issuer)

    def authenticate_user(self, subject: str) -> Service | None:
        return SERVICE if subject == SERVICE.get_user_id() else None

    def has_granted_permission(self, client: Service, user: Service) -> bool:
        return client is user


class SilentHandler(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        """Print nothing."""


def application() -> Flask:
    """Return an application with `/token` and `/keys`."""
    app = Flask("identity")
    server = AuthorizationServer(app, CLIENTS.get, lambda _token, _request: None)
    server.register_token_generator("default", Tokens(ISSUER, "ES256"))
    server.register_client_auth_method(ClientAssertion.CLIENT_AUTH_METHOD, ClientAssertion())
    server.register_grant(Credentials)
    server.register_grant(Grant)
    app.add_url_rule("/token", view_func=server.create_token_response, methods=["POST"])
    app.add_url_rule("/keys", "keys", lambda: SERVER_KEYS.as_dict(private=False))
    return app


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = make_server("127.0.0.1", 0, application(), threaded=True, request_handler=SilentHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.port}"
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def cluster(url: str) -> Iterator[EmbeddedCluster]:
    """Yield a cluster on which a user may use the topic of its name only: it proves the name in a token."""
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{url}/keys",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    acls = [("topic", name, f"User:{name}", "all") for name in ("service", "alice")]
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=["service", "alice"], acls=acls, config=settings) as cluster:
        yield cluster


def by_secret(url: str, secret: str = SECRET) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "service",
        "sasl.oauthbearer.client.credentials.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka",
    }


def by_assertion(url: str, directory: Path, key: RSAKey = CLIENT_KEY, **claims: Any) -> dict[str, Any]:
    """Return options with a signed assertion in place of the secret."""
    path = directory / "key.pem"
    path.write_bytes(key.as_pem(private=True))
    given = {"aud": f"{url}/token", "iss": "service", "sub": "service", "jti.include": True, **claims}
    kept = {name: value for name, value in by_secret(url).items() if ".client.credentials." not in name}
    return {
        **kept,
        "sasl.oauthbearer.assertion.private.key.file": str(path),
        **{f"sasl.oauthbearer.assertion.claim.{name}": value for name, value in given.items()},
    }


def by_grant(url: str, directory: Path, key: RSAKey = CLIENT_KEY, **claims: Any) -> dict[str, Any]:
    """Return options by which the service gets a token for a user (the jwt-bearer grant)."""
    options = by_assertion(url, directory, key, **{"sub": "alice", **claims})
    return {**options, "sasl.oauthbearer.jwt.retriever.class": GRANT}


def assert_carries_messages(cluster: EmbeddedCluster, topic: str, config: dict[str, Any]) -> None:
    """Log in a producer and a consumer: each has a token of its own."""
    with Producer(cluster.bootstrap_servers, config=config) as producer:
        sent = producer.send(topic, b"1").result(60)
    with Consumer(
        topic, bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", config=config
    ) as consumer:
        assert sent.offset in [record.offset for record in consumer.poll(60)]


def refusal(cluster: EmbeddedCluster, config: dict[str, Any]) -> str:
    with (
        Producer(cluster.bootstrap_servers, config=config) as producer,
        pytest.raises(errors.ClusterUnreachable) as caught,
    ):
        producer.send("service", b"1").result(60)
    return str(caught.value)


def test_client_credentials_log_in(cluster: EmbeddedCluster, url: str) -> None:
    assert_carries_messages(cluster, "service", by_secret(url))


def test_assertion_logs_in_in_place_of_the_secret(cluster: EmbeddedCluster, url: str, tmp_path: Path) -> None:
    assert_carries_messages(cluster, "service", by_assertion(url, tmp_path))


def test_assertion_of_a_file_logs_in_once(cluster: EmbeddedCluster, url: str, tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    path.write_text(private_key_jwt_sign(CLIENT_KEY, "service", f"{url}/token"))
    kept = {name: value for name, value in by_secret(url).items() if ".client.credentials." not in name}
    config = {**kept, "sasl.oauthbearer.assertion.file": str(path)}
    with Producer(cluster.bootstrap_servers, config=config) as producer:
        producer.send("service", b"1").result(60)
    assert "HTTP status 400: invalid_client, JWT ID is used before." in refusal(cluster, config)


def test_jwt_bearer_grant_logs_in_as_the_user(cluster: EmbeddedCluster, url: str, tmp_path: Path) -> None:
    assert_carries_messages(cluster, "alice", by_grant(url, tmp_path))


def test_error_of_a_wrong_secret_quotes_the_server(cluster: EmbeddedCluster, url: str) -> None:
    error = refusal(cluster, by_secret(url, "hunter3"))
    says = "HTTP status 401: invalid_client, The client cannot authenticate with methods: ['client_secret_basic'"
    assert f"{url}/token gave no token to client 'service': {says}" in error
    assert "hunter3" not in error


@pytest.mark.parametrize(
    ("options_of", "change", "says"),
    [
        (by_assertion, {"key": RSAKey.generate_key(2048)}, "invalid_client"),
        (by_assertion, {"aud": "https://other.test"}, "invalid_client, Invalid claim: 'aud'"),
        (by_assertion, {"sub": "other"}, "invalid_client, The client does not exist on this server."),
        (by_assertion, {"jti.include": False}, "invalid_client, Missing JWT ID."),
        (by_grant, {"key": RSAKey.generate_key(2048)}, "invalid_grant"),
        (by_grant, {"aud": "https://other.test"}, "invalid_grant, Invalid claim: 'aud'"),
        (by_grant, {"iss": "other"}, "invalid_grant, The client does not exist on this server."),
        (by_grant, {"sub": "other"}, "invalid_grant, Invalid 'sub' value in assertion"),
    ],
    ids=lambda value: getattr(value, "__name__", None) or (next(iter(value)) if isinstance(value, dict) else ""),
)
def test_error_of_a_wrong_assertion_quotes_the_server(
    cluster: EmbeddedCluster, url: str, tmp_path: Path, options_of: Any, change: dict[str, Any], says: str
) -> None:
    error = refusal(cluster, options_of(url, tmp_path, **change))
    assert f"{url}/token gave no token: HTTP status 400: {says}" in error
