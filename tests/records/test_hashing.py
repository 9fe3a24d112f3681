from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import CorruptRecord
from pyclient.records import BinaryColumn

# From the Java client's tests; the shorter ones cover every length of the last word.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), VECTORS.items())
def test_murmur2_matches_java_client(twin: Any, key: bytes, expected: int) -> None:
    assert twin.module.murmur2(key) == expected
    assert twin.module.partition_for_key(key, 12) == (expected & 0x7FFFFFFF) % 12


@given(key=st.binary(max_size=40), partitions=st.integers(1, 2**31 - 1))
def test_both_twins_return_the_same_hashes(twins: tuple[Any, Any], key: bytes, partitions: int) -> None:
    compiled, pure = twins
    assert compiled.module.murmur2(key) == pure.module.murmur2(key)
    partition = compiled.module.partition_for_key(key, partitions)
    assert partition == pure.module.partition_for_key(key, partitions)
    assert 0 <= partition < partitions


def test_key_may_be_any_bytes_like_object(twin: Any) -> None:
    for kind in (bytearray, memoryview):
        assert twin.module.murmur2(kind(b"foobar")) == VECTORS[b"foobar"]
    for wrong in ("foobar", 21, None):
        with pytest.raises(TypeError, match="a key must be bytes"):
            twin.module.murmur2(wrong)


@pytest.mark.parametrize("partitions", [0, -1])
def test_topic_has_at_least_one_partition(twin: Any, partitions: int) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        twin.module.partition_for_key(b"k", partitions)


def grouped(twin: Any, keys: Any, partitions: int) -> dict[int, list[int]]:
    return {at: rows.tolist() for at, rows in twin.module.rows_by_partition(keys, partitions).items()}


@given(keys=st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=40), partitions=st.integers(1, 9))
def test_rows_are_grouped_by_partition_of_their_key(
    twins: tuple[Any, Any], keys: list[bytes | None], partitions: int
) -> None:
    expected: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        partition = -1 if key is None else twins[1].module.partition_for_key(key, partitions)
        expected.setdefault(partition, []).append(row)
    data = b"".join(key or b"" for key in keys)
    ends = array("i", [0, *accumulate(len(key or b"") for key in keys)])
    bits = sum((key is not None) << row for row, key in enumerate(keys))
    column = BinaryColumn(ends, data, bits.to_bytes(len(keys) // 8 + 1, "little"), len(keys))
    for twin in twins:
        for source in (keys, tuple(keys), column):
            found = grouped(twin, source, partitions)
            assert found == expected and list(found) == sorted(expected)


def test_rows_without_valid_key_are_grouped_apart(twin: Any) -> None:
    assert grouped(twin, [b"abc", "abc", bytearray(b"abc"), 5, None], 1000) == {-1: [1, 3, 4], 107: [0, 2]}
    assert grouped(twin, BinaryColumn(array("i", [0, 9, 3]), b"abc", None, 2), 5) == {-1: [0, 1]}
    assert grouped(twin, [], 5) == {}
    with pytest.raises(ValueError, match="at least one partition"):
        twin.module.rows_by_partition([b"a"], 0)


ZIGZAG = {
    0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", 8191: "fe7f", -8192: "ff7f", 8192: "808001",
    2**31 - 1: "feffffff0f", -(2**31): "ffffffff0f", 2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}  # fmt: skip


@pytest.mark.parametrize(("value", "encoded"), ZIGZAG.items())
def test_varint_bytes_match_the_format(twin: Any, value: int, encoded: str) -> None:
    assert twin.module.encode_varint(value).hex() == encoded
    data = b"?" + bytes.fromhex(encoded) + b"?"
    assert twin.module.decode_varint(data, 1) == (value, len(data) - 1)


@given(st.integers(-(2**63), 2**63 - 1))
def test_both_twins_write_and_read_any_varint(twins: tuple[Any, Any], value: int) -> None:
    for twin in twins:
        assert twin.module.decode_varint(twins[0].module.encode_varint(value)) == (value, len(
            twins[1].module.encode_varint(value)
        ))  # fmt: skip


@pytest.mark.parametrize(
    ("data", "position"), [(b"", 0), (b"\x80", 0), (b"\xff" * 9, 0), (b"a", 1), (b"a", 2), (b"a", -1)]
)
def test_varint_that_ends_early_is_corrupt(twin: Any, data: bytes, position: int) -> None:
    with pytest.raises(CorruptRecord, match="a varint ends early"):
        twin.module.decode_varint(data, position)


@pytest.mark.parametrize("last", [b"\x02", b"\x7f", b"\x80\x00", b"\x81\x01"])
def test_varint_of_more_than_64_bits_is_corrupt(twin: Any, last: bytes) -> None:
    with pytest.raises(CorruptRecord, match="more than 64 bits"):
        twin.module.decode_varint(b"\xff" * 9 + last)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_number_of_more_than_64_bits_is_refused(twin: Any, value: int) -> None:
    with pytest.raises(OverflowError):
        twin.module.encode_varint(value)
