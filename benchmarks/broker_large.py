"""The effect of one client's large requests on others: the longest wait of small requests, for each API.

`python -m benchmarks.broker_large [--items 10000] [--api ListOffsets ...] [--limit 60]`
"""

from __future__ import annotations

import argparse
import socket
import struct
import threading
import time
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.broker_nodes import Node, both
from benchmarks.large_requests import PARTITIONS, REQUESTS, large_request
from pyclient import Admin, NewTopic
from pyclient.protocol import framing
from pyclient.protocol.messages.api_versions import ApiVersionsRequest

TOPIC = "existing"
_LENGTH = struct.Struct(">i")
_PACE = 0.005


class Cost(NamedTuple):
    """Of one large request: its bytes, its answer's, its seconds, and what small ones waited meanwhile (seconds)."""

    sent: int
    received: int
    seconds: float
    p99: float
    longest: float


def prepare(node: Node) -> None:
    """Make the topic that requests ask for."""
    with Admin(node.servers) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])


def cost(node: Node, name: str, items: int, limit: float) -> Cost:
    """Ask for `items` items on one connection and send a small request every 5 ms on another."""
    request, version = large_request(name, items, TOPIC)
    frame = b"".join(framing.encode_request(request, version, 1, "large"))  # type: ignore[arg-type]
    with _Asker(node, limit) as large, _Asker(node, limit) as small:
        ping = b"".join(framing.encode_request(ApiVersionsRequest(), 0, 1, "small"))  # type: ignore[arg-type]
        for _ in range(50):
            small.ask(ping)
        done = threading.Event()
        result: list[float] = []

        def ask() -> None:
            began = time.perf_counter()
            try:
                result.append(float(large.ask(frame)))
            except OSError:
                result.append(-1.0)
            result.append(time.perf_counter() - began)
            done.set()

        asking = threading.Thread(target=ask)
        asking.start()
        waits = _small_requests(small, ping, done)
        asking.join()
    return Cost(len(frame), int(result[0]), result[1], waits[int(len(waits) * 0.99)], waits[-1])


def _small_requests(small: _Asker, ping: bytes, done: threading.Event) -> list[float]:
    """Return the sorted waits in seconds, each from when its turn was: a request that is sent late waits, too."""
    waits: list[float] = []
    turn = time.perf_counter()
    while not done.is_set() or len(waits) < 20:
        left = turn - time.perf_counter()
        if left > 0:
            time.sleep(left)
        try:
            small.ask(ping)
        except OSError:
            waits.append(float("inf"))
            break
        waits.append(time.perf_counter() - turn)
        turn += _PACE
    return sorted(waits)


class _Asker:
    def __init__(self, node: Node, limit: float) -> None:
        self._socket = socket.create_connection(node.address, timeout=limit)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(1 << 20))

    def __enter__(self) -> _Asker:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, frame: bytes) -> int:
        """Return the size of the answer."""
        self._socket.sendall(frame)
        size: int = _LENGTH.unpack(self._exactly(4))[0]
        left = size
        while left:
            left -= self._received(min(left, len(self._buffer)))
        return size

    def _exactly(self, size: int) -> bytes:
        got = 0
        while got < size:
            got += self._socket.recv_into(self._buffer[got:size]) or self._ended()
        return bytes(self._buffer[:size])

    def _received(self, size: int) -> int:
        return self._socket.recv_into(self._buffer[:size]) or self._ended()

    def _ended(self) -> int:
        raise ConnectionError("the broker closed the connection")


def table(nodes: list[Node], names: list[str], items: int, limit: float) -> Table:
    """Return a row for each request."""
    shown = Table(title=f"small requests while one client asks for {items:,} items")
    for column in (
        "request",
        *(f"{node.name}: {what}" for node in nodes for what in ("whole", "answer", "p99", "max")),
    ):
        shown.add_column(column, justify="left" if column == "request" else "right")
    for name in names:
        cells = []
        for node in nodes:
            found = cost(node, name, items, limit)
            answer = "closed" if found.received < 0 else f"{found.received / 1e3:,.0f} KB"
            cells += [f"{found.seconds:.2f} s", answer, f"{found.p99 * 1e3:.1f} ms", f"{found.longest * 1e3:.1f} ms"]
        shown.add_row(name, *cells)
    return shown


def run(names: list[str], *, items: int, limit: float, kafka: bool) -> None:
    """Measure these requests and show the table."""
    with both(kafka) as nodes:
        for node in nodes:
            prepare(node)
        Console(width=140).print(table(nodes, names, items, limit))


def main() -> None:
    """Measure every API, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--api", action="append", choices=list(REQUESTS))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that an answer may take")
    parser.add_argument("--kafka", action="store_true", help="a real Kafka for comparison")
    given = parser.parse_args()
    run(given.api or list(REQUESTS), items=given.items, limit=given.limit, kafka=given.kafka)


if __name__ == "__main__":
    main()
