"""`send_many`: columns of records into batches, without touching each record in Python."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

from pyclient.clock import Clock
from pyclient.errors import KafkaError, SerializationError
from pyclient.producer.batch import ProducerBatch
from pyclient.producer.batch_future import BatchFuture, Span
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.checks import WRONG_RECORD, check_timestamp, explain
from pyclient.producer.core import ProducerCore
from pyclient.producer.delivery import Delivery
from pyclient.producer.partition_queue import PartitionQueue
from pyclient.producer.tables import Given, is_arrow
from pyclient.records import (
    HEADER_SIZE,
    BatchBuilder,
    BinaryColumn,
    HeaderColumns,
    record_size_bound,
    rows_by_partition,
)

T = TypeVar("T")

_WRONG_ROW: Final = (*WRONG_RECORD, ValueError, KafkaError)

Row = tuple[Any, Any, Any]  # key, value, headers
Times = int | Sequence[int]

_ROW_OVERHEAD: Final = 32  # the most bytes of a record beside its key and value, without headers
_HEADER_OVERHEAD: Final = 10  # the most bytes of a header beside its name and value
_TURN: Final = 8  # batches that are filled before others get the lock


class Column(Protocol):
    """Rows that a batch can take many of at once."""

    count: int

    def append_to(self, builder: BatchBuilder, start: int, stop: int) -> int:
        """Writes rows from `start`; says how many went in. A first row that is wrong raises as in `_WRONG_ROW`."""
        ...

    def bound(self, number: int) -> int:
        """The most bytes that a row takes in a batch; may raise for one that is wrong."""
        ...

    def row(self, number: int) -> Row:
        """One row."""
        ...

    def times(self, start: int, stop: int) -> Times:
        """The timestamps of these rows, or the one they share."""
        ...


class ListColumns:
    """Rows from Python sequences, or those of them that `rows` (int32) names."""

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
        """The key column, one for each row."""
        return self._keys

    def key_column(self) -> Sequence[Any] | None:
        """The key column as `rows_by_partition` takes it."""
        return self._keys

    def take(self, rows: memoryview) -> ListColumns:
        """Only these rows."""
        return ListColumns(self._values, self._keys, self._headers, self._times, rows)


class _Cells:
    """The rows of one binary column, one by one."""

    def __init__(self, column: BinaryColumn) -> None:
        self._column = column
        self._offsets = memoryview(column.offsets).cast("B").cast("i")

    def size(self, number: int) -> int:
        """How many bytes a row has."""
        at = self._column.start + number
        return self._offsets[at + 1] - self._offsets[at]

    def __getitem__(self, number: int) -> bytes | None:
        column, at = self._column, self._column.start + number
        if column.validity is not None and not column.validity[at >> 3] >> (at & 7) & 1:
            return None
        return bytes(memoryview(column.data)[self._offsets[at] : self._offsets[at + 1]])


class HeaderCells:
    """The rows of a headers column, one by one."""

    def __init__(self, headers: HeaderColumns) -> None:
        self._offsets = memoryview(headers.offsets).cast("B").cast("i")
        self._names = _Cells(headers.names)
        self._values = _Cells(headers.values)

    def bound(self, number: int) -> int:
        """The most bytes that a row's headers take in a batch."""
        cells = range(self._offsets[number], self._offsets[number + 1])
        return sum(_HEADER_OVERHEAD + self._names.size(at) + self._values.size(at) for at in cells)

    def __getitem__(self, number: int) -> list[tuple[str, bytes | None]]:
        cells = range(self._offsets[number], self._offsets[number + 1])
        return [((self._names[at] or b"").decode(), self._values[at]) for at in cells]


class BinaryColumns:
    """Rows from buffers in Arrow's layout, or those of them that `rows` (int32) names."""

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
        """The key column, one for each row."""
        cells = self._key_cells
        return None if cells is None else [cells[number] for number in range(self._values.length)]

    def key_column(self) -> BinaryColumn | None:
        """The key column as `rows_by_partition` takes it."""
        return self._keys

    def take(self, rows: memoryview) -> BinaryColumns:
        """Only these rows."""
        return BinaryColumns(self._values, self._keys, self._times, self._headers, rows)


