from __future__ import annotations

import resource
import struct
import threading
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import CorruptRecord
from pyclient.records import (
    HEADER_SIZE,
    BinaryColumn,
    Compression,
    HeaderColumns,
    decode_columns,
    encode_columns,
    read_header,
)

SMALL = st.one_of(st.none(), st.binary(max_size=40))
HEADERS = st.lists(st.tuples(st.text("abé", max_size=4), SMALL), max_size=3).map(tuple)
ROWS = st.lists(st.tuples(st.integers(-1, 2**41), SMALL, SMALL, HEADERS), max_size=20)


def column(values: list[bytes | None], *, start: int = 0, validity: bool = True) -> BinaryColumn:
    """A column by hand, with `start` rows of junk in front as a slice of an Arrow array has them."""
    rows = [b"junk"] * start + values
    offsets, data, bits = array("i", [0]), bytearray(), 0
    for number, value in enumerate(rows):
        data += value or b""
        bits |= (value is not None) << number
        offsets.append(len(data))
    packed = bits.to_bytes(len(rows) // 8 + 1, "little") if validity else None
    return BinaryColumn(offsets.tobytes(), bytes(data), packed, len(values), start)


def listed(part: BinaryColumn) -> list[bytes | None]:
    offsets = memoryview(part.offsets).cast("B").cast("i")
    data = bytes(part.data)
    return [
        None
        if part.validity is not None and not part.validity[row >> 3] >> (row & 7) & 1
        else data[offsets[row] : offsets[row + 1]]
        for row in range(part.start, part.start + part.length)
    ]


def integers(buffer: Any, kind: str) -> list[int]:
    return memoryview(buffer).cast("B").cast(kind).tolist()  # type: ignore[no-any-return]


def exact(columns: Any) -> Any:
    """Every byte of the columns, for comparing twins."""
    binaries = (columns.keys, columns.values, columns.headers.names, columns.headers.values)
    fixed = ("topic_ids", "partitions", "offsets", "timestamps", "timestamp_types")
    return (
        columns.count,
        columns.topics,
        [bytes(getattr(columns, name)) for name in fixed],
        [
            (bytes(part.offsets), bytes(part.data), part.validity and bytes(part.validity), part.length, part.start)
            for part in binaries
        ],
        bytes(columns.headers.offsets),
    )


@given(parts=st.lists(ROWS, max_size=4))
def test_both_twins_give_the_same_columns(twins: tuple[Any, Any], parts: list[Any]) -> None:
    builders = [twin.ColumnsBuilder() for twin in twins]
    for number, rows in enumerate(parts):
        batch = twins[0].build(rows, base_offset=100 * number) if rows else None
        for builder in builders:
            if batch:
                builder.add(batch, 0, read_header(batch), f"topic-{number % 2}", number)
    compiled, pure = (exact(builder.finish()) for builder in builders)
    assert compiled == pure


@given(rows=ROWS.filter(bool))
def test_columns_hold_what_records_hold(twins: tuple[Any, Any], rows: list[Any]) -> None:
    for twin in twins:
        batch = twin.build(rows, base_offset=7)
        columns = twin.columns(batch)
        assert columns.count == len(rows)
        assert integers(columns.offsets, "q") == list(range(7, 7 + len(rows)))
        assert integers(columns.timestamps, "q") == [row[0] for row in rows]
        assert listed(columns.keys) == [row[1] for row in rows]
        assert listed(columns.values) == [row[2] for row in rows]
        ends = integers(columns.headers.offsets, "i")
        pairs = list(zip(listed(columns.headers.names), listed(columns.headers.values), strict=True))
        assert [
            tuple((name.decode(), value) for name, value in pairs[ends[row] : ends[row + 1]])  # type: ignore[union-attr]
            for row in range(len(rows))
        ] == [row[3] for row in rows]


def test_columns_of_many_batches_say_topic_and_partition(twin: Any) -> None:
    builder = twin.ColumnsBuilder()
    for topic, partition, size in (("a", 0, 2), ("b", 7, 1), ("a", 1, 1), ("c", 2, 0)):
        batch = twin.build([(5, None, b"v", ())] * max(size, 1))
        header = read_header(batch)
        added = builder.add(batch, 0, header, topic, partition, to_offset=size)
        assert added == size
    assert builder.count == 4
    columns = builder.finish()
    assert columns.topics == ("a", "b")
    assert integers(columns.topic_ids, "i") == [0, 0, 1, 0]
    assert integers(columns.partitions, "i") == [0, 0, 7, 1]


def test_a_finished_builder_is_empty_and_its_columns_stay(twin: Any) -> None:
    builder = twin.ColumnsBuilder()
    batch = twin.build([(5, b"k", b"value", (("h", b"x"),))] * 9)
    builder.add(batch, 0, read_header(batch), "a", 0)
    first = builder.finish()
    before = exact(first)
    assert builder.count == 0
    for _ in range(3):
        builder.add(batch, 0, read_header(batch), "b", 1)
    assert exact(first) == before
    assert exact(builder.finish())[1] == ("b",)
    empty = builder.finish()
    assert empty.count == 0 and bytes(empty.values.offsets) == bytes(4) and bytes(empty.values.data) == b""


def test_no_nulls_need_no_validity(twin: Any) -> None:
    columns = twin.columns(twin.build([(5, b"k", b"v", ())] * 20))
    assert columns.keys.validity is columns.values.validity is None


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 17])
def test_validity_has_a_bit_for_each_row_and_zeros_behind(twin: Any, size: int) -> None:
    rows = [(5, None if number % 3 == 0 else b"k", None, ()) for number in range(size)]
    columns = twin.columns(twin.build(rows))
    bits = sum((number % 3 != 0) << number for number in range(size))
    assert bytes(columns.keys.validity) == bits.to_bytes((size + 7) // 8, "little")
    assert bytes(columns.values.validity) == bytes((size + 7) // 8)


def test_a_corrupt_batch_adds_nothing(twin: Any) -> None:
    good = twin.build([(5, None, b"v", (("h", None),)), (6, b"k", None, ())] * 3, base_offset=10)
    broken = bytearray(twin.build([(5, b"key", None, (("head", b"er"),))] * 5 + [(5, b"k" * 20, b"v", ())]))
    broken[-1] = 0x7E  # an impossible number of headers in the last record
    builder = twin.ColumnsBuilder()
    builder.add(good, 0, read_header(good), "orders", 3)
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="orders-3: batch at offset 0: record 5 "):
            builder.add(broken, 0, read_header(broken), "orders", 3)
    assert builder.count == 6
    builder.add(good, 0, read_header(good), "orders", 3)
    assert exact(builder.finish()) == exact(twin.columns(good, good))


def test_a_table_larger_than_a_cpu_cache_holds_the_same(twins: tuple[Any, Any]) -> None:
    rows: list[Any] = [(5, None, bytes([n % 251]) * (n * 37 % 1900), ()) for n in range(400)]
    batch = twins[0].build(rows, base_offset=10)
    broken = batch[:-1] + b"\xff"  # a header count that cannot be, behind 399 good rows
    header = read_header(batch)
    tables = []
    for twin in twins:
        builder = twin.ColumnsBuilder()
        pieces = [(memoryview(batch), 0, header, "orders", part, 0, 2**62) for part in range(8)]
        bad = (memoryview(broken), 0, header, "orders", 8, 0, 2**62)
        assert builder.add_many([*pieces, bad, *pieces]) == 8
        tables.append(builder.finish())
    assert tables[0].count == 3200
    assert exact(tables[0]) == exact(tables[1])


def test_memory_that_is_kept_for_the_next_columns_can_be_given_back(twin: Any) -> None:
    batch = twin.build([(5, None, bytes(1000), ())] * 200)
    kept = twin.columns(batch)
    twin.columns(batch)  # dropped at once
    twin.module.release_spare_memory()
    twin.module.release_spare_memory()
    assert exact(twin.columns(batch)) == exact(kept)


@pytest.mark.slow
def test_a_column_past_two_gib_is_refused_and_stays_as_it_was(twins: tuple[Any, Any]) -> None:
    twin = twins[0]
    batch = twin.build([(0, None, bytes(100 * 2**20), ())], compression=Compression.LZ4)
    header = read_header(batch)
    builder = twin.ColumnsBuilder()
    for _ in range(20):
        builder.add(batch, 0, header, "t", 0)
    with pytest.raises(OverflowError, match="a column holds 2 GiB"):
        builder.add(batch, 0, header, "t", 0)
    assert builder.count == 20
    assert len(builder.finish().values.data) == 20 * 100 * 2**20


def test_the_python_twin_has_the_same_limit(twins: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyclient.records._pure.column_reading.MAX_COLUMN_DATA", 1000)
    batch = twins[1].build([(0, b"k" * 200, bytes(200), ())])
    builder = twins[1].ColumnsBuilder()
    for _ in range(2):
        builder.add(batch, 0, read_header(batch), "t", 0)
    with pytest.raises(OverflowError, match="a column holds 2 GiB"):
        for _ in range(3):
            builder.add(batch, 0, read_header(batch), "t", 0)
    assert builder.count in (3, 4)


@given(rows=ROWS.filter(bool))
def test_a_batch_made_from_columns_is_the_one_made_from_records(twins: tuple[Any, Any], rows: list[Any]) -> None:
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
def test_slices_of_columns_are_taken_from_where_they_start(twin: Any, start: int) -> None:
    values = [b"a", None, b"", b"dd"]
    builder = twin.BatchBuilder(bytearray(1000), None)
    keys, others = column(values, start=start), column(values[::-1], start=start + 1)
    assert builder.append_columns(7, keys, others, None, 0, 4) == 4
    assert [row[1:3] for row in twin.rows(builder.seal())] == list(zip(values, values[::-1], strict=True))


def test_rows_can_be_chosen_by_number(twin: Any) -> None:
    values = column([b"a", b"b", b"c", b"d"])
    rows = array("i", [3, 0, 0, 2])
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert builder.append_columns(array("q", [10, 20, 30, 40]), None, values, None, 1, 4, rows) == 3
    assert [(row[0], row[2]) for row in twin.rows(builder.seal())] == [(10, b"a"), (10, b"a"), (30, b"c")]
    for wrong in (4, -1):
        with pytest.raises(ValueError, match=f"row {wrong} is not in columns of 4 rows"):
            builder.append_columns(0, None, values, None, 0, 1, array("i", [wrong]))


def test_columns_stop_where_the_batch_is_full(twin: Any) -> None:
    values = column([b"value"] * 10)
    builder = twin.BatchBuilder(bytearray(HEADER_SIZE + 12 * 4 + 11), None)
    assert builder.append_columns(7, None, values, None, 2, 10) == 4
    assert builder.append_columns(7, None, values, None, 6, 10) == 0
    assert len(twin.rows(builder.seal())) == 4


def broken(offsets: list[int], data: bytes = b"abcdef", validity: bytes | None = None) -> BinaryColumn:
    return BinaryColumn(array("i", offsets), data, validity, len(offsets) - 1)


@pytest.mark.parametrize("offsets", [[0, 7, 8], [-1, 2, 3], [3, 2, 4], [2**31 - 1, -(2**31), 0]])
def test_a_row_outside_its_data_is_named(twin: Any, offsets: list[int]) -> None:
    good = column([b"x"] * 2)
    for keys, values, what in ((None, broken(offsets), "value"), (broken(offsets), good, "key")):
        builder = twin.BatchBuilder(bytearray(1000), None)
        with pytest.raises(ValueError, match=f"row 0 of the {what} column is not in its data"):
            builder.append_columns(0, keys, values, None, 0, 2)
        assert builder.count == 0


def test_a_bad_row_further_on_ends_the_batch_before_it(twin: Any) -> None:
    values = broken([0, 1, 2, 99, 3])
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert builder.append_columns(0, None, values, None, 0, 4) == 2
    with pytest.raises(ValueError, match="row 2 of the value column"):
        builder.append_columns(0, None, values, None, 2, 4)
    with pytest.raises(ValueError, match="row 2 of the value column"):
        encode_columns(values, timestamps=0)


def test_null_rows_are_not_looked_up(twin: Any) -> None:
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
def test_columns_that_contradict_themselves_are_refused(
    twin: Any, values: BinaryColumn, options: dict[str, Any], message: str
) -> None:
    arguments = {"timestamps": 0, "keys": None, "headers": None, **options}
    builder = twin.BatchBuilder(bytearray(1000), None)
    with pytest.raises(ValueError, match=message):
        builder.append_columns(
            arguments["timestamps"], arguments["keys"], values, arguments["headers"], 0, max(values.length, 0)
        )


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (0, 4), (2, 1)])
def test_rows_that_are_not_there_are_refused(twin: Any, start: int, stop: int) -> None:
    builder = twin.BatchBuilder(bytearray(1000), None)
    with pytest.raises(ValueError, match=f"rows {start} to {stop} are not in columns of 3 rows"):
        builder.append_columns(0, None, column([b"a"] * 3), None, start, stop)


