"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import varint
from pyclient.errors import MalformedMessage, TruncatedMessage

UNSIGNED = st.integers(0, 2**32 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\0"), (1, b"\1"), (127, b"\x7f"), (128, b"\x80\1"), (300, b"\xac\2"), (2**32 - 1, b"\xff\xff\xff\xff\x0f")],
)
def test_unsigned_varint_has_groups_of_seven_bits_lowest_first(value: int, encoded: bytes) -> None:
    assert varint.encode_uvarint(value) == encoded
    assert varint.decode_uvarint(b"x" + encoded + b"x", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\0"), (-1, b"\1"), (1, b"\2"), (-2, b"\3"), (64, b"\x80\1"), (-(2**31), b"\xff\xff\xff\xff\x0f")],
)
def test_signed_varint_is_zigzag(value: int, encoded: bytes) -> None:
    assert varint.encode_varint(value) == varint.encode_varlong(value) == encoded
    assert varint.decode_varint(encoded) == varint.decode_varlong(encoded) == (value, len(encoded))


@given(UNSIGNED, INT32, INT64)
def test_every_number_round_trips_with_predicted_size(unsigned: int, small: int, large: int) -> None:
    for value, encode, decode, size in (
        (unsigned, varint.encode_uvarint, varint.decode_uvarint, varint.uvarint_size),
        (small, varint.encode_varint, varint.decode_varint, varint.varint_size),
        (large, varint.encode_varlong, varint.decode_varlong, varint.varint_size),
    ):
        encoded = encode(value)
        assert decode(encoded) == (value, len(encoded))
        assert size(value) == len(encoded)
        for end in range(len(encoded)):
            with pytest.raises(TruncatedMessage, match="number at byte 0 ends early"):
                decode(memoryview(encoded)[:end])


@pytest.mark.parametrize(
    ("encode", "value"),
    [
        (varint.encode_uvarint, -1),
        (varint.encode_uvarint, 2**32),
        (varint.encode_varint, 2**31),
        (varint.encode_varint, -(2**31) - 1),
        (varint.encode_varlong, 2**63),
        (varint.encode_varlong, -(2**63) - 1),
    ],
)
def test_number_out_of_range_is_refused(encode: object, value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        encode(value)  # type: ignore[operator]


@pytest.mark.parametrize("decode", [varint.decode_uvarint, varint.decode_varint])
def test_32_bit_varint_is_refused_if_longer_or_wider(decode: object) -> None:
    with pytest.raises(MalformedMessage, match="goes on past 32 bits"):
        decode(b"\xff\xff\xff\xff\xff\x01")  # type: ignore[operator]
    with pytest.raises(MalformedMessage, match="does not fit into 32 bits"):
        decode(b"\xff\xff\xff\xff\x1f")  # type: ignore[operator]


def test_64_bit_varint_is_refused_if_longer_or_wider() -> None:
    with pytest.raises(MalformedMessage, match="goes on past 64 bits"):
        varint.decode_varlong(b"\xff" * 10 + b"\x01")
    with pytest.raises(MalformedMessage, match="does not fit into 64 bits"):
        varint.decode_varlong(b"\xff" * 9 + b"\x03")
    assert varint.decode_varlong(b"\xff" * 9 + b"\x01") == (-(2**63), 10)
