"""Variable-length integers: unsigned ones for compact lengths and tags, zigzag ones for record batches."""

from __future__ import annotations

from typing import Final

from pyclient.errors import MalformedMessage, TruncatedMessage

Buffer = bytes | bytearray | memoryview

MAX_UVARINT: Final = 0xFFFF_FFFF
_ONE_BYTE: Final = tuple(bytes([value]) for value in range(128))


def encode_uvarint(value: int) -> bytes:
    """Encode an unsigned 32-bit number, seven bits a byte, lowest first; raise ValueError outside 0 ... 2**32 - 1."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not 0 <= value <= MAX_UVARINT:
        raise ValueError(f"{value} is not an unsigned 32-bit number")
    return _groups(value)


def encode_varint(value: int) -> bytes:
    """Encode a signed 32-bit number in zigzag form (0, -1, 1, -2, ... become 0, 1, 2, 3, ...)."""
    if not -0x8000_0000 <= value <= 0x7FFF_FFFF:
        raise ValueError(f"{value} is not a signed 32-bit number")
    return _groups(value << 1 ^ value >> 31)


def encode_varlong(value: int) -> bytes:
    """Encode a signed 64-bit number in zigzag form."""
    if not -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        raise ValueError(f"{value} is not a signed 64-bit number")
    return _groups(value << 1 ^ value >> 63)


def decode_uvarint(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Return the unsigned 32-bit number at `position`, and the position after it.

    Raise TruncatedMessage if the buffer ends inside it, MalformedMessage if it is longer than five bytes.
    """
    return _read(buffer, position, 32)


def decode_varint(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Return the zigzag 32-bit number at `position`, and the position after it; errors as `decode_uvarint`."""
    value, position = _read(buffer, position, 32)
    return value >> 1 ^ -(value & 1), position


def decode_varlong(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """Return the zigzag 64-bit number at `position`, and the position after it; errors as `decode_uvarint`."""
    value, position = _read(buffer, position, 64)
    return value >> 1 ^ -(value & 1), position


def uvarint_size(value: int) -> int:
    """Return the length of `encode_uvarint(value)` in bytes."""
    return (value.bit_length() + 6) // 7 or 1


def varint_size(value: int) -> int:
    """Return the length of `encode_varint(value)` or `encode_varlong(value)` in bytes."""
    return uvarint_size(value << 1 if value >= 0 else ~value << 1 | 1)


def _groups(value: int) -> bytes:
    groups = bytearray()
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _read(buffer: Buffer, position: int, bits: int) -> tuple[int, int]:
    start, value, shift = position, 0, 0
    try:
        while True:
            byte = buffer[position]
            position += 1
            value |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift >= bits:
                raise MalformedMessage(f"the variable-length number at byte {start} goes on past {bits} bits")
    except IndexError:
        raise TruncatedMessage(f"the variable-length number at byte {start} ends early") from None
    if value >> bits:
        raise MalformedMessage(f"the variable-length number at byte {start} does not fit into {bits} bits")
    return value, position
