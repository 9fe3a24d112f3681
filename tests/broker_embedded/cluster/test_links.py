"""Proxies between nodes: cut in both directions or in one, healed, slow, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from pyclient.broker_embedded.cluster.links import Flow, Links
from pyclient.broker_embedded.cluster.node_links import NodeLinks
from pyclient.errors import ConfigError

SILENT = 0.2  # seconds in which nothing must arrive


class Echo:
    """A server that answers each byte with the same byte, and notes what it has received."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.server.getsockname()
        self.received = b""
        self.arrived = threading.Condition()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _address = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(ConnectionResetError):
            while data := sock.recv(65536):
                with self.arrived:
                    self.received += data
                    self.arrived.notify_all()
                sock.sendall(data)

    def has(self, data: bytes, timeout: float = 30.0) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: data in self.received, timeout)


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.server.close()


@pytest.fixture
def links() -> Iterator[Links]:
    links = Links()
    yield links
    links.close()


def connected(links: Links, echo: Echo) -> socket.socket:
    sock = socket.create_connection(links.proxy(1, 2, "broker", echo.address), timeout=30)
    sock.sendall(b"0")
    assert sock.recv(1) == b"0"
    return sock


def ended(sock: socket.socket) -> bool:
    """Return True if the connection ends, by an end or a reset (waits for it)."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_link_forwards_bytes_and_the_end_of_a_connection(links: Links, echo: Echo) -> None:
    with connected(links, echo) as sock:
        content = bytes(range(256)) * 4096
        threading.Thread(target=sock.sendall, args=(content,), daemon=True).start()
        back = b""
        while len(back) < len(content):
            back += sock.recv(65536)
        assert back == content
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""


def test_a_proxy_of_the_same_listener_is_made_once(links: Links, echo: Echo) -> None:
    assert links.proxy(1, 2, "broker", echo.address) == links.proxy(1, 2, "broker", echo.address)
    assert links.proxy(3, 2, "broker", echo.address) != links.proxy(1, 2, "broker", echo.address)


def test_cut_link_passes_nothing_until_it_is_healed(links: Links, echo: Echo) -> None:
    with connected(links, echo) as sock:
        links.cut(1, 2)
        sock.sendall(b"late")
        assert not echo.has(b"late", SILENT)
        with socket.create_connection(links.proxy(1, 2, "broker", echo.address), timeout=30) as new:
            new.sendall(b"new")
            assert not echo.has(b"new", SILENT)
            links.heal()
            assert new.recv(3) == b"new"
        assert sock.recv(4) == b"late"


def test_a_link_cut_in_one_direction_still_carries_the_other(links: Links, echo: Echo) -> None:
    with connected(links, echo) as sock:
        links.cut(2, 1, one_way=True)
        sock.sendall(b"asked")
        assert echo.has(b"asked")
        sock.settimeout(SILENT)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        links.heal()
        sock.settimeout(30)
        assert sock.recv(5) == b"asked"


def test_a_cut_holds_for_links_that_are_made_later(links: Links, echo: Echo) -> None:
    links.cut(2, 1)
    with socket.create_connection(links.proxy(1, 2, "broker", echo.address), timeout=30) as sock:
        sock.sendall(b"x")
        assert not echo.has(b"x", SILENT)
        links.heal()
        assert sock.recv(1) == b"x"


def test_the_end_of_a_node_is_not_seen_over_a_cut_link(links: Links, echo: Echo) -> None:
    with connected(links, echo) as sock:
        links.cut(1, 2)
        sock.sendall(b"last")
        sock.shutdown(socket.SHUT_WR)
        assert not echo.has(b"last", SILENT)
        links.heal()
        assert sock.recv(4) == b"last"
        assert sock.recv(1) == b""


def test_bytes_over_a_slow_link_are_late_and_in_order(links: Links, echo: Echo) -> None:
    with connected(links, echo) as sock:
        links.slow(1, 2, latency_ms=60_000, bandwidth=None)
        sock.sendall(b"a")
        assert not echo.has(b"a", SILENT)
        links.slow(1, 2, latency_ms=1, bandwidth=1e6)
        sock.sendall(b"b")
        assert not echo.has(b"b", SILENT)


def test_healed_link_passes_at_once_what_was_delayed(links: Links, echo: Echo) -> None:
    with connected(links, echo) as sock:
        links.slow(1, 2, latency_ms=3_600_000, bandwidth=None)
        for data in (b"first", b"second"):
            sock.sendall(data)
            assert not echo.has(data, SILENT)
        links.heal()
        assert echo.has(b"firstsecond")


def test_link_without_bandwidth_passes_nothing_until_it_is_healed(links: Links, echo: Echo) -> None:
    with connected(links, echo) as sock:
        links.slow(1, 2, latency_ms=0, bandwidth=0.001)
        sock.sendall(b"late")
        assert not echo.has(b"late", SILENT)
        links.heal()
        assert echo.has(b"late")


def test_connections_share_the_bandwidth_of_a_link() -> None:
    async def scenario() -> None:
        flow = Flow()
        assert flow.send(1_000_000, 1.0).due == 1.0
        flow.slow(0.5, 100.0)
        assert [flow.send(size, 1.0).due for size in (50, 100)] == [2.0, 3.0]
        assert flow.send(100, 10.0).due == 11.5
        flow.slow(0.0, 1000.0)
        assert flow.send(100, 10.0).due == 10.1

    asyncio.run(scenario())


@pytest.mark.parametrize(("latency_ms", "bandwidth"), [(-1, None), (float("nan"), None), (1, 0), (1, -5)])
def test_a_link_that_cannot_be_is_refused(links: Links, latency_ms: float, bandwidth: float | None) -> None:
    with pytest.raises(ConfigError, match="latency_ms"):
        links.slow(1, 2, latency_ms, bandwidth)


def test_connection_ends_where_nothing_listens(links: Links) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address: tuple[str, int] = server.getsockname()
    with socket.create_connection(links.proxy(1, 2, "broker", address), timeout=30) as sock:
        assert ended(sock)


def test_closing_ends_the_connections(links: Links, echo: Echo) -> None:
    with connected(links, echo) as sock:
        links.close()
        assert ended(sock)


class Member:
    """A node that notes which addresses it is sent."""

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.reachable = True
        self.sent: list[dict[str, str]] = []

    def call(self, method: str, path: str, values: dict[str, dict[str, str]]) -> None:
        assert (method, path) == ("POST", "/links")
        self.sent.append(values["addresses"])


def test_only_nodes_of_a_link_that_is_cut_get_other_addresses() -> None:
    members = [Member(node) for node in (1, 2, 3)]
    links = NodeLinks(members, lambda node: {"broker": f"127.0.0.1:{node.id}"})  # type: ignore[arg-type]
    try:
        assert links.addresses(1) == {}
        links.cut(1, 2, one_way=False)
        links.slow(2, 1, 5.0, None)
        links.heal()
        assert [[list(addresses) for addresses in each.sent] for each in members] == [
            [["127.0.0.1:2"]],
            [["127.0.0.1:1"]],
            [],
        ]
        members[0].reachable = False
        links.cut(1, 3, one_way=True)
        assert list(links.addresses(1)) == ["127.0.0.1:2", "127.0.0.1:3"], "it gets them at its start"
        assert [list(addresses) for addresses in members[2].sent] == [["127.0.0.1:1"]]
        assert len(members[0].sent) == len(members[1].sent) == 1
    finally:
        links.close()
