"""Conversion of the arguments of `send_many` to columns, and the errors for invalid ones."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from pyclient.clock import Clock
from pyclient.errors import SerializationError
from pyclient.producer.checks import check_timestamp
from pyclient.producer.columns import BinaryColumns, HeaderCells, ListColumns, Times
from pyclient.producer.core import ProducerCore
from pyclient.producer.interceptors import as_pairs
from pyclient.producer.tables import Given, is_arrow

T = TypeVar("T")


def columns_of(core: ProducerCore, topic: str, given: Given) -> ListColumns | BinaryColumns:
    """Return the arguments of `send_many` as columns.

    Raise `ValueError` if their lengths differ, `SerializationError` if one has a type that no record can have.
    """
    values, keys, headers = given.values, given.keys, given.headers
    times = core.clock.time_ms() if given.timestamps_ms is None else times_of(core.clock, topic, given.timestamps_ms)
    column_of_times = None if isinstance(times, int) else times
    check_lengths(topic, {"values": values, "keys": keys, "headers": headers, "timestamps_ms": column_of_times})
    by_column = all(column is None or is_arrow(column) for column in (values, keys, headers))
    if by_column and not core.config.serializes:
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
    if core.config.serializes:
        values = [core.serialize(topic, None, value)[1] for value in values]
        keys = None if keys is None else [core.serialize(topic, key, None)[0] for key in keys]
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
