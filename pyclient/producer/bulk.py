"""`send_many`: columns of records into batches, without touching each record in Python."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from pyclient.errors import KafkaError
from pyclient.producer.batch_future import BatchFuture, Span
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.core import WRONG_RECORD, ProducerCore, check_timestamp, explain
from pyclient.producer.delivery import Delivery
from pyclient.producer.partition_queue import PartitionQueue
from pyclient.records import BatchBuilder, BinaryColumn, partition_for_key, record_size_bound

_WRONG_ROW: Final = (*WRONG_RECORD, ValueError, KafkaError)

Row = tuple[Any, Any, Any]  # key, value, headers
Times = int | Sequence[int]


class Column(Protocol):
    """Rows that a batch can take many of at once."""

    def __len__(self) -> int: ...

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        """Writes rows from `start`; says how many went in. A first row that is wrong raises as in `_WRONG_ROW`."""
        ...

    def row(self, number: int) -> Row:
        """One row."""
        ...

    def times(self, start: int, stop: int) -> Times:
        """The timestamps of these rows, or the one they share."""
        ...


class ListColumns:
    """Rows from Python sequences."""

    def __init__(self, values: Sequence[Any], keys: Sequence[Any] | None, headers: Sequence[Any] | None, times: Times):
        self._values = values
        self._keys = keys
        self._headers = headers
        self._times = times

    def __len__(self) -> int:
        return len(self._values)

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        return builder.append_many(self._times, self._keys, self._values, self._headers, start, stop)

    def row(self, number: int) -> Row:
        return (
            None if self._keys is None else self._keys[number],
            self._values[number],
            None if self._headers is None else self._headers[number],
        )

    def times(self, start: int, stop: int) -> Times:
        return self._times if isinstance(self._times, int) else self._times[start:stop]

    def keys(self) -> Sequence[Any] | None:
        """The key column."""
        return self._keys

    def take(self, positions: Sequence[int]) -> ListColumns:
        """Only these rows."""
        return ListColumns(
            [self._values[position] for position in positions],
            None if self._keys is None else [self._keys[position] for position in positions],
            None if self._headers is None else [self._headers[position] for position in positions],
            self._times if isinstance(self._times, int) else [self._times[position] for position in positions],
        )


class BinaryColumns:
    """Rows from buffers in Arrow's layout, or those of them that `rows` (int32) names."""

    def __init__(
        self, values: BinaryColumn, keys: BinaryColumn | None, times: int | memoryview, rows: array[int] | None = None
    ) -> None:
        self._values = values
        self._keys = keys
        self._times = times
        self._rows = rows

    def __len__(self) -> int:
        return self._values.length if self._rows is None else len(self._rows)

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        rows = None if self._rows is None else memoryview(self._rows)
        return builder.append_columns(self._times, self._keys, self._values, None, start, stop, rows)

    def row(self, number: int) -> Row:
        number = number if self._rows is None else self._rows[number]
        return _cell(self._keys, number), _cell(self._values, number), None

    def times(self, start: int, stop: int) -> Times:
        if isinstance(self._times, int):
            return self._times
        return self._times[start:stop] if self._rows is None else [self._times[row] for row in self._rows[start:stop]]

    def keys(self) -> Sequence[Any] | None:
        """The key column."""
        return None if self._keys is None else [_cell(self._keys, number) for number in range(self._keys.length)]

    def take(self, positions: Sequence[int]) -> BinaryColumns:
        """Only these rows."""
        return BinaryColumns(self._values, self._keys, self._times, array("i", positions))


def _cell(column: BinaryColumn | None, number: int) -> bytes | None:
    if column is None:
        return None
    at = column.start + number
    if column.validity is not None and not column.validity[at >> 3] >> (at & 7) & 1:
        return None
    offsets = memoryview(column.offsets).cast("B").cast("i")
    return bytes(memoryview(column.data)[offsets[at] : offsets[at + 1]])


class _Lane:
    """The rows of a call that go to one partition (None: the sticky one); `positions` are their places in the call."""

    def __init__(self, partition: int | None, rows: Column, positions: Sequence[int]) -> None:
        self.partition = partition
        self.rows = rows
        self.positions = positions
        self.next = 0


