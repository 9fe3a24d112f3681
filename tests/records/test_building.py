from __future__ import annotations

import array
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.records import HEADER_SIZE, Compression, check_crc, read_header

SMALL = st.one_of(st.none(), st.binary(max_size=80))
NAMES = st.text(st.characters(codec="utf-8"), max_size=10)
HEADERS = st.lists(st.tuples(NAMES, SMALL), max_size=3).map(tuple)
TIMESTAMPS = st.one_of(st.integers(-1, 2**41), st.integers(-(2**63), 2**63 - 1))
ROWS = st.lists(st.tuples(TIMESTAMPS, SMALL, SMALL, HEADERS), min_size=1, max_size=12)


@given(rows=ROWS)
def test_both_twins_build_same_bytes(twins: tuple[Any, Any], rows: list[Any]) -> None:
    compiled, pure = (twin.build(rows, producer_id=5, base_sequence=0) for twin in twins)
    assert compiled == pure


@given(rows=ROWS)
def test_built_batch_round_trips(twins: tuple[Any, Any], rows: list[Any]) -> None:
    for builder in twins:
        batch = builder.build(rows, base_offset=1000, leader_epoch=3)
        for reader in twins:
            records = reader.decode(batch)
            assert [(r.timestamp_ms, r.key, r.value, r.headers) for r in records] == rows
            assert [r.offset for r in records] == list(range(1000, 1000 + len(rows)))
            assert {(r.topic, r.partition, r.leader_epoch, r.timestamp_type) for r in records} == {("orders", 3, 3, 0)}


def test_builder_counts_its_records(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert (builder.count, builder.size) == (0, HEADER_SIZE)
    assert (builder.base_timestamp, builder.max_timestamp) == (-1, -1)
    builder.append(50, None, b"value", None)
    builder.append(40, None, b"value", None)
    builder.append(45, None, b"value", None)
    assert (builder.count, builder.size) == (3, HEADER_SIZE + 3 * 12)
    assert (builder.base_timestamp, builder.max_timestamp) == (50, 50)


def test_record_that_does_not_fit_leaves_batch_unchanged(twin: Any) -> None:
    record_size = 12
    for room in range(HEADER_SIZE, HEADER_SIZE + 3 * record_size + 1):
        builder = twin.BatchBuilder(bytearray(room), None)
        fitted = 0
        while builder.append(7, None, b"value", None) is not None:
            fitted += 1
        assert fitted == builder.count == (room - HEADER_SIZE) // record_size
        assert builder.full
        assert builder.size == HEADER_SIZE + fitted * record_size <= room
        if fitted:
            assert len(twin.decode(builder.seal())) == fitted


def test_closed_builder_refuses_records(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    builder.append(0, None, b"v", [("h", b"1")])
    builder.close()
    assert builder.append(0, None, b"v", None) is None and not builder.full
    assert builder.append_many(0, None, [b"v"], None, 0, 1) == 0
    assert (builder.count, read_header(builder.seal()).count) == (1, 1)


def test_headers_iterable_may_append_a_record(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)

    def pairs() -> Iterator[tuple[str, bytes]]:
        yield "outer", b"1"
        builder.append(0, None, b"inner", [("inner", b"2")])
        yield "outer", b"3"

    builder.append(0, None, b"outer", pairs())
    assert [record.headers for record in twin.decode(builder.seal())] == [
        (("inner", b"2"),),
        (("outer", b"1"), ("outer", b"3")),
    ]


def test_callers_buffer_is_written_in_place_and_keeps_its_size(twin: Any) -> None:
    buffer = bytearray(200)
    builder = twin.BatchBuilder(buffer, None)
    builder.append(7, None, b"value", None)
    batch = builder.seal()
    assert bytes(batch) == bytes(buffer[: builder.size])
    batch[:8] = b"\1" * 8
    assert buffer[:8] == b"\1" * 8
    with pytest.raises(BufferError):
        buffer.append(0)


@pytest.mark.parametrize("room", [0, 1, HEADER_SIZE - 1])
def test_buffer_too_small_for_header_is_refused(twin: Any, room: int) -> None:
    with pytest.raises(ValueError, match=f"a buffer of {room} bytes"):
        twin.BatchBuilder(bytearray(room), None)


@pytest.mark.parametrize("arguments", [(b"x" * 100, None), (bytearray(100), None, int), (memoryview(b""), None)])
def test_builder_requires_bytearray_and_handle_class(twin: Any, arguments: Any) -> None:
    with pytest.raises(TypeError, match="a BatchBuilder needs"):
        twin.BatchBuilder(*arguments)


def test_handle_has_batch_index_and_timestamp(twin: Any) -> None:
    class Future(twin.RecordHandle):  # type: ignore[misc]
        __slots__ = ()

        def __init__(self) -> None:
            raise AssertionError("handles are made without their __init__")

    batch = object()
    builder = twin.BatchBuilder(bytearray(1000), batch, Future)
    handles = [builder.append(1000 - number, None, b"v", None) for number in range(5)]
    assert [handle.timestamp_ms for handle in handles] == [1000, 999, 998, 997, 996]
    assert [type(handle) for handle in handles] == [Future] * 5
    assert [handle.index for handle in handles] == [0, 1, 2, 3, 4]
    assert all(handle.batch is batch for handle in handles)
    plain = twin.RecordHandle(batch, 9)
    assert (plain.batch, plain.index, plain.timestamp_ms) == (batch, 9, -1)


def test_handle_costs_at_most_80_bytes(twin: Any) -> None:
    class Future(twin.RecordHandle):  # type: ignore[misc]
        __slots__ = ()

    handle = twin.BatchBuilder(bytearray(1000), None, Future).append(0, None, b"v", None)
    assert sys.getsizeof(handle) <= 80


@pytest.mark.parametrize("kind", [bytearray, memoryview, lambda data: array.array("B", data)])
def test_keys_values_and_headers_may_be_any_bytes_like_object(twin: Any, kind: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert builder.append(0, kind(b"key"), kind(b"value"), [("a", kind(b"x"))]) is not None
    assert builder.append_many(0, [kind(b"k")], [kind(b"v")], None, 0, 1) == 1
    assert twin.rows(builder.seal()) == [(0, b"key", b"value", (("a", b"x"),)), (0, b"k", b"v", ())]


def test_non_contiguous_view_is_copied_by_content(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    builder.append(0, None, memoryview(b"a.b.c.")[::2], None)
    assert twin.rows(builder.seal())[0][2] == b"abc"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, "key", b"", None), "a key must be bytes, a bytes-like object or None, not str"),
        ((0, None, 5, None), "a value must be bytes, a bytes-like object or None, not int"),
        ((0, None, b"", [("a", "b")]), "a header's value must be bytes, a bytes-like object or None, not str"),
        ((0, None, b"", [(b"a", b"b")]), "a header must be a pair of a str and bytes or None"),
        ((0, None, b"", [("a",)]), "a header must be a pair of a str and bytes or None"),
        ((0, None, b"", ["ab"]), "a header must be a pair of a str and bytes or None"),
        ((0, None, b"", {"a": b"b"}), "a header must be a pair of a str and bytes or None"),
        ((0, None, b"", 5), "not iterable"),
        (("0", None, b"", None), "."),
        ((None, None, b"", None), "."),
    ],
)
def test_other_types_raise_type_error_and_change_nothing(twin: Any, arguments: Any, message: str) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    builder.append(0, None, b"before", None)
    with pytest.raises(TypeError, match=message):
        builder.append(*arguments)
    builder.append(0, None, b"after", None)
    assert [row[2] for row in twin.rows(builder.seal())] == [b"before", b"after"]


