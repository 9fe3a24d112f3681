"""The arguments of a `send_many` as columns, many rows of which are appended to a batch at once."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from pyclient.clock import Clock
from pyclient.errors import KafkaError, SerializationError
from pyclient.producer.checks import WRONG_RECORD, check_partition, check_timestamp
from pyclient.producer.client import ProducerClient
from pyclient.producer.interceptors import as_pairs
from pyclient.records import BatchBuilder, BinaryColumn, HeaderColumns, record_size_bound

_TAKEN: Final = {"key": "keys", "headers": "headers", "timestamp": "timestamps_ms", "partition": "partition"}
_IGNORED: Final = ("topic", "offset", "leader_epoch", "timestamp_type")


class Given(NamedTuple):
    """The arguments of `send_many`; `rows` has the rows of each partition if a table has a partition column."""

    values: Any
    keys: Any
    headers: Any
    timestamps_ms: Any
    partition: int | None
    rows: dict[int, memoryview] | None = None

    @property
    def highest_partition(self) -> int | None:
        """The highest partition given by its number."""
        return max(self.rows, default=None) if self.rows is not None else self.partition

    def partitions(self) -> Iterator[int | None]:
        """Return the partition of each row, None where the producer chooses it."""
        found: list[int | None] = [self.partition] * len(self.values)
        for partition, rows in (self.rows or {}).items():
            for row in rows:
                found[row] = partition
        return iter(found)


def opened(
    topic: str, values: Any, keys: Any = None, headers: Any = None, timestamps_ms: Any = None, partition: Any = None
) -> Given:
    """Return the arguments of `send_many` as columns: a table is split into its columns, an iterator read to its end.

    Raise `ValueError` for a table with missing, unknown or duplicate columns, `SerializationError` for one that cannot
    be read, `TypeError` for an argument that is no column.
    """
    check_partition(partition)
    keys = None if keys is None else _column("keys", keys)
    headers = None if headers is None else _column("headers", headers)
    if not is_table(values):
        return Given(_column("values", values), keys, headers, timestamps_ms, partition)
    arguments = {"keys": keys, "headers": headers, "timestamps_ms": timestamps_ms, "partition": partition}
    _check_names(topic, values.column_names, arguments)
    for name, argument in _TAKEN.items():
        if name in values.column_names and str(values.schema.field(name).type) != "null":
            arguments[argument] = values.column(name)
    given = Given(values.column("value"), **arguments)
    return given if given.partition is None or isinstance(given.partition, int) else _by_partition(topic, given)


def _column(name: str, given: Any) -> Any:
    """Return a column as a sized collection with one entry for each record; raise `TypeError` for anything else."""
    if isinstance(given, (list, tuple)) or is_arrow(given):
        return given
    if hasattr(given, "columns"):
        raise TypeError(f"{name} is a {type(given).__name__}: give one of its columns, or all as a pyarrow.Table")
    if isinstance(given, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(
            f"{name}={given!r:.100} is not possible: send_many takes a list, another iterable or an Arrow array, with "
            "one entry for each record; `send` takes a single one"
        )
    return given if isinstance(given, Sized) else list(given)


def is_table(thing: Any) -> bool:
    """Return True for an Arrow table or record batch."""
    return is_arrow(thing) and hasattr(thing, "column_names")


def is_arrow(thing: Any) -> bool:
    """Return True for any object of pyarrow."""
    return type(thing).__module__.partition(".")[0] == "pyarrow"


def _check_names(topic: str, names: list[str], arguments: dict[str, Any]) -> None:
    unknown = sorted({name for name in names if name not in ("value", *_TAKEN, *_IGNORED)})
    takes = f"send_many takes value (required), {', '.join(_TAKEN)}, and ignores {', '.join(_IGNORED)}"
    if unknown or "value" not in names:
        problem = f"has unknown columns {unknown}" if unknown else "has no column 'value'"
        raise ValueError(f"the table for topic {topic!r} {problem}: {takes}")
    for name in ("value", *_TAKEN):
        if names.count(name) > 1:
            raise ValueError(f"the table for topic {topic!r} has {names.count(name)} columns {name!r}: {takes}")
    for name, argument in _TAKEN.items():
        if name in names and arguments[argument] is not None:
            raise ValueError(f"{argument}=... was given, and the table for topic {topic!r} has a column {name!r} too")


def _by_partition(topic: str, given: Given) -> Given:
    from pyclient.records.arrow import rows_of_each

    try:
        rows = rows_of_each(given.partition)
    except (TypeError, ValueError) as error:
        raise SerializationError(f"the partition column for topic {topic!r} cannot be read: {error}") from error
    check_partition(min(rows, default=None))
    return given._replace(partition=None, rows=rows)


WRONG_ROW: Final = (*WRONG_RECORD, ValueError, KafkaError)
"""Raised by a column for a row that cannot be written."""

Row = tuple[Any, Any, Any]  # key, value, headers
Times = int | Sequence[int]

_ROW_OVERHEAD: Final = 32  # maximum bytes of a record without its key, value and headers
_HEADER_OVERHEAD: Final = 10  # maximum bytes of a header without its name and value


class Column(Protocol):
    """Rows that can be appended to a batch many at once."""

    count: int

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        """Append rows from `start` and return how many; raise one of `WRONG_ROW` if the first is invalid."""
        ...

    def bound(self, number: int) -> int:
        """Return the maximum bytes of a row in a batch; may raise one of `WRONG_ROW` if it is invalid."""
        ...

    def row(self, number: int) -> Row:
        """Return one row."""
        ...

    def times(self, start: int, stop: int) -> Times:
        """Return the timestamps (ms) of these rows, or the one they share."""
        ...


class ListColumns:
    """Rows from Python sequences; with `rows` (int32 indexes) only those."""

    def __init__(
        self,
        values: Sequence[Any],
        keys: Sequence[Any] | None,
        headers: Sequence[Any] | None,
        times: Times,
        rows: memoryview | None = None,
    ) -> None:
        self.count = len(values) if rows is None else len(rows)
        self._values = values
        self._keys = keys
        self._headers = headers
        self._times = times
        self._rows = rows

    def __len__(self) -> int:
        return self.count

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        return builder.append_many(self._times, self._keys, self._values, self._headers, start, stop, self._rows)

    def bound(self, number: int) -> int:
        return record_size_bound(*self.row(number))

    def row(self, number: int) -> Row:
        number = number if self._rows is None else self._rows[number]
        return (
            None if self._keys is None else self._keys[number],
            self._values[number],
            None if self._headers is None else self._headers[number],
        )

    def times(self, start: int, stop: int) -> Times:
        if isinstance(self._times, int):
            return self._times
        return self._times[start:stop] if self._rows is None else [self._times[row] for row in self._rows[start:stop]]

    def keys(self) -> Sequence[Any] | None:
        """Return the keys, one for each row."""
        return self._keys

    def key_column(self) -> Sequence[Any] | None:
        """Return the key column as `rows_by_partition` takes it."""
        return self._keys

    def take(self, rows: memoryview) -> ListColumns:
        """Return only these rows."""
        return ListColumns(self._values, self._keys, self._headers, self._times, rows)


class _Cells:
    """Access to single rows of a binary column."""

    def __init__(self, column: BinaryColumn) -> None:
        self._column = column
        self._offsets = memoryview(column.offsets).cast("B").cast("i")

    def size(self, number: int) -> int:
        """Return the size of a row in bytes."""
        at = self._column.start + number
        return self._offsets[at + 1] - self._offsets[at]

    def __getitem__(self, number: int) -> bytes | None:
        column, at = self._column, self._column.start + number
        if column.validity is not None and not column.validity[at >> 3] >> (at & 7) & 1:
            return None
        return bytes(memoryview(column.data)[self._offsets[at] : self._offsets[at + 1]])


class HeaderCells:
    """Access to single rows of a headers column."""

    def __init__(self, headers: HeaderColumns) -> None:
        self._offsets = memoryview(headers.offsets).cast("B").cast("i")
        self._names = _Cells(headers.names)
        self._values = _Cells(headers.values)

    def bound(self, number: int) -> int:
        """Return the maximum bytes of a row's headers in a batch."""
        cells = range(self._offsets[number], self._offsets[number + 1])
        return sum(_HEADER_OVERHEAD + self._names.size(at) + self._values.size(at) for at in cells)

    def __getitem__(self, number: int) -> list[tuple[str, bytes | None]]:
        cells = range(self._offsets[number], self._offsets[number + 1])
        return [((self._names[at] or b"").decode(), self._values[at]) for at in cells]


