"""Batches at positions in a buffer: find consecutive ones in one call, read their full headers on demand."""

from __future__ import annotations

from typing import Any, TypeVar

from pyclient.errors import CorruptRecord, TruncatedMessage
from pyclient.records._pure.reading import decode_payload
from pyclient.records.batch import BatchHeader, read_header
from pyclient.records.columns import Buffer
from pyclient.records.compression import MAX_DECOMPRESSED
from pyclient.records.control import ControlType, control_type
from pyclient.records.payload import Payload, open_batch

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
    upcoming: list[tuple[int, int]] | None = None, aborted: set[int] | None = None,
) -> tuple[int, int, int]:  # fmt: skip
    """Append the batches from `position` on to `found`, as instances of `kind`, for a reader at `next_offset`.

    Return the position where it stopped, the offset after the last batch, and the leader epoch of the last one that
    was left out and has one, else -1. Stop at the end and before a batch that is incomplete, invalid, of an old
    format, empty, or before `next_offset`; without `upcoming` and `aborted` also before one of a transaction.

    `upcoming` has the first offset and the producer id of each aborted transaction, the nearest one last, and `aborted`
    the ids of producers inside of one; both are kept up to date. Control batches and those of aborted transactions are
    left out. Stop before an unreadable control batch of a producer in `aborted`.
    """
    left_out = -1
    while True:
        try:
            header = read_header(buffer, position)
        except (CorruptRecord, TruncatedMessage):
            break
        if (
            header.magic != 2 or position + header.size > len(buffer)
            or header.count <= 0 or not 0 <= header.base_offset < _MAX_BASE_OFFSET or header.next_offset <= next_offset
        ):  # fmt: skip
            break
        is_left_out = header.is_control
        if header.is_transactional or header.is_control:
            if upcoming is None or aborted is None:
                break
            while upcoming and upcoming[-1][0] <= header.last_offset:
                aborted.add(upcoming.pop()[1])
            if header.producer_id in aborted:
                if header.is_control:
                    marker = _marker_in(buffer, position, header)
                    if marker is None:
                        break
                    if marker == ControlType.ABORT:
                        aborted.discard(header.producer_id)
                is_left_out = True
        if is_left_out:
            left_out = left_out if header.leader_epoch < 0 else header.leader_epoch
        else:
            found.append(kind(topic, partition, buffer, position, header))
        position += header.size
        next_offset = header.next_offset
    return position, next_offset, left_out


def _marker_in(buffer: Buffer, position: int, header: BatchHeader) -> int | None:
    """Return the type of the control record in a batch with one record; None if it cannot be read so."""
    try:
        if header.count != 1 or header.codec:
            return None
        [record] = decode_payload(open_batch(buffer, position, header, "", 0, MAX_DECOMPRESSED))
        return control_type(record.key)
    except CorruptRecord:
        return None
