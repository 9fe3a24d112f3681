"""Connecting: names, addresses and ports that are not what they should be are told apart."""

import asyncio
import socket

import pytest

from pyclient.clock import SYSTEM_CLOCK
from pyclient.errors import ConnectionFailed
from pyclient.net.connection import Connection
from pyclient.net.memory import memory_pipe
from pyclient.protocol import framing
from pyclient.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tests.net.connections import ALL_TOPICS, METADATA, config, connect
from tests.net.scripted import RANGES, ScriptedBroker

# -- connecting


def failing(run, scenario, *says):
    async def wrapped():
        with pytest.raises(ConnectionFailed) as error:
            await scenario()
        return str(error.value)

    text = run(wrapped())
    for piece in says:
        assert piece in text
    return text


def test_a_name_that_does_not_exist_is_told_apart(run):
    async def scenario():
        await Connection.open("no-such-host.invalid", 9092, config=config("x:1"), clock=SYSTEM_CLOCK)

    failing(run, scenario, "no-such-host.invalid:9092: DNS does not know the name")


def test_a_name_that_cannot_be_one_is_told_apart(run):
    async def scenario():
        await Connection.open("a" * 64 + ".invalid", 9092, config=config("x:1"), clock=SYSTEM_CLOCK)

    failing(run, scenario, "DNS does not know the name")


def test_a_closed_port_is_told_apart_for_every_address_of_the_name(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    async def by_number():
        await Connection.open("127.0.0.1", port, config=config("x:1"), clock=SYSTEM_CLOCK)

    async def by_name():
        await Connection.open("localhost", port, config=config("x:1"), clock=SYSTEM_CLOCK)

    failing(run, by_number, f"127.0.0.1:{port}: connection refused: nothing listens there")
    failing(run, by_name, f"localhost:{port}: ", f"127.0.0.1:{port}: connection refused")


def test_an_address_that_hangs_does_not_hold_up_the_next(run, monkeypatch):
    async def scenario():
        broker = ScriptedBroker()
        full = socket.create_server(("127.0.0.1", 0), backlog=0)
        fillers = [filled(full) for _ in range(3)]

        async def both(host, port, timeout):
            return [(socket.AF_INET, full.getsockname()), (socket.AF_INET, ("127.0.0.1", port))]

        monkeypatch.setattr("pyclient.net.connect.resolve", both)
        connection = await Connection.open("two-addresses", broker.port, config=config("x:1"), clock=SYSTEM_CLOCK)
        await connection.close()
        for each in (*fillers, full):
            each.close()
        broker.stop()

    run(scenario())


def filled(server):
    """Takes a place in a server's queue; when it is full, the kernel leaves connections unanswered."""
    filler = socket.socket()
    filler.setblocking(False)
    filler.connect_ex(server.getsockname())
    return filler


def test_a_port_that_takes_connections_and_says_nothing_is_told_apart(run):
    async def scenario():
        with socket.create_server(("127.0.0.1", 0)) as server:
            await Connection.open(
                "127.0.0.1",
                server.getsockname()[1],
                config=config("x:1", socket_connection_setup_timeout_ms=300),
                clock=SYSTEM_CLOCK,
            )

    failing(run, scenario, "does not answer ApiVersions", "may not be a Kafka broker", "security_protocol='SSL'")


def test_a_connection_that_takes_too_long_is_told_apart(run):
    async def scenario():
        server = socket.create_server(("127.0.0.1", 0), backlog=0)
        fillers = [filled(server) for _ in range(3)]
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

    failing(run, scenario, "no connection within 0.05 s")


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
def test_a_port_that_is_no_kafka_broker_is_told_apart(run, reply, says):
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

    failing(run, scenario, "127.0.0.1:", says)


def test_a_broker_that_refuses_with_an_error_code_is_told_apart(run):
    async def scenario():
        broker = ScriptedBroker({ApiVersionsRequest: ApiVersionsResponse(error_code=58, api_keys=[])})
        try:
            await connect(broker)
        finally:
            broker.stop()

    failing(run, scenario, "ApiVersions was refused", "SaslAuthenticationFailed")


def test_a_connection_over_a_memory_pipe_is_the_same(run):
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
