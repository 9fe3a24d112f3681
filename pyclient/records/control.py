"""The keys of control records."""

from __future__ import annotations

import struct
from enum import IntEnum

from pyclient.errors import CorruptRecord
from pyclient.records.columns import Buffer


class ControlType(IntEnum):
    """The kinds of control record that Kafka writes."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def control_type(key: Buffer | None) -> int:
    """Return the type of a control record from its key: a `ControlType`, or an unknown number (to be skipped).

    Raise `CorruptRecord` for a key that is too short or has a negative version.
    """
    if key is None or len(key) < 4:
        raise CorruptRecord("a control record's key has fewer than 4 bytes")
    version, kind = struct.unpack_from(">hh", key)
    if version < 0:
        raise CorruptRecord(f"a control record's key has version {version}")
    return ControlType(kind) if kind in ControlType.__members__.values() else int(kind)


def control_key(kind: ControlType) -> bytes:
    """Return the key of a control record of this type."""
    return struct.pack(">hh", 0, kind)
