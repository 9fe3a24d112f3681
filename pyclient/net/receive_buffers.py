"""Memory for large frames, used again: a page that is touched for the first time costs more than the bytes in it."""

from __future__ import annotations

import threading
from typing import Final

_ROUND_TO: Final = 256 * 1024
_IDLE_BYTES: Final = 16 * 1024 * 1024
_UNUSED: Final = 2048
"""Bytes at a buffer's start. Memory of this size begins 16 bytes behind a page's start, what a socket holds at one: to
copy from there to a little behind the same place of another page takes four times as long (measured: 82 us for 128 KiB
instead of 18), since each load seems to depend on the store just before it."""


class ReceiveBuffers:
    """Buffers that a thread's streams receive large frames into. (Measured: 0.6 ns a byte for new memory, a receive
    itself costs 0.2.)

    A buffer is free again when nobody holds a view of it any more, which it says itself: it then can be resized.
    What is free and not needed is kept up to `idle_bytes`.
    """

    def __init__(self, idle_bytes: int = _IDLE_BYTES) -> None:
        self._idle_bytes = idle_bytes
        self._buffers: list[bytearray] = []

    def spare(self, size: int) -> memoryview | None:
        """A free buffer of at least `size` bytes and not far more, its content undefined; None if there is none."""
        best: bytearray | None = None
        idle = 0
        most = max(2 * size, _ROUND_TO)
        for buffer in self._buffers:
            if _is_free(buffer):
                idle += len(buffer)
                if size <= len(buffer) - _UNUSED <= most and (best is None or len(buffer) < len(best)):
                    best = buffer
        if idle - len(best or b"") > self._idle_bytes:
            self._trim(best)
        return None if best is None else memoryview(best)[_UNUSED:]

    def new(self, size: int) -> memoryview:
        """A new buffer of at least `size` bytes, to be used again later."""
        buffer = bytearray(_UNUSED + -(-size // _ROUND_TO) * _ROUND_TO)
        self._buffers.append(buffer)
        return memoryview(buffer)[_UNUSED:]

    def release(self) -> None:
        """Gives what is free back."""
        self._buffers = [buffer for buffer in self._buffers if not _is_free(buffer)]

    def _trim(self, wanted: bytearray | None) -> None:
        left = self._idle_bytes
        kept: list[bytearray] = []
        for buffer in reversed(self._buffers):  # the youngest are of the sizes that are asked for now
            if buffer is not wanted and _is_free(buffer):
                if len(buffer) > left:
                    continue
                left -= len(buffer)
            kept.append(buffer)
        kept.reverse()
        self._buffers = kept


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.buffers = ReceiveBuffers()


_of_thread = _OfThread()


def receive_buffers() -> ReceiveBuffers:
    """Those of this thread."""
    return _of_thread.buffers


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
