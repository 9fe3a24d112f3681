"""Batches where they lie in a buffer: a run of them found in one step, their headers read when somebody looks."""

from __future__ import annotations

from typing import Any, TypeVar

from pyclient.errors import CorruptRecord, TruncatedMessage
from pyclient.records.batch import BatchHeader, read_header
from pyclient.records.columns import Buffer
from pyclient.records.payload import Payload

B = TypeVar("B", bound="PlacedBatch")

_FARTHEST = 2**63 - 2**32  # no batch that begins before it ends behind what 64 bits can say


class PlacedBatch:
    """One batch at `position` of a buffer, and the few numbers of its header that are needed all the time.

    `checked` says that its checksum was found right, `readable` that all its records can be read. `payload` is what
    `open_batch` made of a compressed one, to be used instead of that. `kept` is for what a subclass makes of it.
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
        """Whether every offset of the batch has its record, so that offsets can be counted without decoding."""
        self.checked = False
        self.readable = False
        self.payload: Payload | None = None
        self.kept: Any = None

    @property
    def header(self) -> BatchHeader:
        """All that the batch says about itself."""
        if self._header is None:
            self._header = read_header(self.buffer, self.position)
        return self._header


def find_batches(
    kind: type[B], topic: str, partition: int, buffer: Buffer, position: int, next_offset: int, found: list[B]
) -> tuple[int, int]:
    """Appends to `found`, as `kind`, the batches from `position` on that a reader at `next_offset` wants without doubt.

    Says where it stopped, and the offset behind the last one: in front of the end, of a batch that is cut or makes no
    sense, of an old format or of a transaction, without records, or before `next_offset`.
    """
    while True:
        try:
            header = read_header(buffer, position)
        except (CorruptRecord, TruncatedMessage):
            return position, next_offset
        if (
            header.magic != 2 or header.is_transactional or header.is_control or position + header.size > len(buffer)
            or header.count <= 0 or not 0 <= header.base_offset < _FARTHEST or header.next_offset <= next_offset
        ):  # fmt: skip
            return position, next_offset
        found.append(kind(topic, partition, buffer, position, header))
        position += header.size
        next_offset = header.next_offset
