"""Several listeners of one broker, and of three: protocols, certificates, addresses, and what is refused."""

from __future__ import annotations

import contextlib
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from pyclient import Admin, Consumer, NewTopic, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.broker_embedded.config.broker_config import BrokerConfig
from pyclient.broker_embedded.config.listeners import Listeners
from tests.waiting import PATIENCE

USERS = {"alice": "secret", "bob": "other"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
NAMES = {"CLEAR": "PLAINTEXT", "TLS": "SSL", "MUTUAL": "SSL", "LOGIN": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}


@pytest.fixture(scope="module")
def certificates() -> Iterator[dict[str, Any]]:
    """Yield the options of alice's certificate, made by another cluster."""
    with EmbeddedCluster(security="SSL", users=["alice"]) as cluster:
        yield cluster.client_options("alice")


@pytest.fixture(scope="module")
def listeners(certificates: dict[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the address of each listener of one broker by its name."""
    keys = {"ssl.keystore.location": certificates["ssl_cafile"].replace("ca.pem", "broker.pem")}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in NAMES),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in NAMES.items()),
        "inter.broker.listener.name": "CLEAR",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates["ssl_cafile"],
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN} user_carol="hers";',
        **keys,
    }
    with EmbeddedCluster(users=USERS, config=settings) as cluster:
        config = cluster.brokers[0].config
        yield {each.name: f"127.0.0.1:{each.port}" for each in config.listeners.clients}


def options(name: str, certificates: dict[str, Any], user: str = "alice") -> dict[str, Any]:
    found: dict[str, Any] = {"security_protocol": NAMES[name]}
    if name in ("TLS", "BOTH"):
        found["ssl_cafile"] = certificates["ssl_cafile"]
    if name == "MUTUAL":
        found = certificates
    if name == "LOGIN":
        found |= {"sasl_mechanism": "PLAIN", "sasl_username": "carol", "sasl_password": "hers"}
    if name == "BOTH":
        found |= {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": user, "sasl_password": USERS[user]}
    return found


@pytest.mark.parametrize("name", NAMES)
def test_records_travel_over_each_listener(listeners: dict[str, str], certificates: dict[str, Any], name: str) -> None:
    given = options(name, certificates)
    topic, records = f"over-{name}", [b"%d" % number * 30_000 for number in range(20)]
    with Producer(listeners[name], **given) as producer:
        for value in records:
            producer.send(topic, value, partition=0)
        producer.flush(60)
    with Consumer(topic, bootstrap_servers=listeners[name], auto_offset_reset="earliest", **given) as consumer:
        found: list[bytes] = []
        while len(found) < len(records):
            found += [record.value for record in consumer.poll(60)]
    assert found == records


def test_confluents_client_uses_a_listener_with_tls_and_sasl(
    listeners: dict[str, str], certificates: dict[str, Any]
) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": listeners["BOTH"],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": certificates["ssl_cafile"],
            "sasl.mechanism": "PLAIN",
            "sasl.username": "bob",
            "sasl.password": "other",
        }
    )
    producer.produce("from-confluent", b"1")
    assert producer.flush(60) == 0
    (broker,) = producer.list_topics().brokers.values()
    assert f"{broker.host}:{broker.port}" == listeners["BOTH"]


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("TLS", {}, "the port speaks TLS; set security_protocol='SSL'"),
        ("TLS", {"security_protocol": "SSL"}, "its certificate is not accepted"),
        ("MUTUAL", {"security_protocol": "SSL", "ssl_cafile": ""}, "it demands a client certificate"),
        ("LOGIN", {}, "its listener demands SASL"),
        (
            "LOGIN",
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_username": "alice",
                "sasl_password": "secret",
            },
            "SCRAM-SHA-256.*PLAIN",
        ),
    ],
)
def test_the_cause_of_a_refusal_is_raised(
    listeners: dict[str, str], certificates: dict[str, Any], name: str, given: dict[str, Any], says: str
) -> None:
    given = {key: value or certificates["ssl_cafile"] for key, value in given.items()}
    with (
        Admin(listeners[name], default_api_timeout_ms=30_000, **given) as admin,
        pytest.raises(errors.ClusterUnreachable, match=says),
    ):
        admin.list_topics()


def test_garbage_ends_a_tls_connection_and_no_other(listeners: dict[str, str], certificates: dict[str, Any]) -> None:
    host, port = listeners["TLS"].split(":")
    for garbage in (b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\1" * 70_000):
        with (
            socket.create_connection((host, int(port)), timeout=60) as sock,
            contextlib.suppress(ConnectionResetError, BrokenPipeError),  # also while the rest is sent
        ):
            sock.sendall(garbage)
            while sock.recv(4096):
                pass
    with Admin(listeners["TLS"], **options("TLS", certificates)) as admin:
        admin.list_topics()


def test_only_tls_1_2_and_1_3_are_accepted(listeners: dict[str, str], certificates: dict[str, Any]) -> None:
    host, port = listeners["TLS"].split(":")
    seen = set()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=certificates["ssl_cafile"])
        context.minimum_version = context.maximum_version = version
        with (
            socket.create_connection((host, int(port)), timeout=60) as sock,
            context.wrap_socket(sock, server_hostname=host) as wrapped,
        ):
            seen.add(wrapped.version())
    assert seen == {"TLSv1.2", "TLSv1.3"}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="Python's ssl cannot renegotiate, and there is no openssl")
def test_renegotiation_is_refused_and_others_are_served(
    listeners: dict[str, str], certificates: dict[str, Any]
) -> None:
    command = ["openssl", "s_client", "-connect", listeners["TLS"], "-tls1_2", "-CAfile", certificates["ssl_cafile"]]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as client:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write("R\n")  # s_client begins a handshake, and ends with an error if that is refused
        client.stdin.flush()
        try:
            client.wait(PATIENCE)
        finally:
            client.kill()
        seen = client.stdout.read()
    assert "RENEGOTIATING" in seen
    assert "no renegotiation" in seen
    with Admin(listeners["TLS"], **options("TLS", certificates)) as admin:
        admin.list_topics()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("name", ["TLSv1", "TLSv1_1"])
def test_older_tls_is_refused(listeners: dict[str, str], name: str) -> None:
    host, port = listeners["TLS"].split(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion[name]
    with (
        socket.create_connection((host, int(port)), timeout=60) as sock,
        pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"),
    ):
        context.wrap_socket(sock, server_hostname=host)


@pytest.mark.slow
@pytest.mark.parametrize(("security", "processes"), [("SASL_SSL", False), ("SSL", True)])
def test_three_brokers_replicate_over_their_own_security(security: str, processes: bool) -> None:
    with EmbeddedCluster(3, security=security, users={"alice": "secret"}, processes=processes) as cluster:
        given = cluster.client_options("alice")
        with Producer(cluster.bootstrap_servers, **given) as producer:
            for number in range(30):
                producer.send("t", b"%d" % number, partition=0)
            producer.flush(60)
            cluster.wait_isr("t", 0, 3)
            cluster.kill(3)
            producer.send("t", b"30", partition=0).result(60)
        with Consumer(
            "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **given
        ) as reader:
            found: list[bytes] = []
            while len(found) < 31:
                found += [record.value for record in reader.poll(60)]
        assert found == [b"%d" % number for number in range(31)]


@pytest.mark.parametrize("security", ["SSL", "SASL_SSL"])
def test_brokers_leave_and_leaders_move_with_security(security: str) -> None:
    patient = {"broker.session.timeout.ms": 60_000}  # on a busy machine, too, only the test moves the leader
    options = {"super.users": "User:alice", **patient}
    with EmbeddedCluster(3, security=security, users={"alice": "secret"}, acls=[], config=options) as cluster:
        with Admin(cluster.bootstrap_servers, **cluster.client_options("alice")) as admin:
            admin.create_topics([NewTopic("t", 1, 3)])
        added = cluster.add_broker()
        follower = next(node for node in cluster.wait_isr("t", 0, 3) if node != cluster.leader_of("t", 0))
        cluster.move_leader("t", 0, follower)
        assert cluster.leader_of("t", 0) == follower
        cluster.remove_broker(added.id)
        assert [broker.id for broker in cluster.brokers] == [1, 2, 3]


# -- configuration


def build(settings: dict[str, Any], **given: Any) -> BrokerConfig:
    return BrokerConfig.build(settings, data_dir="d", **given)


def listeners_in(settings: dict[str, Any], **given: Any) -> Listeners:
    return build(settings, **given).listeners


def test_default_is_one_plain_listener() -> None:
    found = listeners_in({}, port=5)
    assert [(each.name, each.protocol, each.host, each.port) for each in found.clients] == [
        ("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 5)
    ]
    assert found.inter_broker == "PLAINTEXT"


def test_security_is_the_protocol_of_all_listeners() -> None:
    found = listeners_in({"controller.quorum.voters": "1@h:1"}, security="SASL_SSL", users=USERS)
    assert [each.protocol for each in (*found.clients, found.controller)] == ["SASL_SSL", "SASL_SSL"]
    assert found.inter_broker == found.clients[0].name == "SASL_SSL"


def test_listeners_have_addresses_and_options_of_their_own() -> None:
    config = build(
        {
            "controller.quorum.voters": "1@h:9099",
            "listeners": "inside://[::1]:9092,OUTSIDE://:9093,CONTROLLER://h:9099",
            "advertised.listeners": "OUTSIDE://example.org:443",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
            "ssl.client.auth": "requested",
            "listener.name.outside.ssl.client.auth": "required",
            "listener.name.outside.connections.max.reauth.ms": "3000",
        }
    )
    inside, outside = config.listeners.clients
    assert (config.host, config.port) == (inside.host, inside.port) == ("::1", 9092)
    assert (outside.host, outside.port, outside.advertised) == ("", 9093, ("example.org", 443))
    assert (config.listeners.controller.host, config.listeners.controller.port) == ("h", 9099)
    assert (inside.options["ssl.client.auth"], outside.options["ssl.client.auth"]) == ("requested", "required")
    assert (inside.session_seconds("PLAIN"), outside.session_seconds("PLAIN")) == (0, 3)
    assert not inside.is_open
    assert not outside.is_open
    moved = config.at(ports={"OUTSIDE": 7}).listeners.clients
    assert [each.port for each in moved] == [9092, 7]


@pytest.mark.parametrize(
    ("settings", "given", "says"),
    [
        ({"listeners": "A://h:1"}, {}, "listener.security.protocol.map has no protocol for the listener A"),
        ({"listeners": "SSL://h:1,ssl://h:2"}, {}, "listeners has the listener SSL twice"),
        ({"listeners": "SSL://h:70000"}, {}, "must be like SASL_SSL://localhost:9093"),
        ({"listener.security.protocol.map": "A:TLS"}, {}, "must be like NAME:SASL_SSL"),
        ({"advertised.listeners": "SSL://h:1"}, {}, "advertised.listeners has SSL, which listeners has not"),
        ({"inter.broker.listener.name": "SSL"}, {}, "inter.broker.listener.name is SSL: it must be the name of a"),
        (
            {"listeners": "SSL://h:1", "controller.quorum.voters": "1@h:2"},
            {},
            "security.inter.broker.protocol is PLAIN",
        ),
        ({"listener.name.x.ssl.client.auth": "none"}, {}, "there is no listener 'x'; there are CONTROLLER, PLAINTEXT"),
        ({"listener.name.plaintext.num.partitions": "1"}, {}, "options of TLS and SASL of its own only"),
        ({"listener.name.plaintext.ssl.client.auth": "some"}, {}, "must be required, requested or none"),
        ({"listeners": "SSL://h:1"}, {"security": "SSL"}, "security is 'SSL', and listeners are given"),
        ({}, {"security": "TLS"}, "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({}, {"security": "SASL_SSL"}, "listener SASL_SSL is SASL_SSL without users"),
        ({}, {"users": USERS}, "no listener authenticates clients"),
        ({"ssl.keystore.location": "f"}, {"security": "SSL"}, "ssl.keystore.type is JKS .*: ssl.keystore.location has"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, {"security": "SASL_SSL", "users": USERS}, "has 'GSSAPI'"),
        (
            {"listeners": "SASL_SSL://h:1", "listener.name.sasl_ssl.plain.sasl.jaas.config": "x"},
            {},
            "listener.name.sasl_ssl.plain.sasl.jaas.config: it is not one entry",
        ),
    ],
)
def test_impossible_listeners_are_refused(settings: dict[str, Any], given: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.ConfigError, match=says):
        build(settings, **given)


def test_a_node_without_a_user_cannot_log_in_to_others() -> None:
    config = build({"controller.quorum.voters": "1@h:1"}, security="SASL_SSL", users=USERS)
    with pytest.raises(errors.ConfigError, match=r"listener.name.sasl_ssl.plain.sasl.jaas.config"):
        config.login_at(config.listeners.between_brokers)


def test_secrets_are_not_in_the_representation_of_a_configuration() -> None:
    jaas = f'{PLAIN} username="u" password="s3cret" user_u="s3cret";'
    config = build(
        {"ssl.key.password": "s3cret", "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas},
        security="SASL_SSL",
        users={"alice": "s3cret"},
    )
    assert not re.search("s3cret", repr(config) + repr(config.listeners) + repr(config.listeners.clients[0].logins))
