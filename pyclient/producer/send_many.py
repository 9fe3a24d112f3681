"""`send_many`: appends columns many rows at a time, or for producers with interceptors row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pyclient.clock import SYSTEM_CLOCK
from pyclient.errors import KafkaError
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.checks import explain
from pyclient.producer.client import ProducerClient
from pyclient.producer.columns import WRONG_ROW, Given, check_lengths, is_arrow, plain_headers, times_of
from pyclient.producer.delivery import Delivery, DeliveryContext
from pyclient.producer.futures import BatchFuture, DeliveryFuture, Span
from pyclient.producer.interceptors import ProducerRecord, as_pairs
from pyclient.producer.partition_slices import PartitionSlice
from pyclient.producer.producer_batch import ProducerBatch
from pyclient.producer.record_accumulator import PartitionQueue, TopicQueues

TOPIC_UNKNOWN: Final = object()
"""Result of `advance` if metadata of the topic or partition must be fetched (again) first."""

_TURN: Final = 8  # batches that are filled before the lock is released


class BulkAppend:
    """The state of one `send_many`; `advance` appends as many rows as memory allows.

    `keep_pace`, if given, is called after every few batches, without the lock, and may wait for the sender.
    """

    def __init__(
        self,
        client: ProducerClient,
        topic: str,
        slices: Iterator[PartitionSlice],
        count: int,
        keep_pace: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._keep_pace = keep_pace
        self._topic = topic
        self._slices = slices
        self._current = next(slices, None)
        self._count = count
        self._spans: list[Span] = []
        self._refused: dict[int, BaseException] = {}
        self._sender_waits = False  # a batch is full, and the sender is not woken yet

    @property
    def partition(self) -> int | None:
        """The partition of the next rows; None for the sticky one."""
        return None if self._current is None else self._current.partition

    def advance(self, waiter: Waiter) -> object:
        """Append rows; return None when all are done, or the `waiter` if it waits for memory: call again when woken.

        Return `TOPIC_UNKNOWN` if the topic was forgotten as idle meanwhile: fetch its metadata and call again.
        """
        client = self._client
        while (part := self._current) is not None:
            while part.next < part.count:
                with client.lock:
                    client.check_accepting()
                    queues = client.topics.get(self._topic)
                    if queues is None or (part.partition is not None and part.partition >= len(queues.queues)):
                        return TOPIC_UNKNOWN
                    waiting = self._fill_batches(queues, part, waiter)
                if self._sender_waits:  # outside the lock, which the sender acquires first
                    self._sender_waits = False
                    client.loop.wake()
                if waiting:
                    return waiter
                if self._keep_pace is not None:
                    self._keep_pace()
            self._current = next(self._slices, None)
        return None

    def give_up(self, error: KafkaError) -> None:
        """Fail the rows that are not appended yet; raise `error` if none was appended."""
        if not self._spans:
            raise error
        while (part := self._current) is not None:
            for number in range(part.next, part.count):
                self._refused[part.positions[number]] = error
            self._current = next(self._slices, None)

    def future(self) -> BatchFuture:
        """Return the future of all rows, appended or refused; raise the first error if none was appended."""
        if self._refused:
            positions = sorted(self._refused)
            first = self._refused[positions[0]]
            if not self._spans:
                raise first
            refused = Delivery(self._client.context, self._topic, -1)
            refused.fail(len(positions), first, {at: self._refused[place] for at, place in enumerate(positions)})
            self._spans.append(Span(refused, 0, positions, -1))
        return BatchFuture(self._client.context, self._count, self._spans)

    def _fill_batches(self, queues: TopicQueues, part: PartitionSlice, waiter: Waiter) -> bool:
        """Fill a few batches under the producer's lock; return True if it must wait for memory.

        Few, since the sender waits meanwhile (docs/measurements.md, "send_many").
        """
        for _ in range(_TURN):
            if part.next == part.count:
                break
            queue = queues.sticky if part.partition is None else queues.queues[part.partition]
            try:
                if not self._fill_batch(part, queue, waiter):
                    return True
            except BaseException as error:
                self._client.clean_up_after_error(queue, error)
                if not isinstance(error, WRONG_ROW):
                    raise
                self._refuse(part, error)
        return False

    def _fill_batch(self, part: PartitionSlice, queue: PartitionQueue, waiter: Waiter) -> bool:
        """Fill the partition's open batch or a new one, under the lock; return False if it must wait for memory."""
        client = self._client
        if queue.open is not None:
            self._fill_open(part, queue, queue.open)
            return True
        size = client.accumulator.batch_size
        buffer = client.take_buffer(size, waiter)
        if buffer is not None and not self._fill_new(part, queue, buffer):
            client.accumulator.pool.take_back()  # not even one row fits: it needs a larger buffer
            size = client.room_for(queue, part.rows.bound(part.next))
            buffer = client.take_buffer(size, waiter)
            if buffer is not None:
                self._fill_new(part, queue, buffer)
        if buffer is None:
            client.wait_for_buffer(size, waiter)
            return False
        return True

    def _fill_open(self, part: PartitionSlice, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Append rows to the open batch, and close it if it is full then."""
        builder, open_batches = batch.builder, queue.topic.open_batches
        open_batches.close(queue.partition)  # blocks other appends, so that the rows are contiguous
        try:
            first = builder.count
            went = part.rows.append_to(builder, part.next, part.count)
        finally:
            open_batches.open(queue.partition, builder)
        if went:
            self._appended(part, batch, first, went)
        if builder.full:
            self._client.accumulator.close_open(queue)
            self._sender_waits = True

    def _fill_new(self, part: PartitionSlice, queue: PartitionQueue, buffer: bytearray) -> bool:
        """Append rows to a new batch and queue it; return False, with no batch queued, if no row fits."""
        client, start = self._client, part.next
        accumulator = client.accumulator
        batch = accumulator.new_batch(queue, buffer, client.clock.monotonic())
        builder = batch.builder
        went = part.rows.append_to(builder, start, start + 1 if accumulator.alone else part.count)
        if not went:
            return False
        if builder.full or accumulator.alone:
            accumulator.list_full(batch)
            self._sender_waits = True
        else:
            accumulator.list_open(batch)
            client.wake_for(queue)
        self._appended(part, batch, 0, went)
        return True

    def _appended(self, part: PartitionSlice, batch: ProducerBatch, first: int, count: int) -> None:
        """Note that the next `count` rows are in the batch, from index `first`."""
        start, stop = part.next, part.next + count
        part.next = stop
        self._spans.append(Span(batch.delivery, first, part.positions[start:stop], part.rows.times(start, stop)))

    def _refuse(self, part: PartitionSlice, error: Exception) -> None:
        position = part.positions[part.next]
        key, value, _ = part.rows.row(part.next)
        self._refused[position] = error if isinstance(error, KafkaError) else explain(self._topic, key, value, error)
        part.next += 1


def records_of(topic: str, given: Given) -> list[ProducerRecord]:
    """Return the arguments of `send_many` as records; raise `ValueError` if the columns differ in length."""
    headers, times = given.headers, given.timestamps_ms
    if is_arrow(times):
        times = times_of(SYSTEM_CLOCK, topic, times)
    columns = {"values": _listed(given.values), "keys": _listed(given.keys)}
    columns["headers"] = None if headers is None else list(plain_headers(topic, headers))
    columns["timestamps_ms"] = _listed(times) if isinstance(times, Iterable) else None
    check_lengths(topic, columns)
    key, header, time = columns["keys"], columns["headers"], columns["timestamps_ms"]
    return [
        ProducerRecord(
            topic,
            value,
            None if key is None else key[row],
            () if header is None else as_pairs(header[row]),
            partition,
            times if time is None else time[row],
        )
        for row, (value, partition) in enumerate(zip(columns["values"] or (), given.partitions(), strict=True))
    ]


def _listed(column: Any) -> list[Any] | None:
    if column is None:
        return None
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


class SentRows:
    """Collects the results of the rows of a `send_many` that are sent one by one."""

    def __init__(self, context: DeliveryContext, topic: str, count: int) -> None:
        self._context = context
        self._topic = topic
        self._count = count
        self._sent: list[tuple[Delivery, int, list[int], list[int]]] = []  # batch, first index, rows, timestamps
        self._refused: dict[int, BaseException] = {}

    def sent(self, row: int, future: DeliveryFuture) -> None:
        """Add a row that was accepted."""
        if self._sent:
            batch, first, rows, times = self._sent[-1]
            if batch is future.batch and first + len(rows) == future.index:
                rows.append(row)
                times.append(future.timestamp_ms)
                return
        self._sent.append((future.batch, future.index, [row], [future.timestamp_ms]))

    def refused(self, row: int, error: KafkaError | ValueError) -> None:
        """Add a row that was not accepted."""
        self._refused[row] = error

    def future(self) -> BatchFuture:
        """Return the future of all rows; raise the first error if none was accepted."""
        spans = [Span(*sent) for sent in self._sent]
        if self._refused:
            first = next(iter(self._refused.values()))
            if not spans:
                raise first
            delivery = Delivery(self._context, self._topic, -1)
            delivery.fail(len(self._refused), first, dict(enumerate(self._refused.values())))
            spans.append(Span(delivery, 0, list(self._refused), -1))
        return BatchFuture(self._context, self._count, spans)
