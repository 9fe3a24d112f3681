"""Clients before their login: unfinished TLS handshakes, refused logins, too many of one address."""

from __future__ import annotations

import contextlib
import logging
import resource
import select
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.network.connection_quotas import MOST_OF_AN_ADDRESS
from pyclient.errors import SaslAuthenticationFailed, UnsupportedSaslMechanism
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.nodes import on_loop
from tests.broker_embedded.security.tokens import log_in
from tests.waiting import PATIENCE, until

USERS = {"alice": "hers"}
VERSIONS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
ALL = MetadataRequest(topics=None)
LONG = 600.0
"""Seconds of a TLS handshake where thousands are begun: on a busy machine that takes more than half a minute."""


@pytest.fixture
def encrypted() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security="SSL", users=["alice"]) as cluster:
        yield cluster


@pytest.fixture
def with_logins() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS) as cluster:
        yield cluster


def first_message() -> bytes:
    """Return the ClientHello of a TLS handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def connect(cluster: EmbeddedCluster, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE, source_address=(source, 0))


def connections_of(cluster: EmbeddedCluster) -> int:
    return on_loop(cluster, lambda node: len(node.connections))


def is_open(sock: socket.socket) -> bool:
    """Return False if the broker has closed the connection, which is seen at once."""
    if not select.select([sock], [], [], 0)[0]:
        return True
    try:
        return sock.recv(1, socket.MSG_PEEK) != b""
    except ConnectionResetError:
        return False


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("sent", [0, 1, 100, 10_000], ids=["nothing", "a-byte", "a-part", "all"])
def test_tls_handshake_that_does_not_end_is_closed_after_half_a_minute(encrypted: EmbeddedCluster, sent: int) -> None:
    with connect(encrypted) as silent, Admin(encrypted.bootstrap_servers, **encrypted.client_options("alice")) as admin:
        silent.sendall(first_message()[:sent])
        admin.list_topics()
        encrypted.advance_time(15)  # on a busy machine some of the half minute has passed by itself
        admin.list_topics()
        until(lambda: on_loop(encrypted, lambda node: len(node.connections)) >= 2)
        encrypted.advance_time(16)
        with contextlib.suppress(ConnectionResetError):
            while silent.recv(1 << 16):
                pass
        admin.list_topics()


def test_thousands_of_half_open_tls_handshakes_delay_no_other_client(
    encrypted: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From many addresses, as many as the descriptors allow: each of the two ends of a connection needs one."""
    monkeypatch.setattr("pyclient.broker_embedded.network.server.HANDSHAKE_SECONDS", LONG)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    addresses = max(1, min(20, (limit - 500) // 3 // MOST_OF_AN_ADDRESS))
    hello = first_message()
    with contextlib.ExitStack() as stack:
        before = resident_bytes()
        for address in range(addresses):
            for number in range(MOST_OF_AN_ADDRESS):
                sock = stack.enter_context(connect(encrypted, f"127.0.1.{address + 1}"))
                sock.sendall(hello[: (0, 1, 5, 100, len(hello))[number % 5]])
        until(lambda: connections_of(encrypted) == addresses * MOST_OF_AN_ADDRESS)
        assert resident_bytes() - before < addresses * MOST_OF_AN_ADDRESS * 100_000
        with Admin(encrypted.bootstrap_servers, **encrypted.client_options("alice")) as admin:
            admin.list_topics()
        assert connections_of(encrypted) == addresses * MOST_OF_AN_ADDRESS
        encrypted.advance_time(LONG + 1)
        until(lambda: connections_of(encrypted) == 0)


def test_oldest_half_open_handshake_of_an_address_is_closed(encrypted: EmbeddedCluster) -> None:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connect(encrypted)) for _ in range(MOST_OF_AN_ADDRESS + 10)]
        until(lambda: not is_open(sockets[9]))
        assert [is_open(sock) for sock in sockets] == [False] * 10 + [True] * MOST_OF_AN_ADDRESS
        elsewhere = stack.enter_context(connect(encrypted, "127.0.1.1"))
        with Admin(encrypted.bootstrap_servers, **encrypted.client_options("alice")) as admin:
            admin.list_topics()
        assert is_open(elsewhere)


