"""Callbacks that wait until an offset of a log is committed, or never will be."""

from __future__ import annotations

from collections.abc import Callable


class CommitCallbacks:
    """Callbacks with the offsets that they wait for."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Callable[[], object]]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, callback: Callable[[], object]) -> None:
        """Wait for the batch at `offset`."""
        self._waiting.append((offset, callback))

    def run(self, high_watermark: int, end_offset: int, *, over: bool) -> None:
        """Run those whose offset is below the high watermark, or was cut off the log; with `over` all of them."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        for offset, callback in waiting:
            if over or offset < high_watermark or offset >= end_offset:
                callback()
            else:
                self._waiting.append((offset, callback))
