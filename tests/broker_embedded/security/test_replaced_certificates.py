"""A broker's certificate files are replaced while it runs: new connections get the new ones, others go on."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyclient import Admin, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.protocol.messages.metadata import MetadataRequest
from tests.broker_embedded.conftest import RawClient
from tests.net.test_pkcs12 import PASSWORD, key_store

TLS = Path(__file__).parents[2] / "net/tls"
ALL = MetadataRequest(topics=None)


def replace(path: Path, source: str) -> None:
    """Put another file in the place of one, at once, as a tool that renews certificates does."""
    shutil.copy(TLS / source, path.with_name("new"))
    os.replace(path.with_name("new"), path)


class TlsClient(RawClient):
    """One connection over TLS, which takes any certificate; `certificate` is the one that the broker has shown."""

    def __init__(self, address: str, own: str | None = None) -> None:
        super().__init__(address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if own is not None:
            context.load_cert_chain(TLS / own)
        self.socket = wrapped = context.wrap_socket(self.socket)
        self.certificate = wrapped.getpeercert(binary_form=True)


def shown(address: str) -> bytes | None:
    with contextlib.closing(TlsClient(address)) as client:
        return client.certificate


def certificate_in(source: str) -> bytes:
    text = (TLS / source).read_text()
    return ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN CERT") :].partition("-----BEGIN PRIV")[0])


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "broker.pem"
    replace(path, "broker.pem")
    return path


@pytest.fixture
def cluster(keys: Path) -> Iterator[EmbeddedCluster]:
    config = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keys)}
    with EmbeddedCluster(security="SSL", config=config) as cluster:
        yield cluster


def test_new_connections_get_the_new_certificate_and_others_go_on(
    cluster: EmbeddedCluster, keys: Path, caplog: pytest.LogCaptureFixture
) -> None:
    servers = cluster.bootstrap_servers
    with contextlib.closing(TlsClient(servers)) as before:
        assert before.certificate == certificate_in("broker.pem")
        assert before.call(ALL, 12).cluster_id == cluster.cluster_id
        with caplog.at_level(logging.INFO, "pyclient.broker_embedded"):
            replace(keys, "elsewhere.pem")
            assert shown(servers) == certificate_in("elsewhere.pem")
        assert "listener SSL: TLS files have changed, new connections use them" in caplog.text
        assert before.call(ALL, 12).cluster_id == cluster.cluster_id
    replace(keys, "broker.pem")
    trust = {"security_protocol": "SSL", "ssl_cafile": str(TLS / "ca.pem")}
    with Admin(servers.replace("127.0.0.1", "localhost"), **trust) as admin:
        assert admin.list_topics() == []
        replace(keys, "self-signed.pem")
        assert admin.list_topics() == []
        with Admin(servers, **trust) as later, pytest.raises(errors.ClusterUnreachable, match="is not accepted"):
            later.list_topics()


@pytest.mark.parametrize("content", ["", "no PEM", "certificate without its key", None])
def test_files_that_cannot_be_used_leave_the_former_certificate_in_use(
    cluster: EmbeddedCluster, keys: Path, caplog: pytest.LogCaptureFixture, content: str | None
) -> None:
    with caplog.at_level(logging.WARNING, "pyclient.broker_embedded"):
        if content is None:
            keys.unlink()
        else:
            keys.write_text((TLS / "ca.pem").read_text() if content.startswith("certificate") else content)
        for _ in range(3):
            assert shown(cluster.bootstrap_servers) == certificate_in("broker.pem")
        said = [each for each in caplog.messages if "cannot be used, the former ones stay in use" in each]
        assert len(said) == 1
        assert f"ssl.keystore.location={str(keys)!r} (listener SSL)" in said[0]
    replace(keys, "elsewhere.pem")
    assert shown(cluster.bootstrap_servers) == certificate_in("elsewhere.pem")


def test_key_store_is_read_again(tmp_path: Path) -> None:
    path = Path(key_store(tmp_path / "broker.p12", "broker.pem"))
    config = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": PASSWORD,
    }
    with EmbeddedCluster(security="SSL", config=config) as cluster:
        assert shown(cluster.bootstrap_servers) == certificate_in("broker.pem")
        os.replace(key_store(tmp_path / "new.p12", "elsewhere.pem"), path)
        assert shown(cluster.bootstrap_servers) == certificate_in("elsewhere.pem")


def test_new_authorities_decide_about_new_clients(tmp_path: Path, keys: Path) -> None:
    authorities = tmp_path / "authorities.pem"
    replace(authorities, "ca.pem")
    config = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authorities),
        "ssl.client.auth": "required",
    }
    with EmbeddedCluster(security="SSL", config=config) as cluster:
        servers = cluster.bootstrap_servers

        def is_served(own: str) -> bool:
            with (
                contextlib.suppress(ssl.SSLError, ConnectionResetError),
                contextlib.closing(TlsClient(servers, own)) as client,
            ):
                return client.call(ALL, 12).cluster_id == cluster.cluster_id
            return False

        with contextlib.closing(TlsClient(servers, "client.pem")) as before:
            assert before.call(ALL, 12).cluster_id
            assert not is_served("self-signed.pem")
            replace(authorities, "self-signed.pem")
            assert is_served("self-signed.pem")
            assert not is_served("client.pem")
            assert before.call(ALL, 12).cluster_id == cluster.cluster_id
