"""A framed, non-blocking socket, used by clients and by the broker's server; and the interface of all streams."""

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
from pyclient.net.file_region import FileRegion, file_too_short, release_regions
from pyclient.net.frames import FrameAssembler
from pyclient.protocol.fields import Part

_FAIR_READS: Final = 8
_LOW_WATER: Final[Any] = getattr(socket, "SO_RCVLOWAT", None) if sys.platform == "linux" else None
_WAKE_BYTES: Final = 1024 * 1024  # of a large frame; a wakeup costs as much as receiving 50 KB, and takes the GIL
_GATHER: Final = 64  # parts in one sendmsg
_FAIR_SHARE: Final = 8 * 1024 * 1024  # bytes one stream writes before the loop serves the others
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # Linux: headers travel in one packet with the file bytes after them
_READ_BYTES: Final = 16 * 1024  # a file region up to this size is read, and sent together with the parts around it
_READ_AT_ONCE: Final = 256 * 1024
_JOIN_BYTES: Final = 2048  # a message up to this size is joined: copying it is cheaper than gathering its parts


class Stream(Protocol):
    """The transport of a connection: a TCP socket, TLS over one, or one end of a memory pipe."""

    on_frame: Callable[[memoryview], None]
    on_closed: Callable[[BaseException | None], None]
    peername: str
    pending: int
    closed: bool

    def send(self, parts: Sequence[Part]) -> None:
        """Send one message; never blocks."""
        ...

    def cork(self) -> None:
        """Allow messages sent from now on to wait for `uncork`, to be written together."""
        ...

    def uncork(self) -> None:
        """Write the messages that wait since `cork`."""
        ...

    async def drain(self, below: int = 0) -> None:
        """Wait until at most `below` bytes are left to send."""
        ...

    def pause_reading(self) -> None:
        """Deliver no frame until `resume_reading`."""
        ...

    def resume_reading(self) -> None:
        """Deliver frames again, beginning with those that were received before the pause."""
        ...

    def close(self, error: BaseException | None = None) -> None:
        """Close the stream; `on_closed(error)` is called afterwards, once."""
        ...


class Reader(Protocol):
    """Reads a stream's socket in place of the stream, for `FrameStream.read_with`."""

    def fileno(self) -> int:
        """Return the descriptor for the loop to watch; it is readable when there is something to read."""
        ...

    def __call__(self) -> object:
        """Read from the socket, or call the stream's `on_readable`."""
        ...

    def close(self) -> None:
        """Close the reader; called when the stream is closed and the loop no longer watches."""
        ...