class BinaryColumns:
    """Rows from buffers in Arrow's layout; with `rows` (int32 indexes) only those."""

    def __init__(
        self,
        values: BinaryColumn,
        keys: BinaryColumn | None,
        times: int | memoryview,
        headers: HeaderColumns | None = None,
        rows: memoryview | None = None,
    ) -> None:
        self.count = values.length if rows is None else len(rows)
        self._values = values
        self._keys = keys
        self._times = times
        self._headers = headers
        self._rows = rows
        self._value_cells = _Cells(values)
        self._key_cells = None if keys is None else _Cells(keys)
        self._header_cells = None if headers is None else HeaderCells(headers)

    def __len__(self) -> int:
        return self.count

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        return builder.append_columns(self._times, self._keys, self._values, self._headers, start, stop, self._rows)

    def bound(self, number: int) -> int:
        number = number if self._rows is None else self._rows[number]
        keys, headers = self._key_cells, self._header_cells
        bound = _ROW_OVERHEAD + self._value_cells.size(number) + (0 if keys is None else keys.size(number))
        return bound if headers is None else bound + headers.bound(number)

    def row(self, number: int) -> Row:
        number = number if self._rows is None else self._rows[number]
        keys, headers = self._key_cells, self._header_cells
        return (
            None if keys is None else keys[number],
            self._value_cells[number],
            None if headers is None else headers[number],
        )

    def times(self, start: int, stop: int) -> Times:
        if isinstance(self._times, int):
            return self._times
        return self._times[start:stop] if self._rows is None else [self._times[row] for row in self._rows[start:stop]]

    def keys(self) -> Sequence[Any] | None:
        """Return the keys, one for each row."""
        cells = self._key_cells
        return None if cells is None else [cells[number] for number in range(self._values.length)]

    def key_column(self) -> BinaryColumn | None:
        """Return the key column as `rows_by_partition` takes it."""
        return self._keys

    def take(self, rows: memoryview) -> BinaryColumns:
        """Return only these rows."""
        return BinaryColumns(self._values, self._keys, self._times, self._headers, rows)


