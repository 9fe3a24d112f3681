"""The sending half of a framed socket: writes what the kernel takes, queues the rest."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from pyclient.errors import ConnectionFailed
from pyclient.net.file_region import FileRegion, file_too_short, release_regions
from pyclient.protocol.fields import Part

_GATHER: Final = 64  # parts in one sendmsg
_FAIR_SHARE: Final = 8 * 1024 * 1024  # bytes one stream writes before the loop turns to the others
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # Linux: headers travel in the packet of the file bytes behind them
_READ_BYTES: Final = 16 * 1024  # of a file region: up to so many are read, and leave with what is around them
_READ_AT_ONCE: Final = 256 * 1024
_JOIN_BYTES: Final = 2048  # of a message; to gather its parts takes longer than to copy so few


class SendingStream:
    """What `FrameStream` sends with. It is closed, and reading paused and resumed, by the whole stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, pause_above: int | None) -> None:
        self.peername = _peername(sock)
        self.pending = 0
        self.closed = False
        self.gate = threading.RLock()
        """Held by another thread than the loop's while it writes: until then the socket is not closed."""
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._pause_above = pause_above
        self._reading = False  # frames are wanted
        self._writing = False
        self._corked = False
        self._queue: deque[Part] = deque()
        self._file_sent = 0
        self._drains: list[tuple[int, asyncio.Future[None]]] = []

    def close(self, error: BaseException | None = None) -> None:
        """Ends the stream."""
        raise NotImplementedError

    def _update_reading(self) -> None:
        raise NotImplementedError

    def fileno(self) -> int:
        """The socket's."""
        return self._fd

    def cork(self) -> None:
        """What is sent from now on waits for `uncork`, to leave in one write."""
        self._corked = True

    def uncork(self) -> None:
        """Writes what was sent since `cork`."""
        self._corked = False
        if self._queue and not self._writing and not self.closed:
            self._flush()

    def send(self, parts: Sequence[Part]) -> None:
        """Sends one message, bytes-like parts and file regions: writes at once what the kernel takes, queues the rest.

        What is queued is queued by reference: a part may not change before it was sent.
        On a closed stream it does nothing but release the file regions: `on_closed` has told or will tell.
        """
        if self.closed:
            release_regions(parts)
            return
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if size <= _JOIN_BYTES and not self._queue and len(parts) > 1 and FileRegion not in map(type, parts):
            message = b"".join(parts)  # type: ignore[arg-type]  # no FileRegion
            parts = [message]
            if not self._corked and not self._writing:
                sent = self._send_at_once(message)
                if sent == size:
                    return
                parts, size = [memoryview(message)[sent:]], size - sent
        self._queue.extend(parts)
        self.pending += size
        if not self._corked and not self._writing:
            self._flush()
        elif self._pause_above is not None and self.pending > self._pause_above:
            self._update_reading()

    def _send_at_once(self, message: bytes) -> int:
        """How much of a message the kernel took that nothing waits in front of; all of it if the stream ended."""
        try:
            return self._sock.send(message)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(lost(self.peername, error))
            return len(message)

    @property
    def free(self) -> bool:
        """Whether nothing waits to be written, so that another thread that holds `gate` may `write_here`.

        Whoever else sends has to hold it, too, until what he sent is queued or written.
        """
        return not (self._queue or self._writing or self._corked or self.closed)

    def write_here(self, parts: Sequence[Part]) -> None:
        """Writes a small message, of bytes-like parts, in the calling thread; the loop's with what the kernel leaves.

        A stream that ends with it ends in the loop.
        """
        message = b"".join(parts)  # type: ignore[arg-type]  # no FileRegion
        try:
            sent = self._sock.send(message)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self.lost_here(error)
            return
        if sent < len(message):
            self.left_here(memoryview(message)[sent:])

    def left_here(self, rest: bytes | memoryview) -> None:
        """What the kernel did not take of a `write_here` is the loop's."""
        self._queue.append(rest)
        self.pending += len(rest)
        self._loop.call_soon_threadsafe(self.uncork)

    def lost_here(self, error: OSError) -> None:
        """A `write_here` failed, and with it the stream."""
        self._loop.call_soon_threadsafe(self.close, lost(self.peername, error))

    async def drain(self, below: int = 0) -> None:
        """Waits until no more than `below` bytes are queued; `ConnectionFailed` if the stream closes before."""
        if self.closed:
            raise ConnectionFailed(f"{self.peername}: the connection is closed")
        if self.pending <= below:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._drains.append((below, waiter))
        await waiter

    def _flush(self) -> None:
        try:
            blocked = self._write_out()
        except OSError as error:
            self.close(lost(self.peername, error))
            return
        if self.closed:
            return
        if blocked != self._writing:
            self._writing = blocked
            if blocked:
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)
        if self._drains:
            self._wake_drains()
        if self._pause_above is not None and (not self._reading or self.pending > self._pause_above):
            self._update_reading()

    def _write_out(self) -> bool:
        """Writes from the queue; True if something is left that has to wait."""
        queue = self._queue
        budget = _FAIR_SHARE
        while queue:
            if budget <= 0:
                return True
            head = queue[0]
            try:
                if isinstance(head, FileRegion) and head.length > _READ_BYTES:
                    sent = self._write_file(head)
                else:
                    sent = self._write_bytes()
            except (BlockingIOError, InterruptedError):
                return True
            self.pending -= sent
            budget -= sent
        return False

    def _write_bytes(self) -> int:
        queue = self._queue
        if len(queue) == 1 and not isinstance(queue[0], FileRegion):
            sent = self._sock.send(queue[0])  # type: ignore[arg-type]  # it is like bytes
            whole = sent == len(queue[0])
        else:
            parts, flags = self._gather()
            sent = self._sock.sendmsg(parts, (), flags)
            whole = sent == self.pending and len(parts) == len(queue)
        if whole:
            queue.clear()
        else:
            self._forget(sent)
        return sent

    def _gather(self) -> tuple[list[Any], int]:
        """What leaves at once. Of a small file region it is the bytes: that costs less than a call of its own."""
        parts: list[Any] = []
        read = 0
        for index, part in enumerate(self._queue):
            if isinstance(part, FileRegion):
                read += part.length
                if part.length > _READ_BYTES or read > _READ_AT_ONCE:
                    return parts, _MORE
                part = self._queue[index] = _contents(part)
            parts.append(part)
            if len(parts) == _GATHER:
                break
        return parts, 0

    def _forget(self, sent: int) -> None:
        """Takes `sent` bytes off the head of the queue; empty parts go with them."""
        queue = self._queue
        while queue:
            head = queue[0]
            size = len(head)
            if isinstance(head, FileRegion) or size > sent:
                if sent:
                    queue[0] = memoryview(head)[sent:]  # type: ignore[arg-type]  # sent bytes are never a region's
                return
            sent -= size
            queue.popleft()

    def _write_file(self, region: FileRegion) -> int:
        start = self._file_sent
        sent = os.sendfile(self._fd, region.fd, region.position + start, region.length - start) if region.length else 0
        if sent == 0 and region.length:
            raise OSError(str(file_too_short(region, start)))
        self._file_sent += sent
        if self._file_sent == region.length:
            self._file_sent = 0
            self._queue.popleft()
            region.release()
        return sent

    def _wake_drains(self) -> None:
        waiting = self._drains
        self._drains = [entry for entry in waiting if self.pending > entry[0]]
        for below, waiter in waiting:
            if self.pending <= below and not waiter.done():
                waiter.set_result(None)


def _contents(region: FileRegion) -> bytes:
    try:
        return region.read()
    except ConnectionFailed as error:
        raise OSError(str(error)) from error
    finally:
        region.release()


def lost(peername: str, error: OSError) -> ConnectionFailed:
    """The error for a socket that is lost."""
    failure = ConnectionFailed(f"{peername}: {error.strerror or error}")
    failure.__cause__ = error
    return failure


def _peername(sock: socket.socket) -> str:
    try:
        name = sock.getpeername()
    except OSError:
        return "a peer that is gone"
    if not isinstance(name, tuple):
        return "a local socket"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
