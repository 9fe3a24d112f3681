"""The control record that ends a transaction in a partition: its marker."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from pyclient import errors
from pyclient.broker_embedded.log.filesystem import Buffer
from pyclient.records import BatchHeader, ControlType, build_batch, control_key, control_type, decode_key_values

_MARKER: Final = struct.Struct(">hi")  # version, coordinator epoch


class EndTransactionMarker(NamedTuple):
    """The end of a transaction."""

    commit: bool
    coordinator_epoch: int


def read_marker(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the transaction marker in a control batch; None for other kinds. Raise `CorruptRecord`."""
    for _offset, _timestamp, key, value in decode_key_values(batch, 0, header):
        kind = control_type(key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        if value is None or len(value) < _MARKER.size:
            raise errors.CorruptRecord(
                f"batch at offset {header.base_offset}: a transaction marker without a coordinator epoch"
            )
        return EndTransactionMarker(kind == ControlType.COMMIT, _MARKER.unpack_from(value)[1])
    return None


def build_marker(producer_id: int, producer_epoch: int, marker: EndTransactionMarker, *, timestamp_ms: int) -> bytes:
    """Return the control batch that ends a producer's transaction."""
    key = control_key(ControlType.COMMIT if marker.commit else ControlType.ABORT)
    return build_batch(
        [(key, _MARKER.pack(0, marker.coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        control=True,
        transactional=True,
    )
