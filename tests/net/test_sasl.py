"""Connections that authenticate themselves by SASL: every mechanism, every cause of a refusal, and doing so again."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import ClientConfig
from pyclient.config.oidc import RefreshRules
from pyclient.errors import ConnectionFailed, SaslAuthenticationFailed, UnsupportedSaslMechanism
from pyclient.net.connection import Connection
from pyclient.net.sasl import scram
from pyclient.net.sasl.authentication import Authenticator, Session
from pyclient.net.sasl.oauth import read_token, refresh_after
from pyclient.net.stream import FrameStream
from pyclient.net.tls import TlsEnd, TlsStream
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.moved_clock import MovedClock
from tests.net.connections import ALL_TOPICS, METADATA
from tests.net.sasl_server import SaslServer, answer
from tests.net.scripted import CLOSE, RANGES, SILENCE, ScriptedBroker
from tests.net.test_tls import server_context

USERS = {"alice": "s3cret=,", "bob": "other"}
ALICE = {"sasl_username": "alice", "sasl_password": "s3cret=,"}
TLS = Path(__file__).parent / "tls"
BY_PASSWORD = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def options_of(mechanism: str, **options: Any) -> dict[str, Any]:
    own = {} if mechanism == "OAUTHBEARER" else ALICE
    return {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **own, **options}


async def connect(broker: ScriptedBroker, mechanism: str, host: str = "127.0.0.1", **options: Any) -> Connection:
    config = ClientConfig(bootstrap_servers=(f"{host}:{broker.port}",), **options_of(mechanism, **options))
    return await Connection.open(host, broker.port, config=config, clock=SYSTEM_CLOCK)


async def use(broker: ScriptedBroker, mechanism: str, **options: Any) -> None:
    connection = await connect(broker, mechanism, **options)
    assert (await connection.request(ALL_TOPICS)).cluster_id == "c"
    await connection.close()
    broker.stop()


async def refused(broker: ScriptedBroker, mechanism: str, **options: Any) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as caught:
        await connect(broker, mechanism, **options)
    broker.stop()
    return caught.value


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_user_and_password_are_accepted(run: Any, mechanism: str) -> None:
    async def scenario() -> None:
        server = SaslServer(USERS)
        await use(server.broker({MetadataRequest: METADATA}), mechanism)
        assert server.accepted == ["alice"]

    run(scenario())


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_login_module_of_java_is_understood(run: Any, mechanism: str) -> None:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    entry = f'org.apache.kafka.common.security.{module}LoginModule required username="alice" password="s3cret=,";'

    async def scenario() -> None:
        server = SaslServer(USERS)
        options = {"sasl_username": None, "sasl_password": None, "sasl_jaas_config": entry}
        await use(server.broker({MetadataRequest: METADATA}), mechanism, **options)
        assert server.accepted == ["alice"]

    run(scenario())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_authentication_works_over_tls(run: Any, mechanism: str) -> None:
    async def scenario() -> None:
        server = SaslServer(USERS)
        stream = functools.partial(TlsStream, end=TlsEnd(server_context(), server_side=True))
        broker = server.broker({MetadataRequest: METADATA}, make_stream=stream)
        tls = {"security_protocol": "SASL_SSL", "ssl_cafile": str(TLS / "ca.pem"), "host": "localhost"}
        await use(broker, mechanism, **tls)
        assert server.accepted == ["alice"]

    run(scenario())


@pytest.mark.parametrize("mechanism", BY_PASSWORD)
def test_wrong_password_names_the_user_and_the_options_to_check(run: Any, mechanism: str) -> None:
    async def scenario() -> None:
        error = await refused(SaslServer(USERS).broker(), mechanism, sasl_password="hunter2")
        assert error.lasting
        assert isinstance(error.__cause__, SaslAuthenticationFailed)
        assert f"SASL {mechanism} as user 'alice' was refused by the broker: Authentication failed" in str(error)
        assert "check sasl_username and sasl_password" in str(error)
        assert "hunter2" not in repr(error)

    run(scenario())


def test_unknown_mechanism_lists_those_that_the_broker_offers(run: Any) -> None:
    async def scenario() -> None:
        broker = SaslServer(USERS, mechanisms=("SCRAM-SHA-512", "PLAIN")).broker()
        error = await refused(broker, "SCRAM-SHA-256")
        assert error.lasting
        assert "does not offer SASL SCRAM-SHA-256" in str(error)
        assert "PLAIN, SCRAM-SHA-512" in str(error)

    run(scenario())


@pytest.mark.parametrize(
    ("answers", "lasting", "says"),
    [
        (
            {SaslHandshakeRequest: SaslHandshakeResponse(error_code=34, mechanisms=[])},
            True,
            "its listener is without SASL: set security_protocol='PLAINTEXT'",
        ),
        (
            {SaslHandshakeRequest: SaslHandshakeResponse(error_code=-1, mechanisms=[])},
            True,
            "SaslHandshake was refused",
        ),
        ({SaslHandshakeRequest: CLOSE}, False, "the broker closed the connection"),
        ({SaslAuthenticateRequest: CLOSE}, False, "the broker closed the connection"),
        ({SaslHandshakeRequest: SILENCE}, False, "no answer within 2 s"),
        ({SaslAuthenticateRequest: answer(b"r=x,s=y,i=z")}, True, "no number of iterations"),
    ],
)
def test_other_causes_are_distinguished(run: Any, answers: dict[type, Any], lasting: bool, says: str) -> None:
    async def scenario() -> None:
        options = {"socket_connection_setup_timeout_ms": 2_000} if SILENCE in answers.values() else {}
        error = await refused(SaslServer(USERS).broker(answers), "SCRAM-SHA-256", **options)
        assert error.lasting is lasting
        assert says in str(error)
        assert "'alice'" in str(error) or "listener" in says or "Handshake was" in says

    run(scenario())


def test_broker_without_sasl_is_recognised(run: Any) -> None:
    async def scenario() -> None:
        ranges = {key: value for key, value in RANGES.items() if key not in (17, 36)}
        error = await refused(ScriptedBroker(ranges=ranges), "PLAIN")
        assert error.lasting
        assert "the broker serves no SASL" in str(error)

    run(scenario())


def test_impostor_without_the_password_is_refused(run: Any) -> None:
    async def scenario() -> None:
        server = SaslServer({"alice": "s3cret=,"})
        accept = server._scram
        server._scram = lambda data: accept(data) if server._first is None else answer(b"v=AAAA")  # type: ignore[method-assign]
        error = await refused(server.broker(), "SCRAM-SHA-256")
        assert error.lasting
        assert "did not prove that it knows the password" in str(error)

    run(scenario())


# -- a broker, or what is between, that would have the client take less


class Recorded:
    """A broker with a SASL server whose answers may be others; `frames` is every byte that it has received."""

    def __init__(self, answers: dict[type, Any], users: dict[str, str] = USERS) -> None:
        self.frames: list[bytes] = []
        self.broker = SaslServer(users).broker(answers, make_stream=self._stream)

    def _stream(self, loop: Any, sock: Any, *, on_frame: Any, **options: Any) -> FrameStream:
        def keep(frame: memoryview) -> None:
            self.frames.append(bytes(frame))
            on_frame(frame)

        return FrameStream(loop, sock, on_frame=keep, **options)

    @property
    def messages(self) -> list[bytes]:
        """The messages sent for the authentication itself."""
        return [bytes(each.auth_bytes) for each in self.broker.requests if isinstance(each, SaslAuthenticateRequest)]

    def check(self, mechanism: str) -> None:
        """Assert that the client asked for its mechanism once, and did not send the password."""
        asked = [each.mechanism for each in self.broker.requests if isinstance(each, SaslHandshakeRequest)]
        assert asked == [mechanism]
        secret = ALICE["sasl_password"].encode()
        assert not any(secret in frame or base64.b64encode(secret) in frame for frame in self.frames)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_broker_that_offers_plain_alone_is_refused_and_gets_no_password(run: Any, mechanism: str) -> None:
    async def scenario() -> None:
        offers = SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=["PLAIN"])
        recorded = Recorded({SaslHandshakeRequest: offers})
        error = await refused(recorded.broker, mechanism)
        assert error.lasting
        assert f"does not offer SASL {mechanism}: set sasl_mechanism to one that it offers: PLAIN" in str(error)
        assert recorded.messages == []
        recorded.check(mechanism)

    run(scenario())


@pytest.mark.parametrize("said", [b"", b"\0alice\0", b"r=x,s=c2FsdA==,i=4096"], ids=["as-plain", "a-prompt", "nonce"])
def test_broker_that_accepts_scram_and_goes_on_as_plain_gets_no_password(run: Any, said: bytes) -> None:
    async def scenario() -> None:
        offers = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])
        recorded = Recorded({SaslHandshakeRequest: offers, SaslAuthenticateRequest: answer(said)})
        error = await refused(recorded.broker, "SCRAM-SHA-256")
        assert error.lasting
        [first] = recorded.messages
        assert first.startswith(b"n,,n=alice,r=")
        recorded.check("SCRAM-SHA-256")

    run(scenario())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("iterations", [0, 1, 4_095, 1_000_001])
def test_broker_with_iterations_out_of_bounds_gets_no_proof(run: Any, mechanism: str, iterations: int) -> None:
    """A proof with few iterations would let a listener guess the password."""

    def few(request: SaslAuthenticateRequest, *_: Any) -> Any:
        nonce = scram.ClientFirst.decode(bytes(request.auth_bytes)).nonce
        return answer(scram.ServerFirst(f"{nonce}-server", b"salt", iterations).encode())

    async def scenario() -> None:
        recorded = Recorded({SaslAuthenticateRequest: few})
        error = await refused(recorded.broker, mechanism)
        assert error.lasting
        assert f"asks for {iterations} iterations" in str(error)
        assert len(recorded.messages) == 1
        recorded.check(mechanism)

    run(scenario())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("changed", ["another signature", "a bit", "shorter", "longer", "none"])
def test_broker_whose_last_signature_is_wrong_is_refused(run: Any, mechanism: str, changed: str) -> None:
    async def scenario() -> None:
        server = SaslServer(USERS)

        def last(request: SaslAuthenticateRequest, *given: Any) -> Any:
            said = server._authenticate(request, *given)
            data = bytes(said.auth_bytes)
            if not data.startswith(b"v="):
                return said
            right = base64.b64decode(data[2:])
            wrong = {
                "another signature": bytes(len(right)),
                "a bit": right[:-1] + bytes([right[-1] ^ 1]),
                "shorter": right[:-1],
                "longer": right + b"\0",
                "none": b"",
            }[changed]
            return answer(scram.server_final(wrong))

        broker = server.broker({SaslAuthenticateRequest: last, MetadataRequest: METADATA})
        error = await refused(broker, mechanism)
        assert error.lasting
        assert "did not prove that it knows the password" in str(error)
        assert server.accepted == ["alice"]
        assert broker.count(MetadataRequest) == 0

    run(scenario())


def test_connections_of_one_client_derive_a_password_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        from pyclient.net.sasl import authentication

        derived = []
        derive = authentication.salted_password
        monkeypatch.setattr(authentication, "salted_password", lambda *given: derived.append(1) or derive(*given))
        server = SaslServer(USERS)
        broker = server.broker()
        config = ClientConfig(bootstrap_servers=(broker.address,), **options_of("SCRAM-SHA-256"))
        authenticator = Authenticator(config, SYSTEM_CLOCK)
        for _ in range(3):
            connection = await Connection.open(
                "127.0.0.1", broker.port, config=config, clock=SYSTEM_CLOCK, authenticator=authenticator
            )
            await connection.close()
        assert server.accepted == ["alice"] * 3
        assert len(derived) == 1
        broker.stop()

    run(scenario())


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_loop_goes_on_while_a_password_is_derived(run: Any, monkeypatch: pytest.MonkeyPatch, mechanism: str) -> None:
    async def scenario() -> None:
        from pyclient.net.sasl import authentication

        loop, derive, goes_on = asyncio.get_running_loop(), authentication.salted_password, []

        def wait_for_the_loop(*given: Any) -> bytes:
            seen = threading.Event()
            loop.call_soon_threadsafe(seen.set)
            goes_on.append(seen.wait(5))
            return derive(*given)

        monkeypatch.setattr(authentication, "salted_password", wait_for_the_loop)
        await use(SaslServer(USERS).broker({MetadataRequest: METADATA}), mechanism)
        assert goes_on == [True]

    run(scenario())


# -- OAUTHBEARER


def jwt(seconds: float) -> str:
    claims = json.dumps({"sub": "alice", "exp": time.time() + seconds}).encode()
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"


async def _later(token: Any) -> Any:
    await asyncio.sleep(0)
    return token


class Tokens:
    def token(self) -> str:
        return "abc"


async def coroutine_function() -> str:
    return "abc"


@pytest.mark.parametrize(
    "provider",
    [
        lambda: "abc",
        lambda: ("abc", time.time() + 100),
        lambda: ("abc", time.time() + 100, "alice", {}),
        lambda: _later("abc"),
        coroutine_function,
        Tokens(),
    ],
    ids=["text", "with its end", "as for confluent-kafka", "awaitable", "coroutine function", "object"],
)
def test_token_of_a_provider_is_accepted(run: Any, provider: Any) -> None:
    async def scenario() -> None:
        server = SaslServer(tokens=frozenset({"abc"}))
        await use(server.broker({MetadataRequest: METADATA}), "OAUTHBEARER", sasl_oauth_token_provider=provider)
        assert server.accepted == ["abc"]

    run(scenario())


def test_extensions_are_sent(run: Any) -> None:
    async def scenario() -> None:
        server = SaslServer(tokens=frozenset({"abc"}))
        provider = lambda: ("abc", None, {"logicalCluster": "lkc-1"})  # noqa: E731
        await use(server.broker({MetadataRequest: METADATA}), "OAUTHBEARER", sasl_oauth_token_provider=provider)
        assert server.extensions == ["logicalCluster=lkc-1"]

    run(scenario())


def test_refused_token_says_why(run: Any) -> None:
    async def scenario() -> None:
        error = await refused(SaslServer().broker(), "OAUTHBEARER", sasl_oauth_token_provider=lambda: "t0ken")
        assert error.lasting
        assert "was refused by the broker: the token is not valid (invalid_token)" in str(error)
        assert "t0ken" not in str(error)

    run(scenario())


def test_provider_that_fails_is_asked_again_with_the_next_connection(run: Any) -> None:
    async def scenario() -> None:
        def fail() -> str:
            raise OSError("the identity server refused POST client_secret=hunter2")

        error = await refused(SaslServer().broker(), "OAUTHBEARER", sasl_oauth_token_provider=fail)
        assert not error.lasting
        assert "sasl_oauth_token_provider failed with OSError, the cause of this error" in str(error)
        assert "hunter2" not in repr(error), "what a provider raises may quote its request"
        causes = [error]
        while causes[-1].__cause__ is not None:
            causes.append(causes[-1].__cause__)
        assert "hunter2" in repr(causes[-1])

    run(scenario())


def test_provider_that_blocks_holds_up_only_its_connection(run: Any) -> None:
    release = threading.Event()

    async def scenario() -> None:
        options = {"sasl_oauth_token_provider": release.wait, "socket_connection_setup_timeout_ms": 2_000}
        error = await refused(SaslServer().broker(), "OAUTHBEARER", **options)
        assert "returned no token within 2 s" in str(error)

    try:
        run(scenario())
    finally:
        release.set()


def test_token_is_kept_until_it_is_due_and_then_replaced(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        given: list[Any] = [("first", time.time() + 1000), ("second", time.time() + 2000)]
        calls: list[float] = []

        def provider() -> Any:
            calls.append(clock.seconds)
            return given.pop(0)

        server = SaslServer(tokens=frozenset({"first", "second"}))
        broker = server.broker()
        config = ClientConfig(
            bootstrap_servers=(broker.address,),
            **options_of("OAUTHBEARER", sasl_oauth_token_provider=provider),
        )
        clock = MovedClock()
        authenticator = Authenticator(config, clock)

        async def open_one() -> None:
            connection = await Connection.open(
                "127.0.0.1", broker.port, config=config, clock=SYSTEM_CLOCK, authenticator=authenticator
            )
            await connection.close()

        await asyncio.gather(open_one(), open_one())
        clock.seconds = 690
        await open_one()
        assert server.accepted == ["first"] * 3
        clock.seconds = 710  # less than 300 s are left of its time
        await open_one()
        assert server.accepted[3:] == ["second"]
        clock.seconds = 1900  # the provider has no more, and the last token is still valid
        with caplog.at_level(logging.WARNING):
            await open_one()
            assert server.accepted[4:] == ["second"]
            await open_one()
            clock.seconds = 1905
            await open_one()
            assert calls[2:] == [1900]  # it is not asked for each connection, which would wait for it
            clock.seconds = 1915
            await open_one()
            assert calls[3:] == [1915]
        assert "using the last token" in caplog.text
        clock.seconds = 2100
        with pytest.raises(ConnectionFailed, match="sasl_oauth_token_provider failed with IndexError"):
            await open_one()
        broker.stop()

    run(scenario())


@pytest.mark.parametrize(
    ("lifetime", "rules", "chance", "after"),
    [
        (3600, RefreshRules(), 0, 2880),
        (3600, RefreshRules(), 1, 3060),
        (3600, RefreshRules(factor=0.5, jitter=0.25), 0.5, 2250),
        (1000, RefreshRules(), 0, 700),  # 300 s before its end at the latest
        (1000, RefreshRules(buffer=0), 0, 800),
        (1000, RefreshRules(factor=0.5, buffer=0, min_period=900), 0, 900),
        (1000, RefreshRules(buffer=600, min_period=400), 0, 400),
        (1000, RefreshRules(buffer=600, min_period=401), 0, 800),  # there is no time for both
        (300, RefreshRules(), 0, 240),
        (300, RefreshRules(factor=1.0, jitter=0.25), 1, 300),
        (0.5, RefreshRules(), 0, 0.4),
    ],
)
def test_token_is_replaced_when_kafkas_clients_replace_it(
    lifetime: float, rules: RefreshRules, chance: float, after: float
) -> None:
    """KIP-255's options: the share of the time, with jitter, the least period, and the buffer at the end."""
    assert refresh_after(lifetime, rules, chance) == pytest.approx(after)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (7, "returns a string, or"),
        ((), "returns a string, or"),
        ("a b", "RFC 6750"),
        ("", "RFC 6750"),
        (("abc", "soon"), "seconds since 1970"),
        (("abc", None, {"auth": "x"}), "may not be called auth"),
        (("abc", None, {"a b": "x"}), "names are letters"),
        (("abc", None, {"a": "x\x01"}), "values printable ASCII"),
    ],
)
def test_invalid_token_of_a_provider_is_refused(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_token(given)


def test_end_of_a_jwt_is_read() -> None:
    until = read_token(jwt(50)).until
    assert until is not None and 40 < until - time.time() <= 50
    assert read_token("a.b.c").until is None
    assert read_token(("a.b.c", 5)).until == 5.0
    assert "abc" not in repr(read_token("abc"))


# -- again, before the session ends


@pytest.fixture
def short_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "LEAST", 0.0)


