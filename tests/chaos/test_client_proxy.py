"""The proxy between clients and brokers of a wide chaos run holds bytes in a cut, and delivers them afterwards."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.chaos.client_proxy import ANSWERS, REQUESTS, ClientProxies, ClientProxy

SECONDS = 30.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(SECONDS)
        yield made


@pytest.fixture
def proxy(listener: socket.socket) -> Iterator[ClientProxy]:
    proxies = ClientProxies([1])
    proxies.of[1].target = listener.getsockname()
    assert proxies.addresses == proxies.of[1].address
    yield proxies.of[1]
    proxies.close()


@pytest.fixture
def ends(proxy: ClientProxy, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield the client's end of a connection, and the broker's."""
    with socket.create_connection(("127.0.0.1", proxy.port), SECONDS) as near:
        far, _ = listener.accept()
        far.settimeout(SECONDS)
        with far:
            yield near, far


def holds_nothing(end: socket.socket) -> bool:
    end.setblocking(False)
    try:
        end.recv(1)
    except BlockingIOError:
        return True
    finally:
        end.settimeout(SECONDS)
    return False


def test_proxy_forwards_both_ways(ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    near.sendall(b"request")
    assert far.recv(100) == b"request"
    far.sendall(b"answer")
    assert near.recv(100) == b"answer"


def test_cut_requests_arrive_late_although_the_client_gave_up(
    proxy: ClientProxy, ends: tuple[socket.socket, socket.socket]
) -> None:
    near, far = ends
    proxy.cut(REQUESTS)
    far.sendall(b"answer")
    assert near.recv(100) == b"answer"  # the other way is open
    near.sendall(b"request")
    near.shutdown(socket.SHUT_WR)
    assert holds_nothing(far)
    proxy.heal()
    assert far.recv(100) == b"request"
    assert far.recv(100) == b""


def test_cut_answers_let_requests_through(proxy: ClientProxy, ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    proxy.cut(ANSWERS)
    near.sendall(b"request")
    assert far.recv(100) == b"request"
    far.sendall(b"answer")
    assert holds_nothing(near)
    proxy.heal()
    assert near.recv(100) == b"answer"


def test_reset_ends_connections(proxy: ClientProxy, ends: tuple[socket.socket, socket.socket]) -> None:
    near, far = ends
    near.sendall(b"request")
    assert far.recv(100) == b"request"
    proxy.reset()
    for end in (near, far):
        try:
            assert end.recv(100) == b""
        except ConnectionResetError:
            continue
