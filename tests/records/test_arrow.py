from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from pyclient.records import Compression, arrow, read_header

if os.environ.get("PYCLIENT_REQUIRE_ALL") == "1":
    import pyarrow as pa
else:
    pa = pytest.importorskip("pyarrow")

ROWS: list[Any] = [
    (1_700_000_000_000, b"key", b"value", (("trace", b"1"), ("é", None))),
    (1_700_000_000_007, None, b"", ()),
    (1_699_999_999_999, b"", None, (("", b""),)),
]


def table_of(twin: Any, *parts: list[tuple[str, int, bytes]]) -> Any:
    columns = []
    for part in parts:
        builder = twin.ColumnsBuilder()
        for topic, partition, batch in part:
            builder.add(batch, 0, read_header(batch), topic, partition)
        columns.append(builder.finish())
    table = arrow.to_table(columns)
    table.validate(full=True)
    return table


def test_table_has_every_field_of_every_record(twin: Any, codec: Compression) -> None:
    first, second = (twin.build(ROWS, base_offset=offset, compression=codec) for offset in (0, 100))
    table = table_of(twin, [("a", 0, first), ("b", 5, second)], [("b", 1, first)])
    assert table.schema == arrow.schema()
    wanted = [
        {
            "topic": topic,
            "partition": partition,
            "offset": base + number,
            "timestamp": timestamp,
            "key": key,
            "value": value,
            "headers": [{"key": name, "value": content} for name, content in headers],
        }
        for topic, partition, base in (("a", 0, 0), ("b", 5, 100), ("b", 1, 0))
        for number, (timestamp, key, value, headers) in enumerate(ROWS)
    ]
    plain = table.set_column(3, "timestamp", table["timestamp"].cast(pa.int64()))
    assert plain.to_pylist() == wanted


def test_table_of_no_records_has_no_rows(twin: Any) -> None:
    assert arrow.to_table([]).schema == arrow.schema()
    assert table_of(twin, []).num_rows == arrow.to_table([]).num_rows == 0


def test_table_shares_decoder_memory_and_outlives_decoder(twin: Any) -> None:
    builder = twin.ColumnsBuilder()
    batch = twin.build(ROWS * 100)
    builder.add(batch, 0, read_header(batch), "a", 0)
    columns = builder.finish()
    table = arrow.to_table([columns])
    address = pa.py_buffer(columns.values.data).address
    assert table["value"].chunk(0).buffers()[2].address == address
    del builder, columns, batch
    assert table["value"].to_pylist() == [row[2] for row in ROWS] * 100


def test_both_twins_give_same_table(twins: tuple[Any, Any]) -> None:
    batch = twins[0].build(ROWS)
    compiled, pure = (table_of(twin, [("a", 0, batch)], [("b", 0, batch)]) for twin in twins)
    assert compiled.equals(pure)


VALUES = [b"a", None, b"", "é".encode(), b"long enough"]
TEXTS = [None if value is None else value.decode() for value in VALUES]
ARRAYS = {
    "binary": pa.array(VALUES, pa.binary()),
    "string": pa.array(TEXTS, pa.string()),
    "large_binary": pa.array(VALUES, pa.large_binary()),
    "large_string": pa.array(TEXTS, pa.large_string()),
    "binary_view": pa.array(VALUES, pa.binary_view()),
    "string_view": pa.array(TEXTS, pa.string_view()),
    "dictionary": pa.array(TEXTS).dictionary_encode(),
    "large_dictionary": pa.array(TEXTS, pa.large_string()).dictionary_encode(),
    "chunked": pa.chunked_array([VALUES[:2], VALUES[2:2], VALUES[2:]], pa.binary()),
    "one_chunk": pa.chunked_array([VALUES]),
    "sliced": pa.array([b"before", b"also", *VALUES, b"after"])[2:7],
    "sliced_text": pa.chunked_array([pa.array(["before", *TEXTS])])[1:],
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrow_arrays_of_bytes_and_text_become_records(twin: Any, kind: str) -> None:
    column = arrow.from_array(ARRAYS[kind])
    builder = twin.BatchBuilder(bytearray(1000), None)
    assert builder.append_columns(5, None, column, None, 0, 5) == 5
    assert [row[2] for row in twin.rows(builder.seal())] == VALUES


def test_other_binary_layouts_become_records(twin: Any) -> None:
    for array, expected in (
        (pa.array([b"abc", None], pa.binary(3)), [b"abc", None]),
        (pa.nulls(2), [None, None]),
        (pa.array([], pa.binary()), []),
        (pa.array([], pa.string()), []),
        (pa.chunked_array([], pa.string()), []),
    ):
        column = arrow.from_array(array)
        builder = twin.BatchBuilder(bytearray(1000), None)
        builder.append(0, None, b"first", None)
        assert builder.append_columns(5, None, column, None, 0, len(expected)) == len(expected)
        assert [row[2] for row in twin.rows(builder.seal())] == [b"first", *expected]


def test_binary_array_is_not_copied() -> None:
    array = pa.array([b"a" * 100, b"b" * 100])
    column = arrow.from_array(array)
    assert pa.py_buffer(column.data).address == array.buffers()[2].address


@pytest.mark.parametrize(
    "array", [pa.array([1]), pa.array([1.5]), pa.array([["a"]]), pa.array([1]).dictionary_encode()]
)
def test_array_of_other_type_raises_type_error(array: Any) -> None:
    with pytest.raises(TypeError, match="a column must be of binary or string type, not"):
        arrow.from_array(array)
    with pytest.raises(TypeError, match="a column must be of binary or string type, not"):
        arrow.from_array(pa.array([1, 1]).dictionary_encode())


def test_pyarrow_is_imported_only_when_used() -> None:
    code = (
        "import sys, pyclient.records, pyclient.records.arrow; assert 'pyarrow' not in sys.modules\n"
        "sys.modules['pyarrow'] = None\n"
        "try: pyclient.records.arrow.schema()\n"
        "except ImportError as error: assert 'pyclient-kafka[arrow]' in str(error)\n"
        "else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