def test_a_null_header_name_is_empty(twin: Any) -> None:
    headers = HeaderColumns(array("i", [0, 1]), column([None]), column([b"v"]))
    builder = twin.BatchBuilder(bytearray(1000), None)
    builder.append_columns(0, None, column([b"a"]), headers, 0, 1)
    assert twin.rows(builder.seal())[0][3] == (("", b"v"),)


def test_encoding_takes_codec_and_level(codec: Compression) -> None:
    level = None if codec in (Compression.NONE, Compression.SNAPPY) else 5
    batch = encode_columns(column([b"value"] * 100), timestamps=5, compression=codec, level=level)
    header = read_header(batch)
    assert header.codec == codec
    assert listed(decode_columns(batch, 0, header).values) == [b"value"] * 100


def test_rows_that_share_their_data_do_not_overrun_the_batch() -> None:
    values = BinaryColumn(array("i", [0, 6, 0, 6, 0, 6]), b"abcdef" * 1, None, 5)
    with pytest.raises(ValueError, match="row 1 of the value column"):
        encode_columns(values, timestamps=0)


def test_random_columns_do_what_both_twins_do_alike(twins: tuple[Any, Any]) -> None:
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


def test_a_builder_refuses_a_second_thread_at_once(twins: tuple[Any, Any]) -> None:
    """Only the compiled one gives up the GIL inside, where the other thread can meet it."""
    twin = twins[0]
    size = 50_000
    batch = twin.build([(0, None, bytes(20), ())] * size)
    header = read_header(batch)
    builder = twin.ColumnsBuilder()
    outcomes: list[str] = []

    def add() -> None:
        for _ in range(5):
            try:
                outcomes.append(str(builder.add(batch, 0, header, "t", 0)))
            except RuntimeError as error:
                outcomes.append(str(error))

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = outcomes.count(str(size))
    assert set(outcomes) <= {str(size), "another thread is adding to this ColumnsBuilder"}
    assert done >= 1 and builder.count == done * size
    columns = builder.finish()
    assert integers(columns.offsets, "q") == list(range(size)) * done


