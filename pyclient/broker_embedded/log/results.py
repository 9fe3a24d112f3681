"""Parameter and result types of appends to and reads from a partition's log."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pyclient.net.file_region import FileRegion

Origin = Literal["client", "coordinator", "replica"]
Isolation = Literal["uncommitted", "committed", "log_end"]


class AppendInfo(NamedTuple):
    """The place of appended batches. `append_time_ms` is -1, except with LogAppendTime and for duplicates."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    log_start_offset: int
    duplicate: bool = False


class LogRead(NamedTuple):
    """The result of a read: at most one region of a file, or its bytes; `size` in bytes.

    `more`: the next segment may have data as well.

    `aborted` are (producer id, first offset) of the aborted transactions that overlap it, None unless the read was of
    committed data. The region keeps its file open until it is released.
    """

    parts: list[FileRegion | bytes]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    end_offset: int
    aborted: list[tuple[int, int]] | None = None
    more: bool = False
