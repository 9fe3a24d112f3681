"""Assertions in place of a client secret: their claims, the keys and files they come from, and what a server gets."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final

import pytest
from joserfc.jwk import ECKey, Key, RSAKey

from pyclient.config.assertion import AssertionSettings
from pyclient.errors import ConnectionFailed
from pyclient.net.sasl.assertion import AssertionSource, Template, claims_at, header_of
from pyclient.net.sasl.oauth import TokenFailure
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.identity_server import Asked, IdentityServer, KnownClient, Signer
from tests.net.sasl_server import SaslServer
from tests.net.test_oidc import NO_RETRY
from tests.net.test_sasl import METADATA, refused, use

RSA: Final = RSAKey.generate_key(2048)
EC: Final = ECKey.generate_key("P-256")
PASSPHRASE: Final = "hunter2+/ %"
NOW: Final = 1_800_000_000
CLASS: Final = "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"


def pem(key: Key, passphrase: str | None = None) -> str:
    return key.as_pem(private=True, password=passphrase).decode()


def key_file(directory: Path, key: Key = RSA, passphrase: str | None = None) -> str:
    path = directory / "client key.pem"
    path.write_text(pem(key, passphrase))
    return str(path)


def template_file(directory: Path, content: Any) -> str:
    path = directory / "template.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def failure(now: float = NOW, **settings: Any) -> TokenFailure:
    """Return the error of an assertion that cannot be had."""
    with pytest.raises(TokenFailure) as caught:
        AssertionSource(AssertionSettings(**settings)).get(now)
    assert "hunter2" not in repr(caught.value)
    assert caught.value.__cause__ is None
    return caught.value


# -- claims


def test_claims_are_those_of_options_and_template_and_the_times() -> None:
    settings = AssertionSettings(
        claims={"aud": "a", "iss": "i", "sub": "s"}, seconds=100, early=7, has_id=True, algorithm="ES256"
    )
    template = Template(
        {"kid": "k", "alg": "none", "typ": "x"}, {"iss": "t", "exp": 1, "iat": 2, "nbf": 3, "jti": "4", "other": [5]}
    )
    assert header_of(settings, template) == {"kid": "k", "alg": "ES256", "typ": "JWT"}
    assert claims_at(settings, template, NOW, "unique") == {
        "aud": "a",
        "iss": "t",
        "sub": "s",
        "other": [5],
        "iat": NOW,
        "exp": NOW + 100,
        "nbf": NOW - 7,
        "jti": "unique",
    }


def test_id_is_left_out_unless_it_is_wanted() -> None:
    assert claims_at(AssertionSettings(), Template(), NOW, "unique") == {"iat": NOW, "exp": NOW + 300, "nbf": NOW - 60}


# -- at an identity server


@pytest.fixture
def server() -> Any:
    with IdentityServer() as server:
        yield server


def options_of(server: IdentityServer, **options: Any) -> dict[str, Any]:
    return {
        "sasl_oauthbearer_token_endpoint_url": f"{server.url}/token",
        "sasl_oauthbearer_assertion_claim_aud": f"{server.url}/token",
        "sasl_oauthbearer_assertion_claim_iss": "alice",
        "sasl_oauthbearer_assertion_claim_sub": "alice",
        "socket_connection_setup_timeout_ms": 60_000,
        **options,
    }


class AnyToken(frozenset[str]):
    def __contains__(self, _: object) -> bool:
        return True


async def log_in(**options: Any) -> None:
    broker = SaslServer(tokens=AnyToken()).broker({MetadataRequest: METADATA})
    await use(broker, "OAUTHBEARER", **options)


async def refusal(**options: Any) -> ConnectionFailed:
    return await refused(SaslServer().broker(), "OAUTHBEARER", **options)


@pytest.mark.parametrize("grant", ["client credentials", "jwt-bearer"])
@pytest.mark.parametrize(
    ("key", "algorithm", "passphrase"), [(RSA, "RS256", None), (RSA, "RS256", PASSPHRASE), (EC, "ES256", PASSPHRASE)]
)
def test_assertion_is_accepted_by_a_server_that_verifies_it(
    run: Any, server: IdentityServer, tmp_path: Path, grant: str, key: Key, algorithm: str, passphrase: str | None
) -> None:
    known = server.answer = KnownClient(server, key, algorithm)
    template = {"header": {"kid": "the key", "alg": "none", "x": 1}, "payload": {"department": ["a", 1], "exp": 1}}
    options = options_of(
        server,
        sasl_oauthbearer_assertion_private_key_file=key_file(tmp_path, key, passphrase),
        sasl_oauthbearer_assertion_private_key_passphrase=passphrase,
        sasl_oauthbearer_assertion_algorithm=algorithm.lower(),
        sasl_oauthbearer_assertion_template_file=template_file(tmp_path, template),
        sasl_oauthbearer_scope="a b",
        **({"sasl_oauthbearer_jwt_retriever_class": CLASS} if grant == "jwt-bearer" else {}),
    )
    run(log_in(**options))
    [asked] = server.asked
    assert asked.form["scope"] == "a b"
    assert ("assertion" in asked.form) is (grant == "jwt-bearer")
    assert known.headers == [{"kid": "the key", "x": 1, "alg": algorithm, "typ": "JWT"}]
    [claims] = known.claims
    assert claims["exp"] - claims["iat"] == 300 and claims["iat"] - claims["nbf"] == 60
    assert abs(claims["iat"] - time.time()) < 3600
    assert claims["department"] == ["a", 1]
    assert "jti" not in claims


def test_client_id_is_sent_with_an_assertion_if_it_is_given(run: Any, server: IdentityServer) -> None:
    server.answer = KnownClient(server, RSA, "RS256")
    key = {"sasl_oauthbearer_assertion_private_key_pem": pem(RSA)}
    run(log_in(**options_of(server, **key, sasl_oauthbearer_client_id="alice")))
    run(log_in(**options_of(server, **key)))
    assert [asked.form.get("client_id") for asked in server.asked] == ["alice", None]


def test_each_request_has_an_assertion_with_an_id_of_its_own(run: Any, server: IdentityServer) -> None:
    known, troubles = KnownClient(server, RSA, "RS256"), [503, 503]

    def answer(asked: Asked) -> tuple[int, Any]:
        status, document = known(asked)
        return (troubles.pop(), {}) if status == 200 and troubles else (status, document)

    server.answer = answer
    options = options_of(
        server,
        sasl_oauthbearer_assertion_private_key_pem=pem(RSA),
        sasl_oauthbearer_assertion_claim_jti_include=True,
        sasl_login_retry_backoff_ms=1,
    )
    run(log_in(**options))
    assert len({claims["jti"] for claims in known.claims}) == len(server.asked) == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sasl_oauthbearer_assertion_private_key_pem": pem(RSAKey.generate_key(2048))}, "bad_signature: <hidden>"),
        ({"sasl_oauthbearer_assertion_claim_aud": "https://other.test"}, "invalid_claim: <hidden>"),
        ({"sasl_oauthbearer_assertion_claim_iss": None}, "missing_claim: <hidden>"),
        (
            {
                "sasl_oauthbearer_assertion_claim_exp_seconds": 0,
                "sasl_oauthbearer_assertion_claim_nbf_seconds": 3600,
            },
            "expired_token: <hidden>",
        ),
    ],
    ids=["key", "audience", "issuer", "expired"],
)
@pytest.mark.parametrize("grant", ["invalid_client", "invalid_grant"])
def test_refusal_has_the_reason_of_the_server_and_no_assertion(
    run: Any, server: IdentityServer, changes: dict[str, Any], says: str, grant: str
) -> None:
    server.answer = KnownClient(server, RSA, "RS256")
    given = {"sasl_oauthbearer_assertion_private_key_pem": pem(RSA), **changes}
    if grant == "invalid_grant":
        given["sasl_oauthbearer_jwt_retriever_class"] = CLASS
    error = run(refusal(**options_of(server, **given)))
    assert error.lasting
    status = 400 if grant == "invalid_grant" else 401
    assert f"{server.url}/token gave no token: HTTP status {status}: {grant}, {says}" in str(error)
    [asked] = server.asked
    sent = asked.form.get("assertion") or asked.form["client_assertion"]
    assert not any(part in repr(error) for part in sent.split("."))


# -- ready assertions


def test_ready_assertion_is_read_for_each_request(run: Any, server: IdentityServer, tmp_path: Path) -> None:
    path, signer = tmp_path / "assertion.jwt", Signer()
    first, second = (signer.token(user) for user in ("first", "second"))
    options = {
        "sasl_oauthbearer_token_endpoint_url": f"{server.url}/token",
        "sasl_oauthbearer_assertion_file": str(path),
        "sasl_login_retry_backoff_ms": 1,
    }
    path.write_text(f"{first}\n")

    def answer(_: Asked) -> tuple[int, Any]:
        path.write_text(second)
        return (200, {"access_token": "abc"}) if len(server.asked) > 1 else (503, {})

    server.answer = answer
    run(log_in(**options))
    assert [asked.form["client_assertion"] for asked in server.asked] == [first, second]
    run(log_in(**options, sasl_oauthbearer_jwt_retriever_class=CLASS))
    assert server.asked[2].form == {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": second}


def test_missing_ready_assertion_may_come_later(run: Any, server: IdentityServer, tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    options = {
        "sasl_oauthbearer_token_endpoint_url": f"{server.url}/token",
        "sasl_oauthbearer_assertion_file": path,
        **NO_RETRY,
    }
    error = run(refusal(**options))
    assert not error.lasting
    assert f"sasl_oauthbearer_assertion_file={path!r} cannot be read: No such file or directory" in str(error)
    assert server.asked == []


@pytest.mark.parametrize(
    "content", ["", "hunter2", "a.b", "a.b.c.d", "a.b.c d", "é.b.c", "a..c", "a.b.hunter2\nx", "a" * (1 << 21)]
)
def test_file_without_an_assertion_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "assertion"
    path.write_text(content)
    error = failure(file=str(path))
    assert f"sasl_oauthbearer_assertion_file={str(path)!r} has " in str(error)
    assert not error.lasting


def test_ready_assertion_that_has_ended_is_not_sent(tmp_path: Path) -> None:
    path, assertion = tmp_path / "assertion", Signer().token(exp=NOW)
    path.write_text(assertion)
    assert AssertionSource(AssertionSettings(file=str(path))).get(NOW - 1) == assertion
    error = failure(NOW + 30, file=str(path))
    assert "ended 30 s ago: replace it" in str(error)
    assert not error.lasting
    assert assertion not in str(error)


# -- keys and templates


def test_key_and_template_are_read_again(tmp_path: Path) -> None:
    path, template = key_file(tmp_path), template_file(tmp_path, {"header": {"kid": "1"}})
    source = AssertionSource(AssertionSettings(key_file=path, template_file=template))
    first = source.get(NOW)
    assert source.get(NOW) == first
    template_file(tmp_path, {"header": {"kid": "2"}})
    second = source.get(NOW)
    key_file(tmp_path, RSAKey.generate_key(2048))
    third = source.get(NOW)
    heads = [assertion.rpartition(".")[0] for assertion in (first, second, third)]
    assert heads[0] != heads[1] == heads[2]
    assert second != third


@pytest.mark.parametrize(
    ("algorithm", "content", "passphrase", "says"),
    [
        ("RS256", pem(RSA, PASSPHRASE), None, "is encrypted: give sasl_oauthbearer_assertion_private_key_passphrase"),
        ("RS256", pem(RSA), PASSPHRASE, "is not encrypted: drop sasl_oauthbearer_assertion_private_key_passphrase"),
        ("RS256", pem(RSA, "other"), PASSPHRASE, "private_key_passphrase must be that of the key"),
        ("RS256", pem(EC), None, "RS256 needs an RSA private key as PEM"),
        ("ES256", pem(RSA), None, "ES256 needs an elliptic curve private key as PEM"),
        ("ES256", pem(ECKey.generate_key("P-384")), None, "no assertion can be signed by ES256"),
        ("RS256", RSA.as_pem(private=False).decode(), None, "is a public key: RS256 needs an RSA private key"),
        ("RS256", "hunter2", None, "cannot be used"),
        ("RS256", "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n", None, "cannot be used"),
        ("RS256", "", None, "cannot be used"),
    ],
    ids=["encrypted", "not encrypted", "passphrase", "EC", "RSA", "curve", "public", "text", "damaged", "empty"],
)
@pytest.mark.parametrize("place", ["key_file", "key_pem"])
def test_key_that_cannot_be_used_is_named(
    tmp_path: Path, place: str, algorithm: str, content: str, passphrase: str | None, says: str
) -> None:
    path = tmp_path / "key.pem"
    path.write_text(content)
    given = {"key_file": str(path)} if place == "key_file" else {"key_pem": content}
    error = failure(**given, algorithm=algorithm, passphrase=passphrase)
    assert says in str(error)
    name = f"_key_file={str(path)!r}" if place == "key_file" else "_key_pem"
    assert f"sasl_oauthbearer_assertion_private{name}" in str(error)
    assert error.lasting


@pytest.mark.parametrize(
    "content", ["", "hunter2", "[]", '{"header": []}', '{"payload": "hunter2"}', '{"header": null}', "[" * 50_000]
)
def test_template_that_is_none_is_named(tmp_path: Path, content: str) -> None:
    path = template_file(tmp_path, content)
    error = failure(key_pem=pem(RSA), template_file=path)
    assert f"sasl_oauthbearer_assertion_template_file={path!r} is no template" in str(error)
    assert error.lasting


@pytest.mark.parametrize("header", [{"kid": 7}, {"crit": ["hunter2"]}, {"b64": False}])
def test_header_that_cannot_be_signed_is_refused(tmp_path: Path, header: dict[str, Any]) -> None:
    error = failure(key_pem=pem(RSA), template_file=template_file(tmp_path, {"header": header}))
    assert "no assertion can be signed by RS256" in str(error)


@pytest.mark.parametrize("name", ["key_file", "template_file"])
def test_missing_file_is_named_and_raised_at_once(run: Any, server: IdentityServer, tmp_path: Path, name: str) -> None:
    option = f"sasl_oauthbearer_assertion_{'private_' if name == 'key_file' else ''}{name}"
    missing = str(tmp_path / "missing")
    key = {"sasl_oauthbearer_assertion_private_key_pem": pem(RSA)} if name == "template_file" else {}
    options = options_of(server, **key, **{option: missing})
    error = run(refusal(**options))
    assert error.lasting
    assert f"{option}={missing!r} cannot be read: No such file or directory" in str(error)
    assert server.asked == []


def test_settings_show_no_key() -> None:
    settings = AssertionSettings(key_pem=pem(RSA), passphrase=PASSPHRASE)
    assert "hunter2" not in repr(settings)
    assert "PRIVATE" not in repr(settings)