def test_timestamp_of_more_than_64_bits_is_refused(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    for timestamp in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            builder.append(timestamp, None, b"", None)


def test_header_name_not_encodable_as_utf8_is_refused(twin: Any) -> None:
    with pytest.raises(UnicodeEncodeError):
        twin.BatchBuilder(bytearray(1000), None).append(0, None, b"", [("\ud800", None)])


def test_header_pairs_accept_lists_and_str_subclasses(twin: Any) -> None:
    class Name(str):
        __slots__ = ()

    builder = twin.BatchBuilder(bytearray(1000), None)
    builder.append(0, None, b"", ([Name("a"), b"1"], ["é", None]))
    assert twin.rows(builder.seal())[0][3] == (("a", b"1"), ("é", None))


def test_many_large_headers_fit(twin: Any) -> None:
    headers = tuple((f"name-{number}" * 20, bytes([number]) * number * 10) for number in range(100))
    assert twin.rows(twin.build([(0, b"k", b"v", headers)])) == [(0, b"k", b"v", headers)]


@given(rows=ROWS)
def test_append_many_is_equivalent_to_append(twins: tuple[Any, Any], rows: list[Any]) -> None:
    times, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    for twin in twins:
        expected = twin.builder(rows)
        builder = twin.BatchBuilder(bytearray(expected.size), None)
        assert builder.append_many(times, keys, values, headers, 0, len(rows)) == len(rows)
        assert builder.seal() == expected.seal()


def test_append_many_accepts_range_and_single_timestamp(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    values = [b"a", b"b", b"c", b"d"]
    assert builder.append_many(7, None, values, None, 1, 3) == 2
    assert builder.append_many(7, None, tuple(values), None, 3, 3) == 0
    assert builder.append_many(8, tuple(values), tuple(values), None, 3, 4) == 1
    assert twin.rows(builder.seal()) == [(7, None, b"b", ()), (7, None, b"c", ()), (8, b"d", b"d", ())]


def test_append_many_stops_where_batch_is_full(twin: Any) -> None:
    values = [b"value"] * 10
    builder = twin.BatchBuilder(bytearray(HEADER_SIZE + 12 * 4 + 11), None)
    assert builder.append_many(7, None, values, None, 0, 4) == 4 and not builder.full
    assert builder.append_many(7, None, values, None, 4, 10) == 0 and builder.full
    assert builder.count == 4


def test_append_many_stops_before_wrong_value_then_raises(twin: Any) -> None:
    values = [b"a", b"b", "wrong", b"d"]
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert builder.append_many(7, None, values, None, 0, 4) == 2 and not builder.full
    with pytest.raises(TypeError, match="not str"):
        builder.append_many(7, None, values, None, 2, 4)
    assert builder.append_many(7, None, values, None, 3, 4) == 1
    assert [row[2] for row in twin.rows(builder.seal())] == [b"a", b"b", b"d"]


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 4), (2, 1), (4, 4)])
def test_append_many_refuses_missing_rows(twin: Any, start: int, stop: int) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    with pytest.raises(ValueError, match=f"rows {start} to {stop} are not in columns of 3 rows"):
        builder.append_many(7, [None] * 5, [b"a"] * 3, None, start, stop)
    with pytest.raises(ValueError, match="columns of 2 rows"):
        builder.append_many([7, 8], None, [b"a"] * 3, None, 0, 3)


