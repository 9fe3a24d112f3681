"""Convert columns of records to and from Arrow without copying. The only module here that needs pyarrow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

from pyclient.records.columns import BinaryColumn, Buffer, HeaderColumns, RecordColumns

_BYTES_OR_TEXT: Final = (
    "null", "binary", "string", "large_binary", "large_string", "fixed_size_binary", "binary_view", "string_view",
)  # fmt: skip


Rows = tuple[RecordColumns, int, int]
"""Columns, the first row and the row after the last."""


DEFAULT_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def to_table(parts: Sequence[RecordColumns | Rows], names: Sequence[str] = DEFAULT_COLUMNS) -> Any:
    """Return a `pyarrow.Table` of all records, one chunk per part; a slice of rows is not copied.

    Columns, as far as `names` has them: topic (dictionary of string), partition int32, offset int64, timestamp (ms,
    UTC), timestamp_type int8 (0: the producer's time, 1: the broker's), key binary, value binary, headers list of (key
    string, value binary). Raise `ValueError` for another name, `ImportError` without pyarrow.
    """
    pa, wanted = _pyarrow(), schema(tuple(names))
    batches = [
        _to_batch(pa, part, wanted) if isinstance(part, RecordColumns) else _to_slice(pa, wanted, *part)
        for part in parts
    ]
    table = pa.Table.from_batches(batches, schema=wanted)
    return table.unify_dictionaries() if len(batches) > 1 else table


@cache
def schema(names: tuple[str, ...] = DEFAULT_COLUMNS) -> Any:
    """Return the `pyarrow.Schema` of `to_table`; raise `ValueError` for a name that is no column."""
    kinds = _kinds()
    for name in names:
        if name not in kinds:
            raise ValueError(f"there is no column {name!r}; records have: {', '.join(kinds)}")
    return _pyarrow().schema([(name, kinds[name]) for name in names])


def from_array(array: Any) -> BinaryColumn:
    """Convert a binary, string or bytes-like Arrow array to a column; 32-bit layouts are not copied.

    Raise `TypeError` for an array of another type, `ValueError` if it holds more than 2 GiB.
    """
    pa = _pyarrow()
    array = _whole(pa, array)
    if not (pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = _as_binary(pa, array)
    validity, offsets, data = array.buffers()
    return BinaryColumn(
        memoryview(b"\0\0\0\0" if offsets is None else offsets),
        memoryview(b"" if data is None else data),
        None if validity is None else memoryview(validity),
        len(array),
        array.offset,
    )


def from_headers(array: Any) -> HeaderColumns:
    """Convert an Arrow array list<struct<key or name: string, value: binary>>; a null row has no headers.

    Raise `TypeError` for an array of another type, `ValueError` for a header whose name is null or not UTF-8.
    """
    pa = _pyarrow()
    array = _whole(pa, array)
    indices = _header_fields(pa, array.type)
    if indices is None:
        raise TypeError(f"headers must be of type list<struct<key: string, value: binary>>, not {array.type}")
    fields = array.flatten().flatten()
    names, values = fields[indices[0]], fields[indices[1]]
    if names.null_count:
        raise ValueError("a header must have a name, and one is null")
    ends = pa.compute.cumulative_sum(array.value_lengths().fill_null(0).cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return HeaderColumns(_numbers(offsets, "i"), from_array(names.cast(pa.string())), from_array(values))


def from_times(array: Any, missing: int) -> memoryview:
    """Convert an Arrow array of timestamps or of integers (epoch ms) to int64; truncate finer units, nulls: `missing`.

    Raise `TypeError` for an array of another type.
    """
    pa = _pyarrow()
    array, kind = _whole(pa, array), array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("ms", kind.tz), safe=False)
    elif not pa.types.is_integer(kind) and not pa.types.is_null(kind):
        raise TypeError(f"timestamps must be of type timestamp or int64, not {kind}")
    return _numbers(array.cast(pa.int64()).fill_null(missing), "q")


def rows_of_each(array: Any) -> dict[int, memoryview]:
    """Return the distinct numbers of an Arrow array of integers, each with its rows (int32, ascending).

    Raise `TypeError` for an array of another type, `ValueError` for nulls.
    """
    pa = _pyarrow()
    array = _whole(pa, array)
    if not pa.types.is_integer(array.type):
        raise TypeError(f"it must be of type int32, not {array.type}")
    if array.null_count:
        raise ValueError("it has nulls: leave it out where keys are to decide")
    order = pa.compute.array_sort_indices(array)  # a stable sort
    rows, found, start = _numbers(order.cast(pa.int32()), "i"), {}, 0
    for each in pa.compute.value_counts(array.take(order)).to_pylist():
        found[each["values"]] = rows[start : start + each["counts"]]
        start += each["counts"]
    return found


def _whole(pa: ModuleType, array: Any) -> Any:
    """Combine a column into one array. Raise `ValueError` if it is too large for one."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # it does not fit one array of its type
            raise ValueError("the column holds more than 2 GiB: send it in slices")
    return array


