"""Batches at positions in a buffer: find consecutive ones in one call, read their full headers on demand."""

from __future__ import annotations

from typing import Any, TypeVar

from pyclient.errors import CorruptRecord, TruncatedMessage
from pyclient.records.batch import BatchHeader, read_header
from pyclient.records.columns import Buffer
from pyclient.records.payload import Payload

B = TypeVar("B", bound="PlacedBatch")

_MAX_BASE_OFFSET = 2**63 - 2**32  # a batch that begins below it ends within 64 bits


class PlacedBatch:
    """One batch at `position` of a buffer, with the header fields that are needed most often.

    `checked`: its CRC was verified. `readable`: all its records were verified. `payload`: the decompressed batch, which
    replaces a call of `open_batch`. `kept`: for use by a subclass.
    """

    __slots__ = (
        "_header", "base_offset", "buffer", "checked", "count", "dense", "kept", "leader_epoch", "next_offset",
        "partition", "payload", "position", "readable", "size", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, partition: int, buffer: Buffer, position: int, header: BatchHeader) -> None:
        self.topic = topic
        self.partition = partition
        self.buffer = buffer
        self.position = position
        self._header: BatchHeader | None = header
        self.base_offset = header.base_offset
        self.next_offset = header.next_offset
        self.count = header.count
        self.size = header.size
        self.leader_epoch = header.leader_epoch
        self.dense = header.magic >= 2 and header.count == header.last_offset_delta + 1
        """True if every offset of the batch has a record, so that offsets can be computed without decoding."""
        self.checked = False
        self.readable = False
        self.payload: Payload | None = None
        self.kept: Any = None

    @property
    def header(self) -> BatchHeader:
        """The full header, read on first use."""
        if self._header is None:
            self._header = read_header(self.buffer, self.position)
        return self._header


def find_batches(
    kind: type[B], topic: str, partition: int, buffer: Buffer, position: int, next_offset: int, found: list[B],
    until: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """Append the batches from `position` on to `found`, as instances of `kind`, for a reader at `next_offset`.

    Return the position where it stopped and the offset after the last batch. Stop at the end and before a batch that is
    incomplete, invalid, of an old format, empty, or before `next_offset`. A transactional batch that ends before the
    offset `until` is appended, and a control batch before such a one left out; stop before any other of these.
    """
    stopped, end_offset = position, next_offset
    while True:
        try:
            header = read_header(buffer, position)
        except (CorruptRecord, TruncatedMessage):
            return stopped, end_offset
        if (
            header.magic != 2 or position + header.size > len(buffer)
            or ((header.is_transactional or header.is_control) and header.last_offset >= until)
            or header.count <= 0 or not 0 <= header.base_offset < _MAX_BASE_OFFSET or header.next_offset <= next_offset
        ):  # fmt: skip
            return stopped, end_offset
        is_data = not header.is_control
        if is_data:
            found.append(kind(topic, partition, buffer, position, header))
        position += header.size
        next_offset = header.next_offset
        if is_data:
            stopped, end_offset = position, next_offset