def test_clients_that_have_logged_in_are_not_closed(
    with_logins: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    known = [RawClient(with_logins.bootstrap_servers) for _ in range(MOST_OF_AN_ADDRESS)]
    for client in known:
        assert log_in(client, "alice", "hers").error_code == 0
    with caplog.at_level(logging.WARNING, "pyclient.broker_embedded"):
        silent = [RawClient(with_logins.bootstrap_servers) for _ in range(MOST_OF_AN_ADDRESS)]
        last = RawClient(with_logins.bootstrap_servers)
        assert silent[0].is_closed()
    assert "127.0.0.1: the oldest of more than 100 that have not authenticated themselves" in caplog.text
    assert log_in(last, "alice", "hers").error_code == 0
    assert all(client.call(ALL, 12).cluster_id for client in known)
    assert all(is_open(client.socket) for client in silent[1:])
    for client in (*known, *silent, last):
        client.close()


def test_clients_without_security_are_not_limited() -> None:
    with EmbeddedCluster() as cluster, contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(connect(cluster)) for _ in range(MOST_OF_AN_ADDRESS * 2)]
        until(lambda: connections_of(cluster) == len(sockets))
        assert all(is_open(sock) for sock in sockets)


def refused_login(client: RawClient) -> tuple[Any, int]:
    """Send a wrong password; return the request's class and version."""
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    return SaslAuthenticateRequest, 2


def refused_mechanism(client: RawClient) -> tuple[Any, int]:
    client.send(SaslHandshakeRequest(mechanism="CRAM-MD5"), 1)
    return SaslHandshakeRequest, 1


@pytest.mark.parametrize(
    ("refused", "code"),
    [(refused_login, SaslAuthenticationFailed.code), (refused_mechanism, UnsupportedSaslMechanism.code)],
)
def test_refused_login_is_answered_after_its_delay(refused: Any, code: int) -> None:
    config = {"connection.failed.authentication.delay.ms": 20_000}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config) as cluster:
        client, other = RawClient(cluster.bootstrap_servers), RawClient(cluster.bootstrap_servers)
        assert log_in(other, "alice", "hers").error_code == 0
        request, version = refused(client)
        until(lambda: on_loop(cluster, lambda node: sum("waiting" in repr(each) for each in node.connections.values())))
        cluster.advance_time(15)
        assert other.call(ALL, 12).cluster_id
        assert not select.select([client.socket], [], [], 0)[0]
        cluster.advance_time(6)
        assert client.receive(request, version)[0].error_code == code
        assert client.is_closed()
        for each in (client, other):
            each.close()


def test_listener_that_others_may_reach_without_a_login_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    """`127.1` is 127.0.0.1, in a form that is not taken for the loopback address."""
    with caplog.at_level(logging.WARNING, "pyclient.broker_embedded"), EmbeddedCluster(host="127.1") as cluster:
        address = cluster.bootstrap_servers
    assert "listener PLAINTEXT (PLAINTEXT) is at 127.1:" in caplog.text
    assert "where other machines may reach it without a login" in caplog.text
    assert address
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pyclient.broker_embedded"):
        for options in ({}, {"host": "127.1", "security": "SASL_PLAINTEXT", "users": USERS}):
            with EmbeddedCluster(**options):  # type: ignore[arg-type]
                pass
    assert "without a login" not in caplog.text


def test_files_of_the_authority_are_readable_by_their_user_alone(tmp_path: Path) -> None:
    with EmbeddedCluster(security="SASL_SSL", users=USERS, data_dir=tmp_path) as cluster:
        cluster.client_options("alice")
    with EmbeddedCluster(security="SSL", users=["bob"], data_dir=tmp_path / "other") as cluster:
        cluster.client_options("bob")
    made = [path for path in tmp_path.rglob("security-*") if path.is_file()]
    names = {path.name for path in made}
    assert {"security-ca.pem", "security-ca.key", "security-broker.pem", "security-user-bob.pem"} <= names
    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
    keys = [path for path in made if b"PRIVATE KEY" in path.read_bytes()]
    assert {path.name for path in keys} == names - {"security-ca.pem", "security-delegation-tokens.key"}
