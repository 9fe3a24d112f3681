"""The sending half of a framed socket: write what the kernel accepts, queue the rest."""

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
_FAIR_SHARE: Final = 8 * 1024 * 1024  # bytes one stream writes before the loop serves the others
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # Linux: headers travel in one packet with the file bytes after them
_READ_BYTES: Final = 16 * 1024  # a file region up to this size is read, and sent together with the parts around it
_READ_AT_ONCE: Final = 256 * 1024
_JOIN_BYTES: Final = 2048  # a message up to this size is joined: copying it is cheaper than gathering its parts


class SendingStream:
    """The base class of `FrameStream` that sends. Closing, and pausing of reading, are left to the subclass."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, pause_above: int | None) -> None:
        self.peername = _peername(sock)
        self.pending = 0
        self.closed = False
        self.gate = threading.RLock()
        """Held by a thread other than the loop's while it writes, so that the socket is not closed meanwhile."""
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
        """Close the stream."""
        raise NotImplementedError

    def _update_reading(self) -> None:
        raise NotImplementedError

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._fd

    def cork(self) -> None:
        """Hold what is sent from now on until `uncork`, and then write it at once."""
        self._corked = True

    def uncork(self) -> None:
        """Write what was sent since `cork`."""
        self._corked = False
        if self._queue and not self._writing and not self.closed:
            self._flush()

    def send(self, parts: Sequence[Part]) -> None:
        """Send one message of bytes-like parts and file regions: write what the kernel accepts, queue the rest.

        Parts are queued by reference: they may not change before they were sent.
        On a closed stream, only release the file regions; `on_closed` reports the failure.
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
        """Write a message while the queue is empty; return the bytes accepted, all of them if the stream ended."""
        try:
            return self._sock.send(message)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(lost(self.peername, error))
            return len(message)

    def left_here(self, rest: bytes | memoryview) -> None:
        """Queue what the kernel did not accept from another thread that holds `gate`, for the loop to write."""
        self._queue.append(rest)
        self.pending += len(rest)
        self._loop.call_soon_threadsafe(self.uncork)

    def lost_here(self, error: OSError) -> None:
        """Have the loop close the stream after a write in another thread failed."""
        self._loop.call_soon_threadsafe(self.close, lost(self.peername, error))

    async def drain(self, below: int = 0) -> None:
        """Wait until at most `below` bytes are queued; raise `ConnectionFailed` if the stream closes before."""
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
        """Write from the queue; return True if bytes are left for a later iteration of the loop."""
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
            self._drop_sent(sent)
        return sent

    def _gather(self) -> tuple[list[Any], int]:
        """Return the parts for one `sendmsg`, and its flags. A small file region is read: cheaper than a `sendfile`."""
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

    def _drop_sent(self, sent: int) -> None:
        """Remove `sent` bytes, and empty parts, from the head of the queue."""
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
    """Return the error for a socket whose connection was lost."""
    failure = ConnectionFailed(f"{peername}: {error.strerror or error}")
    failure.__cause__ = error
    return failure


def _peername(sock: socket.socket) -> str:
    try:
        name = sock.getpeername()
    except OSError:
        return "a disconnected peer"
    if not isinstance(name, tuple):
        return "a local socket"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
