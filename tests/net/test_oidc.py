"""Tokens from an identity server and from a file: what is sent, what is retried, and how failures differ."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import ClientConfig
from pyclient.errors import ConfigError, ConnectionFailed
from pyclient.net.connection import Connection
from pyclient.net.sasl.authentication import Authenticator
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.identity_server import Asked, IdentityServer, Signer
from tests.moved_clock import MovedClock
from tests.net.sasl_server import SaslServer
from tests.net.test_sasl import METADATA, refused, use

SECRET: Final = "hunter2+/ %"
TLS: Final = Path(__file__).parent / "tls"


SOON: Final = {"sasl_login_retry_backoff_ms": 20}
NO_RETRY: Final = {"sasl_login_retry_backoff_ms": 120_000, "sasl_login_retry_backoff_max_ms": 120_000}
"""A pause that is longer than the time for a token: the first failure is raised at once."""


def oidc(url: str, **options: Any) -> dict[str, Any]:
    return {
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_id": "client",
        "sasl_oauthbearer_client_secret": SECRET,
        "sasl_login_retry_backoff_ms": 1,
        "socket_connection_setup_timeout_ms": 60_000,
        **options,
    }


@pytest.fixture
def server() -> Any:
    with IdentityServer() as server:
        yield server


async def accepted(url: str, token: str, **options: Any) -> SaslServer:
    """Use a connection whose broker knows one token only."""
    known = SaslServer(tokens=frozenset({token}))
    await use(known.broker({MetadataRequest: METADATA}), "OAUTHBEARER", **oidc(url, **options))
    assert known.accepted == [token]
    return known


# -- client credentials


def test_token_is_asked_for_with_id_secret_and_scope(run: Any, server: IdentityServer) -> None:
    async def scenario() -> None:
        server.answer = lambda _: (200, {"access_token": "abc"})
        found = await accepted(
            f"{server.url}/token", "abc", sasl_oauthbearer_scope="a b", sasl_oauthbearer_extensions="x=y, z=1 2"
        )
        assert found.extensions == ["x=y", "z=1 2"]
        [asked] = server.asked
        assert asked.form == {"grant_type": "client_credentials", "scope": "a b"}
        assert asked.authorization is not None
        assert base64.b64decode(asked.authorization.removeprefix("Basic ")).decode() == f"client:{SECRET}"

    run(scenario())


def test_id_and_secret_are_encoded_if_the_server_wants_it(run: Any, server: IdentityServer) -> None:
    async def scenario() -> None:
        server.answer = lambda _: (200, {"access_token": "abc"})
        await accepted(f"{server.url}/token", "abc", sasl_oauthbearer_header_urlencode=True)
        [asked] = server.asked
        assert asked.authorization is not None
        assert base64.b64decode(asked.authorization.removeprefix("Basic ")) == b"client:hunter2%2B%2F+%25"

    run(scenario())


def test_overloaded_server_is_asked_again(run: Any, server: IdentityServer) -> None:
    answers: list[tuple[int, Any]] = [(503, b"<html>"), (429, {}), (500, b""), (200, {"access_token": "abc"})]

    async def scenario() -> None:
        server.answer = lambda _: answers.pop(0)
        await accepted(f"{server.url}/token", "abc")
        assert len(server.asked) == 4

    run(scenario())


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, {"error": "invalid_client", "error_description": "unknown"}, "HTTP status 401: invalid_client, unknown"),
        (400, {"error": "invalid_scope"}, "HTTP status 400: invalid_scope"),
        (403, b"<html>no</html>", "HTTP status 403"),
        (404, {"error": 7}, "HTTP status 404"),
        (401, {"error": f"wrong {SECRET}", "error_description": "a\nb"}, "HTTP status 401: wrong <hidden>, a?b"),
        (302, {}, "HTTP status 302, a redirect, which is not followed"),
        (200, b"<html>", "the answer is no JSON: is this the URL of its token endpoint?"),
        (200, b"[" * 50_000, "the answer is no JSON"),
        (200, {"token": "abc"}, "the answer has no access_token"),
        (200, ["abc"], "the answer has no access_token"),
        (200, {"access_token": ""}, "the answer has no access_token"),
        (200, {"access_token": "a b"}, "the token is not of the characters that RFC 6750 allows"),
    ],
)
def test_permanent_failure_is_raised_at_once(
    run: Any, server: IdentityServer, status: int, body: Any, says: str
) -> None:
    async def scenario() -> None:
        server.answer = lambda _: (status, body)
        error = await refused(SaslServer().broker(), "OAUTHBEARER", **oidc(f"{server.url}/token?key=hunter2"))
        assert error.lasting
        assert f"SASL OAUTHBEARER: {server.url}/token gave no token to client 'client': {says}" in str(error)
        assert "hunter2" not in repr(error)
        assert len(server.asked) == 1

    run(scenario())


def test_server_that_stays_overloaded_is_named_after_the_timeout(run: Any, server: IdentityServer) -> None:
    says = "HTTP status 503: temporarily_unavailable"

    async def scenario() -> None:
        server.answer = lambda _: (503, {"error": "temporarily_unavailable"})
        for timeout_ms in (2_000, 8_000, 30_000):  # a busy machine may not ask twice within two seconds
            server.asked.clear()
            options = oidc(f"{server.url}/token", socket_connection_setup_timeout_ms=timeout_ms, **SOON)
            error = await refused(SaslServer().broker(), "OAUTHBEARER", **options)
            assert not error.lasting
            if says in str(error) and len(server.asked) > 1:
                break
        assert says in str(error)
        assert len(server.asked) > 1

    run(scenario())


def test_server_that_does_not_answer_is_named(run: Any) -> None:
    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
            for timeout_ms in (1_000, 8_000, 30_000):  # a busy machine may not come to the token within a second
                options = oidc(url, socket_connection_setup_timeout_ms=timeout_ms)
                error = await refused(SaslServer().broker(), "OAUTHBEARER", **options)
                assert not error.lasting
                if url in str(error):
                    break
        assert url in str(error)
        assert any(said in str(error) for said in ("gave no token within 0.", "gave no token within ", "timed out"))

    run(scenario())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_silent_server_is_asked_again_after_the_timeout_of_an_attempt(run: Any, scheme: str) -> None:
    """With http it accepts and does not answer, with https it does not even begin with TLS."""
    name = "sasl_login_read_timeout_ms" if scheme == "http" else "sasl_login_connect_timeout_ms"

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}/token"
            error = await refused(SaslServer().broker(), "OAUTHBEARER", **oidc(url, **NO_RETRY, **{name: 50}))
        assert not error.lasting
        assert f"the identity server cannot be reached: {url}: " in str(error)
        assert "timed out" in str(error)

    run(scenario())


def test_server_on_this_machine_is_asked_without_a_proxy(
    run: Any, server: IdentityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.answer = lambda _: (200, {"access_token": "abc"})
    run(accepted(f"{server.url}/token", "abc"))
    assert len(server.asked) == 1


def test_server_that_cannot_be_reached_is_named(run: Any) -> None:
    async def scenario() -> None:
        with IdentityServer() as server:
            url = f"{server.url}/token"
        error = await refused(SaslServer().broker(), "OAUTHBEARER", **oidc(url, **NO_RETRY))
        assert not error.lasting
        assert f"the identity server cannot be reached: {url}: Connection refused" in str(error)

    run(scenario())


def test_certificate_of_the_server_is_checked(run: Any) -> None:
    async def scenario() -> None:
        with IdentityServer(certificate=TLS / "broker.pem") as server:
            server.answer = lambda _: (200, {"access_token": "abc"})
            url = f"{server.url}/token"
            await accepted(url, "abc", https_ca_location=str(TLS / "ca.pem"))
            await accepted(url, "abc", https_ca_pem=(TLS / "ca.pem").read_text())
            asked = len(server.asked)
            error = await refused(SaslServer().broker(), "OAUTHBEARER", **oidc(url, **NO_RETRY))
            assert "certificate verify failed" in str(error)
            assert len(server.asked) == asked == 2

    run(scenario())


@pytest.mark.parametrize(("name", "value"), [("https_ca_location", "/nowhere"), ("https_ca_pem", "hunter2")])
def test_authorities_that_cannot_be_read_are_named(name: str, value: str) -> None:
    options: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", name: value}
    config = ClientConfig(bootstrap_servers=("localhost:1",), **oidc("https://localhost:1/token"), **options)
    with pytest.raises(ConfigError, match=f"{name} cannot be used") as caught:
        Authenticator(config, SYSTEM_CLOCK)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://identity.test/token", True), ("http://127.0.0.1/token", False), ("https://identity.test/token", False)],
)
def test_secret_sent_without_tls_is_warned_of(url: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    options: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    Authenticator(ClientConfig(bootstrap_servers=("localhost:1",), **oidc(url), **options), SYSTEM_CLOCK)
    assert ("can be read on their way" in caplog.text) is warned


# -- when a token is replaced


def opener(broker: Any, options: dict[str, Any], clock: Any) -> Callable[[], Any]:
    """Return a function that opens and closes a connection of one client."""
    names: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    config = ClientConfig(bootstrap_servers=(broker.address,), **names, **options)
    authenticator = Authenticator(config, clock)

    async def open_one() -> None:
        connection = await Connection.open(
            "127.0.0.1", broker.port, config=config, clock=SYSTEM_CLOCK, authenticator=authenticator
        )
        await connection.close()

    return open_one


@pytest.mark.parametrize("kind", ["JWT", "opaque"])
@pytest.mark.parametrize(
    ("options", "after"),
    [
        ({}, 700),
        ({"sasl_login_refresh_buffer_seconds": 0, "sasl_login_refresh_window_jitter": 0}, 800),
        (
            {
                "sasl_login_refresh_window_factor": 0.5,
                "sasl_login_refresh_window_jitter": 0,
                "sasl_login_refresh_min_period_seconds": 600,
            },
            600,
        ),
    ],
    ids=["by default", "share", "least period"],
)
def test_token_is_kept_for_most_of_its_time(
    run: Any, server: IdentityServer, kind: str, options: dict[str, Any], after: int
) -> None:
    signer, given = Signer(), list[str]()

    def token(_: Asked) -> tuple[int, Any]:
        given.append(signer.token(exp=time.time() + 1000) if kind == "JWT" else f"token{len(given)}")
        return 200, {"access_token": given[-1], "expires_in": 1 if kind == "JWT" else 1000}

    class Everything(frozenset[str]):
        def __contains__(self, _: object) -> bool:
            return True

    async def scenario() -> None:
        server.answer = token
        known, clock = SaslServer(tokens=Everything()), MovedClock()
        broker = known.broker()
        open_one = opener(broker, oidc(f"{server.url}/token", **options), clock)
        await asyncio.gather(*(open_one() for _ in range(3)))
        clock.seconds = after - 10
        await open_one()
        assert known.accepted == [given[0]] * 4
        clock.seconds = after + 10
        await open_one()
        assert known.accepted[4:] == [given[1]]
        broker.stop()

    run(scenario())


def test_token_of_a_file_is_replaced_when_the_file_changes(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "the token"
    signer = Signer()
    first, second = signer.token("alice"), signer.token("bob")

    def write(content: str) -> None:
        temporary = path.with_suffix(".new")
        temporary.write_text(content)
        os.replace(temporary, path)

    async def scenario() -> None:
        known = SaslServer(tokens=frozenset({first, second}))
        broker = known.broker()
        options = {"sasl_oauthbearer_token_endpoint_url": path.as_uri(), "sasl_oauthbearer_extensions": "x=y"}
        clock = MovedClock()
        open_one = opener(broker, options, clock)
        with pytest.raises(ConnectionFailed, match=r"the token cannot be read: file:///.*No such file"):
            await open_one()
        write(first + "\n")
        await open_one()
        await open_one()
        write(second)
        await open_one()
        assert known.accepted == [first, first, second]
        assert known.extensions == ["x=y"] * 3
        write("hunter2 hunter2")
        await open_one()
        assert known.accepted[3:] == [second], "the former one is used to its end"
        clock.seconds = 700
        with pytest.raises(ConnectionFailed, match="the file has no token") as caught:
            await open_one()
        assert "hunter2" not in str(caught.value)
        write(second)
        with pytest.raises(ConnectionFailed, match=r"the token expired 1\d\d s ago"):
            await open_one()
        broker.stop()

    run(scenario())
