"""The hash that spreads keys over partitions."""

from __future__ import annotations

import struct

from pyclient.records.checks import as_bytes
from pyclient.records.columns import Buffer


def murmur2(data: Buffer) -> int:
    """The 32-bit hash (signed) by which Kafka's clients choose a key's partition."""
    content = bytes(as_bytes(data, "key"))
    size = len(content)
    words = size // 4 * 4
    value = 0x9747B28C ^ size
    for word in struct.unpack_from(f"<{words // 4}I", content):
        word = word * 0x5BD1E995 & 0xFFFFFFFF
        value = (value * 0x5BD1E995 ^ (word ^ word >> 24) * 0x5BD1E995) & 0xFFFFFFFF
    if words < size:
        value = (value ^ int.from_bytes(content[words:], "little")) * 0x5BD1E995 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    value ^= value >> 15
    return value - (value >> 31 << 32)


def partition_for_key(key: Buffer, partitions: int) -> int:
    """The partition of `key` in a topic of `partitions`: the same as the Java client's."""
    if partitions < 1:
        raise ValueError(f"a topic has at least one partition, not {partitions}")
    return (murmur2(key) & 0x7FFFFFFF) % partitions
