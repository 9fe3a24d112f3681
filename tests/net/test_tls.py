import asyncio
import functools
import logging
import os
import re
import ssl
import struct
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import ClientConfig
from pyclient.errors import ConfigError, ConnectionFailed, MalformedMessage
from pyclient.net.connect import TcpConnector
from pyclient.net.connection import Connection
from pyclient.net.file_region import FileRegion
from pyclient.net.tls import TlsEnd, TlsStream
from pyclient.protocol.messages.api_versions import ApiVersionsRequest
from pyclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from pyclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.net.ends import framed
from tests.net.scripted import CLOSE, SILENCE, ScriptedBroker

TLS = Path(__file__).parent / "tls"
METADATA = MetadataResponse(brokers=[], cluster_id="c" * 30_000, topics=[])


def server_context(name="broker.pem", *, client_certificate=False, newest=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / name)
    if client_certificate:
        context.load_verify_locations(TLS / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    if newest is not None:
        context.maximum_version = newest
    return context


def tls_broker(*args, **context_options):
    context = server_context(*args, **context_options)
    return ScriptedBroker(
        {MetadataRequest: METADATA}, make_stream=functools.partial(TlsStream, end=TlsEnd(context, server_side=True))
    )


async def connect(broker, host="localhost", **options):
    options = {"security_protocol": "SSL", "ssl_cafile": str(TLS / "ca.pem"), **options}
    config = ClientConfig(bootstrap_servers=(f"{host}:{broker.port}",), **options)
    return await Connection.open(host, broker.port, config=config, clock=SYSTEM_CLOCK)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_requests_are_sent_over_tls(run, newest, host):
    async def scenario():
        broker = tls_broker(newest=newest)
        connection = await connect(broker, host)
        answers = [connection.submit(MetadataRequest(topics=None)) for _ in range(10)]
        for answer in answers:
            assert (await answer).cluster_id == "c" * 30_000
        await connection.close()
        broker.stop()

    run(scenario())


def test_small_message_of_several_parts_is_sent_over_tls(run):
    """Record data is a part of its own."""

    async def scenario():
        broker = tls_broker()
        broker.answers[ProduceRequest] = ProduceResponse(responses=[])
        connection = await connect(broker)
        for size in (1, 100, 1000, 100_000):
            data = PartitionProduceData(index=0, records=b"s" * size)
            topics = [TopicProduceData(name="t", partition_data=[data])]
            await connection.request(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
        await connection.close()
        broker.stop()

    run(scenario())


def test_client_certificate_is_sent_on_demand(run):
    async def scenario():
        broker = tls_broker(client_certificate=True)
        connection = await connect(broker, ssl_certfile=str(TLS / "client.pem"))
        await connection.request(MetadataRequest(topics=None))
        await connection.close()
        broker.stop()

    run(scenario())


def test_given_ssl_context_is_used(run):
    async def scenario():
        broker = tls_broker()
        context = ssl.create_default_context(cafile=TLS / "ca.pem")
        connection = await connect(broker, ssl_context=context, ssl_cafile=None)
        await connection.close()
        broker.stop()

    run(scenario())


def refused(run, make_broker, says, **options):
    async def scenario():
        broker = make_broker()
        with pytest.raises(ConnectionFailed) as error:
            await connect(broker, **options)
        broker.stop()
        return str(error.value)

    text = run(scenario())
    assert "localhost:" in text
    for piece in says:
        assert piece in text
    return text


def refused_by(run, make_broker, says, **options):
    async def scenario():
        broker = make_broker()
        with pytest.raises(ConnectionFailed, match=says) as error:
            await connect(broker, "127.0.0.1", **options)
        broker.stop()
        return error.value

    return run(scenario())


def test_unknown_authority_is_refused_with_advice(run):
    refused(run, tls_broker, ["certificate is not accepted", "ssl_cafile"], ssl_cafile=None)


def test_certificate_of_other_host_is_refused_unless_check_is_off(run):
    refused(run, lambda: tls_broker("elsewhere.pem"), ["certificate is not accepted", "ssl_check_hostname=False"])

    async def scenario():
        broker = tls_broker("elsewhere.pem")
        connection = await connect(broker, ssl_check_hostname=False)
        await connection.close()
        broker.stop()

    run(scenario())


def test_tls_to_plaintext_port_is_reported(run):
    assert refused_by(run, ScriptedBroker, "without TLS; set security_protocol='PLAINTEXT'").lasting


def test_tls_to_plaintext_port_with_sasl_is_reported(run):
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"}
    assert refused_by(run, ScriptedBroker, "set security_protocol='SASL_PLAINTEXT'", **options).lasting


@pytest.mark.parametrize(
    "answer",
    [CLOSE, b"\0\0\0\4\0\0\0\1", b"\0\0\0\4\0\0\0\2", b"220 mail.example ESMTP\r\n"],
    ids=["closed", "truncated", "other-number", "other-protocol"],
)
def test_port_that_ends_handshakes_without_kafka_is_no_lasting_failure(run, answer):
    failure = refused_by(
        run, lambda: ScriptedBroker({ApiVersionsRequest: answer}), "perhaps the port speaks no TLS|reset by peer"
    )
    assert not failure.lasting


def test_plaintext_probe_of_a_silent_port_ends_after_its_timeout(run, monkeypatch):
    monkeypatch.setattr("pyclient.net.connect.PROBE_SECONDS", 0.01)
    failure = refused_by(
        run, lambda: ScriptedBroker({ApiVersionsRequest: SILENCE}), "perhaps the port speaks no TLS|reset by peer"
    )
    assert not failure.lasting


def test_plaintext_to_tls_port_is_reported(run):
    async def scenario():
        broker = tls_broker()
        with pytest.raises(ConnectionFailed, match="security_protocol='SSL'"):
            await connect(broker, security_protocol="PLAINTEXT", ssl_cafile=None)
        broker.stop()

    run(scenario())


ENCRYPTED = str(TLS / "client-encrypted.pem")
CA, CLIENT, BROKER = (str(TLS / name) for name in ("ca.pem", "client.pem", "broker.pem"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ssl_cafile": "/no/such/file.pem"}, "ssl_cafile='/no/such/file.pem' cannot be read: No such file"),
        ({"ssl_cafile": "/"}, "ssl_cafile='/' cannot be read: Is a directory"),
        ({"ssl_cafile": __file__}, f"ssl_cafile={__file__!r} holds no certificate of an authority: it has to be a PEM"),
        ({"ssl_cafile": "/dev/null"}, "ssl_cafile='/dev/null' holds no certificate"),
        ({"ssl_certfile": "/no/such/file.pem"}, "ssl_certfile='/no/such/file.pem' cannot be read: No such file"),
        ({"ssl_certfile": __file__}, f"ssl_certfile={__file__!r} holds no certificate: it has to be a PEM file"),
        ({"ssl_certfile": CA}, f"ssl_certfile={CA!r} holds no private key: give the key's file as ssl_keyfile"),
        ({"ssl_certfile": CA, "ssl_keyfile": CA}, f"ssl_keyfile={CA!r} holds no private key: it has to be a PEM file"),
        ({"ssl_certfile": CLIENT, "ssl_keyfile": "/no/key"}, "ssl_keyfile='/no/key' cannot be read: No such file"),
        ({"ssl_certfile": CLIENT, "ssl_keyfile": BROKER}, f"the private key in ssl_keyfile={BROKER!r} does not belong"),
        ({"ssl_certfile": ENCRYPTED}, f"the private key in ssl_certfile={ENCRYPTED!r} is encrypted: give its password"),
        ({"ssl_certfile": ENCRYPTED, "ssl_password": "wrong"}, "cannot be decrypted with ssl_password"),
    ],
)
def test_tls_file_that_cannot_be_used_is_named_with_the_reason(options, says):
    config = ClientConfig(bootstrap_servers=("x:1",), security_protocol="SSL", **options)
    with pytest.raises(ConfigError) as error:
        TcpConnector(config)
    assert says in str(error.value)
    assert "wrong" not in str(error.value)


def pem(name):
    return (TLS / name).read_text()


KEY, CERTIFICATE = sorted(re.findall(r"-{5}BEGIN .*?-{5}END [A-Z ]*-{5}\n", pem("client.pem"), re.S), key=len)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ssl_ca_pem": "x"}, "ssl_ca_pem holds no certificate of an authority: it has to be a text in PEM"),
        ({"ssl_certificate_pem": "x"}, "ssl_certificate_pem holds no certificate: it has to be a text in PEM"),
        (
            {"ssl_certificate_pem": pem("ca.pem")},
            "ssl_certificate_pem holds no private key: give the key as ssl_key_pem",
        ),
        (
            {"ssl_certificate_pem": pem("client.pem"), "ssl_key_pem": "x"},
            "ssl_key_pem holds no private key: it has to be",
        ),
        (
            {"ssl_certificate_pem": pem("client.pem"), "ssl_key_pem": pem("broker.pem")},
            "does not belong to the certificate",
        ),
        ({"ssl_certificate_pem": pem("client-encrypted.pem")}, "ssl_certificate_pem is encrypted: give its password"),
    ],
)
def test_tls_text_that_cannot_be_used_is_named_with_the_reason(options, says):
    config = ClientConfig(bootstrap_servers=("x:1",), security_protocol="SSL", **options)
    with pytest.raises(ConfigError) as error:
        TcpConnector(config)
    assert says in str(error.value)
    assert "BEGIN RSA" not in str(error.value) and "PRIVATE KEY" not in str(error.value)
    assert "PRIVATE KEY" not in repr(config)


