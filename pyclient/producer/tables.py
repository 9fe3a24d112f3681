"""The arguments of `send_many`: single columns, or an Arrow table with named columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Final, NamedTuple

from pyclient.errors import SerializationError
from pyclient.producer.checks import check_partition

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
