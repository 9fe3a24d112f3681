"""Rows of a DataFrame as columns for `send_many`: the column names of Spark's own Kafka sink, and `timestamp`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple

from pyclient.errors import ConfigError, SerializationError

COLUMNS: Final = ("topic", "partition", "key", "value", "headers", "timestamp")
ROWS: Final = 5_000
"""Rows that become columns at once."""

_NONE: Final = type(None)


class Columns(NamedTuple):
    """Rows for one topic, and for one partition if that is given; None is a column of nulls."""

    topic: str
    partition: int | None
    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[Any] | None
    timestamps_ms: list[int] | None


def in_columns(
    rows: Iterable[Any], topic: str | None, now_ms: Callable[[], int]
) -> Iterator[tuple[int, list[Columns]]]:
    """Yield the number of rows read, at most `ROWS` at a time, and their columns for each topic and partition.

    A row is a Row, a dict, or a plain tuple `(value,)` or `(key, value)`. `topic` goes before a column topic, as in
    Spark's sink. Raise `ConfigError` if the columns cannot make a record, `SerializationError` for a cell of another
    type. Rows without a timestamp get `now_ms()` where others have one.
    """
    remaining = iter(rows)
    while chunk := list(islice(remaining, ROWS)):
        cells = _cells(chunk)
        if "value" not in cells:
            raise ConfigError(f"a row needs a column value to be written to Kafka; it has {sorted(cells)}")
        yield len(chunk), [_columns(part, name, number, now_ms) for part, name, number in _groups(cells, topic)]


def _cells(chunk: list[Any]) -> dict[str, Sequence[Any]]:
    """Return the columns of some rows by name; only those of the sink count."""
    first = chunk[0]
    fields = getattr(first, "__fields__", None)
    if isinstance(first, tuple) and fields and all(getattr(row, "__fields__", None) == fields for row in chunk):
        columns = list(zip(*chunk, strict=True))
        return {name: column for name, column in zip(fields, columns, strict=True) if name in COLUMNS}
    dicts = [_as_dict(row) for row in chunk]
    names = [name for name in COLUMNS if any(name in row for row in dicts)]
    if "value" in names and not all("value" in row for row in dicts):
        raise ConfigError("a row needs a column value to be written to Kafka; some rows have none")
    return {name: [row.get(name) for row in dicts] for name in names}


def _as_dict(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    if isinstance(row, tuple):
        fields = getattr(row, "__fields__", None)
        if fields:
            return dict(zip(fields, row, strict=True))
        if len(row) == 2:
            return {"key": row[0], "value": row[1]}
        if len(row) == 1:
            return {"value": row[0]}
    raise ConfigError(f"a row is a Row, a dict, (value,) or (key, value); this is {type(row).__name__} {row!r:.80}")


def _groups(
    cells: dict[str, Sequence[Any]], topic: str | None
) -> Iterator[tuple[dict[str, Sequence[Any]], str, int | None]]:
    """Yield the rows of each topic and partition, in their order."""
    count = len(cells["value"])
    topics = [topic] * count if topic is not None else cells.get("topic", [None] * count)
    places = list(zip(topics, cells.get("partition", [None] * count), strict=True))
    distinct = dict.fromkeys(places)
    for name, number in distinct:
        if not name:
            raise ConfigError("no topic: pass write_partition(topic=...), or give every row a topic in a column topic")
        if len(distinct) == 1:
            yield cells, name, number
        else:
            rows = [row for row, place in enumerate(places) if place == (name, number)]
            yield {column: [given[row] for row in rows] for column, given in cells.items()}, name, number


def _columns(cells: dict[str, Sequence[Any]], topic: str, partition: int | None, now_ms: Callable[[], int]) -> Columns:
    times = cells.get("timestamp")
    stamped = None
    if times is not None and set(map(type, times)) != {_NONE}:
        now = now_ms()
        stamped = [now if time is None else _milliseconds(time) for time in times]
    headers = cells.get("headers")
    return Columns(
        topic=topic,
        partition=partition,
        values=_octets("value", cells["value"]),
        keys=_octets("key", cells["key"]) if "key" in cells else None,
        headers=None if headers is None else [_headers(cell) for cell in headers],
        timestamps_ms=stamped,
    )


def _octets(column: str, cells: Sequence[Any]) -> list[bytes | None]:
    types = set(map(type, cells))
    if types <= {bytes, _NONE}:
        return list(cells)
    if types == {str}:
        return [cell.encode() for cell in cells]
    return [_octets_of(column, cell) for cell in cells]


def _octets_of(column: str, cell: Any) -> bytes | None:
    if cell is None or isinstance(cell, bytes):
        return cell
    if isinstance(cell, str):
        return cell.encode()
    if isinstance(cell, (bytearray, memoryview)):
        return bytes(cell)
    raise SerializationError(
        f"column {column} holds {type(cell).__name__}, Kafka wants bytes or text: cast it, for example "
        f'df.withColumn("{column}", df.{column}.cast("string"))'
    )


def _headers(cell: Iterable[Any] | None) -> tuple[tuple[str, bytes | None], ...]:
    if not cell:
        return ()
    return tuple((header[0], _octets_of("headers", header[1])) for header in cell)


def _milliseconds(cell: datetime | int) -> int:
    return round(cell.timestamp() * 1000) if isinstance(cell, datetime) else cell