class FrameStream:
    """A TCP socket that sends and receives frames; works on asyncio's own loop and on uvloop.

    `on_frame(frame)` gets each whole frame without its length, as a memoryview that it may keep; messages sent while it
    runs are written together after all received frames were delivered. If it raises, the stream closes with that error.
    `on_closed(error)` is called once, from the loop, never from inside another call: None for an end between two
    frames, `MalformedMessage` for an impossible length, else `ConnectionFailed`.
    While more than `pause_above` bytes wait to be sent, nothing is read: a peer that does not read responses cannot
    make the queue grow.

    A thread that holds `gate` may write to the socket itself while `queue` is empty and `is_writing`, `is_corked` and
    `closed` are false, and give the rest to `left_here`. It may receive while `frames.tail` is empty, and
    `frames.large_frame` is None, if no other thread does, and give what it cannot use to `received_here`.
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
        self.pending = 0
        self.closed = False
        self.gate = threading.RLock()
        """Held by a thread other than the loop's while it writes, so that the socket is not closed meanwhile."""
        self.has_gate: Callable[[], bool] = self.gate._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        """Return True if the calling thread holds the gate already: threading.Condition asks an RLock for it, too."""
        self.on_closed = on_closed
        self.on_end: Callable[[bool], None] | None = None
        """Called if the peer ends the connection while reading is paused, once all was received; True for a reset."""
        self.frames = FrameAssembler(max_frame, on_frame)
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._pause_above = pause_above
        self._reading = False  # frames are wanted
        self.is_writing = False
        self.is_corked = False
        self.queue: deque[Part] = deque()
        self._file_sent = 0
        self._drains: list[tuple[int, asyncio.Future[None]]] = []
        self._reader: Reader | None = None
        self._held = False  # paused by the caller
        self._frozen = False
        self._watching = False  # the loop calls on_readable, or the reader
        self._watched_fd = self._fd
        self._resets_hide = not isinstance(loop, asyncio.BaseEventLoop)  # uvloop, see `_watch_again`
        self._low_water = 1  # bytes, SO_RCVLOWAT
        self._update_reading()

    @property
    def on_frame(self) -> Callable[[memoryview], None]:
        """The callback for frames; it may be replaced between two frames."""
        return self.frames.on_frame

    @on_frame.setter
    def on_frame(self, receiver: Callable[[memoryview], None]) -> None:
        self.frames.on_frame = receiver

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._fd

    # -- sending

    def cork(self) -> None:
        """Hold what is sent from now on until `uncork`, and then write it at once."""
        self.is_corked = True

    def uncork(self) -> None:
        """Write what was sent since `cork`."""
        self.is_corked = False
        if self.queue and not self.is_writing and not self.closed:
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
        if size <= _JOIN_BYTES and not self.queue and len(parts) > 1 and FileRegion not in map(type, parts):
            message = b"".join(parts)  # type: ignore[arg-type]  # no FileRegion
            parts = [message]
            if not self.is_corked and not self.is_writing:
                sent = self._send_at_once(message)
                if sent == size:
                    return
                parts, size = [memoryview(message)[sent:]], size - sent
        self.queue.extend(parts)
        self.pending += size
        if not self.is_corked and not self.is_writing:
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
        self.queue.append(rest)
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
        if blocked != self.is_writing:
            self.is_writing = blocked
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
        queue = self.queue
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
        queue = self.queue
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
        for index, part in enumerate(self.queue):
            if isinstance(part, FileRegion):
                read += part.length
                if part.length > _READ_BYTES or read > _READ_AT_ONCE:
                    return parts, _MORE
                part = self.queue[index] = _contents(part)
            parts.append(part)
            if len(parts) == _GATHER:
                break
        return parts, 0

    def _drop_sent(self, sent: int) -> None:
        """Remove `sent` bytes, and empty parts, from the head of the queue."""
        queue = self.queue
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
            self.queue.popleft()
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
        """Deliver no frame until `resume_reading`, not even one that was received already."""
        self._held = True
        self._update_reading()

    def resume_reading(self) -> None:
        """Deliver frames again, from the loop; those that were received before the pause come first."""
        self._held = False
        self._update_reading()

    def freeze(self) -> None:
        """Suspend reads and writes until `thaw`; messages sent meanwhile are queued."""
        if self.closed or self._frozen:
            return
        self._frozen = True
        if self.is_writing:
            self._loop.remove_writer(self._fd)
        self.is_writing = True  # prevents writes
        self._update_reading()

    def thaw(self) -> None:
        """Resume reading and writing after `freeze`."""
        if self.closed or not self._frozen:
            return
        self._frozen = False
        self._loop.add_writer(self._fd, self._flush)
        self._update_reading()

    def unfinished(self) -> int | None:
        """Return the number of received bytes of an unfinished frame; None between two frames or while paused.

        Bytes for which the loop was not woken are received first, so a frame may be delivered.
        """
        if self.closed or not self._reading or self.frames.partial is None:
            return None
        for _ in range(_FAIR_READS):
            if self.frames.paused or not self._receive():
                break
        return None if self.closed or self.frames.partial is None else self.frames.waiting

    def _update_reading(self) -> None:
        """Pause or resume reading as needed. A pause is cheap: the reader is only removed if bytes arrive during it."""
        if self.closed:
            return
        too_much = self._pause_above is not None and self.pending > self._pause_above
        self._reading = not (self._held or self._frozen or too_much)
        if not self._reading:
            self.frames.paused = True
            return
        if not self._watching:
            self._watching = True
            self._loop.add_reader(self._watched_fd, self._reader or self.on_readable)
        if self.frames.paused:
            if self._has_backlog():
                self._loop.call_soon(self._deliver_backlog)
            else:
                self.frames.paused = False

    def _has_backlog(self) -> bool:
        return self.frames.backlog

    def _deliver_backlog(self) -> None:
        if self._reading and self.frames.paused and not self.closed:
            self._deliver(self.frames.resume)

    def read_with(self, reader: Reader) -> None:
        """Let the loop watch and call `reader` instead of the socket and `on_readable`; close it with the stream.

        Only for an open stream. The reader may call `on_readable` to have the stream read.
        """
        if self._watching:
            self._loop.remove_reader(self._watched_fd)
            self._loop.add_reader(reader.fileno(), reader)
        self._reader, self._watched_fd = reader, reader.fileno()

    def on_readable(self) -> None:
        """Receive the available bytes and deliver frames."""
        if not self._reading:
            self._watching = False
            self._loop.remove_reader(self._watched_fd)
            if self.on_end is not None:
                self._check_end(self.on_end)
            return
        if self.frames.paused:
            self._deliver_backlog()
        for _ in range(_FAIR_READS):
            if self.frames.paused or not self._receive():  # a closed stream is paused, too
                break
        if self._resets_hide and not self.closed and self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._watch_again()

    def _watch_again(self) -> None:
        """Watch the socket again after a reset: its error is cleared now, so it is readable up to its end of file.

        libuv stops watching a socket at a reset, after one call of the reader, which may have read earlier bytes.
        """
        self._loop.remove_reader(self._watched_fd)
        self._loop.add_reader(self._watched_fd, self._reader or self.on_readable)

    def _check_end(self, on_end: Callable[[bool], None]) -> None:
        """Call `on_end` if the next thing to receive is the end of the connection; consume no bytes."""
        try:
            ended, reset = not self._sock.recv(1, socket.MSG_PEEK), False
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            ended = reset = True
        if ended:
            on_end(reset)

    def _receive(self) -> bool:
        """Receive once; return True if more bytes may be available."""
        space = self.frames.space()
        try:
            count = self._sock.recv_into(space)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.close(lost(self.peername, error))
            return False
        if count == 0:
            self._on_end()
            return False
        self._take(count)
        return count == len(space)

    def received_here(self, data: bytes) -> None:
        """Process a few bytes that the reader of `read_with` received."""
        self.frames.space()[: len(data)] = data
        self._take(len(data))

    def _take(self, count: int) -> None:
        self._deliver(self.frames.received, count)
        if _LOW_WATER is not None:
            missing = self.frames.missing
            if missing or self._low_water != 1:
                self._set_low_water(missing)

    def _set_low_water(self, missing: int) -> None:
        """Wake the loop for a large piece of a large frame, not for every packet of it."""
        size = max(1, min(missing, _WAKE_BYTES))
        if size != self._low_water and not self.closed:
            self._low_water = size
            self._sock.setsockopt(socket.SOL_SOCKET, _LOW_WATER, size)

    def _deliver(self, deliver: Callable[..., None], *args: int) -> None:
        """Call `deliver`, which calls `on_frame`; write the messages sent meanwhile at once afterwards."""
        self.is_corked = True
        try:
            deliver(*args)
        except Exception as error:  # reported to on_closed
            self.close(error)
        finally:
            self.is_corked = False
            if self.queue:
                self.uncork()

    def _on_end(self) -> None:
        partial = self.frames.partial
        if partial is None:
            self.close()
        else:
            self.close(ConnectionFailed(f"{self.peername} closed the connection inside a frame ({partial} received)"))

    # -- closing

    def close(self, error: BaseException | None = None) -> None:
        """Close the socket and drop what was not sent; the loop calls `on_closed(error)` afterwards, once."""
        if self.closed:
            return
        self.closed = True
        self.frames.paused = True
        loop_runs = not self._loop.is_closed()
        if loop_runs and self._watching:
            self._loop.remove_reader(self._watched_fd)
        if self._reader is not None:
            self._reader.close()
        if loop_runs and self.is_writing:
            self._loop.remove_writer(self._fd)
        with self.gate:
            self._sock.close()
        queue, self.queue = self.queue, deque()
        self.pending = 0
        release_regions(queue)
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
