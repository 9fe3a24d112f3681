"""A client's sockets in a forked child."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from pyclient.config import ClientConfig
from pyclient.errors import ConnectionFailed
from pyclient.net.connect import TcpConnector, isolate_after_fork
from tests.forks import fork


def run_in_child(work):
    """Run `work` in a forked child; return its result as text."""
    reading, writing = os.pipe()
    child = fork()
    if not child:
        try:
            os.write(writing, str(work()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading) as result:
        return result.read()


def test_socket_in_forked_child_neither_writes_nor_reads():
    client, peer = socket.socketpair()
    with client, peer:
        isolate_after_fork(client)
        peer.setblocking(False)
        peer.send(b"for the parent")

        def use():
            with pytest.raises(BlockingIOError):
                client.recv(100)
            return client.send(b"from the child")

        client.setblocking(False)
        assert run_in_child(use) == "14"
        with pytest.raises(BlockingIOError):
            peer.recv(100)
        assert client.recv(100) == b"for the parent"
        client.send(b"from the parent")
        assert peer.recv(100) == b"from the parent"


def test_connector_in_forked_child_refuses_to_connect():
    with socket.create_server(("127.0.0.1", 0)) as server:
        connector = TcpConnector(ClientConfig(bootstrap_servers="unused:1"))

        def connect():
            with pytest.raises(ConnectionFailed, match=r"belongs to process .*, only that one can connect") as raised:
                asyncio.run(connector(*server.getsockname(), lambda frame: None, lambda error: None))
            return raised.value

        assert f"belongs to process {os.getpid()}" in run_in_child(connect)
