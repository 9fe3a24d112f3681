"""A TCP proxy for a broker that ends connections at a given byte, and changes Produce responses.

Clients see nothing but sockets of it, so that they use the streams of their own that they use without it, too.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from pyclient.cluster import connection_pool
from pyclient.config import parse_address
from pyclient.net.connect import TcpConnector
from pyclient.net.loop_thread import LoopThread
from pyclient.protocol.framing import decode_response, encode_response
from pyclient.protocol.messages.produce import ProduceResponse
from tests.producer.network import PRODUCE

REQUEST: Final = "request"
ANSWER: Final = "answer"
SECONDS: Final = 30.0

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Cut:
    """Passes only the first bytes of the next Produce request or response.

    `where` counts them: from the end if it is negative, and as a share of all if it is a float.
    """

    def __init__(self, side: str, where: int | float) -> None:
        self.side = side
        self.where = where
        self.go_on = asyncio.Event()
        self.done = threading.Event()

    def within(self, size: int) -> int:
        """Return how many bytes pass of so many."""
        if isinstance(self.where, float):
            return int(size * self.where)
        return self.where if self.where >= 0 else size + self.where


class Proxy:
    """Listens while it is open, and forwards connections to the broker."""

    def __init__(self, servers: str) -> None:
        self.change: Callable[[ProduceResponse], object] | None = None
        """May change an answer to Produce in place."""
        self.resets = False
        """True if a client's connection ends by a reset, right after its last bytes."""
        self._target = parse_address(servers)
        self._cut: Cut | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = LoopThread("proxy")
        self._thread.start()
        self._server = self._thread.run(lambda: asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """End every connection."""

        async def end() -> None:
            self._server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

        self._thread.run(end)
        self._thread.stop(SECONDS)

    def connector(self, config: Any) -> Any:
        """Return a connector to the proxy for every broker, for use in place of `TcpConnector(config)`."""
        tcp = TcpConnector(config)
        return lambda host, port, on_frame, on_closed: tcp("127.0.0.1", self._port, on_frame, on_closed)

    @contextmanager
    def cutting(self, side: str, where: int | float) -> Iterator[None]:
        """Delay a cut until the end of the block."""
        cut = self._cut = Cut(side, where)
        try:
            yield
        finally:
            self._thread.call_soon(cut.go_on.set)
        assert cut.done.wait(SECONDS), "nothing was there to be cut"

    async def _serve(self, *near: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            far = await asyncio.open_connection(*self._target)
            try:
                await self._pass_on(near, far)
            finally:
                far[1].close()
            await (_reset if self.resets else _hang_up)(near)
        finally:
            near[1].close()
            self._connections.discard(task)

    async def _pass_on(self, near: Pair, far: Pair) -> None:
        """Forward until one side ends, or is cut."""
        asked: deque[tuple[int, int]] = deque()
        ways = [
            asyncio.ensure_future(way) for way in (self._requests(near, far, asked), self._answers(far, near, asked))
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _requests(self, near: Pair, far: Pair, asked: deque[tuple[int, int]]) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                frame = await _frame(near)
                asked.append((int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big")))
                if await self._is_cut(REQUEST, asked[-1][0], frame, far):
                    return

    async def _answers(self, far: Pair, near: Pair, asked: deque[tuple[int, int]]) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                frame = await _frame(far)
                api, version = asked.popleft()
                if api == PRODUCE and self.change is not None:
                    correlation_id, answer = decode_response(ProduceResponse, version, frame[4:])
                    self.change(answer)
                    parts: Any = encode_response(answer, version, correlation_id)
                    frame = b"".join(parts)
                if await self._is_cut(ANSWER, api, frame, near):
                    return

    async def _is_cut(self, side: str, api: int, frame: bytes, to: Pair) -> bool:
        """Forward a frame, or its first bytes if it is cut."""
        cut = self._cut
        if cut is None or side != cut.side or api != PRODUCE:
            to[1].write(frame)
            return False
        self._cut = None
        await cut.go_on.wait()
        to[1].write(frame[: cut.within(len(frame))])
        cut.done.set()
        return True


async def _hang_up(near: Pair) -> None:
    """Shut the connection down; closing it with unread bytes would reset it instead."""
    with suppress(OSError):
        near[1].write_eof()
        await near[0].read()


async def _reset(near: Pair) -> None:
    near[1].transport.set_write_buffer_limits(0)
    await near[1].drain()  # what was written is to come first
    near[1].get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near[1].transport.abort()


async def _frame(source: Pair) -> bytes:
    """Read the next frame, with its length."""
    head = await source[0].readexactly(4)
    return head + await source[0].readexactly(int.from_bytes(head, "big"))


@contextmanager
def through_a_proxy(servers: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Yield the proxy that clients created in the block connect through."""
    proxy = Proxy(servers)
    try:
        monkeypatch.setattr(connection_pool, "TcpConnector", proxy.connector)
        yield proxy
    finally:
        proxy.close()
