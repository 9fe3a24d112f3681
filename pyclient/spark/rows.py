"""A Spark row becomes the arguments of `send`: the column names of Spark's own Kafka sink, and `timestamp`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from pyclient.errors import ConfigError, SerializationError

COLUMNS = ("topic", "partition", "key", "value", "headers", "timestamp")


class OutgoingRecord(NamedTuple):
    """What one row asks for; None leaves the choice to the producer."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None


def to_record(row: Any, topic: str | None) -> OutgoingRecord:
    """Read a Row, a dict, or a plain tuple `(value,)` or `(key, value)`.

    `topic` given by the caller wins over a `topic` column, as in Spark's sink. ConfigError when the columns cannot
    make a record; SerializationError for a cell that is neither text nor bytes.
    """
    cells = _cells(row)
    if "value" not in cells:
        raise ConfigError(f"a row needs a 'value' column to be written to Kafka; it has {sorted(cells)}")
    name = topic or cells.get("topic")
    if not name:
        raise ConfigError("no topic: pass write_partition(topic=...), or give the rows a 'topic' column")
    return OutgoingRecord(
        topic=name,
        value=_octets("value", cells["value"]),
        key=_octets("key", cells.get("key")),
        headers=_headers(cells.get("headers")),
        partition=cells.get("partition"),
        timestamp_ms=_timestamp(cells.get("timestamp")),
    )


def _cells(row: Any) -> Mapping[str, Any]:
    if isinstance(row, Mapping):
        return row
    as_dict: Callable[[], dict[str, Any]] | None = getattr(row, "asDict", None)
    if as_dict is not None and getattr(row, "__fields__", None):
        return as_dict()
    if isinstance(row, tuple) and len(row) == 2:
        return {"key": row[0], "value": row[1]}
    if isinstance(row, tuple) and len(row) == 1:
        return {"value": row[0]}
    raise ConfigError(f"a row is a Row, a dict, (value,) or (key, value); this is {type(row).__name__} {row!r:.80}")


def _octets(column: str, cell: Any) -> bytes | None:
    if cell is None or isinstance(cell, bytes):
        return cell
    if isinstance(cell, str):
        return cell.encode()
    if isinstance(cell, (bytearray, memoryview)):
        return bytes(cell)
    raise SerializationError(
        f"column {column!r} holds {type(cell).__name__}, Kafka wants bytes or text: cast it, for example "
        f'df.withColumn("{column}", df.{column}.cast("string"))'
    )


def _headers(cell: Iterable[Any] | None) -> tuple[tuple[str, bytes | None], ...]:
    if not cell:
        return ()
    return tuple((header[0], _octets("headers", header[1])) for header in cell)


def _timestamp(cell: datetime | int | None) -> int | None:
    if isinstance(cell, datetime):
        return round(cell.timestamp() * 1000)
    return cell
