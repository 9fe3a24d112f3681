"""Zigzag varints of records, in Python; the compiled codec has its own."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from pyclient.errors import CorruptRecord

_SIGN: Final = 1 << 63
_WRAP: Final = 1 << 64


def wrap64(value: int) -> int:
    """Wrap `value` to 64 signed bits: sums and differences of timestamps overflow as in Java."""
    return (value + _SIGN) % _WRAP - _SIGN


@lru_cache(maxsize=8192)
def encode_varint(value: int) -> bytes:
    """Encode `value` (64 bits, signed) as a zigzag varint. Raise `OverflowError` if it is wider."""
    if not -_SIGN <= value < _SIGN:
        raise OverflowError("a varint holds 64 bits")
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(data: bytes, position: int, last_shift: int) -> tuple[int, int]:
    """Return the varint at `position` and the position after it.

    `last_shift` is 28 for 32 bits and 63 for 64 bits. Raise `IndexError` at the end of the data and `OverflowError`
    for more bits than that.
    """
    value = data[position]
    if value < 0x80:
        return value >> 1 ^ -(value & 1), position + 1
    byte = data[position + 1]
    if byte < 0x80:
        value += (byte << 7) - 0x80
        return value >> 1 ^ -(value & 1), position + 2
    return _read_long_varint(data, position, last_shift)


def _read_long_varint(data: bytes, position: int, last_shift: int) -> tuple[int, int]:
    value = data[position] & 0x7F
    shift = 0
    byte = 0x80
    while byte > 0x7F:
        shift += 7
        position += 1
        byte = data[position]
        if shift == last_shift and byte >> (4 if shift == 28 else 1):
            raise OverflowError
        value |= (byte & 0x7F) << shift
    return value >> 1 ^ -(value & 1), position + 1


def decode_varint(data: bytes | bytearray | memoryview, position: int = 0) -> tuple[int, int]:
    """Return the zigzag varint (up to 64 bits) at `position` and the position after it. Raise `CorruptRecord`."""
    if not 0 <= position <= len(data):
        raise CorruptRecord("a varint ends early")
    try:
        value, size = read_varint(bytes(data[position : position + 10]), 0, 63)
    except IndexError:
        raise CorruptRecord("a varint ends early") from None
    except OverflowError:
        raise CorruptRecord("a varint has more than 64 bits") from None
    return value, position + size