@given(st.floats(0, 1e9))
def test_second_authentication_waits_a_second_at_least(lifetime: float) -> None:
    assert Session.pause(lifetime) == max(1.0, 0.85 * lifetime)


class Stuck(Authenticator):
    """Authenticates for ever."""

    def __init__(self) -> None:
        self.timeout = 0.05
        self.began = False

    async def prepare(self) -> None:
        """Do nothing: no token or ticket is needed."""

    async def authenticate(self, connection: Connection) -> float:
        self.began = True
        await asyncio.get_running_loop().create_future()
        return 0.0


@pytest.mark.usefixtures("short_sessions")
def test_second_authentication_has_a_deadline(run: Any) -> None:
    async def scenario() -> None:
        broker = SaslServer(USERS).broker({MetadataRequest: METADATA})
        connection = await connect(broker, "PLAIN")
        stuck = Stuck()
        session = Session(connection, stuck, 0.01)
        with pytest.raises(ConnectionFailed, match=r"could not authenticate again within 0\.05 s"):
            while True:
                await connection.request(ALL_TOPICS)
        assert stuck.began
        session.end()
        broker.stop()

    run(scenario())


class Broken(Stuck):
    """Has a bug."""

    async def authenticate(self, connection: Connection) -> float:
        raise KeyError("nonce")


