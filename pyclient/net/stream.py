"""One framed, non-blocking socket, for both sides: the client's connection and the broker's server."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from pyclient.errors import ConnectionFailed
from pyclient.net.frames import FrameAssembler
from pyclient.protocol.fields import Part

_GATHER: Final = 64  # parts in one sendmsg
_FAIR_SHARE: Final = 8 * 1024 * 1024  # bytes one stream writes before the loop turns to the others
_FAIR_READS: Final = 8
_LOW_WATER: Final[Any] = getattr(socket, "SO_RCVLOWAT", None) if sys.platform == "linux" else None
_WAKE_BYTES: Final = 256 * 1024  # of a large frame; waking up costs as much as receiving 50 KB
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # Linux: headers travel in the packet of the file bytes behind them
_COPY_BYTES: Final = 256 * 1024
_JOIN_BYTES: Final = 2048  # of a message; to gather its parts takes longer than to copy so few


class FileRegion:
    """A stretch of a file as part of a message: its bytes go from the page cache to the socket, not through Python.

    `release`, if given, is called exactly once: when the region was sent, or when its stream was closed before that.
    """

    __slots__ = ("_release", "fd", "length", "position")

    def __init__(self, fd: int, position: int, length: int, release: Callable[[], None] | None = None) -> None:
        self.fd = fd
        self.position = position
        self.length = length
        self._release = release

    def __len__(self) -> int:
        return self.length

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        """Up to `size` bytes from `start` within the region; `ConnectionFailed` if the file ends before them."""
        wanted = self.length - start if size is None else min(size, self.length - start)
        data = os.pread(self.fd, wanted, self.position + start)
        if len(data) < wanted:
            raise _file_too_short(self, start + len(data))
        return data

    def release(self) -> None:
        """Says that nobody needs the region any more."""
        callback, self._release = self._release, None
        if callback is not None:
            callback()

    def __repr__(self) -> str:
        return f"<FileRegion fd={self.fd} {self.position}+{self.length}>"


class Stream(Protocol):
    """What a connection stands on: a TCP socket, TLS over one, or one end of a memory pipe."""

    on_frame: Callable[[memoryview], None]
    on_closed: Callable[[BaseException | None], None]
    peername: str
    pending: int
    closed: bool

    def send(self, parts: Sequence[Part]) -> None:
        """Sends one message; never blocks."""
        ...

    def cork(self) -> None:
        """What is sent from now on may wait for `uncork`, to leave together."""
        ...

    def uncork(self) -> None:
        """Sends what waits since `cork`."""
        ...

    async def drain(self, below: int = 0) -> None:
        """Waits until no more than `below` bytes wait to be sent."""
        ...

    def pause_reading(self) -> None:
        """Hands out no frame until `resume_reading`."""
        ...

    def resume_reading(self) -> None:
        """Hands out frames again, beginning with those that were received before the pause."""
        ...

    def close(self, error: BaseException | None = None) -> None:
        """Ends the stream; `on_closed(error)` follows, once."""
        ...


class FrameStream:
    """A TCP socket that gives and takes frames; works on asyncio's own loop and on uvloop.

    `on_frame(frame)` gets each whole frame without its length, as a memoryview that it may keep; frames sent while it
    runs leave together when all frames at hand were handed out. If it raises, the stream closes with that error.
    `on_closed(error)` is called once, from the loop, never from inside another call: None for an end between two
    frames, `MalformedMessage` for a length that cannot be, else `ConnectionFailed`.
    While more than `pause_above` bytes wait to be sent, nothing is read: a peer that does not read gets no answers.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        *,
        max_frame: int,
        on_frame: Callable[[memoryview], None],
        on_closed: Callable[[BaseException | None], None],
        pause_above: int | None = None,
    ) -> None:
        sock.setblocking(False)
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peername = _peername(sock)
        self.on_closed = on_closed
        self.on_end: Callable[[], None] | None = None
        """Called if the other side ends, or is lost, while reading is paused and all that came was received."""
        self.pending = 0
        self.closed = False
        self.gate = threading.RLock()
        """Held by another thread than the loop's while it writes: until then the socket is not closed."""
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._frames = FrameAssembler(max_frame, on_frame)
        self._pause_above = pause_above
        self._held = False  # paused by the caller
        self._frozen = False
        self._reading = False  # frames are wanted
        self._watching = False  # the loop calls _on_readable
        self._writing = False
        self._waits_for = 1  # bytes
        self._corked = False
        self._queue: deque[Part] = deque()
        self._file_sent = 0
        self._drains: list[tuple[int, asyncio.Future[None]]] = []
        self._update_reading()

    @property
    def on_frame(self) -> Callable[[memoryview], None]:
        """Who gets the frames; may be changed between two of them."""
        return self._frames.on_frame

    @on_frame.setter
    def on_frame(self, receiver: Callable[[memoryview], None]) -> None:
        self._frames.on_frame = receiver

    # -- sending

    def send(self, parts: Sequence[Part]) -> None:
        """Sends one message, bytes-like parts and file regions: writes at once what the kernel takes, queues the rest.

        What is queued is queued by reference: a part may not change before it was sent.
        On a closed stream it does nothing but release the file regions: `on_closed` has told or will tell.
        """
        if self.closed:
            _release(parts)
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
            self.close(_lost(self.peername, error))
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
            self._loop.call_soon_threadsafe(self.close, _lost(self.peername, error))
            return
        if sent < len(message):
            self._queue.append(memoryview(message)[sent:])
            self.pending += len(message) - sent
            self._loop.call_soon_threadsafe(self.uncork)

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
            self.close(_lost(self.peername, error))
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
                sent = self._write_file(head) if isinstance(head, FileRegion) else self._write_bytes()
            except (BlockingIOError, InterruptedError):
                return True
            self.pending -= sent
            budget -= sent
        return False

    def _write_bytes(self) -> int:
        queue = self._queue
        if len(queue) == 1:
            sent = self._sock.send(queue[0])  # type: ignore[arg-type]  # no FileRegion: _write_out has looked
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
        parts: list[Any] = []
        for part in self._queue:
            if isinstance(part, FileRegion):
                return parts, _MORE
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
            raise OSError(str(_file_too_short(region, start)))
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

    # -- receiving

    def pause_reading(self) -> None:
        """Hands out no frame until `resume_reading`, not even one that was received already."""
        self._held = True
        self._update_reading()

    def resume_reading(self) -> None:
        """Hands out frames again; those that were received before the pause come first, from the loop."""
        self._held = False
        self._update_reading()

    def freeze(self) -> None:
        """Neither reads nor writes until `thaw`; what is sent meanwhile waits."""
        if self.closed or self._frozen:
            return
        self._frozen = True
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._writing = True  # so that nothing tries to
        self._update_reading()

    def thaw(self) -> None:
        """Goes on where `freeze` stopped it."""
        if self.closed or not self._frozen:
            return
        self._frozen = False
        self._loop.add_writer(self._fd, self._flush)
        self._update_reading()

    def unfinished(self) -> int | None:
        """How many bytes of an unfinished frame have come; None between two frames and while reading is paused.

        What the loop was not woken up for is received first, so a frame may be handed out.
        """
        if self.closed or not self._reading or self._frames.partial is None:
            return None
        for _ in range(_FAIR_READS):
            if self._frames.paused or not self._receive():
                break
        return None if self.closed or self._frames.partial is None else self._frames.waiting

    def _update_reading(self) -> None:
        """Follows the reasons to pause. A pause is cheap: the reader is taken off when bytes come during one."""
        if self.closed:
            return
        too_much = self._pause_above is not None and self.pending > self._pause_above
        self._reading = not (self._held or self._frozen or too_much)
        if not self._reading:
            self._frames.paused = True
            return
        if not self._watching:
            self._watching = True
            self._loop.add_reader(self._fd, self._on_readable)
        if self._frames.paused:
            if self._has_backlog():
                self._loop.call_soon(self._hand_out_backlog)
            else:
                self._frames.paused = False

    def _has_backlog(self) -> bool:
        return self._frames.backlog

    def _hand_out_backlog(self) -> None:
        if self._reading and self._frames.paused and not self.closed:
            self._handing_out(self._frames.resume)

    def _on_readable(self) -> None:
        if not self._reading:
            self._watching = False
            self._loop.remove_reader(self._fd)
            if self.on_end is not None and self._has_ended():
                self.on_end()
            return
        if self._frames.paused:
            self._hand_out_backlog()
        for _ in range(_FAIR_READS):
            if self._frames.paused or not self._receive():  # closed is paused, too
                return

    def _has_ended(self) -> bool:
        """Whether the next thing to receive is the end; nothing is taken from the socket."""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:  # the next write or read tells which
            return True

    def _receive(self) -> bool:
        """Receives once; True if there may be more at once."""
        space = self._frames.space()
        try:
            count = self._sock.recv_into(space)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.close(_lost(self.peername, error))
            return False
        if count == 0:
            self._on_end()
            return False
        self._handing_out(self._frames.received, count)
        if _LOW_WATER is not None:
            missing = self._frames.missing
            if missing or self._waits_for != 1:
                self._wait_for(missing)
        return count == len(space)

    def _wait_for(self, missing: int) -> None:
        """Has the loop wake up for a large piece of a large frame, not for every packet of it."""
        size = max(1, min(missing, _WAKE_BYTES))
        if size != self._waits_for and not self.closed:
            self._waits_for = size
            self._sock.setsockopt(socket.SOL_SOCKET, _LOW_WATER, size)

    def _handing_out(self, deliver: Callable[..., None], *args: int) -> None:
        """Runs the receiver; what it sends meanwhile leaves in one write afterwards."""
        self._corked = True
        try:
            deliver(*args)
        except Exception as error:  # told to on_closed
            self.close(error)
        finally:
            self._corked = False
            if self._queue:
                self.uncork()

    def cork(self) -> None:
        """What is sent from now on waits for `uncork`, to leave in one write."""
        self._corked = True

    def uncork(self) -> None:
        """Writes what was sent since `cork`."""
        self._corked = False
        if self._queue and not self._writing and not self.closed:
            self._flush()

    def _on_end(self) -> None:
        partial = self._frames.partial
        if partial is None:
            self.close()
        else:
            self.close(ConnectionFailed(f"{self.peername} closed the connection inside a frame ({partial} had come)"))

    # -- closing

    def close(self, error: BaseException | None = None) -> None:
        """Closes the socket and drops what was not sent; `on_closed(error)` follows from the loop, once."""
        if self.closed:
            return
        self.closed = True
        self._frames.paused = True
        loop_runs = not self._loop.is_closed()
        if loop_runs and self._watching:
            self._loop.remove_reader(self._fd)
        if loop_runs and self._writing:
            self._loop.remove_writer(self._fd)
        with self.gate:
            self._sock.close()
        queue, self._queue = self._queue, deque()
        self.pending = 0
        _release(queue)
        for _, waiter in self._drains:
            if not waiter.done():
                waiter.set_exception(ConnectionFailed(f"{self.peername}: the connection was closed"))
        self._drains.clear()
        if loop_runs:
            self._loop.call_soon(self.on_closed, error)
        else:
            self.on_closed(error)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<{type(self).__name__} {self.peername} {state} pending={self.pending}>"


def _release(parts: Sequence[Part] | deque[Part]) -> None:
    for part in parts:
        if isinstance(part, FileRegion):
            part.release()


def _file_too_short(region: FileRegion, end: int) -> ConnectionFailed:
    return ConnectionFailed(f"the file behind {region!r} ends after {end} bytes: it was truncated while being sent")


def _lost(peername: str, error: OSError) -> ConnectionFailed:
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
