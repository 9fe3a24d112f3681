"""Logins with requests out of order, at a real Kafka and at our broker: both answer, refuse and close alike."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol import codec, framing
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker_embedded.conftest import RawClient
from tests.kafka.needs import skip_without_kafka
from tests.kafka.runner import RealKafka, free_ports

USERS: Final = {"alice": "secret", "bob": "other"}
OPTIONS: Final = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "connection.failed.authentication.delay.ms": "20",
}
SESSIONS: Final = (0, 3_600_000)
PACKAGE: Final = "org.apache.kafka.common.security"
ALICE, BOB, WRONG = b"\0alice\0secret", b"\0bob\0other", b"\0alice\0wrong"
FIRST: Final = b"n,,n=alice,r=nonce"

Step = tuple[Any, int]


def handshake(mechanism: str, version: int = 1) -> Step:
    return SaslHandshakeRequest(mechanism=mechanism), version


def authenticate(data: bytes, version: int = 2) -> Step:
    return SaslAuthenticateRequest(auth_bytes=data), version


PLAIN, SCRAM = handshake("PLAIN"), handshake("SCRAM-SHA-256")
VERSIONS: Final = (ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
OTHER: Final = (ListGroupsRequest(), 3)

CASES: Final[dict[str, tuple[Step | bytes, ...]]] = {
    "authenticate first": (authenticate(ALICE),),
    "authenticate after versions": (VERSIONS, authenticate(ALICE)),
    "versions first": (VERSIONS, PLAIN, authenticate(ALICE)),
    "versions twice": (VERSIONS, VERSIONS, PLAIN),
    "versions after the handshake": (PLAIN, VERSIONS),
    "versions after the login": (PLAIN, authenticate(ALICE), VERSIONS),
    "another request first": (),
    "another request after the handshake": (PLAIN,),
    "another request between two messages": (SCRAM, authenticate(FIRST)),
    "handshake twice": (PLAIN, PLAIN),
    "handshake twice, other mechanism": (PLAIN, SCRAM),
    "handshake between two messages": (SCRAM, authenticate(FIRST), SCRAM),
    "unknown mechanism": (handshake("GSSAPI"), PLAIN),
    "empty mechanism": (handshake(""),),
    "mechanism in small letters": (handshake("plain"),),
    "message of another mechanism": (SCRAM, authenticate(ALICE)),
    "message of another mechanism to plain": (PLAIN, authenticate(FIRST)),
    "plain": (PLAIN, authenticate(ALICE)),
    "plain by version 0": (PLAIN, authenticate(ALICE, 0)),
    "plain, wrong password": (PLAIN, authenticate(WRONG)),
    "plain, wrong password by version 0": (PLAIN, authenticate(WRONG, 0)),
    "plain, again after a refusal": (PLAIN, authenticate(WRONG), authenticate(ALICE)),
    "plain, unknown user": (PLAIN, authenticate(b"\0nobody\0secret")),
    "plain, empty message": (PLAIN, authenticate(b"")),
    "plain, other identity": (PLAIN, authenticate(b"bob\0alice\0secret")),
    "plain, no user": (PLAIN, authenticate(b"\0\0secret")),
    "plain, no password": (PLAIN, authenticate(b"\0alice\0")),
    "plain, four parts": (PLAIN, authenticate(b"\0alice\0secret\0")),
    "plain, garbage": (PLAIN, authenticate(bytes(range(1, 100)))),
    "plain, garbage with zeros": (PLAIN, authenticate(b"\xff\0\xfe\0\xfd")),
    "scram, empty message": (SCRAM, authenticate(b"")),
    "scram, garbage": (SCRAM, authenticate(bytes(range(100)))),
    "scram, no nonce": (SCRAM, authenticate(b"n,,n=alice")),
    "scram, no user": (SCRAM, authenticate(b"n,,n=,r=nonce")),
    "scram, channel binding": (SCRAM, authenticate(b"p=tls-unique,,n=alice,r=nonce")),
    "scram, supports channel binding": (SCRAM, authenticate(b"y,,n=alice,r=nonce")),
    "scram, own identity": (SCRAM, authenticate(b"n,a=alice,n=alice,r=nonce")),
    "scram, other identity": (SCRAM, authenticate(b"n,a=bob,n=alice,r=nonce")),
    "scram, mandatory extension": (SCRAM, authenticate(b"n,,m=x,n=alice,r=nonce")),
    "scram, extension": (SCRAM, authenticate(b"n,,n=alice,r=nonce,x=y")),
    "scram, unknown user": (SCRAM, authenticate(b"n,,n=nobody,r=nonce")),
    "scram, empty proof": (SCRAM, authenticate(FIRST), authenticate(b"")),
    "scram, garbage as proof": (SCRAM, authenticate(FIRST), authenticate(bytes(range(100)))),
    "scram, proof with another nonce": (SCRAM, authenticate(FIRST), authenticate(b"c=biws,r=other,p=AAAA")),
    "scram, first message twice": (SCRAM, authenticate(FIRST), authenticate(FIRST)),
    "authenticate after the login": (PLAIN, authenticate(ALICE), authenticate(ALICE)),
    "second login": (PLAIN, authenticate(ALICE), PLAIN, authenticate(ALICE)),
    "second login, another user": (PLAIN, authenticate(ALICE), PLAIN, authenticate(BOB)),
    "second login, wrong password": (PLAIN, authenticate(ALICE), PLAIN, authenticate(WRONG)),
    "second login, another mechanism": (PLAIN, authenticate(ALICE), SCRAM, authenticate(FIRST)),
    "second login, unknown mechanism": (PLAIN, authenticate(ALICE), handshake("GSSAPI")),
    "second login, request between": (PLAIN, authenticate(ALICE), PLAIN),
    "second login, versions between": (PLAIN, authenticate(ALICE), PLAIN, VERSIONS),
    "third login within a second": (PLAIN, authenticate(ALICE), PLAIN, authenticate(ALICE), PLAIN),
    "handshake 0": (handshake("PLAIN", 0), ALICE),
    "handshake 0, wrong password": (handshake("PLAIN", 0), WRONG),
    "handshake 0, empty": (handshake("PLAIN", 0), b""),
    "handshake 0, garbage": (handshake("PLAIN", 0), bytes(range(1, 100))),
    "handshake 0, unknown mechanism": (handshake("GSSAPI", 0),),
    "handshake 0, then authenticate": (handshake("PLAIN", 0), authenticate(ALICE)),
    "handshake 0 with scram": (handshake("SCRAM-SHA-256", 0), FIRST, b"c=biws,r=other,p=AAAA"),
    "garbage first": (bytes(range(1, 100)),),
    "empty frame first": (b"",),
    "garbage after the handshake": (PLAIN, bytes(range(1, 100))),
    "login without a handshake": (ALICE,),
}
"""Requests with their versions, and frames without a header (bytes), which are sent until the broker closes."""

OTHERWISE: Final = {
    "scram, unknown user": "Kafka refuses it before the proof, so that unknown users and wrong passwords differ",
    "scram, mandatory extension": "RFC 5802 wants it refused, and Kafka passes over it",
}
"""Cases that are answered otherwise on purpose, and why."""


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[tuple[str, int], str]]:
    """Addresses by kind of broker and lifetime of a session in ms (0: unlimited)."""
    skip_without_kafka()
    ports = dict(zip(SESSIONS, free_ports(len(SESSIONS)), strict=True))
    listeners = "".join(f",SASL{limit}://127.0.0.1:{port}" for limit, port in ports.items())
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    settings = {
        "listeners": "{default}" + listeners,
        "advertised.listeners": "{default}" + listeners,
        "listener.security.protocol.map": "{default}" + "".join(f",SASL{limit}:SASL_PLAINTEXT" for limit in SESSIONS),
        **OPTIONS,
    }
    for limit in SESSIONS:
        name = f"listener.name.sasl{limit}"
        settings[f"{name}.plain.sasl.jaas.config"] = f"{PACKAGE}.plain.PlainLoginModule required {users};"
        settings[f"{name}.scram-sha-256.sasl.jaas.config"] = f"{PACKAGE}.scram.ScramLoginModule required;"
        settings[f"{name}.connections.max.reauth.ms"] = str(limit)
    with contextlib.ExitStack() as stack:
        kafka = stack.enter_context(RealKafka(heap="512M", settings=settings))
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
        wanted = UserScramCredentialUpsertion("alice", credential, b"secret")
        for done in admin.alter_user_scram_credentials([wanted]).values():
            done.result(60)
        found = {("Kafka", limit): f"127.0.0.1:{port}" for limit, port in ports.items()}
        for limit in SESSIONS:
            config = {**OPTIONS, "connections.max.reauth.ms": str(limit)}
            ours = EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config)
            found["ours", limit] = stack.enter_context(ours).bootstrap_servers
        yield found


def replay(address: str, steps: tuple[Step | bytes, ...]) -> list[Any]:
    """Send each step when the last one is answered, then `OTHER`; return the answers, until the broker closes."""
    client, seen = RawClient(address), list[Any]()
    try:
        for step in (*steps, OTHER):
            with contextlib.suppress(ConnectionError):
                if isinstance(step, bytes):
                    client.send_frame(step)
                else:
                    client.send(*step)
            if not is_answered(client.socket):
                return [*seen, "closed"]
            seen.append(outcome(step, client.receive_frame()))
        return seen
    finally:
        client.close()


def is_answered(sock: socket.socket) -> bool:
    try:
        return sock.recv(1, socket.MSG_PEEK) != b""
    except ConnectionResetError:
        return False


def outcome(step: Step | bytes, frame: bytes) -> Any:
    """Return what a response says; a challenge of SCRAM, which has the broker's nonce, as its length only."""
    if isinstance(step, bytes):
        return "data" if frame else "no data"
    request, version = step
    _, offset = framing.decode_response_header(type(request), version, frame)
    response = codec.decode(type(request).response, version, frame, offset)
    if isinstance(response, SaslHandshakeResponse):
        return response.error_code, sorted(response.mechanisms)
    if isinstance(response, SaslAuthenticateResponse):
        data = "challenge" if response.auth_bytes else "no data"
        return response.error_code, response.error_message, data, response.session_lifetime_ms
    return type(request).__name__, response.error_code


@pytest.mark.parametrize("limit", SESSIONS)
@pytest.mark.parametrize("name", CASES)
def test_login_is_answered_alike(servers: dict[tuple[str, int], str], name: str, limit: int) -> None:
    found = {kind: replay(servers[kind, limit], CASES[name]) for kind in ("Kafka", "ours")}
    assert (found["ours"] == found["Kafka"]) == (name not in OTHERWISE), found
