"""PKCS12 stores of keys and authorities, in clients and in listeners, and what is said about other files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    KeySerializationEncryption,
    NoEncryption,
    load_pem_private_key,
    pkcs12,
)

from pyclient import Admin, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.config import ClientConfig
from pyclient.net.pkcs12 import KeyAndChain, is_pkcs12
from pyclient.net.tls import client_context

TLS: Final = Path(__file__).parent / "tls"
PASSWORD: Final = "hunter2"
SECRET: Final = BestAvailableEncryption(PASSWORD.encode())


def key_store(path: Path, pem: str = "client.pem", encryption: KeySerializationEncryption = SECRET) -> str:
    content = (TLS / pem).read_bytes()
    key: Any = load_pem_private_key(content, None)
    first, *others = x509.load_pem_x509_certificates(content)
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"key", key, first, others or None, encryption))
    return str(path)


def trust_store(path: Path, encryption: KeySerializationEncryption = SECRET) -> str:
    authorities = x509.load_pem_x509_certificates((TLS / "ca.pem").read_bytes())
    path.write_bytes(pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authorities[0], b"ca")], encryption))
    return str(path)


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, Any]:
    """Return the options of Java's clients."""
    return {
        "security.protocol": "SSL",
        "ssl.keystore.location": key_store(tmp_path / "client.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": trust_store(tmp_path / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
    }


def problem(**options: Any) -> str:
    with pytest.raises(errors.ConfigError) as caught:
        client_context(ClientConfig(bootstrap_servers=("localhost:1",), security_protocol="SSL", **options))
    assert PASSWORD not in repr(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("typed", [True, False], ids=["with its type", "by its content"])
def test_stores_serve_listener_and_client(stores: dict[str, Any], tmp_path: Path, typed: bool) -> None:
    kinds = {"ssl.keystore.type": "PKCS12", "ssl.truststore.type": "pkcs12"}
    config = {
        "ssl.keystore.location": key_store(tmp_path / "broker.p12", "broker.pem"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": stores["ssl.truststore.location"],
        "ssl.truststore.password": PASSWORD,
        "ssl.client.auth": "required",
        **kinds,
    }
    with EmbeddedCluster(security="SSL", config=config) as cluster:
        port = cluster.bootstrap_servers.rpartition(":")[2]
        with Admin(f"localhost:{port}", config={**stores, **(kinds if typed else {})}) as admin:
            assert admin.list_topics() == []
            assert PASSWORD not in repr(admin)
        assert PASSWORD not in repr(cluster.brokers[0].config)


def test_stores_without_a_password_are_read(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "ssl_cafile": trust_store(tmp_path / "trust.p12", NoEncryption()),
        "ssl_certfile": key_store(tmp_path / "key.p12", encryption=NoEncryption()),
    }
    context = client_context(ClientConfig(bootstrap_servers=("localhost:1",), security_protocol="SSL", **options))
    assert len(context.get_ca_certs()) == 1


def test_wrong_passwords_and_other_files_are_named(tmp_path: Path) -> None:
    key, trust = key_store(tmp_path / "key.p12"), trust_store(tmp_path / "trust.p12")
    jks = tmp_path / "old.jks"
    jks.write_bytes(bytes.fromhex("feedfeed00000002"))
    damaged = tmp_path / "damaged.p12"
    damaged.write_bytes(Path(key).read_bytes()[:-100])
    kind = {"ssl_keystore_type": "PKCS12"}
    assert "its password is wrong, or it is damaged" in problem(ssl_certfile=key, ssl_keystore_password="other")
    assert "it needs a password" in problem(ssl_certfile=key)
    assert "its password is wrong" in problem(ssl_cafile=trust, ssl_truststore_password="other")
    assert "or it is damaged" in problem(ssl_certfile=str(damaged), ssl_keystore_password=PASSWORD)
    assert "holds no private key" in problem(ssl_certfile=trust, ssl_keystore_password=PASSWORD)
    assert "keytool -importkeystore" in problem(ssl_certfile=str(jks), **kind)
    assert "is a PEM file, not PKCS12" in problem(ssl_certfile=str(TLS / "client.pem"), **kind)
    assert "No such file" in problem(ssl_certfile=str(tmp_path / "missing"), **kind)
    assert "holds no certificate of an authority" in problem(ssl_cafile=key, ssl_truststore_type="PEM")


def test_jks_is_refused_with_the_command_that_converts_it() -> None:
    with pytest.raises(errors.ConfigError, match="keytool -importkeystore"):
        ClientConfig(bootstrap_servers=("localhost:1",), security_protocol="SSL", ssl_truststore_type="JKS")
    with pytest.raises(errors.ConfigError, match=r"ssl\.keystore\.type is JKS .*-deststoretype PKCS12"):
        EmbeddedCluster(security="SSL", config={"ssl.keystore.location": "broker.jks"})


def test_listener_names_itself_and_the_cause(tmp_path: Path) -> None:
    store = key_store(tmp_path / "broker.p12", "broker.pem")
    config = {"ssl.keystore.location": store, "ssl.keystore.type": "PKCS12", "ssl.keystore.password": "other"}
    with pytest.raises(errors.ConfigError, match=r"ssl\.keystore\.location \(listener SSL\)=.* its password is wrong"):
        EmbeddedCluster(security="SSL", config=config).start()


def test_missing_package_says_what_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = key_store(tmp_path / "key.p12")
    for name in [each for each in sys.modules if each.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert "pip install 'pyclient-kafka[security]'" in problem(ssl_certfile=store, ssl_keystore_password=PASSWORD)


def test_text_that_begins_with_a_zero_is_no_store(tmp_path: Path) -> None:
    """`openssl storeutl -certs` numbers the certificates of a PEM file."""
    numbered = tmp_path / "numbered.pem"
    numbered.write_text(f"0: Certificate\n{(TLS / 'ca.pem').read_text()}")
    assert not is_pkcs12(str(numbered))
    assert is_pkcs12(key_store(tmp_path / "key.p12"))


def test_key_is_in_no_repr() -> None:
    assert "pem" not in repr(KeyAndChain("pem text", "once"))
