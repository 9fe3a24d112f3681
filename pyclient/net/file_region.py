"""Regions of files as parts of messages, sent from the page cache with `sendfile`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence

from pyclient.errors import ConnectionFailed
from pyclient.protocol.fields import Part


class FileRegion:
    """A region of a file as part of a message: its bytes go from the page cache to the socket, not through Python.

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
        """Return up to `size` bytes from `start` within the region; raise `ConnectionFailed` if the file is shorter."""
        wanted = self.length - start if size is None else min(size, self.length - start)
        data = os.pread(self.fd, wanted, self.position + start)
        if len(data) < wanted:
            raise file_too_short(self, start + len(data))
        return data

    def release(self) -> None:
        """Call the region's `release` callback, once."""
        callback, self._release = self._release, None
        if callback is not None:
            callback()

    def __repr__(self) -> str:
        return f"<FileRegion fd={self.fd} {self.position}+{self.length}>"


def release_regions(parts: Sequence[Part] | deque[Part]) -> None:
    """Release the file regions among these parts."""
    for part in parts:
        if isinstance(part, FileRegion):
            part.release()


def file_too_short(region: FileRegion, end: int) -> ConnectionFailed:
    """Return the error for a file that ends at byte `end` of the region."""
    return ConnectionFailed(f"the file of {region!r} ends after {end} bytes: it was truncated while being sent")