def _header_fields(pa: ModuleType, kind: Any) -> tuple[int, int] | None:
    """Return the indices of a header's name and value in the struct type; None for any other type."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        return None
    fields = [kind.value_type.field(number) for number in range(kind.value_type.num_fields)]
    names = [field.name for field in fields]
    for name in ("key", "name"):
        if sorted(names) == sorted([name, "value"]) and _holds_bytes(pa, fields[names.index(name)].type):
            return names.index(name), names.index("value")
    return None


def _holds_bytes(pa: ModuleType, kind: Any) -> bool:
    return any(getattr(pa.types, f"is_{test}")(kind) for test in _BYTES_OR_TEXT)


def _numbers(array: Any, code: Literal["i", "q"]) -> memoryview:
    """Return the integers of an array without nulls."""
    buffer = array.buffers()[1]
    numbers = memoryview(b"" if buffer is None else buffer).cast("B").cast(code)
    return numbers[array.offset : array.offset + len(array)]


def _as_binary(pa: ModuleType, array: Any) -> Any:
    """Convert any other array of bytes or text, with one copy."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if not _holds_bytes(pa, array.type):
        raise TypeError(f"a column must be of binary or string type, not {array.type}")
    try:
        return array.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column does not fit 32-bit offsets, send it in slices: {error}") from error


def _to_batch(pa: ModuleType, part: RecordColumns, wanted: Any) -> Any:
    return pa.RecordBatch.from_arrays([_column(pa, part, name) for name in wanted.names], schema=wanted)


def _column(pa: ModuleType, part: RecordColumns, name: str) -> Any:
    kind, count = _kinds()[name], part.count

    def fixed(buffer: Buffer) -> Any:
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(buffer)], null_count=0)

    match name:
        case "topic":
            ids = [None, pa.py_buffer(part.topic_ids)]
            return pa.DictionaryArray.from_buffers(kind, count, ids, _names(part.topics), null_count=0)
        case "partition":
            return fixed(part.partitions)
        case "offset":
            return fixed(part.offsets)
        case "timestamp":
            return fixed(part.timestamps)
        case "timestamp_type":
            return fixed(part.timestamp_types)
        case "key":
            return _binary(pa, kind, part.keys)
        case "value":
            return _binary(pa, kind, part.values)
    return _headers(pa, kind, part.headers, count)


@cache
def _kinds() -> dict[str, Any]:
    """Return the type of each column, cached: a schema creates its types on each access."""
    pa = _pyarrow()
    return {
        "topic": pa.dictionary(pa.int32(), pa.string()),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", tz="UTC"),
        "timestamp_type": pa.int8(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }


@lru_cache(16)
def _names(topics: tuple[str, ...]) -> Any:
    """Return topic names as an array, cached: most tables have the same topics."""
    pa = _pyarrow()
    return pa.array(topics, pa.string())


def _to_slice(pa: ModuleType, wanted: Any, columns: RecordColumns, first: int, last: int) -> Any:
    return _to_batch(pa, columns, wanted).slice(first, last - first)


def _binary(pa: ModuleType, kind: Any, column: BinaryColumn) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    nulls = 0 if validity is None else -1  # -1: Arrow counts them
    return pa.Array.from_buffers(kind, column.length, buffers, nulls, column.start)


def _headers(pa: ModuleType, kind: Any, headers: HeaderColumns, count: int) -> Any:
    pairs = _pairs(pa, kind, headers) if headers.names.length else _no_pairs()
    return pa.ListArray.from_buffers(kind, count, [None, pa.py_buffer(headers.offsets)], 0, children=[pairs])


def _pairs(pa: ModuleType, kind: Any, headers: HeaderColumns) -> Any:
    names, values = _binary(pa, pa.string(), headers.names), _binary(pa, pa.binary(), headers.values)
    return pa.StructArray.from_buffers(kind.value_type, len(names), [None], children=[names, values])


@cache
def _no_pairs() -> Any:
    """Return the empty array of (name, value) pairs."""
    return _pyarrow().array([], _kinds()["headers"].value_type)


@cache
def _pyarrow() -> ModuleType:
    try:
        import_module("pyarrow.compute")
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError("Arrow columns need pyarrow: pip install 'pyclient-kafka[arrow]'") from error
