"""Two streams connected in memory: the same frames, limits and closing as with sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pyclient.errors import ConnectionFailed
from pyclient.net.file_region import FileRegion
from pyclient.net.frames import FrameAssembler
from pyclient.protocol.fields import Part


class MemoryStream:
    """One end of a memory pipe; a `Stream`. The loop delivers bytes to the other end, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop, peername: str, max_frame: int) -> None:
        self.peername = peername
        self.pending = 0
        self.closed = False
        self.on_closed: Callable[[BaseException | None], None] = _ignore
        self._loop = loop
        self._frames = FrameAssembler(max_frame, _ignore)
        self._frames.paused = True  # until `on_frame` is set
        self._other: MemoryStream = self
        self._inbox: list[bytes] = []
        self._moved = asyncio.Event()

    @property
    def on_frame(self) -> Callable[[memoryview], None]:
        """The callback for frames; reading begins when it is set."""
        return self._frames.on_frame

    @on_frame.setter
    def on_frame(self, receiver: Callable[[memoryview], None]) -> None:
        first = self._frames.on_frame is _ignore
        self._frames.on_frame = receiver
        if first:
            self.resume_reading()

    def send(self, parts: Sequence[Part]) -> None:
        """Send one message; on a closed stream, only release its file regions."""
        data = b"".join(_bytes_of(part) for part in parts)
        if not self.closed:
            self.pending += len(data)
            self._other._inbox.append(data)
            self._loop.call_soon(self._other._take)

    def cork(self) -> None:
        """Do nothing: in memory a message costs no system call."""

    def uncork(self) -> None:
        """Do nothing, like `cork`."""

    async def drain(self, below: int = 0) -> None:
        """Wait until the other end has received all but `below` bytes."""
        while self.pending > below and not self.closed:
            self._moved.clear()
            await self._moved.wait()
        if self.closed:
            raise ConnectionFailed(f"{self.peername}: the connection was closed")

    def pause_reading(self) -> None:
        """Deliver no frame until `resume_reading`."""
        self._frames.paused = True

    def resume_reading(self) -> None:
        """Deliver frames again, from the loop."""
        self._loop.call_soon(self._resume)

    def close(self, error: BaseException | None = None) -> None:
        """Close both ends: this one with `error`, the other as if its peer had closed the connection."""
        if self.closed:
            return
        self._end(error)
        self._loop.call_soon(self._other._take)  # after the bytes that were sent before

    def _resume(self) -> None:
        if not self.closed:
            self._guarded(self._frames.resume)
            self._take()

    def _take(self) -> None:
        while self._inbox and not self._frames.paused and not self.closed:
            data = self._inbox.pop(0)
            self._other.pending -= len(data)
            self._other._moved.set()
            self._guarded(self._feed, memoryview(data))
        if self._other.closed and not self._inbox and not self.closed:
            partial = self._frames.partial
            lost = ConnectionFailed(f"{self.peername} closed the connection inside a frame ({partial} received)")
            self._end(lost if partial else None)

    def _feed(self, data: memoryview) -> None:
        while data and not self.closed:
            if self._frames.paused:
                self._inbox.insert(0, bytes(data))
                self._other.pending += len(data)
                return
            space = self._frames.space()
            count = min(len(space), len(data))
            space[:count] = data[:count]
            self._frames.received(count)
            data = data[count:]

    def _guarded(self, deliver: Callable[..., None], *args: memoryview) -> None:
        try:
            deliver(*args)
        except Exception as error:  # reported to on_closed
            self.close(error)

    def _end(self, error: BaseException | None) -> None:
        self.closed = True
        self._frames.paused = True
        self.pending = 0
        self._moved.set()
        self._loop.call_soon(self.on_closed, error)

    def __repr__(self) -> str:
        return f"<MemoryStream {self.peername} {'closed' if self.closed else 'open'} pending={self.pending}>"


def memory_pipe(
    loop: asyncio.AbstractEventLoop, *, max_frame: int = 100_000_000, names: tuple[str, str] = ("pipe:1", "pipe:2")
) -> tuple[MemoryStream, MemoryStream]:
    """Return two connected streams, each reading once its `on_frame` is set. `names` are their peer names."""
    first, second = MemoryStream(loop, names[1], max_frame), MemoryStream(loop, names[0], max_frame)
    first._other, second._other = second, first
    return first, second


def _bytes_of(part: Part) -> bytes:
    if not isinstance(part, FileRegion):
        return bytes(part)  # type: ignore[call-overload, no-any-return]  # bytes-like
    data = part.read()
    part.release()
    return data


def _ignore(_: object) -> None:
    """Do nothing; the default callback."""
