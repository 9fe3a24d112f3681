"""Columns decoded from batches: both implementations give the same, and no memory is leaked."""

from __future__ import annotations

import resource
import struct
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import CorruptRecord
from pyclient.records import Compression, decode_columns, encode_columns, read_header
from tests.records.column_samples import ROWS, all_bytes, column, integers, to_list


@given(parts=st.lists(ROWS, max_size=4))
def test_both_twins_give_same_columns(twins: tuple[Any, Any], parts: list[Any]) -> None:
    builders = [twin.ColumnsBuilder() for twin in twins]
    for number, rows in enumerate(parts):
        batch = twins[0].build(rows, base_offset=100 * number) if rows else None
        for builder in builders:
            if batch:
                builder.add(batch, 0, read_header(batch), f"topic-{number % 2}", number)
    compiled, pure = (all_bytes(builder.finish()) for builder in builders)
    assert compiled == pure


@given(rows=ROWS.filter(bool))
def test_columns_equal_the_decoded_records(twins: tuple[Any, Any], rows: list[Any]) -> None:
    for twin in twins:
        batch = twin.build(rows, base_offset=7)
        columns = twin.columns(batch)
        assert columns.count == len(rows)
        assert integers(columns.offsets, "q") == list(range(7, 7 + len(rows)))
        assert integers(columns.timestamps, "q") == [row[0] for row in rows]
        assert to_list(columns.keys) == [row[1] for row in rows]
        assert to_list(columns.values) == [row[2] for row in rows]
        ends = integers(columns.headers.offsets, "i")
        pairs = list(zip(to_list(columns.headers.names), to_list(columns.headers.values), strict=True))
        assert [
            tuple((name.decode(), value) for name, value in pairs[ends[row] : ends[row + 1]])  # type: ignore[union-attr]
            for row in range(len(rows))
        ] == [row[3] for row in rows]


def test_columns_of_many_batches_have_topic_and_partition(twin: Any) -> None:
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


def test_finished_builder_is_empty_and_its_columns_remain(twin: Any) -> None:
    builder = twin.ColumnsBuilder()
    batch = twin.build([(5, b"k", b"value", (("h", b"x"),))] * 9)
    builder.add(batch, 0, read_header(batch), "a", 0)
    first = builder.finish()
    before = all_bytes(first)
    assert builder.count == 0
    for _ in range(3):
        builder.add(batch, 0, read_header(batch), "b", 1)
    assert all_bytes(first) == before
    assert all_bytes(builder.finish())[1] == ("b",)
    empty = builder.finish()
    assert empty.count == 0 and bytes(empty.values.offsets) == bytes(4) and bytes(empty.values.data) == b""


def test_column_without_nulls_has_no_validity(twin: Any) -> None:
    columns = twin.columns(twin.build([(5, b"k", b"v", ())] * 20))
    assert columns.keys.validity is columns.values.validity is None


