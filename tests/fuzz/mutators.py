"""Changes to the bytes of request frames: flipped, replaced, cut, spliced and repeated bytes, and hostile lengths."""

from __future__ import annotations

import struct
from collections.abc import Callable
from random import Random
from typing import Final

_HEADER: Final = 12  # frame length, API key, version and correlation id
_INTEGERS: Final = (-1, -2, 0, 1, 2, 127, 128, 255, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1_000_000)
_VARINTS: Final = (
    b"\x00",
    b"\x01",
    b"\x7f",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80" * 11,
    b"\x80\x00",
)

Mutator = Callable[[bytearray, Random, bytes], None]


def mutate(frame: bytes, rng: Random, other: bytes) -> bytes:
    """Return the frame after one to four changes, its length mostly right again; pieces of `other` are spliced in."""
    changed = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        rng.choice(_MUTATORS)(changed, rng, other)
        if len(changed) < _HEADER:
            break
    if len(changed) < 4:
        changed += bytes(4 - len(changed))
    if rng.random() < 0.98:
        struct.pack_into(">i", changed, 0, len(changed) - 4)
    else:
        struct.pack_into(
            ">i", changed, 0, rng.choice((-1, 0, 3, len(changed), len(changed) - 5, 2**31 - 1, 200_000_000))
        )
    return bytes(changed)


def _place(data: bytearray, rng: Random) -> int:
    """Return a position, mostly after the header: what is wrong there is refused before anything reads the body."""
    if rng.random() < 0.97 and len(data) > _HEADER + 1:
        return rng.randrange(_HEADER, len(data))
    return rng.randrange(4, len(data)) if len(data) > 5 else 0


def _flip(data: bytearray, rng: Random, other: bytes) -> None:
    data[_place(data, rng)] ^= 1 << rng.randrange(8)


def _replace(data: bytearray, rng: Random, other: bytes) -> None:
    data[_place(data, rng)] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, rng.randrange(256)))


def _set_integer(data: bytearray, rng: Random, other: bytes) -> None:
    at, value = _place(data, rng), rng.choice(_INTEGERS)
    size = rng.choice((2, 4, 4, 8))
    packed = (value & ((1 << (8 * size)) - 1)).to_bytes(size, "big")
    data[at : at + size] = packed[: max(1, len(data) - at)]


def _set_varint(data: bytearray, rng: Random, other: bytes) -> None:
    at = _place(data, rng)
    data[at : at + 1] = rng.choice(_VARINTS)


def _cut(data: bytearray, rng: Random, other: bytes) -> None:
    del data[_place(data, rng) :]


def _delete(data: bytearray, rng: Random, other: bytes) -> None:
    at = _place(data, rng)
    del data[at : at + rng.choice((1, 1, 2, 4, 16))]


def _insert(data: bytearray, rng: Random, other: bytes) -> None:
    at = _place(data, rng)
    data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 16)))


def _append(data: bytearray, rng: Random, other: bytes) -> None:
    data += rng.randbytes(rng.choice((1, 2, 8, 100))) if rng.random() < 0.5 else bytes(rng.choice((1, 2, 8)))


def _repeat(data: bytearray, rng: Random, other: bytes) -> None:
    at = _place(data, rng)
    piece = data[at : at + rng.choice((1, 4, 16, 64))]
    data[at:at] = piece * rng.choice((1, 2, 10))


def _splice(data: bytearray, rng: Random, other: bytes) -> None:
    if len(other) > _HEADER:
        source = rng.randrange(_HEADER, len(other))
        at = _place(data, rng)
        size = rng.choice((1, 4, 16, 64, 256))
        data[at : at + (size if rng.random() < 0.5 else 0)] = other[source : source + size]


_MUTATORS: Final[tuple[Mutator, ...]] = (
    _flip, _flip, _replace, _replace, _set_integer, _set_integer, _set_varint, _cut, _delete, _insert, _append,
    _repeat, _splice,
)  # fmt: skip
