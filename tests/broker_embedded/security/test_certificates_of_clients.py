"""Clients with certificates on a running broker: `ssl.principal.mapping.rules` names the user that has the rights."""

from __future__ import annotations

import datetime
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pyclient import Admin, NewTopic, Producer, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol import framing
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.conftest import RawClient

RULES = "RULE:^CN=(.*?),OU=Services,O=.*$/svc-$1/L,RULE:^CN=(.*?),OU=People$/$1@people/,DEFAULT"
NAMES = {  # the parts of a certificate's name, from the last one on -> the user
    "svc-billing": ("Example, Inc.", "Services", "Billing"),
    "Anna@people": (None, "People", "Anna"),
    "CN=other,O=Example": ("Example", None, "other"),
}


def name_of(organization: str | None, unit: str | None, common: str) -> x509.Name:
    kinds = (NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME, NameOID.COMMON_NAME)
    parts = zip(kinds, (organization, unit, common), strict=True)
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in parts if text is not None])


def client_certificate(directory: Path, file: str, name: x509.Name) -> dict[str, Any]:
    """Return the options of a client with a new certificate that the cluster's authority has signed."""
    authority = x509.load_pem_x509_certificate((directory / "security-ca.pem").read_bytes())
    signer = serialization.load_pem_private_key((directory / "security-ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(signer, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = directory / file
    path.write_bytes(
        key.private_bytes(encoding, form, serialization.NoEncryption()) + certificate.public_bytes(encoding)
    )
    return {"security_protocol": "SSL", "ssl_cafile": str(directory / "security-ca.pem"), "ssl_certfile": str(path)}


def test_rights_are_those_of_the_mapped_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    acls = [("topic", f"of-{number}", f"User:{user}", "all") for number, user in enumerate(NAMES)]
    with (
        caplog.at_level(logging.INFO, "pyclient.authorizer"),
        EmbeddedCluster(
            security="SSL",
            users=["admin"],
            acls=acls,
            data_dir=tmp_path,
            config={"ssl.principal.mapping.rules": RULES, "super.users": "User:CN=admin"},
        ) as cluster,
    ):
        servers = cluster.bootstrap_servers
        with Admin(servers, **cluster.client_options("admin")) as admin:
            admin.create_topics([NewTopic(f"of-{number}", 1, 1) for number in range(len(NAMES))])
        for number, (user, name) in enumerate(NAMES.items()):
            caplog.clear()
            options = client_certificate(tmp_path, f"{number}.pem", name_of(*name))
            with Admin(servers, **options) as admin:
                assert admin.list_topics() == [f"of-{number}"]
                with pytest.raises(errors.ClusterAuthorizationFailed):
                    admin.describe_acls()
            assert f"User:{user}" in caplog.text
            with Producer(servers, **options) as producer:
                assert producer.send(f"of-{number}", b"1").result(60).offset == 0
                with pytest.raises(errors.TopicAuthorizationFailed):
                    producer.send(f"of-{(number + 1) % len(NAMES)}", b"1").result(60)


def test_nodes_keep_their_rights_with_rules_for_clients(tmp_path: Path) -> None:
    with EmbeddedCluster(
        3,
        security="SSL",
        users=["admin"],
        acls=[],
        data_dir=tmp_path,
        config={"ssl.principal.mapping.rules": RULES, "super.users": "User:CN=admin"},
    ) as cluster:
        with Producer(cluster.bootstrap_servers, **cluster.client_options("admin")) as producer:
            producer.send("t", b"1").result(60)
        cluster.wait_isr("t", 0, 3)


def test_client_whose_certificate_no_rule_names_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As Kafka does; without a name it would be served as ANONYMOUS."""
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(admin)$/$1/"}
    with EmbeddedCluster(security="SSL", users=["admin"], data_dir=tmp_path, config=rules) as cluster:
        options = client_certificate(tmp_path, "other.pem", name_of(*NAMES["svc-billing"]))
        context = ssl.create_default_context(cafile=options["ssl_cafile"])
        context.load_cert_chain(options["ssl_certfile"])
        client = RawClient(cluster.bootstrap_servers)
        client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
        with caplog.at_level(logging.WARNING, "pyclient.broker_embedded"):
            client.send_bytes(b"".join(framing.encode_request(MetadataRequest(topics=None), 12, 1, "raw")) * 3)
            assert client.is_closed()
        client.close()
        said = "closing the connection: ssl.principal.mapping.rules: no rule applies to CN=Billing,OU=Services,"
        assert sum(said in each for each in caplog.messages) == 1
        with Admin(cluster.bootstrap_servers, **cluster.client_options("admin")) as admin:
            assert admin.list_topics() == []
