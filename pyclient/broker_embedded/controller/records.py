"""The framing of records in the metadata log: frame version, record type, record version, body (KIP-631)."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from pyclient.errors import MalformedMessage
from pyclient.protocol import codec
from pyclient.protocol.parts import fields_of
from pyclient.varint import decode_uvarint, encode_uvarint

FRAME_VERSION: Final = 1
_NO_OP: Final = 20

_CLASS_NAMES: Final[dict[int, str]] = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}
"""The record types that this broker interprets; other types stay in the log unchanged."""

_VERSIONS: Final[dict[int, tuple[tuple[int, int], ...]]] = {
    0: ((30, 4), (17, 3), (8, 2), (7, 1)),  # registrations: log directories from 3.7, cordoned ones from 4.3
    3: ((23, 2), (17, 1)),  # partitions: log directories from 3.7, eligible leader replicas from 4.0
    5: ((23, 2), (17, 1)),
    17: ((30, 3), (17, 2), (7, 1)),
}
"""Record type -> (metadata.version, record version written from that level on); version 0 for other types."""


def version_of(api_key: int, level: int) -> int:
    """Return the version in which a record type is written at metadata.version `level`."""
    return next((version for since, version in _VERSIONS.get(api_key, ()) if level >= since), 0)


def encode(record: Any, level: int) -> bytes:
    """Encode a record for a log of metadata.version `level`."""
    version = version_of(record.api_key, level)
    head = encode_uvarint(FRAME_VERSION) + encode_uvarint(record.api_key) + encode_uvarint(version)
    return head + codec.encode(_in_version(record, version), version)


def _in_version(record: Any, version: int) -> Any:
    """Return the record without the fields that the version does not have."""
    cls = type(record)
    fields = fields_of(cls)
    if all(each.present_in(version) for each in fields):
        return record
    return cls(**{each.name: getattr(record, each.name) for each in fields if each.present_in(version)})


def is_no_op(value: bytes | memoryview) -> bool:
    """Return True if a record is a NoOpRecord, which only moves the log's end."""
    _frame, position = decode_uvarint(value)
    return decode_uvarint(value, position)[0] == _NO_OP


def decode(value: bytes | memoryview) -> Any | None:
    """Decode a record; return None for a type that this broker does not interpret.

    Raise `MalformedMessage` or `TruncatedMessage` for bytes that are no metadata record.
    """
    frame, position = decode_uvarint(value)
    if frame != FRAME_VERSION:
        raise MalformedMessage(f"metadata record with frame version {frame}: only {FRAME_VERSION} is known")
    key, position = decode_uvarint(value, position)
    version, position = decode_uvarint(value, position)
    name = _CLASS_NAMES.get(key)
    if name is None:
        return None
    cls = getattr(import_module("pyclient.protocol.messages.metadata_log"), name)
    return codec.decode(cls, version, memoryview(value)[position:])