def test_sealing_again_applies_new_attributes(twin: Any) -> None:
    builder = twin.builder([(5, b"k", b"v" * 1000, ())])
    first = bytes(builder.seal(producer_id=1, producer_epoch=2, base_sequence=3))
    packed = builder.seal(compression=Compression.ZSTD, producer_id=1, producer_epoch=2, base_sequence=3)
    assert len(packed) < 200
    again = builder.seal(producer_id=9, producer_epoch=8, base_sequence=7, transactional=True)
    header = read_header(again)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 8, 7)
    assert header.is_transactional and not read_header(first).is_transactional
    for batch in (first, packed, again):
        assert twin.rows(batch) == [(5, b"k", b"v" * 1000, ())]


def test_compressed_batch_is_identical_in_both_twins(twins: tuple[Any, Any], codec: Compression) -> None:
    rows = [(number, b"key", b"value" * 20, (("a", b"b"),)) for number in range(100)]
    compiled, pure = (twin.builder(rows).seal(compression=codec, base_sequence=4) for twin in twins)
    assert compiled == pure
    check_crc(compiled, 0, read_header(compiled))
    assert twins[0].rows(compiled) == twins[1].rows(compiled) == rows


def test_batch_without_records_cannot_be_sealed(twin: Any) -> None:
    with pytest.raises(ValueError, match="without records"):
        twin.BatchBuilder(bytearray(100), None).seal()


@given(row=st.tuples(TIMESTAMPS, SMALL, SMALL, HEADERS))
def test_record_size_never_exceeds_its_bound(twins: tuple[Any, Any], row: Any) -> None:
    bounds = {twin.module.record_size_bound(*row[1:]) for twin in twins}
    assert len(bounds) == 1
    room = HEADER_SIZE + bounds.pop()
    for twin in twins:
        builder = twin.BatchBuilder(bytearray(room), None)
        assert builder.append(*row) is not None
        assert builder.size <= room


def test_size_bound_of_invalid_record_raises_type_error(twin: Any) -> None:
    for arguments in (("k", b"", None), (None, 1, None), (None, None, [1])):
        with pytest.raises(TypeError):
            twin.module.record_size_bound(*arguments)


def test_append_many_accepts_row_numbers(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    values, rows = [b"a", b"b", b"c", b"d"], array.array("i", [3, 0, 2, 4, 1])
    assert builder.append_many([1, 2, 3, 4], values, values, None, 0, 2, rows) == 2
    assert builder.append_many(9, None, tuple(values), None, 2, 5, memoryview(rows)) == 1
    with pytest.raises(ValueError, match="row 4 is not in columns of 4 rows"):
        builder.append_many(9, None, values, None, 3, 5, rows)
    with pytest.raises(ValueError, match="row -1 is not in columns of 4 rows"):
        builder.append_many(9, None, values, None, 0, 1, array.array("i", [-1]))
    with pytest.raises(ValueError, match="rows 0 to 6 are not in columns of 5 rows"):
        builder.append_many(9, None, values, None, 0, 6, rows)
    assert twin.rows(builder.seal()) == [(4, b"d", b"d", ()), (1, b"a", b"a", ()), (9, None, b"c", ())]
