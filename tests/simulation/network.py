"""In-memory TCP between simulated processes: latency, cuts in either direction, refused and reset connections."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from pyclient.errors import ConnectionFailed
from pyclient.net.stream import FrameStream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyclient.net.stream import Stream
    from tests.simulation.world import Process, World

_FIRST_FD: Final = 1 << 20  # no descriptor of the operating system has such a number
_BUFFER: Final = 1 << 18
_MOST_FRAME: Final = 100_000_000
_CONNECT_SECONDS: Final = 2.0
_FIRST_PORT: Final = 40_000

END: Final = b""
"""Follows the last byte of a direction: the peer has closed the connection."""


class Network:
    """The hosts' sockets, and what connects them. A direction that is cut keeps its bytes until it is healed."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.latency = (0.0001, 0.0005)
        self.slow: dict[tuple[str, str], float] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.listeners: dict[tuple[str, int], ListeningSocket] = {}
        self.sockets: dict[int, SimulatedSocket | ListeningSocket] = {}
        self.closing: list[SimulatedSocket] = []
        """Sockets that were closed while a cut held their last bytes back: the kernel still sends these."""
        self.on_sent: Callable[[SimulatedSocket, bytes], bool] = lambda _sock, _data: False
        """Gets the bytes of every call that sends some. If it returns True they are lost, and the connection breaks."""
        self._numbers = 0

    def number(self) -> int:
        """Return a number that no socket has had."""
        self._numbers += 1
        return self._numbers

    def attach(self, process: Process) -> None:
        """Let a process's loop watch simulated sockets, and its connections go over this network."""
        process.loop.is_readable = self._is_readable
        process.loop.is_writable = self._is_writable
        process.connect_with(Connecting(self, process))
        process.on_killed.append(lambda: self._killed(process))

    def listen(self, process: Process, port: int) -> ListeningSocket:
        """Return a socket of the process that listens at its host's address."""
        listener = ListeningSocket(self, process, port)
        self.listeners[process.host, port] = listener
        return listener

    def delay(self, source: str, target: str) -> float:
        """Return the seconds that bytes take now."""
        return self.world.rng.uniform(*self.latency) + self.slow.get((source, target), 0.0)

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from one host to another."""
        self.cuts.add((source, target))

    def heal(self) -> None:
        """Let everything pass; TCP sends again what was not received."""
        self.cuts.clear()
        self.slow.clear()
        closing, self.closing = self.closing, []
        for each in (*self.sockets.values(), *closing):
            if isinstance(each, SimulatedSocket):
                each.resend()

    def deliver(self, process: Process, host: str, port: int, data: bytes) -> bool:
        """Send bytes over a connection of their own, whose answer is not read; False if no process listens there."""
        listener = self.listeners.get((host, port))
        if listener is None:
            return False
        own, other = self.connection(process, listener)
        listener.take(other)
        own.send(data)
        self.world.after(_CONNECT_SECONDS, own.close)
        return True

    def connection(self, process: Process, listener: ListeningSocket) -> tuple[SimulatedSocket, SimulatedSocket]:
        """Return both ends of a new connection."""
        name, there = (process.host, _FIRST_PORT + self.number()), listener.getsockname()
        own = SimulatedSocket(self, process, name, there)
        other = SimulatedSocket(self, listener.process, there, name)
        own.peer, other.peer = other, own
        return own, other

    def _is_readable(self, fd: int) -> bool:
        found = self.sockets.get(fd)
        return found is not None and found.readable

    def _is_writable(self, fd: int) -> bool:
        found = self.sockets.get(fd)
        return isinstance(found, SimulatedSocket) and found.room > 0

    def _killed(self, process: Process) -> None:
        for each in list(self.sockets.values()):
            if each.process is process:
                each.killed()


class ListeningSocket:
    """Takes connections for a process, also while it is paused."""

    family = socket.AF_INET

    def __init__(self, network: Network, process: Process, port: int) -> None:
        self.network = network
        self.process = process
        self.port = port
        self.backlog: deque[SimulatedSocket] = deque()
        self._fd = _FIRST_FD + network.number()
        network.sockets[self._fd] = self

    @property
    def readable(self) -> bool:
        return bool(self.backlog)

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, _flag: bool) -> None:
        """Do nothing: simulated sockets never block."""

    def getsockname(self) -> tuple[str, int]:
        return self.process.host, self.port

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if not self.backlog:
            raise BlockingIOError
        sock = self.backlog.popleft()
        return sock, sock.getpeername()

    def take(self, sock: SimulatedSocket) -> None:
        """Queue a connection for `accept`."""
        self.backlog.append(sock)
        self.process.loop.heat(self._fd)

    def killed(self) -> None:
        self.close()

    def close(self) -> None:
        self.network.sockets.pop(self._fd, None)
        if self.network.listeners.get((self.process.host, self.port)) is self:
            del self.network.listeners[self.process.host, self.port]
        for sock in self.backlog:
            sock.close()
        self.backlog.clear()


class SimulatedSocket:
    """One end of a connection."""

    family = socket.AF_INET

    def __init__(self, network: Network, process: Process, name: tuple[str, int], peername: tuple[str, int]) -> None:
        self.network = network
        self.process = process
        self.peer: SimulatedSocket | None = None
        self.received: deque[bytes] = deque()
        self.unread = 0
        self.in_flight: deque[tuple[float, bytes]] = deque()  # sent to the peer, which has not received it
        self.unreceived = 0
        self._names = name, peername
        self._last = 0.0
        self._ended = False
        self._reset = False
        self._sent_end = False
        self._closed = False
        self._fd = _FIRST_FD + network.number()
        network.sockets[self._fd] = self

    # What streams use

    @property
    def readable(self) -> bool:
        return bool(self.received) or self._ended or self._reset

    @property
    def room(self) -> int:
        """The bytes that can be sent now; a dead connection takes any, to report its end."""
        peer = self.peer
        return _BUFFER if peer is None or self._reset else max(0, _BUFFER - self.unreceived - peer.unread)

    def fileno(self) -> int:
        return -1 if self._closed else self._fd

    def setblocking(self, _flag: bool) -> None:
        """Do nothing: simulated sockets never block."""

    def setsockopt(self, *_option: Any) -> None:
        """Do nothing: the options change no behaviour here."""

    def getsockname(self) -> tuple[str, int]:
        return self._names[0]

    def getpeername(self) -> tuple[str, int]:
        return self._names[1]

    def send(self, data: Any) -> int:
        return self._send(bytes(data))

    def sendmsg(self, parts: Sequence[Any], _ancillary: Any = (), _flags: int = 0) -> int:
        return self._send(b"".join(parts))

    def recv_into(self, space: memoryview) -> int:
        data = self._take(len(space), keep=False)
        space[: len(data)] = data
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        return self._take(size, keep=bool(flags & socket.MSG_PEEK))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.network.sockets.pop(self._fd, None)
            self._end()
            self.network.closing.append(self)

    # What the network does

    def killed(self) -> None:
        """Close the socket as the kernel does for a process that is gone."""
        self.close()

    def resend(self) -> None:
        """Send again what a cut has held back."""
        if self.in_flight:
            self._last = max(self._last, self.network.world.now)
            self._deliver_in(self.network.world.rng.uniform(0.0, 0.2))

    def _send(self, data: bytes) -> int:
        if self._reset:
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        if self._closed or self._sent_end:
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))
        size = min(len(data), self.room)
        if not size:
            raise BlockingIOError
        if self.network.on_sent(self, data):
            self._break()
            return size
        self._put(data[:size])
        return size

    def _break(self) -> None:
        """End the connection at both sides."""
        if self.peer is not None:
            self.peer.reset()
        self.reset()

    def _end(self) -> None:
        if not self._sent_end:
            self._sent_end = True
            self._put(END)

    def _put(self, data: bytes) -> None:
        world, (own, peer) = self.network.world, self._names
        due = max(self._last, world.now + self.network.delay(own[0], peer[0]))
        self._last = due
        self.in_flight.append((due, data))
        self.unreceived += len(data)
        if len(self.in_flight) == 1:
            self._deliver_in(due - world.now)

    def _deliver_in(self, delay: float) -> None:
        self.network.world.after(delay, self._deliver)

    def _deliver(self) -> None:
        world, (own, peername) = self.network.world, self._names
        if (own[0], peername[0]) in self.network.cuts:
            return  # `resend` follows
        peer = self.peer
        while self.in_flight and self.in_flight[0][0] <= world.now:
            _due, data = self.in_flight.popleft()
            self.unreceived -= len(data)
            if peer is not None:
                world.note_delivery(own, peername, data)
                peer.receive(data)
        if self.in_flight:
            self._deliver_in(self.in_flight[0][0] - world.now)

    def receive(self, data: bytes) -> None:
        """Take bytes from the network, or the end of the connection."""
        if self._closed:
            if data and self.peer is not None:
                self.peer.reset()
            return
        if data:
            self.received.append(data)
            self.unread += len(data)
        else:
            self._ended = True
        self.process.loop.heat(self._fd)

    def reset(self) -> None:
        """Break the connection at this end."""
        self._reset = True
        if not self._closed:
            self.process.loop.heat(self._fd)
            self.process.wake()

    def _take(self, size: int, *, keep: bool) -> bytes:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if not self.received:
            if self._reset:
                raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            if self._ended:
                return b""
            raise BlockingIOError
        data = self.received[0]
        if keep:
            return data[:size]
        if len(data) > size:
            self.received[0] = data[size:]
            data = data[:size]
        else:
            self.received.popleft()
        self.unread -= len(data)
        if self.peer is not None:
            self.peer.process.loop.room_made(self.peer.fileno())
        return data


class Connecting:
    """Opens the connections of one process."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    async def __call__(
        self,
        host: str,
        port: int,
        on_frame: Callable[[memoryview], None],
        on_closed: Callable[[BaseException | None], None],
    ) -> Stream:
        """Return a stream to a host, or raise `ConnectionFailed` as a connection by TCP does."""
        network, process = self._network, self._process
        loop = process.loop
        answered: asyncio.Future[SimulatedSocket] = loop.create_future()
        there, back = (process.host, host), (host, process.host)

        def ask() -> None:
            if there not in network.cuts:
                answer(network.listeners.get((host, port)))

        def answer(listener: ListeningSocket | None) -> None:
            if back in network.cuts:
                return  # the connection stays half open at the other host, where nothing uses it
            delay = network.delay(*back)
            if listener is None:
                network.world.after(delay, refuse)
                return
            own, other = network.connection(process, listener)
            listener.take(other)
            network.world.after(delay, lambda: connected(own))

        def refuse() -> None:
            if not answered.done() and process.alive:
                answered.set_exception(ConnectionFailed(f"{host}:{port}: connection refused", lasting=False))
                process.wake()

        def connected(sock: SimulatedSocket) -> None:
            if answered.done() or not process.alive:
                sock.close()
            else:
                answered.set_result(sock)
                process.wake()

        network.world.after(network.delay(*there), ask)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                sock = await answered
        except TimeoutError:
            raise ConnectionFailed(f"{host}:{port}: no connection within {_CONNECT_SECONDS:g} s") from None
        return FrameStream(
            loop,
            sock,  # type: ignore[arg-type]  # it has the methods that a stream calls
            max_frame=_MOST_FRAME,
            on_frame=on_frame,
            on_closed=on_closed,
        )
