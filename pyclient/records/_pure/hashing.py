"""The hash that spreads keys over partitions."""

from __future__ import annotations

from pyclient.records.checks import as_bytes
from pyclient.records.columns import Buffer


def murmur2(data: Buffer) -> int:
    """The 32-bit hash (signed) by which Kafka's clients choose a key's partition."""
    content = bytes(as_bytes(data, "key"))
    size = len(content)
    words = size // 4 * 4
    value = 0x9747B28C ^ size
    for at in range(0, words, 4):
        word = int.from_bytes(content[at : at + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        word = (word ^ word >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        value = value * 0x5BD1E995 & 0xFFFFFFFF ^ word
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
