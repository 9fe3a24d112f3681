"""Logins to Amazon MSK by IAM: a scripted broker checks the signature of the token as MSK does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import pickle
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

import botocore.auth
import pytest

from pyclient import MskIamTokens, Producer
from pyclient.errors import ConfigError, ConnectionFailed
from pyclient.net.sasl.oauth import read_token
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.net.connections import METADATA
from tests.net.sasl_server import SaslServer
from tests.net.test_sasl import refused, use

REGION, KEY, SECRET = "eu-central-1", "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
ROLE = "arn:aws:iam::123456789012:role/reader"
PATIENT = {"socket_connection_setup_timeout_ms": 60_000}
"""The first use of Amazon's client in a process takes seconds on a busy machine."""


def signature_of(secret: str, date: str, scope: str, request_hash: str) -> str:
    """Return AWS's version 4 signature of a request, independently of Amazon's code."""
    digest = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{request_hash}"):
        digest = hmac.digest(digest, part.encode(), "sha256")
    return digest.hex()


class SignedBy:
    """The tokens that AWS's version 4 signature makes out to be of one access key. `seen` are the URLs inside them."""

    def __init__(self, key: str = KEY, secret: str = SECRET) -> None:
        self.key, self.secret = key, secret
        self.seen: list[str] = []

    def __contains__(self, token: object) -> bool:
        assert isinstance(token, str)
        url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        self.seen.append(url)
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, strict_parsing=True))
        signature = query.pop("X-Amz-Signature")
        query.pop("User-Agent")  # added after the signature
        date, scope = query["X-Amz-Date"], query["X-Amz-Credential"].split("/", 1)
        canonical = "&".join(f"{quote(name, safe='~')}={quote(query[name], safe='~')}" for name in sorted(query))
        request = f"GET\n{parts.path}\n{canonical}\nhost:{parts.netloc}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
        expected = signature_of(self.secret, date, scope[1], hashlib.sha256(request.encode()).hexdigest())
        return scope[0] == self.key and hmac.compare_digest(expected, signature)


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Remove the credentials of AWS, and the address that gives them to machines in its cloud, from the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return monkeypatch