@pytest.mark.parametrize("size", [1, 7, 8, 9, 16, 17])
def test_validity_has_one_bit_per_row_then_zeros(twin: Any, size: int) -> None:
    rows = [(5, None if number % 3 == 0 else b"k", None, ()) for number in range(size)]
    columns = twin.columns(twin.build(rows))
    bits = sum((number % 3 != 0) << number for number in range(size))
    assert bytes(columns.keys.validity) == bits.to_bytes((size + 7) // 8, "little")
    assert bytes(columns.values.validity) == bytes((size + 7) // 8)


def test_corrupt_batch_adds_nothing(twin: Any) -> None:
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
    assert all_bytes(builder.finish()) == all_bytes(twin.columns(good, good))


def test_table_larger_than_cpu_cache_is_correct(twins: tuple[Any, Any]) -> None:
    rows: list[Any] = [(5, None, bytes([n % 251]) * (n * 37 % 1900), ()) for n in range(400)]
    batch = twins[0].build(rows, base_offset=10)
    broken = batch[:-1] + b"\xff"  # an impossible header count, after 399 valid rows
    header = read_header(batch)
    tables = []
    for twin in twins:
        builder = twin.ColumnsBuilder()
        place = twin.module.PlacedBatch
        pieces = [(place("orders", part, memoryview(batch), 0, header), 0, 2**62) for part in range(8)]
        bad = (place("orders", 8, memoryview(broken), 0, header), 0, 2**62)
        assert builder.add_many([*pieces, bad, *pieces]) == 8
        tables.append(builder.finish())
    assert tables[0].count == 3200
    assert all_bytes(tables[0]) == all_bytes(tables[1])


def test_release_spare_memory_frees_column_buffers(twin: Any) -> None:
    batch = twin.build([(5, None, bytes(1000), ())] * 200)
    kept = twin.columns(batch)
    twin.columns(batch)  # freed at once
    twin.module.release_spare_memory()
    twin.module.release_spare_memory()
    assert all_bytes(twin.columns(batch)) == all_bytes(kept)


@pytest.mark.slow
def test_column_over_two_gib_is_refused_and_unchanged(twins: tuple[Any, Any]) -> None:
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


def test_python_twin_has_same_limit(twins: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyclient.records._pure.column_reading.MAX_COLUMN_DATA", 1000)
    batch = twins[1].build([(0, b"k" * 200, bytes(200), ())])
    builder = twins[1].ColumnsBuilder()
    for _ in range(2):
        builder.add(batch, 0, read_header(batch), "t", 0)
    with pytest.raises(OverflowError, match="a column holds 2 GiB"):
        for _ in range(3):
            builder.add(batch, 0, read_header(batch), "t", 0)
    assert builder.count in (3, 4)


def test_builder_refuses_second_thread_at_once(twins: tuple[Any, Any]) -> None:
    """Only the compiled builder releases the GIL, so that a second thread can enter it."""
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
    assert set(outcomes) <= {str(size), "another thread is using this ColumnsBuilder"}
    assert done >= 1 and builder.count == done * size
    columns = builder.finish()
    assert integers(columns.offsets, "q") == list(range(size)) * done


def test_columns_have_machine_byte_order() -> None:
    values = decode_columns(batch := encode_columns(column([b"ab", b"c"]), timestamps=1), 0, read_header(batch)).values
    assert bytes(values.offsets) == struct.pack("=iii", 0, 2, 3)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_compiled_codec_leaks_no_memory(twin: Any) -> None:
    """Measure the memory that the compiled codec allocates, which Python's own tools do not see."""
    rows: list[Any] = [(5, b"k" * 3, b"v" * 40, (("h", None),)), (6, b"k", b"v", ())] * 5
    batch = twin.build(rows)
    header = read_header(batch)
    corrupted = bytearray(batch)
    corrupted[-1] = 0x7E

    def once() -> None:
        builder = twin.ColumnsBuilder()
        builder.add(batch, 0, header, "t", 0)
        columns = builder.finish()
        builder.add(batch, 0, header, "t", 0)
        with pytest.raises(CorruptRecord):
            builder.add(corrupted, 0, header, "t", 0)
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


def test_add_many_stops_before_first_corrupt_batch(twin: Any) -> None:
    batches = [twin.build([(1, b"k", b"%d" % n, ())] * 3) for n in range(4)]
    damaged = bytearray(batches[2])
    damaged[61] ^= 0x7F  # the first record's length
    pieces = [
        (twin.module.PlacedBatch(topic, partition, batch, 0, read_header(batch)), 0, 3)
        for batch, topic, partition in (
            (batches[0], "a", 0), (batches[1], "b", 1), (bytes(damaged), "c", 2), (batches[3], "a", 3),
        )
    ]  # fmt: skip
    builder = twin.ColumnsBuilder()
    assert builder.add_many(pieces) == 2
    with pytest.raises(CorruptRecord):
        builder.add(bytes(damaged), 0, read_header(damaged), "c", 2)
    assert builder.add_many(pieces[3:]) == 1
    columns = builder.finish()
    assert columns.topics == ("a", "b")
    assert to_list(columns.values) == [b"0"] * 3 + [b"1"] * 3 + [b"3"] * 3
    assert integers(columns.partitions, "i") == [0] * 3 + [1] * 3 + [3] * 3
    assert integers(columns.topic_ids, "i") == [0] * 3 + [1] * 3 + [0] * 3


def test_add_many_accepts_no_batches(twin: Any) -> None:
    builder = twin.ColumnsBuilder()
    assert builder.add_many([]) == 0
    assert builder.finish().count == 0
