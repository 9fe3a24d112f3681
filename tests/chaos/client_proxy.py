"""A TCP proxy in front of each broker, through which clients connect, so that they can be cut off from it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from pyclient.net.loop_thread import LoopThread

CLIENTS: Final = "CLIENTS"
APART: Final = "APART"
"""The listeners of a wide run: of most clients, and of those that are cut off while the others go on."""
REQUESTS: Final = "requests"
ANSWERS: Final = "answers"
_BYTES: Final = 1 << 16
_CLOSE_SECONDS: Final = 10.0
_RESET_SECONDS: Final = 0.3

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ClientProxy:
    """Listens at `port`, and forwards to the address `target`, while it is open.

    A cut holds bytes, also those of new connections, and delivers them when it ends, as a network does that loses
    packets for a while: requests may come after their clients have given them up and sent them again.
    """

    def __init__(self, thread: LoopThread) -> None:
        self.target = "127.0.0.1", 0
        self._thread = thread
        self._gates = {REQUESTS: asyncio.Event(), ANSWERS: asyncio.Event()}
        self._serving: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = thread.run(lambda: asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.heal()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self, *ways: str) -> None:
        """Hold what is sent that way, both ways by default, until `heal`."""
        for way in ways or (REQUESTS, ANSWERS):
            self._thread.call_soon(self._gates[way].clear)

    def heal(self) -> None:
        """Deliver what was held."""
        for gate in self._gates.values():
            self._thread.call_soon(gate.set)

    def reset(self) -> None:
        """End all connections; what is on its way is lost."""
        self._thread.call_soon(self._abort)

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def close(self) -> None:
        """End everything."""

        async def end() -> None:
            self._server.close()
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

        self._thread.run(end)

    async def _serve(self, *near: asyncio.StreamReader | asyncio.StreamWriter) -> None:
        reader, writer = near
        assert isinstance(reader, asyncio.StreamReader)
        assert isinstance(writer, asyncio.StreamWriter)
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        far: asyncio.StreamWriter | None = None
        try:
            source, far = await asyncio.open_connection(*self.target)
            self._writers |= {writer, far}
            ways = (self._pump(REQUESTS, reader, far), self._pump(ANSWERS, source, writer))
            await asyncio.gather(*ways)
        except OSError:
            pass  # the broker is down, or one side has ended the connection
        finally:
            self._serving.discard(task)
            for each in (writer, far):
                if each is not None:
                    self._writers.discard(each)
                    each.transport.abort()

    async def _pump(self, way: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while True:
            content = await source.read(_BYTES)
            await self._gates[way].wait()
            if sink.is_closing():
                return
            if not content:
                with suppress(OSError):
                    sink.write_eof()
                return
            sink.write(content)
            await sink.drain()


class ClientProxies:
    """A proxy for each broker, by node id."""

    def __init__(self, ids: Iterable[int]) -> None:
        self._thread = LoopThread("client-proxies")
        self._thread.start()
        self.of = {node_id: ClientProxy(self._thread) for node_id in ids}

    @property
    def addresses(self) -> str:
        """Return `host:port` of all, with commas."""
        return ",".join(each.address for each in self.of.values())

    def heal(self) -> None:
        """End all cuts."""
        for each in self.of.values():
            each.heal()

    def reset_for(self, seconds: float, chosen: random.Random) -> None:
        """End the connections of a random broker's clients again and again."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.of[chosen.choice(sorted(self.of))].reset()
            time.sleep(_RESET_SECONDS * chosen.random())  # some requests succeed

    def close(self) -> None:
        """End everything."""
        for each in self.of.values():
            each.close()
        self._thread.stop(_CLOSE_SECONDS)
