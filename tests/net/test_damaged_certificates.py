"""Certificates with one flipped bit, at every byte: each is refused with a reason, or accepted."""

from __future__ import annotations

import base64
import functools
import logging
import re
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyclient import Admin, errors
from pyclient.broker_embedded import EmbeddedCluster
from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import ClientConfig
from pyclient.net.connection import Connection
from pyclient.net.tls import TlsEnd, TlsStream
from tests.net.scripted import ScriptedBroker

TLS = Path(__file__).parent / "tls"
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\n(.*?)-----END CERTIFICATE-----\n", re.S)


def damaged(pem: str) -> Iterator[str]:
    """Return the texts with one bit of the first certificate flipped, in each byte another."""
    found = _CERTIFICATE.search(pem)
    assert found is not None
    sound = base64.b64decode(found[1])
    for position in range(len(sound)):
        content = bytearray(sound)
        content[position] ^= 1 << position % 8
        encoded = base64.encodebytes(bytes(content)).decode()
        yield pem[: found.start(1)] + encoded + pem[found.end(1) :]


def loaded(pem: str, file: Path) -> ssl.SSLContext | None:
    """Return a server's context with the certificate; None if OpenSSL does not read it."""
    file.write_text(pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(file)
    except ssl.SSLError:
        return None
    return context


async def outcome(connecting: Any) -> str:
    try:
        connection = await connecting
    except errors.ConnectionFailed as error:
        assert "TLS failed: " in str(error)
        return "refused"
    await connection.close()
    return "accepted"


def test_client_refuses_or_accepts_damaged_certificates_of_brokers(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        outcomes = []
        options: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": str(TLS / "ca.pem")}
        for pem in damaged((TLS / "broker.pem").read_text()):
            context = loaded(pem, tmp_path / "broker.pem")
            if context is None:
                outcomes.append("not read")
                continue
            make_stream = functools.partial(TlsStream, end=TlsEnd(context, server_side=True))
            broker = ScriptedBroker(make_stream=make_stream)
            config = ClientConfig(bootstrap_servers=(broker.address,), **options)
            outcomes.append(await outcome(Connection.open("localhost", broker.port, config=config, clock=SYSTEM_CLOCK)))
            broker.stop()
        return outcomes

    found = run(scenario())
    assert len(found) > 300
    assert found.count("refused") > len(found) / 4


def test_client_refuses_or_accepts_damaged_authorities(run: Callable[[Any], Any]) -> None:
    async def scenario() -> list[str]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "broker.pem")
        broker = ScriptedBroker(make_stream=functools.partial(TlsStream, end=TlsEnd(context, server_side=True)))
        outcomes = []
        for pem in damaged((TLS / "ca.pem").read_text()):
            options: dict[str, Any] = {"security_protocol": "SSL", "ssl_ca_pem": pem}
            config = ClientConfig(bootstrap_servers=(broker.address,), **options)
            try:
                opening = Connection.open("localhost", broker.port, config=config, clock=SYSTEM_CLOCK)
                outcomes.append(await outcome(opening))
            except errors.ConfigError as error:
                assert "ssl_ca_pem" in str(error)
                outcomes.append("not read")
        broker.stop()
        return outcomes

    found = run(scenario())
    assert len(found) > 300
    assert {"refused", "not read"} <= set(found)


def test_broker_refuses_or_accepts_damaged_certificates_of_clients(
    run: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(address: str, options: dict[str, Any], sound: str) -> list[str]:
        host, _, port = address.rpartition(":")
        outcomes = []
        for pem in damaged(sound):
            given = {**options, "ssl_certificate_pem": pem, "ssl_key_pem": pem}
            config = ClientConfig(bootstrap_servers=(address,), **given)
            try:
                opening = Connection.open(host, int(port), config=config, clock=SYSTEM_CLOCK)
                outcomes.append(await outcome(opening))
            except errors.ConfigError as error:
                assert "certificate or the private key in ssl_certificate_pem or ssl_key_pem is damaged" in str(error)
                outcomes.append("not read")
        return outcomes

    with EmbeddedCluster(security="SSL", users=["alice"]) as cluster, caplog.at_level(logging.WARNING):
        options = cluster.client_options("alice")
        sound = Path(options.pop("ssl_certfile")).read_text()
        found = run(scenario(cluster.bootstrap_servers, options, sound))
        with Admin(cluster.bootstrap_servers, **cluster.client_options("alice")) as admin:
            admin.list_topics()
    assert len(found) > 300
    assert found.count("refused") > len(found) / 4
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