class BulkAppend:
    """One `send_many` on its way into the accumulator. `advance` goes as far as memory allows."""

    def __init__(self, core: ProducerCore, topic: str, lanes: list[_Lane], count: int) -> None:
        self._core = core
        self._topic = topic
        self._lanes = lanes
        self._count = count
        self._spans: list[Span] = []
        self._refused: dict[int, BaseException] = {}

    def advance(self, waiter: Waiter) -> Waiter | None:
        """Appends rows; returns the `waiter` if it now waits for memory and is woken to call again, None at the end."""
        for lane in self._lanes:
            while lane.next < len(lane.rows):
                with self._core.lock:
                    self._core.check_open()
                    waiting = self._go_on(lane, waiter)
                if waiting:
                    return waiter
        return None

    def give_up(self, error: KafkaError) -> None:
        """What is not appended yet will not be: those records fail, or the call does if there are no others."""
        if not self._spans:
            raise error
        for lane in self._lanes:
            for number in range(lane.next, len(lane.rows)):
                self._refused[lane.positions[number]] = error
            lane.next = len(lane.rows)

    def future(self) -> BatchFuture:
        """The future of what was appended, and of what was refused; raises if nothing was appended at all."""
        if self._refused:
            positions = sorted(self._refused)
            first = self._refused[positions[0]]
            if not self._spans:
                raise first
            refused = Delivery(self._core.desk, self._topic, -1)
            refused.fail(len(positions), first, {at: self._refused[place] for at, place in enumerate(positions)})
            self._spans.append(Span(refused, 0, positions, -1))
        return BatchFuture(self._core.desk, self._count, self._spans)

    def _go_on(self, lane: _Lane, waiter: Waiter) -> bool:
        """Appends to the open batch, or begins another; True if it has to wait. The caller holds the lock."""
        core = self._core
        queue = self._queue(lane)
        try:
            while queue.open is not None:
                if self._append(lane, queue):
                    return False
                size = core.room_for(queue, record_size_bound(*lane.rows.row(lane.next)))
                core.accumulator.close_open(queue)
                queue = self._queue(lane)  # the sticky partition may have changed with that
            size = core.room_for(queue, record_size_bound(*lane.rows.row(lane.next)))
            buffer = core.take_buffer(size, waiter)
            if buffer is None:
                core.wait_for_buffer(size, waiter)
                return True
            core.accumulator.open_batch(queue, buffer, core.clock.monotonic())
            self._append(lane, queue)
            if core.accumulator.alone:
                core.accumulator.close_open(queue)
            core.wake_for(queue)
        except _WRONG_ROW as error:
            self._refuse(lane, error)
            batch = queue.open
            if batch is not None and not batch.count:
                core.accumulator.remove(batch)
                core.accumulator.release(batch)
        return False

    def _queue(self, lane: _Lane) -> PartitionQueue:
        queues = self._core.topics[self._topic]
        return queues.sticky if lane.partition is None else queues.queues[lane.partition]

    def _append(self, lane: _Lane, queue: PartitionQueue) -> bool:
        """Appends rows to the open batch; True if any went in, and all that can go in now have."""
        batch = queue.open
        assert batch is not None
        first, start = batch.count, lane.next
        stop = start + 1 if self._core.accumulator.alone else len(lane.rows)
        went = lane.rows.append_to(batch.builder, start, stop)
        if went:
            lane.next += went
            positions = lane.positions[start : start + went]
            self._spans.append(Span(batch.delivery, first, positions, lane.rows.times(start, start + went)))
        return went > 0

    def _refuse(self, lane: _Lane, error: Exception) -> None:
        position = lane.positions[lane.next]
        key, value, _ = lane.rows.row(lane.next)
        self._refused[position] = error if isinstance(error, KafkaError) else explain(self._topic, key, value, error)
        lane.next += 1


Choose = Callable[[Any], int | None]


def lanes_of(rows: ListColumns | BinaryColumns, partition: int | None, choose: Choose | None) -> list[_Lane]:
    """The rows by partition, in their order; `choose(key)` gives a key's partition, None for the sticky one."""
    if choose is None or partition is not None:
        return [_Lane(partition, rows, range(len(rows)))]
    by_partition: dict[int | None, list[int]] = {}
    keys = rows.keys() or [None] * len(rows)
    for position, key in enumerate(keys):
        by_partition.setdefault(choose(key), []).append(position)
    if len(by_partition) == 1:
        return [_Lane(next(iter(by_partition)), rows, range(len(rows)))]
    return [_Lane(chosen, rows.take(positions), array("q", positions)) for chosen, positions in by_partition.items()]


def chooser(core: ProducerCore, topic: str, count: int, keyed: bool) -> Choose | None:
    """How this producer chooses a partition of a topic with `count`; None if all go to the sticky one."""
    if core.config.partitioner is not None:
        return lambda key: core.ask_partitioner(topic, key, count)
    if not keyed or core.config.partitioner_ignore_keys:
        return None
    return lambda key: None if key is None else _partition_for(key, count)


def _partition_for(key: Any, count: int) -> int | None:
    try:
        return partition_for_key(key, count)
    except TypeError:
        return None  # refused where its turn comes, with the record's place


def columns_of(
    core: ProducerCore, topic: str, values: Any, keys: Any, headers: Any, timestamps_ms: Any
) -> ListColumns | BinaryColumns:
    """The arguments of `send_many` as columns; `ValueError` if their lengths differ."""
    times = core.clock.time_ms() if timestamps_ms is None else _times(timestamps_ms)
    lengths = {len(column) for column in (values, keys, headers) if column is not None}
    if not isinstance(times, int):
        lengths.add(len(times))
    if len(lengths) > 1:
        raise ValueError(f"send_many takes columns of one length, these have {sorted(lengths)}")
    by_column = headers is None and not core.config.serializes
    if by_column and is_arrow(values) and (keys is None or is_arrow(keys)):
        from pyclient.records.arrow import from_array

        buffer = times if isinstance(times, int) else memoryview(array("q", times))
        return BinaryColumns(from_array(values), None if keys is None else from_array(keys), buffer)
    values, keys = _plain(values), _plain(keys)
    if headers is not None:
        headers = [pairs(one) for one in headers]
    if core.config.serializes:
        values = [core.serialize(topic, None, value)[1] for value in values]
        keys = None if keys is None else [core.serialize(topic, key, None)[0] for key in keys]
    return ListColumns(values, keys, headers, times)


def _times(given: Any) -> Times:
    """One timestamp, or a list of them; `SerializationError` for what cannot be milliseconds."""
    if isinstance(given, Iterable):
        return [check_timestamp(time) for time in _plain(given)]
    return check_timestamp(given)


def is_arrow(column: Any) -> bool:
    """Whether a column is an Arrow array."""
    return type(column).__module__.partition(".")[0] == "pyarrow"


def _plain(column: Any) -> Any:
    if column is None or isinstance(column, (list, tuple)):
        return column
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def pairs(headers: Any) -> Any:
    """Headers as (name, value) pairs, from a mapping too."""
    if type(headers) in (tuple, list):  # asking whether it is a mapping takes longer than to send the record
        return headers
    return tuple(headers.items()) if isinstance(headers, Mapping) else headers
