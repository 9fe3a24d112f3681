"""`send_many` on its way into the accumulator: many rows a turn, without touching each record in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pyclient.errors import KafkaError
from pyclient.producer.batch import ProducerBatch
from pyclient.producer.batch_future import BatchFuture, Span
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.checks import explain
from pyclient.producer.columns import WRONG_ROW
from pyclient.producer.core import ProducerCore
from pyclient.producer.delivery import Delivery
from pyclient.producer.lanes import Lane
from pyclient.producer.partition_queue import PartitionQueue
from pyclient.records import HEADER_SIZE

_TURN: Final = 8  # batches that are filled before others get the lock


class BulkAppend:
    """One `send_many`. `advance` goes as far as memory allows.

    `keep_pace`, if given, is called after every few batches, without the lock, and may wait for the sender.
    """

    def __init__(
        self,
        core: ProducerCore,
        topic: str,
        lanes: Iterator[Lane],
        count: int,
        keep_pace: Callable[[], None] | None = None,
    ) -> None:
        self._core = core
        self._keep_pace = keep_pace
        self._topic = topic
        self._lanes = lanes
        self._lane = next(lanes, None)
        self._count = count
        self._spans: list[Span] = []
        self._refused: dict[int, BaseException] = {}
        self._sender_waits = False  # a batch was finished, and the sender does not know

    def advance(self, waiter: Waiter) -> Waiter | None:
        """Appends rows; returns the `waiter` if it now waits for memory and is woken to call again, None at the end."""
        core = self._core
        while (lane := self._lane) is not None:
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
            self._lane = next(self._lanes, None)
        return None

    def give_up(self, error: KafkaError) -> None:
        """What is not appended yet will not be: those records fail, or the call does if there are no others."""
        if not self._spans:
            raise error
        while (lane := self._lane) is not None:
            for number in range(lane.next, lane.count):
                self._refused[lane.positions[number]] = error
            self._lane = next(self._lanes, None)

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

    def _take_turn(self, lane: Lane, waiter: Waiter) -> bool:
        """Fills a few batches; True if it has to wait for memory. The caller holds the lock.

        One batch a turn made the two threads wait for each other at every batch (measured: 1.2x the CPU time).
        """
        for _ in range(_TURN):
            if lane.next == lane.count:
                break
            if not self._go_on(lane, waiter):
                return True
        return False

    def _go_on(self, lane: Lane, waiter: Waiter) -> bool:
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
        except BaseException as error:
            core.cut_short(queue, error)
            if not isinstance(error, WRONG_ROW):
                raise
            self._refuse(lane, error)
        return True

    def _queue(self, lane: Lane) -> PartitionQueue:
        queues = self._core.topics[self._topic]
        return queues.sticky if lane.partition is None else queues.queues[lane.partition]

    def _append(self, lane: Lane, batch: ProducerBatch, bound: int) -> int:
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

    def _refuse(self, lane: Lane, error: Exception) -> None:
        position = lane.positions[lane.next]
        key, value, _ = lane.rows.row(lane.next)
        self._refused[position] = error if isinstance(error, KafkaError) else explain(self._topic, key, value, error)
        lane.next += 1
