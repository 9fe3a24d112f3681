"""Offsets of Spark queries: their JSON forms, the ranges that tasks read, how much a micro-batch takes, and the lag."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor
from typing import Any, Final, Literal

from pyclient.types import TopicPartition

Offsets = dict[TopicPartition, int]
"""The offset of the next record of each partition."""

EARLIEST: Final = -2
LATEST: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The records of a partition with start <= offset < stop, which one task reads."""

    topic: str
    partition: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """The number of offsets, an upper bound of the number of records."""
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.stop})"


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a query.

    `kind` is "earliest" or "latest", "offsets" with `values` (numbers, EARLIEST or LATEST), "times" with
    `values` in epoch milliseconds, or "time" with one `time_ms` for all partitions.
    """

    kind: Literal["earliest", "latest", "offsets", "times", "time"]
    values: Mapping[TopicPartition, int] | None = None
    time_ms: int = 0


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as Spark keeps them: `{"topic": {"0": 23}}`, in the order of topics and partitions."""
    found: dict[str, dict[str, int]] = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def from_json(given: Any) -> Offsets:
    """Return the offsets in `{"topic": {"0": 23}}`; raise `ValueError` for anything else."""
    if not isinstance(given, dict):
        raise ValueError(f"it is a {type(given).__name__}, not an object of topics")
    found: Offsets = {}
    for topic, partitions in given.items():
        if not topic or not isinstance(partitions, dict):
            raise ValueError(f"topic {topic!r} has {partitions!r}, not an object of partitions")
        for number, offset in partitions.items():
            found[TopicPartition(topic, _partition_number(topic, number))] = _integer(topic, number, offset)
    return found


def parse_offsets(text: str, lowest: int) -> Offsets:
    """Return the offsets (or times) in a JSON text such as `{"topic": {"0": 23, "1": -2}}`.

    Raise `ValueError` if it has another form, no partition, or a number below `lowest`.
    """
    found = from_json(_loads(text))
    if not found:
        raise ValueError("it names no partition")
    for partition, offset in found.items():
        if offset < lowest:
            raise ValueError(f"{partition} has {offset}, which is below {lowest}")
    return found


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Return the partitions in a JSON text such as `{"topic": [0, 1]}`; raise `ValueError` for another form."""
    given = _loads(text)
    if not isinstance(given, dict):
        raise ValueError(f"it is a {type(given).__name__}, not an object of topics")
    found: dict[TopicPartition, None] = {}
    for topic, numbers in given.items():
        if not topic or not isinstance(numbers, list):
            raise ValueError(f"topic {topic!r} has {numbers!r}, not a list of partitions")
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ValueError(f"topic {topic!r} has the partition {number!r}, which is not a number from 0")
            found[TopicPartition(topic, number)] = None
    if not found:
        raise ValueError("it names no partition")
    return tuple(found)


def split(ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Return the ranges as tasks read them; empty ones are left out.

    A range of more than `max_records` offsets is cut into equal pieces (Spark: maxRecordsPerPartition). If there are
    fewer than `min_partitions` ranges then, the large ones are cut in proportion to their sizes (minPartitions); the
    number of pieces is about that many, since each range is at least one.
    """
    pieces = [each for each in ranges if each.size > 0]
    if max_records is not None:
        pieces = [piece for each in pieces for piece in _cut(each, ceil(each.size / max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        total = sum(each.size for each in pieces)
        pieces = [piece for each in pieces for piece in _cut(each, _share(each.size, total, min_partitions))]
    return pieces


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], limit: int) -> Offsets:
    """Return an end at most about `limit` offsets after `start`, split in proportion to what each partition has.

    A partition with anything to read gets at least one offset, so small ones are not starved (Spark:
    maxOffsetsPerTrigger). A partition that is not in `start` is taken to begin at 0.
    """
    sizes = {partition: max(0, stop - start.get(partition, 0)) for partition, stop in end.items()}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    found: Offsets = {}
    for partition, stop in end.items():
        share = sizes[partition] * limit / total
        count = ceil(share) if share < 1 else floor(share)
        found[partition] = min(stop, start.get(partition, 0) + count) if sizes[partition] else stop
    return found


def lag_of(offsets: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """Return the lag of each partition, in offsets."""
    return {partition: max(0, stop - offsets.get(partition, 0)) for partition, stop in latest.items()}


def offsets_behind_latest(progress: Mapping[str, Any] | None) -> dict[TopicPartition, int]:
    """Return the lag of each partition, in offsets, after the micro-batch that a query's progress describes.

    `progress` is `query.lastProgress`, one of `query.recentProgress`, or `event.progress` of a
    `StreamingQueryListener`; without any (None), and for sources other than Kafka, there is no lag. The ends of
    partitions are those that Spark asked for with that micro-batch, from pyspark 4.2 on. Of a partition that several
    sources read it is the largest lag; that of a partition which none has read is counted from offset 0.

    Spark gives Python sources no place for the metrics minOffsetsBehindLatest, maxOffsetsBehindLatest and
    avgOffsetsBehindLatest of its own connector: they are the least, largest and mean value here.

    Example:
        worst = max(offsets_behind_latest(query.lastProgress).values(), default=0)
    """
    found: dict[TopicPartition, int] = {}
    for source in (progress or {}).get("sources") or ():
        end, latest = _from_progress(source.get("endOffset")), _from_progress(source.get("latestOffset"))
        if end is not None and latest is not None:
            for partition, lag in lag_of(end, latest).items():  # a query may read a topic by several sources
                found[partition] = max(lag, found.get(partition, 0))
    return found


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from error


def _partition_number(topic: str, text: Any) -> int:
    if not (isinstance(text, str) and text.isascii() and text.isdigit()):
        raise ValueError(f"topic {topic!r} has the partition {text!r}, which is not a number from 0")
    return int(text)


def _integer(topic: str, number: str, offset: Any) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise ValueError(f"{topic}-{number} has {offset!r}, which is not an integer")
    return offset


def _from_progress(given: Any) -> Offsets | None:
    try:
        return from_json(json.loads(given) if isinstance(given, str) else given)
    except ValueError:
        return None


def _share(size: int, total: int, parts: int) -> int:
    return max(1, round(size / total * parts))


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, whole.size)
    cuts = [whole.start + whole.size * number // parts for number in range(parts + 1)]
    return [replace(whole, start=start, stop=stop) for start, stop in pairwise(cuts)]
