"""A client's sockets in a child made by fork."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from pyclient.config import ClientConfig
from pyclient.errors import ConnectionFailed
from pyclient.net.connect import TcpConnector
from pyclient.net.forked_sockets import isolate_after_fork
from tests.forks import fork


def in_a_child(work):
    """Runs `work` in a forked child; what it returns, as text."""
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


def test_what_a_child_writes_goes_nowhere_and_it_reads_nothing_of_its_parents():
    mine, far = socket.socketpair()
    with mine, far:
        isolate_after_fork(mine)
        far.setblocking(False)
        far.send(b"for the parent")

        def use():
            with pytest.raises(BlockingIOError):
                mine.recv(100)
            return mine.send(b"from the child")

        mine.setblocking(False)
        assert in_a_child(use) == "14"
        with pytest.raises(BlockingIOError):
            far.recv(100)
        assert mine.recv(100) == b"for the parent"
        mine.send(b"from the parent")
        assert far.recv(100) == b"from the parent"


def test_a_connector_of_the_parent_connects_to_nothing_in_a_child():
    with socket.create_server(("127.0.0.1", 0)) as server:
        connector = TcpConnector(ClientConfig(bootstrap_servers="unused:1"))

        def connect():
            with pytest.raises(ConnectionFailed, match=r"belongs to process .*, only that one can connect") as raised:
                asyncio.run(connector(*server.getsockname(), lambda frame: None, lambda error: None))
            return raised.value

        assert f"belongs to process {os.getpid()}" in in_a_child(connect)
