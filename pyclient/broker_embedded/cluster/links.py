"""The network between nodes for tests: TCP proxies whose directions can be cut, delayed and limited.

A `Flow` delays, limits or cuts the bytes from one node to another. A `Proxy` forwards the connections that a node makes
to one listener of another node; its two directions follow the flows of these nodes. `Links` keeps them, on a loop of
its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from pyclient.errors import ConfigError
from pyclient.net.loop_thread import LoopThread

_CHUNK: Final = 64 << 10
_QUEUED: Final = 64  # chunks between two sockets
_CALL_SECONDS: Final = 30.0


class Sent(NamedTuple):
    """The time of the loop at which bytes arrive, at the latest when `healed` is set."""

    due: float
    healed: asyncio.Event


class Flow:
    """The flow of bytes from one node to another: all pass, late and at a rate, or none."""

    def __init__(self) -> None:
        self._passing = asyncio.Event()
        self._passing.set()
        self._healed = asyncio.Event()
        self._latency = 0.0
        self._bandwidth: float | None = None
        self._busy_until = float("-inf")

    def __repr__(self) -> str:
        return f"<Flow {'cut' if self.is_cut else 'passes'} latency={self._latency:g} bandwidth={self._bandwidth}>"

    @property
    def is_cut(self) -> bool:
        """Return True if nothing passes."""
        return not self._passing.is_set()

    def cut(self) -> None:
        """Let nothing pass. What is on the way arrives after `heal`, as the kernel would send it again."""
        self._passing.clear()

    def slow(self, latency: float, bandwidth: float | None) -> None:
        """Delay bytes by `latency` seconds, and let `bandwidth` bytes per second pass, of all connections together."""
        self._latency, self._bandwidth = latency, bandwidth
        self._busy_until = float("-inf")

    def heal(self) -> None:
        """Let everything pass at once, also what is on the way."""
        self.slow(0.0, None)
        self._healed.set()
        self._healed = asyncio.Event()
        self._passing.set()

    async def passing(self) -> None:
        """Wait until bytes pass."""
        await self._passing.wait()

    def send(self, size: int, now: float) -> Sent:
        """Return when bytes that are sent now arrive."""
        if self._bandwidth is not None:
            self._busy_until = now = max(self._busy_until, now) + size / self._bandwidth
        return Sent(now + self._latency, self._healed)

    async def arrived(self, sent: Sent) -> None:
        """Wait until bytes that were sent are at the other end."""
        await self._passing.wait()
        wait = sent.due - asyncio.get_running_loop().time()
        if wait > 0 and not sent.healed.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(sent.healed.wait(), wait)
        await self._passing.wait()


class Proxy:
    """Forwards the connections to its `port` to a target."""

    def __init__(self, target: tuple[str, int], there: Flow, back: Flow) -> None:
        self.target = target
        self.port = 0
        self._there = there
        self._back = back
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Proxy {self.port} to {self.target[0]}:{self.target[1]}, {len(self._connections)} connections>"

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0, limit=_CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        writers = [writer]
        try:
            await self._there.passing()  # the first packets of a connection go both ways
            await self._back.passing()
            other_reader, other_writer = await asyncio.open_connection(*self.target, limit=_CHUNK)
            writers.append(other_writer)
            await asyncio.gather(
                _forward(reader, other_writer, self._there),
                _forward(other_reader, writer, self._back),
            )
        except (OSError, asyncio.CancelledError):
            pass  # an end was reset, nothing listens at the target, or the proxy is closed
        finally:
            self._connections.discard(task)
            for each in writers:
                each.transport.abort()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Flow) -> None:
    """Forward one direction until its end, which arrives as late as the bytes do."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[bytes, Sent]] = asyncio.Queue(_QUEUED)

    async def read() -> None:
        data = b"-"
        while data:
            try:
                data = await reader.read(_CHUNK)
            except OSError:
                data = b""  # a reset arrives at the other end as an end, which closes the connection, too
            await queue.put((data, flow.send(len(data), loop.time())))

    reading = loop.create_task(read())
    try:
        while True:
            data, sent = await queue.get()
            await flow.arrived(sent)
            if not data or writer.transport.is_closing():  # closed when the other direction has ended
                break
            writer.write(data)
            await writer.drain()
        if not writer.transport.is_closing():  # else the other end has closed the connection
            writer.write_eof()
    finally:
        reading.cancel()


class Links:
    """The proxies between nodes. They are made when they are first needed; nodes are named by their ids."""

    def __init__(self) -> None:
        self._thread = LoopThread("pyclient-links")
        self._flows: dict[tuple[int, int], Flow] = {}
        self._proxies: dict[tuple[int, int, str], Proxy] = {}

    def __repr__(self) -> str:
        return f"<Links {len(self._proxies)} proxies>"

    def proxy(self, node: int, other: int, listener: str, target: tuple[str, int]) -> tuple[str, int]:
        """Return the address at which `node` reaches a listener of the node `other`, whose own one is `target`."""
        self._start()
        key = (node, other, listener)
        if key not in self._proxies:
            self._proxies[key] = self._thread.run(self._open, node, other, target, timeout=_CALL_SECONDS)
        return "127.0.0.1", self._proxies[key].port

    def cut(self, node: int, other: int, *, one_way: bool = False) -> None:
        """Let no bytes pass from `node` to `other`, nor back unless `one_way`."""
        self._change(node, other, one_way, Flow.cut)

    def slow(self, node: int, other: int, latency_ms: float, bandwidth: float | None) -> None:
        """Delay the bytes in both directions by `latency_ms`, and let `bandwidth` bytes per second pass."""
        if not 0 <= latency_ms < float("inf") or not (bandwidth is None or bandwidth > 0):
            raise ConfigError(
                f"latency_ms is {latency_ms!r} and bandwidth {bandwidth!r}: a link has a latency from 0 and passes a "
                f"number of bytes per second above 0"
            )

        self._change(node, other, False, lambda flow: flow.slow(latency_ms / 1000, bandwidth))

    def heal(self) -> None:
        """Let everything pass between all nodes, at once."""
        if self._thread.running:
            self._thread.run(self._heal, timeout=_CALL_SECONDS)

    def close(self) -> None:
        """End all connections and stop."""
        if self._thread.running:
            self._thread.run(self._close, timeout=_CALL_SECONDS)
            self._thread.stop(_CALL_SECONDS)

    def _change(self, node: int, other: int, one_way: bool, change: Callable[[Flow], None]) -> None:
        self._start()

        async def apply() -> None:
            change(self._flow(node, other))
            if not one_way:
                change(self._flow(other, node))

        self._thread.run(apply, timeout=_CALL_SECONDS)

    def _start(self) -> None:
        if not self._thread.running:
            self._thread.start()
            self._thread.keep()

    def _flow(self, node: int, other: int) -> Flow:
        return self._flows.setdefault((node, other), Flow())

    async def _open(self, node: int, other: int, target: tuple[str, int]) -> Proxy:
        proxy = Proxy(target, self._flow(node, other), self._flow(other, node))
        await proxy.start()
        return proxy

    async def _heal(self) -> None:
        for flow in self._flows.values():
            flow.heal()

    async def _close(self) -> None:
        for proxy in self._proxies.values():
            await proxy.close()
        self._proxies.clear()