@pytest.mark.usefixtures("short_sessions")
def test_bug_in_second_authentication_is_logged_and_ends_the_connection(
    run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        broker = SaslServer(USERS).broker({MetadataRequest: METADATA})
        connection = await connect(broker, "PLAIN")
        session = Session(connection, Broken(), 0.01)
        with pytest.raises(ConnectionFailed, match="could not authenticate again: 'nonce'"):
            while True:
                await connection.request(ALL_TOPICS)
        session.end()
        broker.stop()

    run(scenario())
    [logged] = [each for each in caplog.records if "authenticating again failed unexpectedly" in each.message]
    assert logged.exc_info is not None


@pytest.mark.usefixtures("short_sessions")
def test_requests_are_sent_while_a_new_token_is_asked_for(run: Any) -> None:
    asked, release = threading.Event(), threading.Event()

    def provider() -> str | tuple[str, float]:
        if asked.is_set():
            return "third", time.time() + 1000
        if calls:
            asked.set()
            release.wait()
        calls.append(1)
        return ("second", time.time() + 1000) if asked.is_set() else "first"  # its end is not known: used once

    calls: list[int] = []

    async def scenario() -> None:
        server = SaslServer(tokens=frozenset({"first", "second"}), lifetime_ms=200)
        broker = server.broker({MetadataRequest: METADATA})
        connection = await connect(broker, "OAUTHBEARER", sasl_oauth_token_provider=provider)
        while not asked.is_set():
            await connection.request(ALL_TOPICS)
        for _ in range(10):
            assert (await connection.request(ALL_TOPICS)).cluster_id == "c"
        assert server.accepted == ["first"]
        release.set()
        while server.accepted[1:2] != ["second"]:
            await connection.request(ALL_TOPICS)
        await connection.close()
        broker.stop()

    try:
        run(scenario())
    finally:
        release.set()


@pytest.mark.usefixtures("short_sessions")
def test_connection_authenticates_again_and_other_requests_wait(run: Any) -> None:
    async def scenario() -> None:
        server = SaslServer(USERS, lifetime_ms=200)
        broker = server.broker({MetadataRequest: METADATA})
        connection = await connect(broker, "SCRAM-SHA-256")
        answered = 0
        while len(server.accepted) < 4:
            waiting = [connection.submit(ALL_TOPICS) for _ in range(5)]
            for each in waiting:
                assert (await each).cluster_id == "c"
                answered += 1
        names = [name for name, _ in broker.versions]
        wanted = ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
        for at in [at for at, name in enumerate(names) if name == "SaslHandshake"]:
            assert names[at : at + 3] == wanted[: len(names) - at], "nothing between"  # the last may be under way
        assert (answered, broker.accepted) == (names.count("Metadata"), 1)
        await connection.close()
        broker.stop()

    run(scenario())


@pytest.mark.usefixtures("short_sessions")
def test_requests_during_a_refused_second_authentication_fail(run: Any) -> None:
    async def scenario() -> None:
        server = SaslServer(USERS, lifetime_ms=100)
        broker = server.broker({MetadataRequest: METADATA})
        connection = await connect(broker, "PLAIN")
        server.users = {}
        with pytest.raises(ConnectionFailed, match=r"could not authenticate again.*Invalid username or password"):
            while True:
                await connection.request(ALL_TOPICS)
        broker.stop()

    run(scenario())


@pytest.mark.usefixtures("short_sessions")
def test_closed_connection_does_not_authenticate_again(run: Any) -> None:
    async def scenario() -> None:
        server = SaslServer(USERS, lifetime_ms=100)
        broker = server.broker({MetadataRequest: METADATA})
        connection = await connect(broker, "PLAIN")
        await connection.close()
        other = await connect(broker, "PLAIN")
        while len(server.accepted) < 4:
            await other.request(ALL_TOPICS)
        await broker.until(lambda: broker.count(SaslHandshakeRequest) == len(server.accepted))
        await other.close()
        broker.stop()

    run(scenario())
