"""A SASL listener: every client and mechanism, what is refused, and connections that authenticate again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from hypothesis import given
from hypothesis import strategies as st

from pyclient import Admin, Consumer, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.listeners import MECHANISMS
from pyclient.broker_embedded.network.sasl import PlainServer, ScramServer, Users
from pyclient.net.sasl import scram
from pyclient.net.sasl.exchanges import ScramExchange
from pyclient.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.list_groups import ListGroupsRequest
from pyclient.protocol.messages.metadata import MetadataRequest
from pyclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from pyclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker_embedded.conftest import RawClient
from tests.broker_embedded.nodes import node_of
from tests.other_clients import send_by_aiokafka, send_by_confluent, send_by_kafka_python
from tests.waiting import until

USERS = {"alice": "s3cret=,", "bob": "other"}
OPTIONS = {"connection.failed.authentication.delay.ms": "20"}
VERSIONS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
ALL = MetadataRequest(topics=None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=OPTIONS) as cluster:
        yield cluster


@pytest.fixture
def raw(cluster: EmbeddedCluster) -> Iterator[RawClient]:
    client = RawClient(cluster.bootstrap_servers)
    yield client
    client.socket.close()


def log_in(client: RawClient, user: str = "alice", password: str = "s3cret=,") -> Any:
    """Log in by PLAIN; the answer."""
    assert client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    return client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)


# -- every client


def by_pyclient(servers: str, mechanism: str, user: str, password: str, topic: str) -> None:
    options: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": user,
        "sasl_password": password,
    }
    with Producer(servers, **options) as producer:
        producer.send(topic, b"1").result(60)
    with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest", **options) as consumer:
        assert [record.value for record in consumer.poll(60)] == [b"1"]


def log_in_by_pyclient(servers: str, mechanism: str, user: str, password: str) -> None:
    options: dict[str, Any] = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}
    with Admin(servers, security_protocol="SASL_PLAINTEXT", **options) as admin:
        admin.list_topics()


def for_confluent(servers: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def by_confluent(servers: str, mechanism: str, user: str, password: str, topic: str) -> None:
    send_by_confluent(topic, for_confluent(servers, mechanism, user, password))


def for_python(servers: str, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def by_kafka_python(servers: str, mechanism: str, user: str, password: str, topic: str) -> None:
    send_by_kafka_python(topic, **for_python(servers, mechanism, user, password))


def by_aiokafka(servers: str, mechanism: str, user: str, password: str, topic: str) -> None:
    send_by_aiokafka(topic, **for_python(servers, mechanism, user, password))


CLIENTS = [by_pyclient, by_confluent, by_kafka_python, by_aiokafka]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_every_client_logs_in_by_every_mechanism(cluster: EmbeddedCluster, client: Any, mechanism: str) -> None:
    topic = f"{client.__name__}-{mechanism}"
    client(cluster.bootstrap_servers, mechanism, "alice", "s3cret=,", topic)
    with Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **cluster.client_options("bob"),
    ) as consumer:
        assert [record.value for record in consumer.poll(60)] == [b"1"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [by_pyclient, by_confluent], ids=lambda client: client.__name__)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_wrong_password_and_unknown_user_are_refused_alike(
    cluster: EmbeddedCluster, client: Any, mechanism: str, user: str
) -> None:
    with pytest.raises((errors.ClusterUnreachable, confluent_kafka.KafkaException)) as caught:
        client(cluster.bootstrap_servers, mechanism, user, "wrong", "t")
    says = "Invalid username or password" if mechanism == "PLAIN" else f"with SASL mechanism {mechanism}"
    assert says in str(caught.value)


def test_broker_process_takes_users_and_shows_no_password() -> None:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, processes=True) as cluster:
        with Admin(cluster.bootstrap_servers, **cluster.client_options("bob")) as admin:
            assert admin.list_topics() == []
        with pytest.raises(errors.ConfigError, match="user 'carol' is not one of"):
            cluster.client_options("carol")
        command = Path(f"/proc/{cluster.pid}/cmdline").read_bytes()
        assert b"SASL_PLAINTEXT" in command
        assert b"s3cret" not in command
        assert "s3cret" not in repr(cluster)


def test_error_of_a_client_without_sasl_names_the_option_to_set(cluster: EmbeddedCluster) -> None:
    with (
        Admin(cluster.bootstrap_servers, default_api_timeout_ms=60_000) as admin,
        pytest.raises(errors.ClusterUnreachable, match="demands SASL: set security_protocol='SASL_PLAINTEXT'"),
    ):
        admin.list_topics()


# -- users in the metadata log


def test_users_are_added_changed_and_removed_while_the_broker_runs() -> None:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=OPTIONS) as cluster:
        servers = cluster.bootstrap_servers
        admin = AdminClient(for_confluent(servers, "SCRAM-SHA-256", "alice", "s3cret=,"))

        def alter(change: Any) -> None:
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(60)

        def may(password: str, mechanism: str = "SCRAM-SHA-512") -> bool:
            try:
                log_in_by_pyclient(servers, mechanism, "carol", password)
            except errors.ClusterUnreachable:
                return False
            return True

        kind = ScramMechanism.SCRAM_SHA_512
        alter(UserScramCredentialUpsertion("carol", ScramCredentialInfo(kind, 5000), b"first"))
        assert may("first")
        assert not may("first", "SCRAM-SHA-256")
        assert not may("first", "PLAIN")
        alter(UserScramCredentialUpsertion("carol", ScramCredentialInfo(kind, 4096), b"second"))
        assert may("second") and not may("first")
        cluster.restart()
        assert may("second")
        alter(UserScramCredentialDeletion("carol", kind))
        assert not may("second")


def test_changed_password_of_a_user_holds_from_the_next_start(tmp_path: Path) -> None:
    for password in ("first", "second"):
        users = {"alice": password}
        with EmbeddedCluster(security="SASL_PLAINTEXT", users=users, data_dir=tmp_path, config=OPTIONS) as cluster:
            for mechanism in MECHANISMS:
                log_in_by_pyclient(cluster.bootstrap_servers, mechanism, "alice", password)
                with pytest.raises(errors.ClusterUnreachable):
                    log_in_by_pyclient(cluster.bootstrap_servers, mechanism, "alice", "other")


# -- the state of a connection


def test_sasl_apis_are_listed_on_this_listener_alone(raw: RawClient) -> None:
    listed = {each.api_key: (each.min_version, each.max_version) for each in raw.call(VERSIONS, 4).api_keys}
    assert (listed[17], listed[36]) == ((0, 1), (0, 2))
    with EmbeddedCluster() as open_cluster:
        client = RawClient(open_cluster.bootstrap_servers)
        assert {17, 36}.isdisjoint(each.api_key for each in client.call(VERSIONS, 4).api_keys)
        client.socket.close()


@pytest.mark.parametrize("before", [[], [VERSIONS], [SaslHandshakeRequest(mechanism="PLAIN")]], ids=len)
def test_other_requests_close_the_connection_before_the_login(raw: RawClient, before: list[Any]) -> None:
    for request in before:
        raw.call(request, 4 if request is VERSIONS else 1)
    raw.send(ALL, 12)
    assert raw.is_closed()


def test_authenticate_without_handshake_closes_the_connection(raw: RawClient) -> None:
    raw.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0s3cret=,"), 2)
    assert raw.is_closed()


def test_requests_sent_after_the_login_are_served_in_order(raw: RawClient) -> None:
    """The client does not wait for the answers: the broker reads the next request when it has answered the last."""
    raw.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    raw.send(SaslAuthenticateRequest(auth_bytes=b"\0alice\0s3cret=,"), 2)
    raw.send(ALL, 12)
    assert raw.receive(SaslHandshakeRequest, 1)[0].error_code == 0
    assert raw.receive(SaslAuthenticateRequest, 2)[0].error_code == 0
    assert raw.receive(MetadataRequest, 12)[0].cluster_id


@pytest.mark.parametrize(
    ("message", "version"),
    [(VERSIONS, 4), (SaslHandshakeRequest(mechanism="PLAIN"), 1), (ListGroupsRequest(), 3)],
    ids=lambda each: type(each).__name__,
)
def test_other_request_during_an_exchange_is_answered_and_closed(raw: RawClient, message: Any, version: int) -> None:
    raw.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert raw.call(message, version).error_code == errors.IllegalSaslState.code
    assert raw.is_closed()


def test_versions_are_asked_for_once_before_the_login(raw: RawClient) -> None:
    assert raw.call(VERSIONS, 4).error_code == 0
    raw.send(VERSIONS, 4)
    assert raw.is_closed()


@pytest.mark.parametrize(("password", "answer"), [(b"s3cret=,", b"\0\0\0\0"), (b"wrong", b"")])
def test_login_without_headers_follows_handshake_0(raw: RawClient, password: bytes, answer: bytes) -> None:
    assert raw.call(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
    raw.send_frame(b"\0alice\0" + password)
    if not answer:
        assert raw.is_closed()
        return
    assert raw.socket.recv(4) == answer
    assert raw.call(ALL, 12).cluster_id


def test_authenticate_after_the_login_is_answered(raw: RawClient) -> None:
    assert log_in(raw).error_code == 0
    answer = raw.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0s3cret=,"), 2)
    assert answer.error_code == errors.IllegalSaslState.code
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert raw.call(ALL, 12).cluster_id


def test_large_frames_are_refused_until_the_client_is_known(raw: RawClient) -> None:
    assert log_in(raw).error_code == 0
    raw.send(MetadataRequest(topics=None), 12)
    raw.receive(MetadataRequest, 12)
    raw.send_frame(bytes(70_000))  # no request, but read as one
    assert raw.is_closed()


def test_large_frame_of_an_unknown_client_closes_the_connection(raw: RawClient) -> None:
    raw.send_bytes((65_537).to_bytes(4, "big"))
    assert raw.is_closed()


@pytest.mark.parametrize("data", [b"", b"\xff\xff", bytes(30), b"\0\x11\0\x01" + bytes(4)])
def test_nonsense_closes_the_connection(raw: RawClient, data: bytes) -> None:
    raw.send_frame(data)
    assert raw.is_closed()


def test_unknown_mechanism_is_refused_with_those_offered(raw: RawClient) -> None:
    answer = raw.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert answer.error_code == errors.UnsupportedSaslMechanism.code
    assert answer.mechanisms == list(MECHANISMS)
    assert raw.is_closed()


def test_refused_login_is_answered_and_ends_the_connection(raw: RawClient) -> None:
    answer = log_in(raw, password="wrong")
    assert answer.error_code == errors.SaslAuthenticationFailed.code
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert raw.is_closed()


def test_silent_client_is_closed_after_half_a_minute() -> None:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS) as cluster:
        silent, known = RawClient(cluster.bootstrap_servers), RawClient(cluster.bootstrap_servers)
        assert log_in(known).error_code == 0
        silent.call(VERSIONS, 4)
        cluster.advance_time(31)
        assert silent.is_closed()
        assert known.call(ALL, 12).cluster_id
        for client in (silent, known):
            client.socket.close()


# -- sessions that end


@pytest.fixture(scope="module")
def short() -> Iterator[EmbeddedCluster]:
    config = {**OPTIONS, "connections.max.reauth.ms": "60000"}
    with EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config) as cluster:
        yield cluster


@pytest.fixture
def member(short: EmbeddedCluster) -> Iterator[RawClient]:
    client = RawClient(short.bootstrap_servers)
    assert log_in(client).session_lifetime_ms == 60_000
    yield client
    client.socket.close()


def test_request_after_the_end_of_a_session_closes_the_connection(short: EmbeddedCluster, member: RawClient) -> None:
    assert member.call(ALL, 12).cluster_id
    short.advance_time(61)
    member.send(ALL, 12)
    assert member.is_closed()


def test_session_is_renewed_before_and_after_its_end(short: EmbeddedCluster, member: RawClient) -> None:
    for seconds in (50, 50, 61, 50):
        short.advance_time(seconds)
        assert log_in(member).session_lifetime_ms == 60_000
        assert member.call(ALL, 12).cluster_id


def test_request_during_a_second_authentication_closes_the_connection(member: RawClient) -> None:
    member.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert member.call(ListGroupsRequest(), 3).error_code == errors.IllegalSaslState.code
    assert member.is_closed()


def test_third_authentication_waits_a_second(short: EmbeddedCluster, member: RawClient) -> None:
    def refused() -> Any:
        """Log in and begin again at once; None if that was allowed, as a second went by meanwhile."""
        began = time.monotonic()
        assert log_in(member).error_code == 0
        answer = member.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        if answer.error_code:
            return answer
        assert time.monotonic() - began >= 1
        assert member.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0s3cret=,"), 2).error_code == 0
        short.advance_time(1)  # so that the next login is allowed
        return None

    answer = until(refused)
    assert (answer.error_code, answer.mechanisms) == (errors.IllegalSaslState.code, [])
    assert member.call(ALL, 12).cluster_id
    short.advance_time(1)
    assert log_in(member).error_code == 0


def test_session_stays_with_its_user_and_mechanism(short: EmbeddedCluster, member: RawClient) -> None:
    answer = log_in(member, "bob", "other")
    assert answer.error_code == errors.SaslAuthenticationFailed.code
    assert "Cannot change principals during re-authentication from User.alice: User.bob" in answer.error_message
    assert member.is_closed()
    other = RawClient(short.bootstrap_servers)
    log_in(other)
    assert other.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
    other.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce"), 2)
    assert other.is_closed()
    other.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_producer_renews_its_session_and_loses_nothing(mechanism: str) -> None:
    config = {**OPTIONS, "connections.max.reauth.ms": "1500"}
    with (
        EmbeddedCluster(security="SASL_PLAINTEXT", users=USERS, config=config) as cluster,
        Producer(cluster.bootstrap_servers, **cluster.client_options("alice", mechanism)) as producer,
    ):
        sent, end = 0, time.monotonic() + 2
        while sent < 20 or time.monotonic() < end:
            assert producer.send("t", b"%d" % sent, partition=0).result(60).offset == sent
            sent += 1


# -- the exchanges

PASSWORDS = Users(USERS, {})


@given(st.binary(max_size=40) | st.text("\0alicebo", max_size=20).map(str.encode))
def test_plain_accepts_the_right_message_alone(message: bytes) -> None:
    try:
        step = PlainServer(PASSWORDS).next(message)
    except errors.SaslAuthenticationFailed:
        step = None
    right = {f"{identity}\0{user}\0{password}".encode() for user, password in USERS.items() for identity in ("", user)}
    assert (step is not None) == (message in right)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"", "expected 3 tokens"),
        (b"\0alice", "expected 3 tokens"),
        (b"\0\0x", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0nobody\0x", "Invalid username or password"),
        (b"bob\0alice\0s3cret=,", "authorization id that is different from username"),
    ],
)
def test_plain_refuses_with_kafkas_words(message: bytes, says: str) -> None:
    with pytest.raises(errors.SaslAuthenticationFailed, match=says):
        PlainServer(PASSWORDS).next(message)


@given(st.lists(st.binary(max_size=40) | st.text("n,=rcpavie2CD3biws", max_size=30).map(str.encode), max_size=4))
def test_scram_refuses_arbitrary_messages(messages: list[bytes]) -> None:
    server = ScramServer("SCRAM-SHA-256", PASSWORDS, "nonce")
    try:
        steps = [server.next(message) for message in messages]
    except errors.SaslAuthenticationFailed:
        return
    assert all(step.user is None for step in steps)


def test_scram_does_not_tell_whether_a_user_exists() -> None:
    def salt(user: str) -> bytes:
        return scram.ServerFirst.decode(
            ScramServer("SCRAM-SHA-256", PASSWORDS, "n").next(f"n,,n={user},r=x".encode()).data
        ).salt

    assert salt("nobody") == salt("nobody") != salt("other")
    client = ScramExchange("SCRAM-SHA-256", "nobody", "x", "x", scram.salted_password)
    server = ScramServer("SCRAM-SHA-256", PASSWORDS, "n")
    final = client.next(server.next(client.first()).data)
    with pytest.raises(errors.SaslAuthenticationFailed, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        server.next(final or b"")


def test_unknown_users_have_iterations_as_often_as_known_ones() -> None:
    counts = {(1, 4096): 30, (1, 8192): 10, (2, 16_384): 40}
    users = Users({}, {}, iterations=counts)

    def iterations() -> list[int]:
        return [users.credential(f"u{number}", "SCRAM-SHA-256")[1] for number in range(1000)]

    found = iterations()
    assert found == iterations()
    assert set(found) == {4096, 8192}
    assert 650 < found.count(4096) < 850  # six standard deviations around 750
    assert {users.credential(f"u{number}", "SCRAM-SHA-512")[1] for number in range(10)} == {16_384}
    counts[1, 4096] = 31
    assert sum(old != new for old, new in zip(found, iterations(), strict=True)) < 50
    assert Users({}, {}).credential("u", "SCRAM-SHA-256")[1] == scram.LEAST_ITERATIONS


def test_unknown_user_of_a_broker_has_the_iterations_of_its_users() -> None:
    with EmbeddedCluster(security="SASL_PLAINTEXT", users={"alice": "hers"}) as cluster:
        client = RawClient(cluster.bootstrap_servers)
        assert log_in(client, "alice", "hers").error_code == 0
        image = node_of(cluster).image
        assert iterations_of(cluster, "nobody") == 4096
        changes = [
            ScramCredentialUpsertion(name=name, mechanism=1, iterations=8192, salt=b"s", salted_password=b"p" * 32)
            for name, _mechanism in list(image.scram_credentials)
        ]
        named = {change.name: change for change in changes}.values()
        request = AlterUserScramCredentialsRequest(deletions=[], upsertions=list(named))
        assert not any(each.error_code for each in client.call(request, 0).results)
        assert iterations_of(cluster, "nobody") == iterations_of(cluster, "alice") == 8192
        deletions = [ScramCredentialDeletion(name=change.name, mechanism=1) for change in named]
        client.call(AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]), 0)
        assert iterations_of(cluster, "alice") == 4096
        client.close()


def iterations_of(cluster: EmbeddedCluster, user: str) -> int:
    """Return the iterations that a broker names for a user."""
    client = RawClient(cluster.bootstrap_servers)
    client.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    answer = client.call(SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=x".encode()), 2)
    client.close()
    return scram.ServerFirst.decode(bytes(answer.auth_bytes)).iterations


# -- options


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"security": "TLS", "users": USERS}, "it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security": "SASL_PLAINTEXT"}, "without users: no client could connect"),
        ({"users": USERS}, "set security='SASL_PLAINTEXT'"),
        ({"security": "SASL_PLAINTEXT", "users": {"alice": ""}}, "user 'alice': names and passwords"),
        ({"security": "SASL_PLAINTEXT", "users": {"a\0b": "x"}}, "without NUL"),
    ],
)
def test_security_that_cannot_be_is_refused(options: Any, says: str) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        EmbeddedCluster(**options)