class _Lane:
    """The rows of a call that go to one partition (None: the sticky one); `positions` are their places in the call."""

    __slots__ = ("count", "next", "partition", "positions", "rows")

    def __init__(self, partition: int | None, rows: Column, positions: Sequence[int]) -> None:
        self.partition = partition
        self.rows = rows
        self.positions = positions
        self.count = rows.count
        self.next = 0


class BulkAppend:
    """One `send_many` on its way into the accumulator. `advance` goes as far as memory allows.

    `keep_pace`, if given, is called after every few batches, without the lock, and may wait for the sender.
    """

    def __init__(
        self,
        core: ProducerCore,
        topic: str,
        lanes: list[_Lane],
        count: int,
        keep_pace: Callable[[], None] | None = None,
    ) -> None:
        self._core = core
        self._keep_pace = keep_pace
        self._topic = topic
        self._lanes = lanes
        self._count = count
        self._spans: list[Span] = []
        self._refused: dict[int, BaseException] = {}
        self._sender_waits = False  # a batch was finished, and the sender does not know

    def advance(self, waiter: Waiter) -> Waiter | None:
        """Appends rows; returns the `waiter` if it now waits for memory and is woken to call again, None at the end."""
        core = self._core
        for lane in self._lanes:
            while lane.next < lane.count:
                with core.lock:
                    core.check_open()
                    waiting = self._take_turn(lane, waiter)
                if self._sender_waits:  # not under the lock, which is the first thing that the sender wants
                    self._sender_waits = False
                    core.loop.wake()
                if waiting:
                    return waiter
                if self._keep_pace is not None:
                    self._keep_pace()
        return None

    def give_up(self, error: KafkaError) -> None:
        """What is not appended yet will not be: those records fail, or the call does if there are no others."""
        if not self._spans:
            raise error
        for lane in self._lanes:
            for number in range(lane.next, lane.count):
                self._refused[lane.positions[number]] = error
            lane.next = lane.count

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

    def _take_turn(self, lane: _Lane, waiter: Waiter) -> bool:
        """Fills a few batches; True if it has to wait for memory. The caller holds the lock.

        One batch a turn made the two threads wait for each other at every batch (measured: 1.2x the CPU time).
        """
        for _ in range(_TURN):
            if lane.next == lane.count:
                break
            if not self._go_on(lane, waiter):
                return True
        return False

    def _go_on(self, lane: _Lane, waiter: Waiter) -> bool:
        """Fills the open batch, or finishes it and begins another; False if it has to wait. The lock is held."""
        core, accumulator = self._core, self._core.accumulator
        queue = self._queue(lane)
        try:
            bound = lane.rows.bound(lane.next)
            while queue.open is not None:
                if self._append(lane, queue.open, bound):
                    return True
                accumulator.close_open(queue)
                self._sender_waits = True
                queue = self._queue(lane)  # the sticky partition may have changed with that
            fits = HEADER_SIZE + bound <= accumulator.batch_size
            size = accumulator.batch_size if fits else core.room_for(queue, bound)
            buffer = core.take_buffer(size, waiter)
            if buffer is None:
                core.wait_for_buffer(size, waiter)
                return False
            self._append(lane, accumulator.open_batch(queue, buffer, core.clock.monotonic()), bound)
            if accumulator.alone:
                accumulator.close_open(queue)
                self._sender_waits = True
            else:
                core.wake_for(queue)
        except _WRONG_ROW as error:
            self._refuse(lane, error)
            batch = queue.open
            if batch is not None and not batch.count:
                accumulator.drop_if_empty(batch)
        return True

    def _queue(self, lane: _Lane) -> PartitionQueue:
        queues = self._core.topics[self._topic]
        return queues.sticky if lane.partition is None else queues.queues[lane.partition]

    def _append(self, lane: _Lane, batch: ProducerBatch, bound: int) -> int:
        """Appends rows to the open batch; says how many, 0 if there is no room for a row of `bound` bytes.

        To ask that first is quicker than to append in vain at every batch's end.
        """
        start, builder, queue = lane.next, batch.builder, batch.queue
        if batch.buffer is None or bound > len(batch.buffer) - builder.size:
            return 0
        queue.topic.lanes.close(queue.partition)  # nobody else appends meanwhile: the rows are to stand side by side
        try:
            first = batch.count
            went = lane.rows.append_to(builder, start, start + 1 if self._core.accumulator.alone else lane.count)
        finally:
            queue.topic.lanes.open(queue.partition, builder)
        if went:
            lane.next = start + went
            positions = lane.positions[start : start + went]
            self._spans.append(Span(batch.delivery, first, positions, lane.rows.times(start, start + went)))
        return went

    def _refuse(self, lane: _Lane, error: Exception) -> None:
        position = lane.positions[lane.next]
        key, value, _ = lane.rows.row(lane.next)
        self._refused[position] = error if isinstance(error, KafkaError) else explain(self._topic, key, value, error)
        lane.next += 1


