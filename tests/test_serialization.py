"""The built-in serializers: round trips, and clear errors for values that they cannot convert."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient import errors, serialization

numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers
documents = st.recursive(
    scalars | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_strings_round_trip(text: str) -> None:
    data = serialization.string.serialize(text)
    assert data == text.encode()
    assert serialization.string.deserialize(data) == text


@settings(max_examples=50, deadline=None)
@given(documents)
def test_json_and_msgpack_round_trip(document: Any) -> None:
    for way in (serialization.json, serialization.msgpack):
        assert way.deserialize(way.serialize(document)) == document


def test_json_is_compact_utf8() -> None:
    assert serialization.json.serialize({"a": [1, "é"]}) == '{"a":[1,"é"]}'.encode()


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (serialization.string, b"bytes"),
        (serialization.string, "\ud800"),
        (serialization.json, object()),
        (serialization.json, math.nan),
        (serialization.msgpack, object()),
        (serialization.msgpack, 2**64),
    ],
)
def test_value_that_cannot_be_serialized_is_refused(way: serialization.Serialization[Any], value: Any) -> None:
    with pytest.raises(errors.SerializationError):
        way.serialize(value)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40))
def test_random_bytes_give_value_or_serialization_error(data: bytes) -> None:
    for way in (serialization.string, serialization.json, serialization.msgpack):
        try:
            way.deserialize(data)
        except errors.SerializationError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("way", "data", "message"),
    [
        (serialization.string, b"ab\xff", "not UTF-8 at byte 2"),
        (serialization.json, b"{", "not JSON"),
        (serialization.json, b"[" * 100_000, "not JSON"),
        (serialization.msgpack, b"\xc1", "not msgpack"),
        (serialization.msgpack, b"\x92\x01", "not msgpack"),
    ],
)
def test_error_shows_position_and_input(way: serialization.Serialization[Any], data: bytes, message: str) -> None:
    with pytest.raises(errors.SerializationError, match=message) as caught:
        way.deserialize(data)
    assert len(str(caught.value)) < 300
