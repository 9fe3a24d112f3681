"""Filters that Spark pushes to the source: which offsets can be left out, before anything is read.

Spark still evaluates every filter on the rows: leaving out what cannot match is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from pyclient.spark.offsets import OffsetRange
from pyclient.types import TopicPartition

FindTimes = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
"""Returns the first offset at or after a time (epoch ms) in each partition, the end if there is none."""

_LOWEST: Final = {"EqualTo", "GreaterThan", "GreaterThanOrEqual"}


def pruned(ranges: Iterable[OffsetRange], filters: Iterable[Any], first_at: FindTimes) -> list[OffsetRange]:
    """Return the ranges without offsets that no row can have under these filters of pyspark.sql.datasource.

    `partition`, `topic` and `offset` prune both ends. A lower limit of `timestamp` prunes the start, as records before
    the first one that is late enough are all too early; an upper limit prunes nothing, as times need not ascend.
    """
    found = list(ranges)
    for each in filters:
        kind, column = type(each).__name__, getattr(each, "attribute", None)
        if not hasattr(each, "value"):
            continue
        match column:
            case ("partition",):
                found = [part for part in found if _allows(kind, each.value, part.partition)]
            case ("topic",):
                found = [part for part in found if _allows(kind, each.value, part.topic)]
            case ("offset",):
                found = [_cut(kind, each.value, part) for part in found]
            case ("timestamp",) if kind in _LOWEST and isinstance(each.value, datetime):
                found = _from_time(found, each.value, first_at)
    return [part for part in found if part.size > 0]


def _allows(kind: str, value: Any, given: Any) -> bool:
    match kind:
        case "EqualTo" | "EqualNullSafe":
            return bool(given == value)
        case "In":
            return given in value
        case "GreaterThan":
            return bool(given > value)
        case "GreaterThanOrEqual":
            return bool(given >= value)
        case "LessThan":
            return bool(given < value)
        case "LessThanOrEqual":
            return bool(given <= value)
    return True


def _cut(kind: str, value: Any, part: OffsetRange) -> OffsetRange:
    match kind:
        case "EqualTo" | "EqualNullSafe" if value is not None:
            lowest, stop = value, value + 1
        case "In" if value and None not in value:
            lowest, stop = min(value), max(value) + 1
        case "GreaterThan":
            lowest, stop = value + 1, part.stop
        case "GreaterThanOrEqual":
            lowest, stop = value, part.stop
        case "LessThan":
            lowest, stop = part.start, value
        case "LessThanOrEqual":
            lowest, stop = part.start, value + 1
        case _:
            return part
    start = min(max(part.start, lowest), part.stop)
    return replace(part, start=start, stop=max(start, min(part.stop, stop)))


def _from_time(ranges: list[OffsetRange], time: datetime, first_at: FindTimes) -> list[OffsetRange]:
    moment = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    milliseconds = int(moment.timestamp() * 1000)
    offsets = first_at({TopicPartition(part.topic, part.partition): milliseconds for part in ranges}) if ranges else {}
    return [
        replace(part, start=min(part.stop, max(part.start, offsets[TopicPartition(part.topic, part.partition)])))
        for part in ranges
    ]
