"""Batches built from columns: from all rows or some, and from inconsistent columns."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.records import (
    HEADER_SIZE,
    BinaryColumn,
    Compression,
    HeaderColumns,
    decode_columns,
    encode_columns,
    read_header,
)
from tests.records.column_samples import ROWS, column, to_list


@given(rows=ROWS.filter(bool))
def test_batch_from_columns_equals_batch_from_records(twins: tuple[Any, Any], rows: list[Any]) -> None:
    for twin in twins:
        batch = twin.build(rows)
        columns = twin.columns(batch)
        again = encode_columns(
            columns.values, timestamps=columns.timestamps, keys=columns.keys, headers=columns.headers
        )
        assert bytes(again) == batch
        builder = twin.BatchBuilder(bytearray(len(batch)), None)
        arguments = (columns.timestamps, columns.keys, columns.values, columns.headers)
        assert builder.append_columns(*arguments, 0, len(rows)) == len(rows)
        assert bytes(builder.seal()) == batch


@pytest.mark.parametrize("start", [0, 1, 8, 13])
def test_slices_of_columns_respect_their_start(twin: Any, start: int) -> None:
    values = [b"a", None, b"", b"dd"]
    builder = twin.BatchBuilder(bytearray(1000), None)
    keys, others = column(values, start=start), column(values[::-1], start=start + 1)
    assert builder.append_columns(7, keys, others, None, 0, 4) == 4
    assert [row[1:3] for row in twin.rows(builder.seal())] == list(zip(values, values[::-1], strict=True))


SIZES = st.lists(
    st.tuples(st.sampled_from([0, 1, 15, 16, 17, 63, 64, 100, 511, 512, 513, 9000]), st.integers(1, 80)), max_size=6
)
TIMES = st.sampled_from([0, 1, 7, 1_700_000_000_000, 2**62])


@given(runs=SIZES, before=TIMES, time=TIMES, room=st.integers(HEADER_SIZE, 60_000), start=st.integers(0, 9))
def test_rows_of_values_alone_are_identical_in_both_twins(
    twins: tuple[Any, Any], runs: list[tuple[int, int]], before: int, time: int, room: int, start: int
) -> None:
    values = [bytes([size % 251]) * size for size, count in runs for _ in range(count)]
    rows = column(values, start=start, validity=False)
    seen = []
    for twin in twins:
        builder = twin.BatchBuilder(bytearray(room), None)
        builder.append(before, None, b"before", None)
        done = builder.append_columns(time, None, rows, None, 0, len(values))
        more = builder.append_columns(time, None, rows, None, done, len(values))
        seen.append((done, more, builder.count, builder.size, builder.max_timestamp))
        if builder.count:
            seen[-1] += (bytes(builder.seal()),)
    assert seen[0] == seen[1]


def test_rows_of_full_batch_are_numbered_to_the_end(twin: Any) -> None:
    values = [b"%d" % number for number in range(20_000)]
    builder = twin.BatchBuilder(bytearray(500_000), None)
    assert builder.append_columns(5, None, column(values, validity=False), None, 0, 20_000) == 20_000
    written = twin.rows(builder.seal())
    assert [row[2] for row in written] == values


def test_closed_builder_refuses_columns(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    builder.close()
    assert builder.append_columns(5, None, column([b"a"], validity=False), None, 0, 1) == 0


def test_rows_can_be_chosen_by_number(twin: Any) -> None:
    values = column([b"a", b"b", b"c", b"d"])
    rows = array("i", [3, 0, 0, 2])
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert builder.append_columns(array("q", [10, 20, 30, 40]), None, values, None, 1, 4, rows) == 3
    assert [(row[0], row[2]) for row in twin.rows(builder.seal())] == [(10, b"a"), (10, b"a"), (30, b"c")]
    for wrong in (4, -1):
        with pytest.raises(ValueError, match=f"row {wrong} is not in columns of 4 rows"):
            builder.append_columns(0, None, values, None, 0, 1, array("i", [wrong]))


def test_columns_stop_where_batch_is_full(twin: Any) -> None:
    values = column([b"value"] * 10)
    builder = twin.BatchBuilder(bytearray(HEADER_SIZE + 12 * 4 + 11), None)
    assert builder.append_columns(7, None, values, None, 2, 10) == 4
    assert builder.append_columns(7, None, values, None, 6, 10) == 0
    assert len(twin.rows(builder.seal())) == 4


def broken(offsets: list[int], data: bytes = b"abcdef", validity: bytes | None = None) -> BinaryColumn:
    return BinaryColumn(array("i", offsets), data, validity, len(offsets) - 1)


@pytest.mark.parametrize("offsets", [[0, 7, 8], [-1, 2, 3], [3, 2, 4], [2**31 - 1, -(2**31), 0]])
def test_row_outside_column_data_is_named(twin: Any, offsets: list[int]) -> None:
    good = column([b"x"] * 2)
    for keys, values, what in ((None, broken(offsets), "value"), (broken(offsets), good, "key")):
        builder = twin.BatchBuilder(bytearray(1000), None)
        with pytest.raises(ValueError, match=f"row 0 of the {what} column is not in its data"):
            builder.append_columns(0, keys, values, None, 0, 2)
        assert builder.count == 0


def test_batch_ends_before_a_later_bad_row(twin: Any) -> None:
    values = broken([0, 1, 2, 99, 3])
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert builder.append_columns(0, None, values, None, 0, 4) == 2
    with pytest.raises(ValueError, match="row 2 of the value column"):
        builder.append_columns(0, None, values, None, 2, 4)
    with pytest.raises(ValueError, match="row 2 of the value column"):
        encode_columns(values, timestamps=0)


def test_null_rows_are_not_dereferenced(twin: Any) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert builder.append_columns(0, None, broken([0, 99, -5], validity=b"\0"), None, 0, 2) == 2
    assert [row[2] for row in twin.rows(builder.seal())] == [None, None]


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (BinaryColumn(array("i", [0, 1]), b"a", None, 2), {}, "the value column says 2 rows from 0 and has fewer"),
        (BinaryColumn(array("i", [0, 1]), b"a", None, 1, 1), {}, "the value column says 1 rows from 1 and has fewer"),
        (BinaryColumn(array("i", [0, 1]), b"a", None, -1), {}, "the value column says -1 rows"),
        (BinaryColumn(array("i", [0, 1]), b"a", None, 1, -1), {}, "the value column says 1 rows from -1"),
        (BinaryColumn(array("i", [0] * 10), b"", b"\xff", 9), {}, "the value column says 9 rows from 0"),
        (column([b"a"]), {"keys": column([])}, "the key column has fewer rows than the value column"),
        (column([b"a"]), {"timestamps": array("q")}, "the timestamp column has fewer rows"),
        (
            column([b"a"]),
            {"headers": HeaderColumns(array("i", [0]), column([]), column([]))},
            "the header column has fewer rows",
        ),
        (
            column([b"a"]),
            {"headers": HeaderColumns(array("i", [0, 2]), column([b"n"]), column([b"v"]))},
            "row 0 of the header column is not in its data",
        ),
        (
            column([b"a"]),
            {"headers": HeaderColumns(array("i", [0, 1]), broken([0, 9]), column([b"v"]))},
            "row 0 of the header column is not in its data",
        ),
        (
            column([b"a"]),
            {"headers": HeaderColumns(array("i", [0, 1]), column([b"\xff"]), column([b"v"]))},
            "row 0 of the header column has a name that is not UTF-8",
        ),
    ],
)
def test_inconsistent_columns_are_refused(
    twin: Any, values: BinaryColumn, options: dict[str, Any], message: str
) -> None:
    arguments = {"timestamps": 0, "keys": None, "headers": None, **options}
    builder = twin.BatchBuilder(bytearray(1000), None)
    with pytest.raises(ValueError, match=message):
        builder.append_columns(
            arguments["timestamps"], arguments["keys"], values, arguments["headers"], 0, max(values.length, 0)
        )


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 4), (2, 1)])
def test_missing_rows_are_refused(twin: Any, start: int, stop: int) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    with pytest.raises(ValueError, match=f"rows {start} to {stop} are not in columns of 3 rows"):
        builder.append_columns(0, None, column([b"a"] * 3), None, start, stop)


def test_null_header_name_is_empty(twin: Any) -> None:
    headers = HeaderColumns(array("i", [0, 1]), column([None]), column([b"v"]))
    builder = twin.BatchBuilder(bytearray(1000), None)
    builder.append_columns(0, None, column([b"a"]), headers, 0, 1)
    assert twin.rows(builder.seal())[0][3] == (("", b"v"),)


def test_encode_columns_accepts_codec_and_level(codec: Compression) -> None:
    level = None if codec in (Compression.NONE, Compression.SNAPPY) else 5
    batch = encode_columns(column([b"value"] * 100), timestamps=5, compression=codec, level=level)
    header = read_header(batch)
    assert header.codec == codec
    assert to_list(decode_columns(batch, 0, header).values) == [b"value"] * 100


def test_rows_with_overlapping_data_do_not_overrun_batch() -> None:
    values = BinaryColumn(array("i", [0, 6, 0, 6, 0, 6]), b"abcdef" * 1, None, 5)
    with pytest.raises(ValueError, match="row 1 of the value column"):
        encode_columns(values, timestamps=0)


def test_random_columns_give_same_result_in_both_twins(twins: tuple[Any, Any]) -> None:
    @given(
        offsets=st.lists(st.integers(-2, 8), min_size=2, max_size=6),
        validity=st.one_of(st.none(), st.binary(min_size=1, max_size=1)),
        room=st.integers(HEADER_SIZE, HEADER_SIZE + 80),
    )
    def check(offsets: list[int], validity: bytes | None, room: int) -> None:
        values = broken(offsets, validity=validity)
        outcomes = []
        for twin in twins:
            builder = twin.BatchBuilder(bytearray(room), None)
            try:
                done = builder.append_columns(3, values, values, None, 0, values.length)
                outcomes.append((done, bytes(builder.seal()) if done else b""))
            except ValueError as error:
                outcomes.append((str(error), b""))
        assert outcomes[0] == outcomes[1]

    check()
