"""Reusable memory for large frames: the first access to a new page costs more than receiving its bytes."""

from __future__ import annotations

import threading
from typing import Final

_ROUND_TO: Final = 256 * 1024
_IDLE_BYTES: Final = 16 * 1024 * 1024
_UNUSED: Final = 2048
"""Bytes at a buffer's start. Memory of this size begins 16 bytes after a page boundary, a socket's data at one. A copy
to slightly above the same offset within a page takes four times as long (docs/measurements.md, "Receive buffers"),
apparently because each load then depends on the store just before it (4 KiB aliasing)."""


class ReceiveBuffers:
    """Buffers that a thread's streams receive large frames into.

    They are reused, as new memory costs more time than a receive (docs/measurements.md, "Receive buffers"). A buffer is
    free when no view of it exists any more; this is detected by resizing it. Free buffers are kept up to `idle_bytes`
    in total.
    """

    def __init__(self, idle_bytes: int = _IDLE_BYTES) -> None:
        self._idle_bytes = idle_bytes
        self._buffers: list[bytearray] = []

    def spare(self, size: int) -> memoryview | None:
        """Return a free buffer of at least `size` bytes and not far more, or None; its content is undefined."""
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
        """Return a new buffer of at least `size` bytes, which is reused once it is free."""
        buffer = bytearray(_UNUSED + -(-size // _ROUND_TO) * _ROUND_TO)
        self._buffers.append(buffer)
        return memoryview(buffer)[_UNUSED:]

    def release(self) -> None:
        """Drop the free buffers."""
        self._buffers = [buffer for buffer in self._buffers if not _is_free(buffer)]

    def _trim(self, wanted: bytearray | None) -> None:
        left = self._idle_bytes
        kept: list[bytearray] = []
        for buffer in reversed(self._buffers):  # the newest have the sizes in use now
            if buffer is not wanted and _is_free(buffer):
                if len(buffer) > left:
                    continue
                left -= len(buffer)
            kept.append(buffer)
        kept.reverse()
        self._buffers = kept


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.buffers = ReceiveBuffers()


_per_thread = _PerThread()


def receive_buffers() -> ReceiveBuffers:
    """Return the buffers of this thread."""
    return _per_thread.buffers


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True
