"""Secrets are in nothing that clients and brokers print: logs at DEBUG, errors, reprs, health, described options."""

from __future__ import annotations

import base64
import logging
import re
import shutil
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from joserfc.jwk import RSAKey

from pyclient import Admin, Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.listeners import MECHANISMS
from pyclient.config import ClientConfig
from pyclient.config.broker import BROKER_OPTIONS
from pyclient.config.fields import options_of
from pyclient.net.sasl import authentication, scram
from tests.identity_server import ISSUER, Asked, IdentityServer, Signer
from tests.net.test_pkcs12 import PASSWORD as STORE_PASSWORD
from tests.net.test_pkcs12 import TLS, key_store, trust_store

USER: Final = "alice"
PASSWORD: Final = "s3cret-of=,alice"
WRONG: Final = "wr0ng-passw0rd"
CLIENT_SECRET: Final = "client+s3cret/"
OPTIONS: Final = {"connection.failed.authentication.delay.ms": "20"}


def forms(secret: str | bytes) -> Iterator[bytes]:
    """Yield what a secret looks like in a log: as it is, in hexadecimal digits, encoded for a URL, in base64."""
    raw = secret.encode() if isinstance(secret, str) else secret
    yield raw
    yield raw.hex().encode()
    yield repr(raw)[2:-1].encode()
    if isinstance(secret, str):
        yield quote_plus(secret).encode()
    for before in range(3):  # where it begins in a group of three bytes
        whole = base64.b64encode(bytes(before) + raw)[(0, 2, 3)[before] :]
        inner = whole.rstrip(b"=")[:-1]  # the last letter may depend on what follows
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))


