"""Assemble frames from a socket's bytes: a 4-byte length, then that many bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from struct import Struct
from typing import Final

from pyclient.errors import MalformedMessage
from pyclient.net.receive_buffers import receive_buffers

_LENGTH: Final = Struct(">i")
_SHARED_BYTES: Final = 128 * 1024
_DIRECT_BYTES: Final = 16 * 1024  # an unfinished frame of at least this size gets a buffer of its own
_FIRST_BYTES: Final = 4 * 1024  # initial size of that buffer: announcing a frame must not cost much memory
_ALIKE_BYTES: Final = range(64 * 1024, 256 * 1024)  # after a frame of these sizes, the next is expected to be as large

_OTHER_PROTOCOLS: Final = {
    b"HTTP": "the port speaks HTTP, it is not a Kafka broker: check host and port",
    b"SSH-": "the port speaks SSH, it is not a Kafka broker: check host and port",
    b"GET ": "the other side speaks HTTP, not Kafka's protocol",
    b"POST": "the other side speaks HTTP, not Kafka's protocol",
    b"HEAD": "the other side speaks HTTP, not Kafka's protocol",
    b"PUT ": "the other side speaks HTTP, not Kafka's protocol",
    b"PRI ": "the other side speaks HTTP/2, not Kafka's protocol",
}
_TLS_ALERT: Final = 0x15
_TLS_HANDSHAKE: Final = 0x16


class _Shared(threading.local):
    """One receive buffer per loop thread; it holds no data between two callbacks of the loop."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_SHARED_BYTES + _ALIKE_BYTES.stop))  # up to the latter may remain in a pause


_shared = _Shared()