def test_the_layout_is_the_machines() -> None:
    values = decode_columns(batch := encode_columns(column([b"ab", b"c"]), timestamps=1), 0, read_header(batch)).values
    assert bytes(values.offsets) == struct.pack("=iii", 0, 2, 3)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_no_memory_is_left_behind(twin: Any) -> None:
    """What Python's own tools do not see: memory that the compiled twin asks the system for."""
    rows: list[Any] = [(5, b"k" * 3, b"v" * 40, (("h", None),)), (6, b"k", b"v", ())] * 5
    batch = twin.build(rows)
    header = read_header(batch)
    spoilt = bytearray(batch)
    spoilt[-1] = 0x7E

    def once() -> None:
        builder = twin.ColumnsBuilder()
        builder.add(batch, 0, header, "t", 0)
        columns = builder.finish()
        builder.add(batch, 0, header, "t", 0)
        with pytest.raises(CorruptRecord):
            builder.add(spoilt, 0, header, "t", 0)
        appender = twin.BatchBuilder(bytearray(len(batch)), None)
        appender.append_columns(columns.timestamps, columns.keys, columns.values, columns.headers, 0, 10)
        with pytest.raises(TypeError):
            twin.BatchBuilder(bytearray(100), None).append(0, None, b"", [("a", b"x"), ("b", 5)])

    resident = []
    for _ in range(3):
        for _ in range(4000 if twin.module.IMPLEMENTATION == "cython" else 50):
            once()
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
    assert resident[2] - resident[1] < 400_000


