"""Bytes from a socket to whole frames: a 4-byte length, then so many bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from struct import Struct
from typing import Final

from pyclient.errors import MalformedMessage
from pyclient.net.receive_buffers import receive_buffers

_LENGTH: Final = Struct(">i")
_SHARED_BYTES: Final = 128 * 1024
_DIRECT_BYTES: Final = 16 * 1024  # an unfinished frame from this size on gets a buffer of its own
_FIRST_BYTES: Final = 4 * 1024  # of that buffer: whoever only announces a frame gets little memory

_LOOKALIKES: Final = {
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
    """One receive buffer per loop thread: it is empty again whenever the loop's callback returns."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_SHARED_BYTES))


_shared = _Shared()


class FrameAssembler:
    """Takes bytes where `space` says, and hands each whole frame to `on_frame`.

    Small frames are copied out of a buffer that all streams of a thread share; a large one is received straight into
    its own buffer, one that was used before or one that grows with what has come, never with what was only announced.
    While `paused`, nothing is
    handed out: what is there waits for `resume`.
    """

    __slots__ = ("_filled", "_large", "_needed", "_tail", "max_frame", "on_frame", "paused")

    def __init__(self, max_frame: int, on_frame: Callable[[memoryview], None]) -> None:
        self.max_frame = max_frame
        self.on_frame = on_frame
        self.paused = False
        self._tail = b""  # what was received and not handed out, while it is small
        self._large: memoryview | None = None
        self._filled = 0
        self._needed = 0

    @property
    def partial(self) -> str | None:
        """What of an unfinished frame is there, in words; None between two frames."""
        if self._large is not None:
            return f"{self._filled} of {self._needed} bytes"
        if len(self._tail) >= 4:
            return f"{len(self._tail) - 4} of {_LENGTH.unpack_from(self._tail)[0]} bytes"
        return f"{len(self._tail)} bytes of its length" if self._tail else None

    @property
    def missing(self) -> int:
        """How many bytes of a large frame have not come yet."""
        return 0 if self._large is None else self._needed - self._filled

    @property
    def waiting(self) -> int:
        """How many bytes were received and not handed out."""
        return len(self._tail) if self._large is None else 4 + self._filled

    @property
    def backlog(self) -> bool:
        """Whether a small frame, or a part of one, waits for `resume`."""
        return bool(self._tail)

    def space(self) -> memoryview:
        """Where the next bytes go: at least one byte, valid until the thread's next call of `space`."""
        if self._large is not None:
            return self._large[self._filled :]
        tail = self._tail
        if not tail:
            return _shared.view
        size = len(tail)
        _shared.view[:size] = tail
        return _shared.view[size:]

    def received(self, count: int) -> None:
        """Takes `count` bytes that were put at the start of `space()`; `MalformedMessage` for an impossible length."""
        if self._large is not None:
            self._filled += count
            if self._filled == self._needed:
                frame, self._large = self._large, None
                self.on_frame(frame)
            elif self._filled == len(self._large):
                self._grow(4 * self._filled)
            return
        end = len(self._tail) + count
        self._tail = b""
        self._hand_out(_shared.view, end)

    def resume(self) -> None:
        """Hands out the frames that came in before or during the pause."""
        self.paused = False
        if self._tail:
            self.space()
            self.received(0)

    def _hand_out(self, view: memoryview, end: int) -> None:
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
                on_frame(frame)
        finally:
            if position < end:
                self._tail = view[position:end].tobytes()

    def _begin_large(self, length: int, head: memoryview) -> None:
        self._needed = length
        self._filled = len(head)
        self._large = head
        spare = receive_buffers().spare(length)
        if spare is None:
            self._grow(max(_FIRST_BYTES, 4 * self._filled))
        else:
            self._move(spare[:length])

    def _grow(self, size: int) -> None:
        """To `size` bytes, or to a buffer that can be used again if that is all of the frame."""
        needed = self._needed
        self._move(receive_buffers().new(needed)[:needed] if size >= needed else memoryview(bytearray(size)))

    def _move(self, larger: memoryview) -> None:
        assert self._large is not None
        larger[: self._filled] = self._large[: self._filled]
        self._large = larger


def _implausible(length: int, max_frame: int) -> MalformedMessage:
    head = length.to_bytes(4, "big", signed=True)
    if head in _LOOKALIKES:
        return MalformedMessage(_LOOKALIKES[head])
    if head[1] == 3 and head[0] == _TLS_ALERT:
        return MalformedMessage("the port speaks TLS; set security_protocol='SSL'")
    if head[1] == 3 and head[0] == _TLS_HANDSHAKE:
        return MalformedMessage("the other side speaks TLS to a plaintext port; it needs security_protocol='PLAINTEXT'")
    if length < 0:
        return MalformedMessage(f"a frame of {length} bytes was announced: this is not Kafka's protocol")
    return MalformedMessage(f"a frame of {length} bytes was announced, more than the {max_frame} bytes allowed")