T = TypeVar("T")


def columns_of(client: ProducerClient, topic: str, given: Given) -> ListColumns | BinaryColumns:
    """Return the arguments of `send_many` as columns.

    Raise `ValueError` if their lengths differ, `SerializationError` if one has a type that no record can have.
    """
    values, keys, headers = given.values, given.keys, given.headers
    clock = client.clock
    times = clock.time_ms() if given.timestamps_ms is None else times_of(clock, topic, given.timestamps_ms)
    column_of_times = None if isinstance(times, int) else times
    check_lengths(topic, {"values": values, "keys": keys, "headers": headers, "timestamps_ms": column_of_times})
    by_column = all(column is None or is_arrow(column) for column in (values, keys, headers))
    if by_column and not client.config.serializes:
        from pyclient.records.arrow import from_array, from_headers

        return BinaryColumns(
            _read(from_array, topic, "value", values),
            None if keys is None else _read(from_array, topic, "key", keys),
            times if isinstance(times, (int, memoryview)) else memoryview(array("q", times)),
            None if headers is None else _read(from_headers, topic, "headers", headers),
        )
    values, keys = _plain(values), _plain(keys)
    if headers is not None:
        headers = [pairs(one) for one in plain_headers(topic, headers)]
    if client.config.serializes:
        values = [client.serialize(topic, None, value)[1] for value in values]
        keys = None if keys is None else [client.serialize(topic, key, None)[0] for key in keys]
    return ListColumns(values, keys, headers, times)


def check_lengths(topic: str, columns: Mapping[str, Any]) -> None:
    """Raise `ValueError` if the columns, except those that are None, differ in length."""
    lengths = {name: len(column) for name, column in columns.items() if column is not None}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(
            f"send_many to topic {topic!r} takes columns of one length, with an entry for each record: {found}"
        )


def _read(reader: Callable[[Any], T], topic: str, what: str, column: Any) -> T:
    """Apply `reader` to an Arrow column; raise `SerializationError` if it fails."""
    try:
        return reader(column)
    except (TypeError, ValueError) as error:
        text = f"the {what} column for topic {topic!r} cannot be written: {error}"
        raise SerializationError(text) from error


def times_of(clock: Clock, topic: str, given: Any) -> Times:
    """Return one timestamp (ms) or a list; raise `SerializationError` if one cannot be milliseconds."""
    if is_arrow(given):
        from pyclient.records.arrow import from_times

        times = _read(partial(from_times, missing=clock.time_ms()), topic, "timestamp", given)
        if times:
            check_timestamp(min(times))
            check_timestamp(max(times))
        return times
    if isinstance(given, Iterable):
        return [check_timestamp(time) for time in _plain(given)]
    return check_timestamp(given)


def plain_headers(topic: str, headers: Any) -> Iterable[Any]:
    """Return the headers of each row as `send` takes them; `headers` may be an Arrow column."""
    if not is_arrow(headers):
        return cast(Iterable[Any], headers)
    from pyclient.records.arrow import from_headers

    reader = HeaderCells(_read(from_headers, topic, "headers", headers))
    return [reader[row] for row in range(len(headers))]


def _plain(column: Any) -> Any:
    if column is None or isinstance(column, (list, tuple)):
        return column
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def pairs(headers: Any) -> Any:
    """Return headers as (name, value) pairs that can be iterated more than once, from a mapping or iterator too."""
    if type(headers) in (tuple, list):  # a Mapping check would take longer than sending the record
        return headers
    return None if headers is None else as_pairs(headers)