Choose = Callable[[Any], int | None]


def lanes_of(rows: ListColumns | BinaryColumns, given: Given, choose: Choose | int | None) -> list[_Lane]:
    """The rows by partition, in their order.

    `choose(key)` gives a key's partition, None for the sticky one; a number stands for the key's hash among so many.
    It is not asked where `given` says where records go.
    """
    if given.rows is not None:
        return _lanes(rows, given.rows)
    if choose is None or given.partition is not None:
        return [_Lane(given.partition, rows, range(rows.count))]
    if choose == 1:  # one lane, or rows with keys and rows without would change places in the one partition
        return [_Lane(0, rows, range(rows.count))]
    if isinstance(choose, int):
        column = rows.key_column()
        found = rows_by_partition([None] * rows.count if column is None else column, choose)
        by_partition = {None if chosen < 0 else chosen: positions for chosen, positions in found.items()}
    else:
        by_partition = _ask_for_each(rows.keys() or [None] * rows.count, choose)
    return _lanes(rows, by_partition)


def _lanes(rows: ListColumns | BinaryColumns, by_partition: Mapping[Any, memoryview]) -> list[_Lane]:
    if len(by_partition) == 1:
        return [_Lane(next(iter(by_partition)), rows, range(rows.count))]
    return [_Lane(chosen, rows.take(positions), positions) for chosen, positions in by_partition.items()]


def _ask_for_each(keys: Sequence[Any], choose: Choose) -> dict[int | None, memoryview]:
    found: dict[int | None, array[int]] = {}
    for position, key in enumerate(keys):
        found.setdefault(choose(key), array("i")).append(position)
    return {chosen: memoryview(positions) for chosen, positions in found.items()}


def chooser(core: ProducerCore, topic: str, count: int, keyed: bool) -> Choose | int | None:
    """How this producer chooses a partition of a topic with `count`, as `lanes_of` takes it."""
    if core.config.partitioner is not None:
        return lambda key: core.ask_partitioner(topic, key, count)
    if not keyed or core.config.partitioner_ignore_keys:
        return None
    return count


def columns_of(core: ProducerCore, topic: str, given: Given) -> ListColumns | BinaryColumns:
    """The arguments of `send_many` as columns; `ValueError` if their lengths differ, `SerializationError` if one is of
    a type that no record has."""
    values, keys, headers = given.values, given.keys, given.headers
    times = core.clock.time_ms() if given.timestamps_ms is None else times_of(core.clock, topic, given.timestamps_ms)
    lengths = {len(column) for column in (values, keys, headers) if column is not None}
    if not isinstance(times, int):
        lengths.add(len(times))
    if len(lengths) > 1:
        raise ValueError(f"send_many takes columns of one length, these have {sorted(lengths)}")
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


def _read(reader: Callable[[Any], T], topic: str, what: str, column: Any) -> T:
    """What `reader` makes of an Arrow column; `SerializationError` if it cannot read it."""
    try:
        return reader(column)
    except (TypeError, ValueError) as error:
        text = f"the {what} column for topic {topic!r} cannot be written: {error}"
        raise SerializationError(text) from error


def times_of(clock: Clock, topic: str, given: Any) -> Times:
    """One timestamp, or a list of them; `SerializationError` for what cannot be milliseconds."""
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
    """The headers of each row as `send` takes them, from an Arrow column too."""
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
    """Headers as (name, value) pairs, from a mapping too."""
    if type(headers) in (tuple, list):  # asking whether it is a mapping takes longer than to send the record
        return headers
    return tuple(headers.items()) if isinstance(headers, Mapping) else headers