def test_many_batches_are_added_at_once_up_to_the_first_that_is_damaged(twin: Any) -> None:
    batches = [twin.build([(1, b"k", b"%d" % n, ())] * 3) for n in range(4)]
    damaged = bytearray(batches[2])
    damaged[61] ^= 0x7F  # the first record's length
    pieces = [
        (batch, 0, read_header(batch), topic, partition, 0, 3)
        for batch, topic, partition in (
            (batches[0], "a", 0), (batches[1], "b", 1), (bytes(damaged), "c", 2), (batches[3], "a", 3),
        )
    ]  # fmt: skip
    builder = twin.ColumnsBuilder()
    assert builder.add_many(pieces) == 2
    with pytest.raises(CorruptRecord):
        builder.add(*pieces[2][:5])
    assert builder.add_many(pieces[3:]) == 1
    columns = builder.finish()
    assert columns.topics == ("a", "b")
    assert listed(columns.values) == [b"0"] * 3 + [b"1"] * 3 + [b"3"] * 3
    assert integers(columns.partitions, "i") == [0] * 3 + [1] * 3 + [3] * 3
    assert integers(columns.topic_ids, "i") == [0] * 3 + [1] * 3 + [0] * 3


def test_no_batches_at_all_are_added_at_once(twin: Any) -> None:
    builder = twin.ColumnsBuilder()
    assert builder.add_many([]) == 0
    assert builder.finish().count == 0