class FrameAssembler:
    """Receives bytes into the buffer from `space`, and passes each whole frame to `on_frame`.

    Small frames are copied out of a buffer that all streams of a thread share. A large one is received straight into
    its own buffer: a reused one, or one that grows with the bytes received, never with the announced length. After a
    large frame the next one is received into a reused buffer from its first byte, since large frames come in series
    and copies of their heads cost time (docs/measurements.md, "Receive buffers"). While `paused`, frames stay here
    until `resume`.
    """

    __slots__ = ("_ahead", "_alike", "_filled", "_needed", "large_frame", "max_frame", "on_frame", "paused", "tail")

    def __init__(self, max_frame: int, on_frame: Callable[[memoryview], None]) -> None:
        self.max_frame = max_frame
        self.on_frame = on_frame
        self.paused = False
        self.tail = b""  # bytes received and not delivered, unless they belong to a large frame
        self.large_frame: memoryview | None = None
        self._filled = 0
        self._needed = 0
        self._alike = 0  # expected bytes of the next frame, its length field included; 0 if unknown
        self._ahead: memoryview | None = None  # the buffer that `space` returned for that frame

    @property
    def partial(self) -> str | None:
        """A text that says how much of an unfinished frame was received; None between two frames."""
        if self.large_frame is not None:
            return f"{self._filled} of {self._needed} bytes"
        if len(self.tail) >= 4:
            return f"{len(self.tail) - 4} of {_LENGTH.unpack_from(self.tail)[0]} bytes"
        return f"{len(self.tail)} bytes of its length" if self.tail else None

    @property
    def missing(self) -> int:
        """The number of bytes of a large frame that are not received yet."""
        return 0 if self.large_frame is None else self._needed - self._filled

    @property
    def waiting(self) -> int:
        """The number of bytes received and not delivered."""
        return len(self.tail) if self.large_frame is None else 4 + self._filled

    @property
    def backlog(self) -> bool:
        """True if a small frame, or a part of one, is buffered."""
        return bool(self.tail)

    def space(self) -> memoryview:
        """Return the buffer for the next bytes: at least one byte, valid until the thread's next call of `space`."""
        if self.large_frame is not None:
            return self.large_frame[self._filled :]
        tail = self.tail
        size = len(tail)
        if size < self._alike and not self.paused:
            self._ahead = receive_buffers().spare(self._alike)
            if self._ahead is not None:
                self._ahead[:size] = tail
                return self._ahead[size : self._alike]
        if not tail:
            return _shared.view[:_SHARED_BYTES]
        _shared.view[:size] = tail
        return _shared.view[size : max(size + 1, _SHARED_BYTES)]

    def received(self, count: int) -> None:
        """Process `count` bytes at the start of `space()`; raise `MalformedMessage` for an impossible frame length."""
        if self.large_frame is not None:
            self._filled += count
            if self._filled == self._needed:
                self._deliver_large()
            elif self._filled == len(self.large_frame):
                self._grow(4 * self._filled)
            return
        end = len(self.tail) + count
        self.tail = b""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            self._deliver(_shared.view, end)
        elif not self._begin_in_place(ahead, end):
            self._deliver(ahead, end)

    def resume(self) -> None:
        """Deliver the frames that were received before or during the pause, and later ones."""
        self.paused = False
        if self.tail:
            self.space()
            self.received(0)

    def _deliver_large(self) -> None:
        frame, self.large_frame = self.large_frame, None
        assert frame is not None
        self._alike = 4 + self._needed if self._needed in _ALIKE_BYTES else 0
        self.on_frame(frame)

    def _begin_in_place(self, ahead: memoryview, end: int) -> bool:
        """Use `ahead` as the buffer of the large frame that it starts with; return False if it starts with none."""
        if end < 4:
            return False
        length: int = _LENGTH.unpack_from(ahead)[0]
        if length not in _ALIKE_BYTES or not end <= 4 + length <= min(len(ahead), self.max_frame + 4):
            return False
        self._needed = length
        self._filled = end - 4
        self.large_frame = ahead[4 : 4 + length]
        if self._filled == length:
            self._deliver_large()
        return True

    def _deliver(self, view: memoryview, end: int) -> None:
        position = 0
        unpack = _LENGTH.unpack_from
        on_frame = self.on_frame
        try:
            while end - position >= 4 and not self.paused:
                length = unpack(view, position)[0]
                if not 0 <= length <= self.max_frame:
                    raise _implausible(length, self.max_frame)
                stop = position + 4 + length
                if stop > end:
                    if length >= _DIRECT_BYTES:
                        self._begin_large(length, view[position + 4 : end])
                        position = end
                    break
                frame = memoryview(view[position + 4 : stop].tobytes())
                position = stop
                self._alike = 4 + length if length in _ALIKE_BYTES else 0
                on_frame(frame)
        finally:
            if position < end:
                self.tail = view[position:end].tobytes()

    def _begin_large(self, length: int, head: memoryview) -> None:
        self._needed = length
        self._filled = len(head)
        self.large_frame = head
        spare = receive_buffers().spare(length)
        if spare is None:
            self._grow(max(_FIRST_BYTES, 4 * self._filled))
        else:
            self._move(spare[:length])

    def _grow(self, size: int) -> None:
        """Grow the buffer to `size` bytes, or replace it with a reusable one if that holds the whole frame."""
        needed = self._needed
        self._move(receive_buffers().new(needed)[:needed] if size >= needed else memoryview(bytearray(size)))

    def _move(self, larger: memoryview) -> None:
        assert self.large_frame is not None
        larger[: self._filled] = self.large_frame[: self._filled]
        self.large_frame = larger


def _implausible(length: int, max_frame: int) -> MalformedMessage:
    head = length.to_bytes(4, "big", signed=True)
    if head in _OTHER_PROTOCOLS:
        return MalformedMessage(_OTHER_PROTOCOLS[head])
    if head[1] == 3 and head[0] == _TLS_ALERT:
        return MalformedMessage("the port speaks TLS; set security_protocol='SSL'")
    if head[1] == 3 and head[0] == _TLS_HANDSHAKE:
        return MalformedMessage("the other side speaks TLS to a plaintext port; it needs security_protocol='PLAINTEXT'")
    if length < 0:
        return MalformedMessage(f"a frame of {length} bytes was announced: this is not Kafka's protocol")
    return MalformedMessage(f"a frame of {length} bytes was announced, more than the {max_frame} bytes allowed")
