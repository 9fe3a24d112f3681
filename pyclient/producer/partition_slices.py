"""Distribution of the rows of a `send_many` to partitions, in the caller's order."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyclient.producer.client import ProducerClient
from pyclient.producer.columns import WRONG_ROW, BinaryColumns, Column, Given, ListColumns
from pyclient.producer.record_accumulator import TopicQueues
from pyclient.records import rows_by_partition

Rows = ListColumns | BinaryColumns
Choose = Callable[[Any], int]


class PartitionSlice:
    """Rows of a call for one partition (None: the sticky one); `positions` are their indexes in the call."""

    __slots__ = ("count", "next", "partition", "positions", "rows")

    def __init__(self, partition: int | None, rows: Column, positions: Sequence[int]) -> None:
        self.partition = partition
        self.rows = rows
        self.positions = positions
        self.count = rows.count
        self.next = 0


def slices_of(client: ProducerClient, queues: TopicQueues, given: Given, rows: Rows) -> Iterator[PartitionSlice]:
    """Yield the rows by partition; the rows of a partition keep their order, also with and without keys.

    Take the next only when one is appended: the sticky partition depends on it.
    """
    if given.rows is not None:
        return _slices(rows, given.rows)
    if given.partition is not None:
        return iter([PartitionSlice(given.partition, rows, range(rows.count))])
    if client.config.partitioner is not None:
        return _slices(rows, _by_partitioner(rows, lambda key: client.ask_partitioner(queues.name, key, queues.count)))
    column = None if client.config.partitioner_ignore_keys else rows.key_column()
    if column is None:
        return iter([PartitionSlice(None, rows, range(rows.count))])
    if queues.count == 1:
        return iter([PartitionSlice(0, rows, range(rows.count))])
    by_partition = rows_by_partition(column, queues.count)
    keyless = by_partition.pop(-1, None)
    if keyless is None:
        return _slices(rows, by_partition)
    if not by_partition:
        return iter([PartitionSlice(None, rows, range(rows.count))])
    return _with_and_without_keys(rows, keyless, by_partition, queues, client.accumulator.batch_size)


def _slices(rows: Rows, by_partition: Mapping[int, memoryview]) -> Iterator[PartitionSlice]:
    if len(by_partition) == 1:
        yield PartitionSlice(next(iter(by_partition)), rows, range(rows.count))
        return
    for partition, positions in by_partition.items():
        yield PartitionSlice(partition, rows.take(positions), positions)


def _with_and_without_keys(
    rows: Rows, keyless: memoryview, keyed: Mapping[int, memoryview], queues: TopicQueues, batch_size: int
) -> Iterator[PartitionSlice]:
    """Yield about a batch of rows without keys at a time, merged with the rows whose keys belong to their partition.

    The next sticky partition is known only when it is switched to, so rows with keys wait for those without.
    """
    done = dict.fromkeys(keyed, 0)
    start = 0
    while start < len(keyless):
        partition = queues.sticky.partition
        stop = min(len(keyless), start + _rows_in(rows, keyless[start], batch_size))
        positions = keyless[start:stop]
        start = stop
        own = keyed.get(partition)
        if own is not None:
            first, done[partition] = done[partition], bisect_left(own, positions[-1], done[partition])
            positions = memoryview(array("i", sorted([*own[first : done[partition]], *positions])))
        yield PartitionSlice(partition, rows.take(positions), positions)
    for partition, own in keyed.items():
        left = own[done[partition] :]
        if len(left):
            yield PartitionSlice(partition, rows.take(left), left)


def _rows_in(rows: Rows, number: int, size: int) -> int:
    """Return how many rows like this one fit into `size` bytes, at least 1."""
    try:
        return max(1, size // rows.bound(number))
    except WRONG_ROW:  # it is refused when it is appended
        return 1


def _by_partitioner(rows: Rows, choose: Choose) -> dict[int, memoryview]:
    found: dict[int, array[int]] = {}
    for position, key in enumerate(rows.keys() or [None] * rows.count):
        found.setdefault(choose(key), array("i")).append(position)
    return {chosen: memoryview(positions) for chosen, positions in found.items()}
