"""The framing of records in the metadata log: frame version, record type, record version, body (KIP-631)."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from pyclient.errors import MalformedMessage
from pyclient.protocol import codec
from pyclient.varint import decode_uvarint, encode_uvarint

FRAME_VERSION: Final = 1

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
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
}
"""The record types that change what this broker answers; any other type stays in the log as it is."""

_WRITTEN_VERSIONS: Final[dict[int, int]] = {0: 3, 3: 2, 5: 2, 17: 2}
"""The versions that metadata.version 4.0-IV3 writes, where it is not 0."""


def encode(record: Any) -> bytes:
    """The bytes of a record as the metadata log keeps it."""
    version = _WRITTEN_VERSIONS.get(record.api_key, 0)
    head = encode_uvarint(FRAME_VERSION) + encode_uvarint(record.api_key) + encode_uvarint(version)
    return head + codec.encode(record, version)


def decode(value: bytes | memoryview) -> Any | None:
    """The record in `value`, or None for a type that this broker does not interpret.

    Raises `MalformedMessage` or `TruncatedMessage` for bytes that are no metadata record.
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
