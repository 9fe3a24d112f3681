"""A framed, non-blocking socket, used by client connections and by the broker's server."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from pyclient.errors import ConnectionFailed
from pyclient.net.file_region import release_regions
from pyclient.net.frames import FrameAssembler
from pyclient.net.sending import SendingStream, lost

_FAIR_READS: Final = 8
_LOW_WATER: Final[Any] = getattr(socket, "SO_RCVLOWAT", None) if sys.platform == "linux" else None
_WAKE_BYTES: Final = 1024 * 1024  # of a large frame; a wakeup costs as much as receiving 50 KB, and takes the GIL


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


class FrameStream(SendingStream):
    """A TCP socket that sends and receives frames; works on asyncio's own loop and on uvloop.

    `on_frame(frame)` gets each whole frame without its length, as a memoryview that it may keep; messages sent while it
    runs are written together after all received frames were delivered. If it raises, the stream closes with that error.
    `on_closed(error)` is called once, from the loop, never from inside another call: None for an end between two
    frames, `MalformedMessage` for an impossible length, else `ConnectionFailed`.
    While more than `pause_above` bytes wait to be sent, nothing is read: a peer that does not read responses cannot
    make the queue grow.
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
        super().__init__(loop, sock, pause_above)
        self.on_closed = on_closed
        self.on_end: Callable[[bool], None] | None = None
        """Called if the peer ends the connection while reading is paused, once all was received; True for a reset."""
        self.frames = FrameAssembler(max_frame, on_frame)
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
        """Neither read nor write until `thaw`; messages sent meanwhile are queued."""
        if self.closed or self._frozen:
            return
        self._frozen = True
        if self._writing:
            self._loop.remove_writer(self._fd)
        self._writing = True  # prevents writes
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
                self._look_for_end(self.on_end)
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

    def _look_for_end(self, on_end: Callable[[bool], None]) -> None:
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
        self._corked = True
        try:
            deliver(*args)
        except Exception as error:  # reported to on_closed
            self.close(error)
        finally:
            self._corked = False
            if self._queue:
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
        if loop_runs and self._writing:
            self._loop.remove_writer(self._fd)
        with self.gate:
            self._sock.close()
        queue, self._queue = self._queue, deque()
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