class Output:
    """Everything that is printed, and the places where a secret is in it."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, str]] = []
        self.secrets: list[str | bytes] = [PASSWORD, WRONG, CLIENT_SECRET]

    def add(self, what: str, text: object) -> None:
        self.texts.append((what, text if isinstance(text, str) else repr(text)))

    def add_client(self, client: Any) -> None:
        self.add("client", repr(client))
        self.add("health", client.health())

    def add_error(self, error: BaseException) -> None:
        self.add("error", "".join(traceback.format_exception(error)) + repr(error))

    def leaks(self) -> list[str]:
        searched = [(form, secret) for secret in self.secrets for form in forms(secret) if len(form) > 5]
        return [
            f"{secret!r} in {what}: {text:.1000}"
            for what, text in self.texts
            for form, secret in searched
            if form in text.encode(errors="replace")
        ]


@pytest.fixture
def output(caplog: pytest.LogCaptureFixture) -> Iterator[Output]:
    """Yield the output of a run, then check that nothing in it has a secret."""
    found = Output()
    with caplog.at_level(logging.DEBUG):
        yield found
    formatter = logging.Formatter("%(name)s %(levelname)s %(message)s")
    for record in caplog.get_records("call"):
        found.add(f"log {record.name}", formatter.format(record))
        found.add("arguments of a log line", record.args)
    assert any(what.startswith("log pyclient") for what, _ in found.texts)
    assert found.leaks() == []


def use(output: Output, servers: str, **options: Any) -> None:
    """Produce and consume, and add what a program could print."""
    with Producer(servers, **options) as producer:
        producer.send("t", b"1").result(60)
        output.add_client(producer)
    with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest", group_id="g", **options) as consumer:
        assert consumer.poll(60)
        output.add_client(consumer)
    output.add("config", repr(ClientConfig(bootstrap_servers=(servers,), **options)))


def fail(output: Output, servers: str, says: str, **options: Any) -> None:
    """Have a login refused."""
    with Admin(servers, **options) as admin:
        with pytest.raises((errors.ClusterUnreachable, errors.ConfigError), match=says) as caught:
            admin.list_topics()
        output.add_client(admin)
    output.add_error(caught.value)


def _return(given: Any) -> Any:
    return given


def add_cluster(output: Output, cluster: EmbeddedCluster) -> None:
    output.add("cluster", repr((cluster, cluster.brokers, [broker.config for broker in cluster.brokers])))
    output.add("requests", repr(list(cluster.requests)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_passwords_are_printed_nowhere(output: Output, mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[bytes] = []

    def salt(*given: Any) -> bytes:
        derived.append(scram.salted_password(*given))
        return derived[-1]

    monkeypatch.setattr(authentication, "salted_password", salt)
    with EmbeddedCluster(security="SASL_SSL", users={USER: PASSWORD, "bob": WRONG}, config=OPTIONS) as cluster:
        cluster.requests.start()
        options = cluster.client_options(USER, mechanism)
        use(output, cluster.bootstrap_servers, **options)
        refused = {**options, "sasl_password": WRONG}
        fail(output, cluster.bootstrap_servers, "was refused by the broker", **refused)
        assert bool(derived) is (mechanism != "PLAIN")
        output.secrets += derived
        add_cluster(output, cluster)


def test_delegation_tokens_and_their_key_are_printed_nowhere(output: Output) -> None:
    key = "k3y-of-delegation-tokens"
    config = {**OPTIONS, "delegation.token.secret.key": key}
    with EmbeddedCluster(security="SASL_SSL", users={USER: PASSWORD}, config=config) as cluster:
        cluster.requests.start()
        servers = cluster.bootstrap_servers
        with Admin(servers, **cluster.client_options(USER)) as admin:
            token = admin.create_delegation_token()
            output.secrets += [key, token.hmac, base64.b64encode(token.hmac).decode()]
            admin.renew_delegation_token(token.hmac)
            output.add("tokens", repr((token, admin.describe_delegation_tokens())))
            options = {**cluster.client_options(USER), **token.client_options()}
            use(output, servers, **options)
            fail(output, servers, "delegation token", **{**options, "sasl_password": WRONG})
            admin.expire_delegation_token(token.hmac)
            with pytest.raises(errors.DelegationTokenNotFound) as caught:
                admin.renew_delegation_token(token.hmac)
            output.add_error(caught.value)
            text = base64.b64encode(token.hmac).decode()
            with pytest.raises(errors.DelegationTokenNotFound):
                admin.renew_delegation_token(text)
            for call in (admin.renew_delegation_token, admin.expire_delegation_token):
                with pytest.raises(errors.ConfigError, match="as base64 text") as mistaken:
                    call(f"{text}!")
                output.add_error(mistaken.value)
            fail(output, servers, "delegation token", **options)
            output.add_client(admin)
        add_cluster(output, cluster)


def test_described_options_of_a_broker_have_no_password(output: Output) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = {
        **OPTIONS,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} user_carol="{WRONG}";',
        "sasl.enabled.mechanisms": "PLAIN",
    }
    with EmbeddedCluster(security="SASL_PLAINTEXT", users={USER: PASSWORD}, config=config) as cluster:
        cluster.requests.start()
        options = {"sasl.mechanism": "PLAIN", "sasl.username": "carol", "sasl.password": WRONG}
        admin = AdminClient(
            {"bootstrap.servers": cluster.bootstrap_servers, "security.protocol": "SASL_PLAINTEXT", **options}
        )
        [described] = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")]).values()
        entries = described.result(60)
        output.add("described", repr({name: entry.value for name, entry in entries.items()}))
        use(output, cluster.bootstrap_servers, **cluster.client_options(USER, "PLAIN"))
        add_cluster(output, cluster)


def test_tokens_and_client_secrets_are_printed_nowhere(output: Output, tmp_path: Path) -> None:
    signer, other = Signer(), Signer()
    given: list[str] = []

    def keep(token: str) -> str:
        given.append(token)
        output.secrets += [token, token.rpartition(".")[2]]
        return token

    def answer(asked: Asked) -> tuple[int, Any]:
        return 200, {"access_token": keep(signer.token(jti=str(len(given)))), "expires_in": 600}

    with IdentityServer(signer) as server:
        server.answer = answer
        config = {
            **OPTIONS,
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys",
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        with EmbeddedCluster(security="SASL_PLAINTEXT", config=config) as cluster:
            cluster.requests.start()
            servers = cluster.bootstrap_servers
            sasl: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
            oidc = {
                **sasl,
                "sasl_oauthbearer_token_endpoint_url": f"{server.url}/token",
                "sasl_oauthbearer_client_id": "client",
                "sasl_oauthbearer_client_secret": CLIENT_SECRET,
            }
            use(output, servers, **sasl, sasl_oauth_token_provider=lambda: keep(signer.token()))
            use(output, servers, **oidc)
            for token in (keep(other.token()), keep(signer.token(exp=time.time() - 100, iss="another"))):
                provider = partial(_return, (token, time.time() + 100))
                fail(output, servers, "invalid_token", **sasl, sasl_oauth_token_provider=provider)
            path = tmp_path / "token"
            path.write_text(keep(signer.token()))
            use(output, servers, **sasl, sasl_oauthbearer_token_endpoint_url=path.as_uri())
            server.answer = lambda asked: (401, {"error": f"not {CLIENT_SECRET} {quote_plus(CLIENT_SECRET)}"})
            fail(output, servers, "HTTP status 401", **oidc)
            server.answer = lambda asked: (200, f"{keep(signer.token())} is no JSON".encode())
            fail(output, servers, "no JSON", **oidc)
            add_cluster(output, cluster)


@pytest.mark.parametrize("grant", ["ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever"])
def test_assertions_and_their_keys_are_printed_nowhere(output: Output, tmp_path: Path, grant: str) -> None:
    key, signer, ready = RSAKey.generate_key(2048), Signer(), tmp_path / "assertion"
    pem = key.as_pem(private=True, password=PASSWORD).decode()
    output.secrets += [key.as_dict(private=True)["d"], "".join(pem.splitlines()[1:-1])[:60]]
    refuses = False

    def answer(asked: Asked) -> tuple[int, Any]:
        sent = asked.form["assertion" if grant.startswith("JwtBearer") else "client_assertion"]
        token = signer.token()
        output.secrets += [sent, sent.rpartition(".")[2], token, token.rpartition(".")[2]]
        return (401, {"error": f"not {sent}"}) if refuses else (200, {"access_token": token})

    with IdentityServer(signer) as server:
        server.answer = answer
        config = {
            **OPTIONS,
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys",
        }
        with EmbeddedCluster(security="SASL_PLAINTEXT", config=config) as cluster:
            cluster.requests.start()
            servers = cluster.bootstrap_servers
            oidc: dict[str, Any] = {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url": f"{server.url}/token",
                "sasl_oauthbearer_jwt_retriever_class": grant,
            }
            signed = {
                **oidc,
                "sasl_oauthbearer_assertion_private_key_pem": pem,
                "sasl_oauthbearer_assertion_private_key_passphrase": PASSWORD,
                "sasl_oauthbearer_assertion_claim_iss": "client",
            }
            use(output, servers, **signed)
            wrong = {**signed, "sasl_oauthbearer_assertion_private_key_passphrase": WRONG}
            fail(output, servers, "private_key_passphrase must be that of the key", **wrong)
            ready.write_text(Signer().token())
            use(output, servers, **oidc, sasl_oauthbearer_assertion_file=str(ready))
            refuses = True
            fail(output, servers, "HTTP status 401: not <hidden>", **signed)
            add_cluster(output, cluster)


def test_signed_tokens_of_a_cluster_are_printed_nowhere(output: Output) -> None:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=[USER], config=OPTIONS) as cluster:
        cluster.requests.start()
        options = cluster.client_options(USER)
        token = options["sasl_oauth_token_provider"]()[0]
        output.secrets += [token, token.rpartition(".")[2]]
        use(output, cluster.bootstrap_servers, **{**options, "sasl_oauth_token_provider": lambda: token})
        output.add("options", repr(options))
        add_cluster(output, cluster)


def test_passwords_of_keys_are_printed_nowhere(output: Output, tmp_path: Path) -> None:
    output.secrets += [STORE_PASSWORD]
    shutil.copy(TLS / "ca.pem", tmp_path / "ca.pem")
    config = {
        **OPTIONS,
        "ssl.keystore.location": key_store(tmp_path / "broker.p12", "broker.pem"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.truststore.location": trust_store(tmp_path / "trust.p12"),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.client.auth": "required",
    }
    with EmbeddedCluster(security="SSL", config=config) as cluster:
        cluster.requests.start()
        servers = cluster.bootstrap_servers.replace("127.0.0.1", "localhost")
        trust: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": str(tmp_path / "ca.pem")}
        store = key_store(tmp_path / "client.p12")
        use(output, servers, **trust, ssl_certfile=store, ssl_keystore_password=STORE_PASSWORD)
        for wrong in (
            {"ssl_certfile": store, "ssl_keystore_password": WRONG},
            {"ssl_certfile": str(TLS / "client-encrypted.pem"), "ssl_password": WRONG},
        ):
            with pytest.raises(errors.ConfigError) as caught, Admin(servers, **trust, **wrong) as admin:
                admin.list_topics()
            output.add_error(caught.value)
        add_cluster(output, cluster)


def test_search_finds_a_secret_in_every_form() -> None:
    """The search itself: a secret in other forms, at any place of a base64 text."""
    output = Output()
    for before in ("", "a", "ab", "abc"):
        output.texts = [("t", base64.b64encode(f"{before}{PASSWORD}\0x".encode()).decode())]
        assert output.leaks(), before
    for text in (PASSWORD, repr({"p": PASSWORD.encode()}), quote_plus(PASSWORD), PASSWORD.encode().hex()):
        output.texts = [("t", text)]
        assert output.leaks(), text


def test_options_with_secrets_are_hidden() -> None:
    named = re.compile(r"password|secret|passphrase|jaas|keystore[._]key$|key_pem$")
    tables = [options_of(ClientConfig), BROKER_OPTIONS]
    found = [option for table in tables for name, option in table.items() if named.search(name)]
    assert len(found) > 10
    shown = [option.name for option in found if not option.sensitive]
    assert shown == []
