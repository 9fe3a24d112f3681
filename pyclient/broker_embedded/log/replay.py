"""Replays stored batches into the producer state: after a restart, a truncation, or the loss of an index."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.filesystem import Buffer
from pyclient.broker_embedded.log.producer_snapshot import CorruptSnapshot, parse_snapshot
from pyclient.broker_embedded.log.producer_state import CompletedTransaction, ProducerState
from pyclient.broker_embedded.log.transaction_index import AbortedTransaction
from pyclient.records import BatchHeader, ControlType, control_type, decode_key_values

if TYPE_CHECKING:
    from pyclient.broker_embedded.log.indexed_segment import IndexedSegment
    from pyclient.broker_embedded.log.steps import Steps

log = logging.getLogger("pyclient.broker_embedded")

_MARKER: Final = struct.Struct(">hi")  # version, coordinator epoch


class Marker(NamedTuple):
    """The end of a transaction."""

    commit: bool
    coordinator_epoch: int


def read_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """Return the transaction marker in a control batch; None for other kinds. Raises `CorruptRecord`."""
    for _offset, _timestamp, key, value in decode_key_values(batch, 0, header):
        kind = control_type(key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        if value is None or len(value) < _MARKER.size:
            raise errors.CorruptRecord(
                f"batch at offset {header.base_offset}: a transaction marker without a coordinator epoch"
            )
        return Marker(kind == ControlType.COMMIT, _MARKER.unpack_from(value)[1])
    return None


def replay_batch(
    producers: ProducerState, header: BatchHeader, read: Callable[[], Buffer]
) -> CompletedTransaction | None:
    """Record a stored batch in `producers`; `read` returns its bytes, and is called only for a control batch."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.add_batch(header, header.base_offset)
        return None
    marker = read_marker(read(), header) if header.count else None
    if marker is None:
        return None
    return producers.add_marker(
        header, header.base_offset, commit=marker.commit, coordinator_epoch=marker.coordinator_epoch
    )


def aborted(producers: ProducerState, completed: CompletedTransaction) -> AbortedTransaction:
    """Return the index entry of a transaction that was just aborted."""
    return AbortedTransaction(
        completed.producer_id, completed.first_offset, completed.last_offset, producers.stable_offset_without(completed)
    )


def rebuild_aborted(segment: IndexedSegment, snapshot: bytes | None, before: int | None) -> Steps[None]:
    """Rebuild a transaction index (up to offset `before`) from the batches and the snapshot at their beginning."""
    try:
        entries = [] if snapshot is None else parse_snapshot(snapshot)
    except CorruptSnapshot:
        entries = []
    producers = ProducerState(segment.log.path, entries)
    segment.transactions.truncate(0)
    for position, header in segment.walk(0):
        if before is not None and header.base_offset >= before:
            return
        replay_into(segment, producers, position, header)
        yield None


def replay_into(segment: IndexedSegment, producers: ProducerState, position: int, header: BatchHeader) -> None:
    """Record a batch of `segment` in `producers`, and a transaction that it aborts in the segment's index."""
    try:
        completed = replay_batch(producers, header, lambda: segment.read_batch(position, header))
    except errors.CorruptRecord as error:  # a whole batch, but no readable marker
        log.warning("%s: %s: byte %d: %s", producers.where, segment.log.path, position, error)
        return
    if completed is not None and completed.aborted:
        segment.transactions.append(aborted(producers, completed))