@pytest.fixture
def with_keys(aws: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    aws.setenv("AWS_ACCESS_KEY_ID", KEY)
    aws.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return aws


def log_in(run: Any, tokens: SignedBy, provider: MskIamTokens) -> dict[str, list[str]]:
    """Log in with the provider's token; the query of the URL inside it."""

    async def scenario() -> None:
        server = SaslServer(tokens=tokens)
        broker = server.broker({MetadataRequest: METADATA})
        await use(broker, "OAUTHBEARER", sasl_oauth_token_provider=provider, **PATIENT)
        assert len(server.accepted) == 1

    run(scenario())
    parts = urlsplit(tokens.seen[-1])
    assert (parts.scheme, parts.netloc, parts.path) == ("https", f"kafka.{REGION}.amazonaws.com", "/")
    return parse_qs(parts.query)


@pytest.mark.usefixtures("with_keys")
def test_token_is_signed_by_the_keys_of_the_environment(run: Any) -> None:
    query = log_in(run, SignedBy(), pickle.loads(pickle.dumps(MskIamTokens(REGION))))
    assert query["Action"] == ["kafka-cluster:Connect"]
    assert query["X-Amz-Expires"] == ["900"]


@pytest.mark.usefixtures("with_keys")
def test_token_of_another_key_is_refused(run: Any) -> None:
    async def scenario() -> None:
        broker = SaslServer(tokens=SignedBy(secret="another")).broker()
        error = await refused(broker, "OAUTHBEARER", sasl_oauth_token_provider=MskIamTokens(REGION), **PATIENT)
        assert "invalid_token" in str(error)
        assert SECRET not in repr(error)

    run(scenario())


def test_signature_of_the_example_of_aws_is_found() -> None:
    """The request, its hash and its signature are those of the example in AWS's documentation of the version 4."""
    request_hash = "f536975d06c0309214f805bb90ccff089219ecd68b2577efef23edd43b7e1a59"
    found = signature_of(SECRET, "20150830T123600Z", "20150830/us-east-1/iam/aws4_request", request_hash)
    assert found == "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"


def test_token_of_a_fixed_time_has_the_recorded_signature(with_keys: pytest.MonkeyPatch) -> None:
    with_keys.setattr(botocore.auth, "get_current_datetime", lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    tokens = SignedBy()
    token, end = MskIamTokens(REGION).token()
    assert token in tokens
    query = parse_qs(urlsplit(tokens.seen[-1]).query)
    assert query["X-Amz-Credential"] == [f"{KEY}/20260102/{REGION}/kafka-cluster/aws4_request"]
    assert query["X-Amz-Signature"] == ["00629abe90095b91c1a9e460b67a01a8e4e7499b99f571276b99dd9258dd65e5"]
    assert end == datetime(2026, 1, 2, 3, 19, 5, tzinfo=UTC).timestamp()


@pytest.mark.usefixtures("with_keys")
def test_token_says_when_it_ends() -> None:
    before = time.time()
    token = read_token(MskIamTokens(REGION).token())
    assert token.until is not None
    assert int(before) + 900 <= token.until <= time.time() + 900


@pytest.mark.usefixtures("aws")
def test_keys_of_a_profile_are_used(run: Any, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(f"[p]\naws_access_key_id = OTHER\naws_secret_access_key = {SECRET}\n")
    log_in(run, SignedBy("OTHER"), MskIamTokens(REGION, profile="p"))


class SecurityTokenService(BaseHTTPRequestHandler):
    """AWS's service that gives the credentials of a role. `asked` are the parameters of the requests."""

    asked: list[dict[str, list[str]]]

    def do_POST(self) -> None:
        self.asked.append(parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        credentials = (
            f"<AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
            "<SessionToken>of-session</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration>"
        )
        body = (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>'
            f"{credentials}</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def service() -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    asked: list[dict[str, list[str]]] = []
    handler = type("Handler", (SecurityTokenService,), {"asked": asked})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_role_is_assumed(run: Any, with_keys: pytest.MonkeyPatch, service: tuple[str, list[Any]]) -> None:
    url, asked = service
    with_keys.setenv("AWS_ENDPOINT_URL_STS", url)
    with_keys.setenv("AWS_DEFAULT_REGION", REGION)
    query = log_in(run, SignedBy("ROLE"), MskIamTokens(REGION, role_arn=ROLE, session_name="a-service"))
    assert query["X-Amz-Security-Token"] == ["of-session"]
    [request] = asked
    assert (request["RoleArn"], request["RoleSessionName"]) == ([ROLE], ["a-service"])


@pytest.mark.usefixtures("aws")
def test_missing_credentials_say_what_to_check(run: Any) -> None:
    async def scenario() -> None:
        broker = SaslServer().broker()
        error = await refused(broker, "OAUTHBEARER", sasl_oauth_token_provider=MskIamTokens(REGION), **PATIENT)
        assert "MskIamTokens('eu-central-1'): Amazon's signer made no token" in str(error)
        assert "check the AWS credentials" in str(error)

    run(scenario())


def test_text_of_the_signers_error_is_not_shown(with_keys: pytest.MonkeyPatch) -> None:
    tokens = MskIamTokens(REGION, profile="no-such-profile")
    with pytest.raises(ConnectionFailed) as caught:
        tokens.token()
    assert "ProfileNotFound, the cause of this error" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"region": ""}, "give the AWS region of the cluster"),
        ({"region": None}, "give the AWS region of the cluster"),
        ({"region": REGION, "profile": "p", "role_arn": ROLE}, "profile and role_arn are both given"),
        ({"region": REGION, "session_name": "s"}, "give role_arn, too"),
    ],
)
def test_impossible_arguments_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        MskIamTokens(**options)


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"pip install 'pyclient-kafka\[msk\]'"):
        MskIamTokens(REGION)


def test_configuration_of_javas_plugin_says_what_takes_its_place() -> None:
    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    }
    with pytest.raises(ConfigError, match=r"sasl_oauth_token_provider to pyclient\.MskIamTokens\(region\)"):
        Producer(config=config)
