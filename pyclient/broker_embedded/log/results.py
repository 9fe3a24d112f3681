"""What appends and reads of a partition's log are asked and answer."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pyclient.net.file_region import FileRegion

Origin = Literal["client", "coordinator", "replica"]
Isolation = Literal["uncommitted", "committed", "log_end"]


class AppendInfo(NamedTuple):
    """Where batches are. `append_time_ms` is -1 unless the broker's time is the records' (or they are a duplicate)."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class LogRead(NamedTuple):
    """An answer to a read: at most one region of a file, or what is in it, `size` bytes.

    `more`: the next segment may have data as well.

    `aborted` are (producer id, first offset) of the aborted transactions that reach into it, None unless the read was
    of committed data. The region holds its file open until it is released.
    """

    parts: list[FileRegion | bytes]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    end_offset: int
    aborted: list[tuple[int, int]] | None = None
    more: bool = False
