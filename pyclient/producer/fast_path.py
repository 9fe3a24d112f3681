"""FastPathOwner: starts the compiled fast path of single records (`FastPath`), and takes over what it cannot finish.

At linger 0 and a moderate rate a record finds the producer idle, and its response has nothing but its offset. Python's
calls for both, with the processor's caches cold, are then half of the client's time (docs/measurements.md, "Latency
at linger 0"). So `FastPath` handles such a record alone, from `send` to its future.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from pyclient.net.connection import Connection
from pyclient.net.stream import FrameStream
from pyclient.producer.config import ProducerConfig
from pyclient.producer.delivery import Delivery, DeliveryContext, State
from pyclient.producer.futures import DeliveryFuture
from pyclient.producer.idempotence import Phase
from pyclient.producer.implementation import compiled_only
from pyclient.producer.lock import ProducerLock
from pyclient.producer.metrics import LATENCY_BOUNDS_MS
from pyclient.producer.producer_batch import BatchState, ProducerBatch
from pyclient.producer.record_accumulator import ATOMIC_APPEND, PartitionQueue
from pyclient.producer.sender import ProduceWork
from pyclient.producer.sender_thread import SenderLoop
from pyclient.protocol.messages.produce import ProduceRequest
from pyclient.records import HEADER_SIZE, record_size_bound

LARGEST: Final = 16_384  # bytes of the largest frame on the fast path
DEPTH: Final = 3  # records in flight on the fast path: more are sent faster in a batch than one by one
_NO_LIMIT: Final = 2**62


class FastPathKinds(NamedTuple):
    """The classes that `FastPath` creates for a record, and the states of a delivery that it sets."""

    future: type[DeliveryFuture] = DeliveryFuture
    delivery: type[Delivery] = Delivery
    pending: State = State.PENDING
    delivered: State = State.DELIVERED


class FastPathLimits(NamedTuple):
    """The options that `FastPath` applies; timeouts in seconds, sizes in bytes."""

    idempotent: bool
    delivery_timeout: float
    request_timeout: float
    largest: int  # of a frame
    depth: int  # records in flight


class FastPathOwner:
    """Starts `fast_path` whenever a response leaves the producer idle, and takes over its records if needed.

    `fast_path` is None in pure Python, and with options that do not allow to send plain records at once.
    """

    def __init__(self, loop: SenderLoop, lock: ProducerLock, context: DeliveryContext, config: ProducerConfig) -> None:
        self._loop = loop
        self._sender = loop.sender
        self._idempotent = config.idempotent
        self._timeout = config.delivery_timeout_ms / 1000
        self._queue: PartitionQueue | None = None
        self._connection: Connection | None = None
        self._readers: dict[FrameStream, Any] = {}
        self.fast_path: Any = None
        wanted = config.linger_ms == 0 and config.acks != 0 and config.plain and config.compression_type == "none"
        if wanted and ATOMIC_APPEND and config.transactional_id is None:
            limits = FastPathLimits(
                idempotent=config.idempotent,
                delivery_timeout=self._timeout,
                request_timeout=config.request_timeout_ms / 1000,
                largest=min(config.max_request_size, config.buffer_memory, LARGEST),
                depth=min(DEPTH, config.max_in_flight_requests_per_connection),
            )
            self.fast_path = compiled_only("FastPath")(self, context, FastPathKinds(), limits, LATENCY_BOUNDS_MS)
            lock.fast_path, loop.when_idle, context.fast_path = self.fast_path, self.open, self.fast_path

    def open(self, queue: PartitionQueue, now: float) -> None:
        """Start the fast path for `queue`, of which a record was confirmed, if the producer is idle.

        Called in the loop's thread, with the producer's lock held.
        """
        loop, number, sequence = self._loop, queue.leader, queue.sequence
        node, connection, template = self._sender.nodes.get(number), loop.connections.get(number), queue.template
        if (
            queue.waiting or queue.outstanding or queue.on_wire or template is None or node is None or node.in_flight
            or connection is None or connection.version_used(ProduceRequest) != template.version
            or node.throttled_until > now or loop.scheduled or self._sender.accumulator.pool.waiting
            or (self._idempotent and (sequence.phase is not Phase.STEADY or sequence.may_still_arrive))
            or queue.topic.name not in self._sender.accumulator.open_batches
        ):  # fmt: skip
            return
        stream = connection.stream
        if type(stream) is not FrameStream or stream.closed:
            return
        reader = self._readers.get(stream)
        if reader is None:
            hand_over = partial(self._hand_over, stream)
            reader = compiled_only("FastPathReader")(self.fast_path, stream.on_readable, hand_over, stream.fileno())
            self._readers = {each: kept for each, kept in self._readers.items() if not each.closed}
            self._readers[stream] = reader
            stream.read_with(reader)
        self._queue, self._connection = queue, connection
        topic, bytes_left = queue.topic, _NO_LIMIT
        if queue is topic.sticky and topic.count > 1:
            bytes_left = topic.partitioner.bytes_left
        self.fast_path.start(
            queue, connection, stream, reader, ProduceRequest, template,
            until=loop.idle_check_at, next_round=loop.next_round, bytes_left=bytes_left,
        )  # fmt: skip

    def take_over(self, record: Any) -> None:
        """Turn the first record on the fast path into a batch in flight; the producer's lock is held."""
        queue, sender = self._queue, self._sender
        assert queue is not None
        accumulator, node, number = sender.accumulator, sender.nodes[queue.leader], queue.leader
        pool, size = accumulator.pool, HEADER_SIZE + record_size_bound(record.key, record.value, None)
        try:
            buffer = pool.force_acquire(max(size, accumulator.batch_size))
            deadline = record.created + self._timeout
            batch = ProducerBatch(
                queue, record.delivery, buffer, position=record.position, created=record.created, deadline=deadline
            )
            batch.builder.append(record.timestamp_ms, record.key, record.value, None)
            batch.builder.close()
            batch.become(BatchState.CLOSED)
            batch.become(BatchState.IN_FLIGHT)
            work = ProduceWork(number, [batch], batch.builder.size)
            outstanding, left = [*queue.outstanding, batch], self.fast_path.records[1:]
            # No calls in these lines: an interrupt comes before or after all of them.
            if self._idempotent:
                batch.producer_id, batch.producer_epoch = queue.sequence.producer_id, queue.sequence.epoch
                batch.base_sequence = record.sequence
                queue.outstanding = outstanding
            accumulator.incomplete[batch] = pool.unowned = None
            queue.wire_node, queue.wire_connection = number, 0
            batch.attempts = 1
            queue.on_wire += 1
            node.in_flight += 1
            sender.metrics.requests += 1
            record.work, self.fast_path.records = work, left
        except BaseException:
            pool.take_back()
            raise
        accumulator.count_closed(batch)

    def answered(self, record: Any, answer: Any, error: BaseException | None) -> None:
        """Complete a record of the fast path when its request has ended."""
        self._loop.fast_path_ended(record, answer, error)

    def lost(self, record: Any, error: BaseException) -> None:
        """Fail a record of the fast path in the loop's next iteration, when the connection's state is consistent."""
        self._loop.loop.call_soon(self.answered, record, None, error)

    def interrupted(self, connection: Connection, error: BaseException) -> None:
        """End the connection after an interrupt while a record was written: the frame may be incomplete."""
        self._loop.loop.call_soon_threadsafe(connection.end, f"interrupted while it was written to ({error!r})")

    def _hand_over(self, stream: FrameStream, reader: Any, data: bytes, on_loop: bool) -> None:
        """Pass bytes that are not for the fast path to their stream."""

        def take() -> None:
            try:
                if not stream.closed:
                    stream.received_here(data)
            finally:
                reader.taken()

        if on_loop:
            take()
        else:
            self._call_soon(take)

    def schedule_reopen(self) -> None:
        """Have the loop open the fast path again, which counts what it has delivered until then."""
        if self._queue is not None:
            self._call_soon(self._loop.call_with_lock, partial(self.open, self._queue))

    def _call_soon(self, function: Callable[..., object], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.loop.call_soon_threadsafe(function, *arguments)

    def count_delivered(self, count: int, size: int, last: float, longest: float, buckets: Sequence[int]) -> None:
        """Count delivered records; the producer's lock is held."""
        queue, connection, metrics = self._queue, self._connection, self._sender.metrics
        assert queue is not None
        assert connection is not None
        metrics.requests += count
        metrics.delivered_singly(count, size, last, longest, buckets)
        queue.topic.last_used = connection.last_used = queue.sequence.confirmed_at = last
        if queue is queue.topic.sticky:
            queue.topic.partitioner.closed(size)

    def close(self) -> None:
        """Close the fast path for good."""
        if self.fast_path is not None:
            self.fast_path.close()
