"""The partition of an internal topic that stores an id: Java's string hash, as in every Kafka broker."""

from __future__ import annotations

from array import array
from sys import byteorder

from pyclient.errors import NotCoordinator


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`: `h = 31 h + unit` over UTF-16 code units, as a signed 32-bit number."""
    units = array("H", text.encode("utf-16-le", "surrogatepass"))
    if byteorder == "big":
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def partition_for_id(text: str, partitions: int) -> int:
    """Return the partition of a group id or transactional id. The absolute value of -2^31 is 0, as in Kafka."""
    value = java_hash(text)
    return 0 if value == -0x8000_0000 else abs(value) % partitions


def partition_in(topic: str, text: str, partitions: int) -> int:
    """Return the partition of an internal topic with `partitions` partitions that stores the id.

    Raise `NotCoordinator` if it has none, so does not exist: only FindCoordinator creates it.
    """
    if not partitions:
        raise NotCoordinator(f"{topic} does not exist: send FindCoordinator first")
    return partition_for_id(text, partitions)