def descriptors_of_texts() -> list[str]:
    """Return the files, in memory or not, in which texts with certificates and keys are open; those of others vary."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if "pyclient-pem" in path]


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_certificate_pem": pem("client.pem")},
        {"ssl_certificate_pem": CERTIFICATE, "ssl_key_pem": KEY},
        {"ssl_certfile": CLIENT, "ssl_key_pem": KEY},
        {"ssl_certificate_pem": pem("client-encrypted.pem"), "ssl_password": "secret"},
    ],
    ids=["one text", "two texts", "a file and a text", "encrypted"],
)
@pytest.mark.parametrize("in_memory", [True, False])
def test_authorities_certificate_and_key_may_be_texts(run, options, in_memory, monkeypatch):
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    opened = descriptors_of_texts()

    async def scenario():
        broker = tls_broker(client_certificate=True)
        connection = await connect(broker, ssl_cafile=None, ssl_ca_pem=pem("ca.pem"), **options)
        await connection.request(MetadataRequest(topics=None))
        await connection.close()
        broker.stop()

    TcpConnector(ClientConfig(bootstrap_servers=("x:1",), security_protocol="SSL", **options))
    assert descriptors_of_texts() == opened == []
    run(scenario())


def test_changed_files_are_used_by_new_connections(run, tmp_path, caplog):
    async def scenario():
        broker = tls_broker(client_certificate=True)
        authorities, certificate = tmp_path / "ca.pem", tmp_path / "client.pem"
        authorities.write_text(pem("ca.pem"))
        certificate.write_text(pem("self-signed.pem"))
        options = {"security_protocol": "SSL", "ssl_cafile": str(authorities), "ssl_certfile": str(certificate)}
        config = ClientConfig(bootstrap_servers=(f"localhost:{broker.port}",), **options)
        connector = TcpConnector(config)

        async def use():
            connection = await Connection.open(
                "localhost", broker.port, config=config, clock=SYSTEM_CLOCK, connector=connector
            )
            await connection.request(MetadataRequest(topics=None))
            await connection.close()

        with pytest.raises(ConnectionFailed):
            await use()
        certificate.write_text(pem("client.pem"))
        await use()
        certificate.unlink()  # for a moment
        with caplog.at_level(logging.WARNING):
            await use()
        assert "cannot be used, the former ones stay in use: ssl_certfile=" in caplog.text
        certificate.write_text(pem("self-signed.pem"))
        with pytest.raises(ConnectionFailed):
            await use()
        broker.stop()

    run(scenario())


def test_encrypted_key_is_read_with_its_password():
    options = {"ssl_certfile": ENCRYPTED, "ssl_password": "secret"}
    TcpConnector(ClientConfig(bootstrap_servers=("x:1",), security_protocol="SSL", **options))


def test_demand_for_a_client_certificate_is_reported_as_such(run):
    for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        text = refused(
            run,
            lambda newest=newest: tls_broker(client_certificate=True, newest=newest),
            ["client certificate", "ssl_certfile and ssl_keyfile"],
        )
        assert "PLAINTEXT" not in text and "security_protocol" not in text


def test_certificate_of_another_authority_is_reported_as_the_clients(run):
    own = {"ssl_certfile": str(TLS / "self-signed.pem")}
    refused(run, lambda: tls_broker(client_certificate=True), ["client certificate"], **own)


def test_tls_versions_without_a_common_one_are_reported(run):
    context = ssl.create_default_context(cafile=CA)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    options = {"ssl_context": context, "ssl_cafile": None}
    refused(run, lambda: tls_broker(newest=ssl.TLSVersion.TLSv1_2), ["no TLS version that both sides take"], **options)


def test_tls_port_of_another_protocol_is_not_advised_to_use_tls(run):
    """An HTTPS server ends the connection, or answers in text."""
    for answer in (CLOSE, b"HTTP/1.1 400 Bad Request\r\n\r\n"):

        def make(answer=answer):
            broker = tls_broker()
            broker.answers[ApiVersionsRequest] = answer
            return broker

        text = refused(run, make, ["HTTP" if isinstance(answer, bytes) else "not be a Kafka broker"])
        assert "security_protocol='SSL'" not in text


async def tls_pair(on_server_frame=lambda server, frame: None):
    """Return a connected client and server stream, the client's frames, and futures of both ends' closing."""
    loop = asyncio.get_running_loop()
    frames, ended, server_ended = asyncio.Queue(), loop.create_future(), loop.create_future()
    servers = []
    broker = ScriptedBroker(
        make_stream=lambda loop, sock, **options: (
            servers.append(
                TlsStream(
                    loop,
                    sock,
                    TlsEnd(server_context(), server_side=True),
                    max_frame=1_000_000,
                    on_frame=lambda frame: on_server_frame(servers[0], frame),
                    on_closed=server_ended.set_result,
                )
            )
            or servers[0]
        )
    )
    config = ClientConfig(bootstrap_servers=(broker.address,), security_protocol="SSL", ssl_cafile=str(TLS / "ca.pem"))
    client = await TcpConnector(config)(
        "localhost", broker.port, lambda frame: frames.put_nowait(bytes(frame)), ended.set_result
    )
    return SimpleNamespace(
        broker=broker, client=client, server=servers[0], frames=frames, ended=ended, server_ended=server_ended
    )


def test_file_regions_pauses_and_draining_work_over_tls(run, tmp_path):
    content = os.urandom(900_000)
    path = tmp_path / "log"
    path.write_bytes(content)
    released = []

    async def scenario():
        fd = os.open(path, os.O_RDONLY)

        def answer(server, frame):
            region = FileRegion(fd, 0, len(content), lambda: released.append(1))
            server.send([struct.pack(">i", len(content) + 1), b"!", region])

        pair = await tls_pair(answer)
        pair.client.pause_reading()
        pair.client.send([framed(*[b"?"] * 30)])
        await pair.client.drain()
        pair.client.resume_reading()
        for _ in range(30):
            assert await pair.frames.get() == b"!" + content
        await pair.server.drain()
        assert released == [1] * 30
        pair.client.close()
        assert await pair.server_ended is None
        assert await pair.ended is None
        pair.broker.stop()
        os.close(fd)

    run(scenario())


def test_frames_held_by_pause_over_tls_are_delivered_on_resume(run):
    async def scenario():
        pair = await tls_pair()
        seen = []

        def one_at_a_time(frame):
            seen.append(bytes(frame))
            pair.client.pause_reading()
            pair.frames.put_nowait(bytes(frame))

        pair.client.on_frame = one_at_a_time
        pair.server.send([framed(b"1", b"2" * 20_000, b"3", b"4" * 200_000, b"5")])
        for count in range(1, 6):
            await pair.frames.get()
            assert len(seen) == count
            pair.client.resume_reading()
        pair.server.close()
        assert await pair.ended is None
        pair.broker.stop()

    run(scenario())


def test_invalid_bytes_inside_tls_close_connection(run):
    async def scenario():
        pair = await tls_pair()
        pair.server.send([b"\xff\xff\xff\xff"])
        assert isinstance(await pair.ended, MalformedMessage)
        pair.broker.stop()

    run(scenario())


def test_tls_end_without_close_notify_is_reported(run):
    async def scenario():
        pair = await tls_pair()
        pair.server.send([framed(b"abc")[:5]])
        await pair.server.drain()
        await asyncio.sleep(0)
        pair.server._loop.remove_reader(pair.server._fd)
        pair.server._sock.close()
        error = await pair.ended
        assert isinstance(error, ConnectionFailed)
        assert "without ending TLS" in str(error)
        pair.server.close()
        pair.broker.stop()

    run(scenario())
