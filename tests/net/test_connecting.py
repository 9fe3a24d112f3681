"""Connecting: errors for wrong names, addresses and ports, and for other protocols."""

import asyncio
import socket

import pytest

from pyclient.clock import SYSTEM_CLOCK
from pyclient.errors import ConnectionFailed
from pyclient.net.connect import TcpConnector
from pyclient.net.connection import Connection
from pyclient.net.memory import memory_pipe
from pyclient.protocol import framing
from pyclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tests.free_ports import closed_port
from tests.net.connections import ALL_TOPICS, METADATA, config, connect
from tests.net.scripted import RANGES, ScriptedBroker

# -- connecting


def connect_error(run, scenario, *says):
    async def wrapped():
        with pytest.raises(ConnectionFailed) as error:
            await scenario()
        return str(error.value)

    text = run(wrapped())
    for piece in says:
        assert piece in text
    return text


def test_connect_names_unknown_host(run):
    async def scenario():
        await Connection.open("no-such-host.invalid", 9092, config=config("x:1"), clock=SYSTEM_CLOCK)

    connect_error(run, scenario, "no-such-host.invalid:9092: DNS does not know the name")


def test_connect_names_invalid_host(run):
    async def scenario():
        await Connection.open("a" * 64 + ".invalid", 9092, config=config("x:1"), clock=SYSTEM_CLOCK)

    connect_error(run, scenario, "DNS does not know the name")


def test_connect_reports_closed_port_for_every_address_of_host(run):
    async def by_number():
        await Connection.open("127.0.0.1", port, config=config("x:1"), clock=SYSTEM_CLOCK)

    async def by_name():
        await Connection.open("localhost", port, config=config("x:1"), clock=SYSTEM_CLOCK)

    with closed_port() as port:
        connect_error(run, by_number, f"127.0.0.1:{port}: connection refused: nothing listens there")
        connect_error(run, by_name, f"localhost:{port}: ", f"127.0.0.1:{port}: connection refused")


def test_connect_tries_next_address_while_one_hangs(run, monkeypatch):
    async def scenario():
        broker = ScriptedBroker()
        full = socket.create_server(("127.0.0.1", 0), backlog=0)
        fillers = [fill_backlog(full) for _ in range(3)]

        async def both(host, port, timeout):
            return [(socket.AF_INET, full.getsockname()), (socket.AF_INET, ("127.0.0.1", port))]

        monkeypatch.setattr("pyclient.net.connect.resolve", both)
        connection = await Connection.open("two-addresses", broker.port, config=config("x:1"), clock=SYSTEM_CLOCK)
        await connection.close()
        for each in (*fillers, full):
            each.close()
        broker.stop()

    run(scenario())


def fill_backlog(server):
    """Connect to fill a server's backlog; once it is full, the kernel does not answer connections."""
    filler = socket.socket()
    filler.setblocking(False)
    filler.connect_ex(server.getsockname())
    return filler


def test_connect_reports_port_that_accepts_and_never_answers(run):
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as server:
            await Connection.open(
                "127.0.0.1",
                server.getsockname()[1],
                config=config("x:1", socket_connection_setup_timeout_ms=2_000),
                clock=SYSTEM_CLOCK,
            )

    connect_error(run, scenario, "does not answer ApiVersions", "may not be a Kafka broker", "security_protocol='SSL'")


def test_connect_reports_attempt_that_takes_too_long(run):
    async def scenario():
        server = socket.create_server(("127.0.0.1", 0), backlog=0)
        fillers = [fill_backlog(server) for _ in range(3)]
        try:
            await Connection.open(
                "127.0.0.1",
                server.getsockname()[1],
                config=config("x:1", socket_connection_setup_timeout_ms=50),
                clock=SYSTEM_CLOCK,
            )
        finally:
            for filler in fillers:
                filler.close()
            server.close()

    connect_error(run, scenario, "no connection within 0.05 s")


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the port speaks HTTP, it is not a Kafka broker"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the port speaks TLS; set security_protocol='SSL'"),
        (b"", "the connection ended before ApiVersions was answered"),
        (b"SSH-2.0-OpenSSH_9\r\n", "the port speaks SSH"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x00", "invalid ApiVersions response"),
    ],
)
def test_connect_reports_port_that_is_no_kafka_broker(run, reply, says):
    async def scenario():
        async def serve(reader, writer):
            await reader.read(1)
            writer.write(reply)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            await Connection.open("127.0.0.1", port, config=config("x:1"), clock=SYSTEM_CLOCK)
        finally:
            server.close()
            await server.wait_closed()

    connect_error(run, scenario, "127.0.0.1:", says)


def test_connect_reports_error_code_of_api_versions(run):
    async def scenario():
        broker = ScriptedBroker({ApiVersionsRequest: ApiVersionsResponse(error_code=58, api_keys=[])})
        try:
            await connect(broker)
        finally:
            broker.stop()

    connect_error(run, scenario, "ApiVersions was refused", "SaslAuthenticationFailed")


def test_connection_works_over_memory_pipe(run):
    async def scenario():
        near, far = memory_pipe(asyncio.get_running_loop())

        def answer(frame):
            header = framing.decode_request_header(frame)
            response = METADATA
            if header.api_key == 18:
                apis = [ApiVersion(api_key=key, min_version=0, max_version=100) for key in RANGES]
                response = ApiVersionsResponse(error_code=0, api_keys=apis)
            far.send(framing.encode_response(response, header.api_version, header.correlation_id))

        far.on_frame = answer

        async def connector(host, port, on_frame, on_closed):
            near.on_closed = on_closed
            near.on_frame = on_frame
            return near

        connection = await Connection.open("anywhere", 1, config=config("x:1"), clock=SYSTEM_CLOCK, connector=connector)
        assert (await connection.request(ALL_TOPICS)).controller_id == 1
        ended = asyncio.get_running_loop().create_future()
        connection.on_closed.append(ended.set_result)
        far.close()
        await ended
        assert connection.closed

    run(scenario())


def test_socket_is_closed_if_tls_cannot_begin(run):
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as server:
            connector = TcpConnector(config("x:1", security_protocol="SSL"))
            loop, host = asyncio.get_running_loop(), "." * 3  # no name for a certificate, which TLS finds out
            with pytest.raises(ValueError, match="idna"):
                await connector._connect(socket.AF_INET, server.getsockname(), host, print, print)
            accepted, _ = server.accept()
            accepted.setblocking(False)
            with accepted:
                assert await loop.sock_recv(accepted, 1) == b""

    run(scenario())
