"""`ProducerClient`: the implementation shared by `Producer` and `AsyncProducer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.errors import (
    BufferExhausted,
    ClosedError,
    DeliveryFailed,
    KafkaError,
    KafkaTimeout,
    MessageTooLarge,
    PartitionerError,
    TransactionStateError,
    UnknownTopicOrPartition,
)
from pyclient.net.connect import Connector
from pyclient.net.surroundings import SURROUNDINGS
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.callbacks import CallbackRunner
from pyclient.producer.checks import serialized, whole_number
from pyclient.producer.config import ProducerConfig
from pyclient.producer.delivery import Delivery, DeliveryContext
from pyclient.producer.fast_path import FastPathOwner
from pyclient.producer.futures import DeliveryFuture
from pyclient.producer.implementation import log_pure_parts
from pyclient.producer.lock import producer_lock
from pyclient.producer.producer_batch import BatchState
from pyclient.producer.record_accumulator import NO_LEADER, PartitionQueue, RecordAccumulator, TopicQueues, choose_queue
from pyclient.producer.sender import Sender, SenderConfig, why_unconfirmed
from pyclient.producer.sender_thread import SenderLoop
from pyclient.producer.transactions import Transactions, described
from pyclient.records import HEADER_SIZE, IMPLEMENTATION, record_size_bound

if TYPE_CHECKING:
    from pyclient.producer.delivery import Delivery
    from pyclient.producer.producer_batch import ProducerBatch


_AGAIN: Final = object()
_delivery_of: Final = attrgetter("delivery")


class ProducerClient:
    """Accumulator, sender and cluster client of one producer, guarded by one lock; runs on an event loop."""

    def __init__(
        self,
        config: ProducerConfig,
        callbacks: CallbackRunner,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        rng: Rng | None = None,
        connector: Connector | None = None,
    ) -> None:
        rng = rng or SURROUNDINGS.get().new_rng()
        self.config = config
        self.clock = clock
        self.lock = producer_lock()
        self.closed = False  # no records are accepted
        self.ended = False  # all records are complete and all connections closed
        self._linger = config.linger_ms / 1000
        self.context = DeliveryContext(callbacks, loop, clock)
        self.context.failures.may_log_now = lambda: not self.lock.locked()
        self.context.failures.log_later = lambda report: _call_soon(loop, report)
        self.cluster = ClusterClient(config, clock=clock, rng=rng, connector=connector)
        self.accumulator = RecordAccumulator(
            self.context,
            rng,
            batch_size=min(config.batch_size, config.max_request_size),
            buffer_memory=config.buffer_memory,
            linger=config.linger_ms / 1000,
            delivery_timeout=config.delivery_timeout_ms / 1000,
            adaptive=config.partitioner_adaptive_partitioning_enable,
        )
        self.sender = Sender(
            self.accumulator,
            rng,
            SenderConfig(
                idempotent=config.idempotent,
                max_in_flight=config.max_in_flight_requests_per_connection,
                max_connections=config.max_connections_per_broker if config.acks else 1,
                max_request_size=config.max_request_size,
                retries=config.retries,
                backoff=Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000),
                delivery_timeout_ms=config.delivery_timeout_ms,
                availability_timeout=config.partitioner_availability_timeout_ms / 1000,
            ),
        )
        self.sender.describe_failures = self.cluster.describe_failures
        self.loop = SenderLoop(self.sender, self.cluster, self.lock, config=config, loop=loop, clock=clock, rng=rng)
        self.transactions: Transactions | None = None
        if config.transactional_id is not None:
            self.transactions = Transactions(
                self.sender, self.loop, self.cluster, self.lock, config=config, clock=clock, rng=rng
            )
        self.fast_path_owner: FastPathOwner | None = None
        self.topics = self.accumulator.topics
        """The topics known to `send`; empty once the producer is closed."""

    def open_fast_path(self) -> Any:
        """Create the fast path (`FastPath`) for a producer with a callback thread; None if there is none."""
        self.fast_path_owner = FastPathOwner(self.loop, self.lock, self.context, self.config)
        return self.fast_path_owner.fast_path

    async def start(self) -> None:
        """Start to connect to the cluster, in the background."""
        log_pure_parts()
        await self.cluster.start()
        self.loop.start()

    # -- one record

    def try_append(
        self, topic: str, timestamp_ms: int, key: Any, value: Any, headers: Any, partition: int | None
    ) -> DeliveryFuture | None:
        """Append a record like `append`; return None if that must wait for metadata or memory."""
        while (result := self._append_or_close(topic, timestamp_ms, key, value, headers, partition, None)) is _AGAIN:
            continue
        return result  # type: ignore[no-any-return]  # one of several kinds, for `append`

    def append(
        self,
        topic: str,
        timestamp_ms: int,
        key: Any,
        value: Any,
        headers: Any,
        partition: int | None,
        waiter: Waiter,
    ) -> DeliveryFuture | Waiter | None:
        """Append a record to an open or a new batch.

        Return its future; or the `waiter`, which now waits for memory: call again when it is woken; or None if
        metadata of the topic must be fetched first. Raise `MessageTooLarge` if the record never fits, one of
        `WRONG_RECORD` if it is invalid. The caller passes the waiter to `give_up` at the end.
        """
        while (result := self._append_or_close(topic, timestamp_ms, key, value, headers, partition, waiter)) is _AGAIN:
            continue  # no loop in `with` or `try`: an interrupt at its jump back would skip their exit (Python 3.12 on)
        return result  # type: ignore[no-any-return]

    def _append_or_close(
        self,
        topic: str,
        timestamp_ms: int,
        key: Any,
        value: Any,
        headers: Any,
        partition: int | None,
        waiter: Waiter | None,
    ) -> Any:
        """Make one attempt of `append`; return _AGAIN to repeat it, as the sticky partition may have changed.

        Without a waiter return None if there is no memory now.
        """
        with self.lock:
            self.check_accepting()
            queues = self.topics.get(topic)
            if queues is None or (partition is not None and partition >= queues.count):
                return None
            queue = choose_queue(queues, key, partition)
            try:
                future: DeliveryFuture | None = queue.append(timestamp_ms, key, value, headers)
                if future is not None:
                    return future
                size = self.room_for(queue, record_size_bound(key, value, headers))
                if queue.open is not None:
                    self.accumulator.close_open(queue)
                    self.loop.wake()  # the batch is full, and the next may be another partition's
                    return _AGAIN
                buffer = self.take_buffer(size, waiter)
                if buffer is None:
                    return None if waiter is None else self.wait_for_buffer(size, waiter)
                future = self._begin_batch(queue, buffer, timestamp_ms, key, value, headers)
            except BaseException as error:
                self.clean_up_after_error(queue, error)
                raise
        return _AGAIN if future is None else future

    def room_for(self, queue: PartitionQueue, bound: int) -> int:
        """Return the buffer size for a record of up to `bound` bytes; raise `MessageTooLarge` if it never fits."""
        config = self.config
        option = "buffer_memory" if config.buffer_memory < config.max_request_size else "max_request_size"
        limit = getattr(config, option)
        if HEADER_SIZE + bound > limit:
            raise MessageTooLarge(
                f"a record for topic {queue.topic.name!r} takes up to {HEADER_SIZE + bound} bytes with its batch's "
                f"header, more than {option}={limit}: send less, or raise {option} and the topic's max.message.bytes"
            )
        return self.accumulator.buffer_size(bound)

    def take_buffer(self, size: int, waiter: Waiter | None) -> bytearray | None:
        """Return the buffer granted to the waiter, or a free one, or None; the caller holds the lock."""
        pool = self.accumulator.pool
        if waiter is not None and waiter.size:  # it was enqueued before
            if waiter.buffer is not None and len(waiter.buffer) >= size:
                return pool.take(waiter)
            pool.abandon(waiter)
        return pool.try_acquire(size)

    def give_up(self, waiter: Waiter) -> None:
        """Remove a waiter from the pool's queue, if it was ever enqueued."""
        if waiter.size:
            with self.lock:
                self.accumulator.pool.abandon(waiter)

    def clean_up_after_error(self, queue: PartitionQueue, error: BaseException) -> None:
        """Clean up after an error or interrupt while a batch was opened or closed; the caller holds the lock.

        Release memory that reached no batch, discard a batch without records, and finish a half-done close.
        """
        accumulator, batch = self.accumulator, queue.open
        accumulator.pool.take_back()
        if batch is not None and (not batch.count or not isinstance(error, Exception)):
            accumulator.close_open(queue)
            accumulator.drop_if_empty(batch)
        if queue.head_is_ready:
            accumulator.mark_ready(queue)

    def wait_for_buffer(self, size: int, waiter: Waiter) -> Waiter:
        """Enqueue the waiter for memory and end all lingers; the caller holds the lock."""
        self.accumulator.pool.wait(waiter, size)
        self.accumulator.make_all_ready()
        self.loop.wake()
        return waiter

    def exhausted(self, size: int, topic: str, partition: int | None) -> BufferExhausted:
        """Return the error for a send that got no memory in time."""
        return buffer_exhausted(self, size, topic, partition)

    def _begin_batch(
        self, queue: PartitionQueue, buffer: bytearray, timestamp_ms: int, key: Any, value: Any, headers: Any
    ) -> DeliveryFuture | None:
        """Open a batch and append the record; return None if other threads, without the lock, filled it first."""
        self.accumulator.open_batch(queue, buffer, self.clock.monotonic())
        future: DeliveryFuture | None = queue.append(timestamp_ms, key, value, headers)
        if self.accumulator.alone:
            self.accumulator.close_open(queue)
        self.wake_for(queue)
        return future

    def wake_for(self, queue: PartitionQueue) -> None:
        """Wake the sender if the partition's new or full batch is due before its next timer."""
        batch = queue.open
        lingers = batch is not None and batch.state is BatchState.OPEN and len(queue.waiting) == 1
        if batch is None or not lingers or self.loop.next_round > batch.created + self._linger:
            self.loop.wake()

    def choose(self, queues: TopicQueues, key: Any) -> int:
        """Return a record's partition by the custom partitioner, or the sticky one if keys are ignored."""
        if self.config.partitioner is None:
            return queues.sticky.partition
        return self.ask_partitioner(queues.name, key, queues.count)

    def serialize(self, topic: str, key: Any, value: Any) -> tuple[Any, Any]:
        """Serialize key and value; None stays None (a tombstone). Raise `SerializationError` if a serializer fails."""
        return (
            serialized(self.config.key_serializer, key, "key_serializer", topic),
            serialized(self.config.value_serializer, value, "value_serializer", topic),
        )

    def ask_partitioner(self, topic: str, key: Any, count: int) -> int:
        """Call the user's partitioner; raise `PartitionerError` if it fails or returns no partition of the topic."""
        partitioner = self.config.partitioner
        assert partitioner is not None
        try:
            chosen = partitioner(topic, key, count)
        except Exception as error:  # the user's own code may raise anything
            raise PartitionerError(f"the partitioner {partitioner!r} failed for topic {topic!r}: {error!r}") from error
        partition = whole_number(chosen)
        if partition is None or not 0 <= partition < count:
            raise PartitionerError(
                f"the partitioner {partitioner!r} chose {chosen!r} for topic {topic!r}, which has {count} partitions, "
                "numbered from 0"
            )
        return partition

    def check_open(self) -> None:
        """Raise `ClosedError` if the producer is closed."""
        if self.closed:
            raise new_closed()

    def check_accepting(self) -> None:
        """Raise unless records may be sent now: the producer is open, and in a transaction if it has any."""
        self.check_open()
        if self.transactions is not None:
            self.transactions.manager.check_send()

    def transactions_of(self) -> Transactions:
        """Return the producer's transactions; raise `TransactionStateError` if it has no transactional id."""
        self.check_open()
        if self.transactions is None:
            raise TransactionStateError(
                "the producer has no transactions: create it with transactional_id='...', a name of its own"
            )
        return self.transactions

    # -- topics

    def learn_listed(self, topic: str) -> TopicQueues | None:
        """Add a topic that the metadata contain already; return None if it must be fetched. Thread-safe."""
        info = self.cluster.listed_topic(topic)
        if info is None:
            return None
        leaders = [entry.leader for entry in info.partitions]
        with self.lock:
            self.check_open()
            self.loop.listed.append(topic)
            return self.accumulator.update_topic(topic, info.topic_id, leaders, self.clock.monotonic())

    async def learn_topic(self, topic: str, partition: int | None, timeout: float) -> TopicQueues:
        """Wait up to `timeout` seconds for the topic's metadata, with `partition` if given; return its queues.

        Raise `KafkaTimeout`, or `UnknownTopicOrPartition` if the topic has no such partition in time.
        """
        self.check_open()
        learning, heard = self.loop.learning, self.cluster.metadata
        learning[topic] += 1
        try:
            info = await self.cluster.topic_partitions(topic, timeout, partitions=(partition or 0) + 1)
            with self.lock:
                self.check_open()
                leaders = [entry.leader for entry in info.partitions]
                return self.accumulator.update_topic(topic, info.topic_id, leaders, self.clock.monotonic())
        except KafkaTimeout as error:
            known = self.cluster.metadata.partition_count(topic)
            if partition is None or known is None:
                raise
            if heard.topics.get(topic) is self.cluster.metadata.topics.get(topic):
                raise perhaps_no_partition(topic, partition, known, error) from None
            raise no_partition(topic, partition, known, self.config.max_block_ms) from None
        finally:
            learning[topic] -= 1
            if not learning[topic]:
                del learning[topic]
                if topic not in self.accumulator.topics:
                    self.loop.ask_for_topics_in_use()

    # -- flush and close

    def begin_flush(self) -> list[Delivery]:
        """End all lingers and return the deliveries that are not complete."""
        with self.lock:
            self.accumulator.make_all_ready()
            deliveries = [*map(_delivery_of, self.accumulator.incomplete), *self.context.unnotified]
        if deliveries:
            self.loop.wake()
        return deliveries

    def raise_unobserved(self) -> None:
        """Raise `DeliveryFailed` if records failed since the last call and their results were not observed."""
        taken = self.context.failures.take()
        if taken is not None:
            raise DeliveryFailed(*taken)

    def not_flushed(self, deliveries: list[Delivery], timeout: float) -> KafkaTimeout:
        """Return the error for a flush that timed out."""
        return not_flushed(self, deliveries, timeout)

    def closed_before(self) -> ClosedError:
        """Return the error of records that are not confirmed when the producer closes."""
        return closed_before(self)

    def stop_accepting(self) -> None:
        """Make `send` raise `ClosedError`, also in callers that wait for memory."""
        with self.lock:
            self.closed = True
            self.topics = {}
            self.accumulator.open_batches.clear()
            self.accumulator.pool.wake_all()

    def abort(self, error: KafkaError, *, on_wire: bool = True) -> None:
        """Fail all incomplete records, or with `on_wire=False` those that are not in flight."""
        with self.lock:
            results = self.sender.abort(error, on_wire=on_wire)
        self.loop.notify_failed(results)
        self.loop.wake()

    async def end_transaction(self, timeout: float | None) -> None:
        """Abort the transaction that is open when the producer closes."""
        if self.transactions is not None:
            await self.transactions.close(timeout)

    async def shut_down(self) -> None:
        """Fail all incomplete records and close every connection."""
        with self.context.failures.in_one_line():
            self.abort(self.closed_before())
            self.loop.stop()
            if self.fast_path_owner is not None:
                self.fast_path_owner.close()
            await self.cluster.close()
        self.ended = True

    # -- state

    @property
    def state(self) -> str:
        """The state that `repr` shows."""
        return "closed" if self.closed else f"open, {len(self.accumulator.incomplete)} batches unconfirmed"

    def metrics(self) -> dict[str, Any]:
        """See `Producer.metrics`."""
        return metrics_of(self)

    def health(self) -> dict[str, Any]:
        """See `Producer.health`."""
        return health_of(self)


def _call_soon(loop: asyncio.AbstractEventLoop, report: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(report)
    except RuntimeError:  # the loop is closed, so the producer's lock is held only briefly
        report()


def metrics_of(client: ProducerClient) -> dict[str, Any]:
    """Return the result of `Producer.metrics`."""
    with client.lock:
        pool = client.accumulator.pool
        return {
            **client.sender.metrics.snapshot(client.clock.monotonic()),
            "records_failed": client.context.failures.records,
            "requests_in_flight": client.sender.total_in_flight,
            "connections_used": client.sender.connections,
            "batches_unconfirmed": len(client.accumulator.incomplete),
            "buffer_bytes_used": pool.total - pool.available,
            "buffer_bytes_total": pool.total,
            "sends_blocked": pool.waiting,
        }


def health_of(client: ProducerClient) -> dict[str, Any]:
    """Return the result of `Producer.health`."""
    cluster = client.cluster.health()
    with client.lock:
        pool = client.accumulator.pool
        return {
            "state": "closed" if client.closed else "open",
            "cluster_id": cluster.cluster_id,
            "nodes": list(cluster.nodes),
            "connected_nodes": list(cluster.connected),
            "last_failures": dict(cluster.last_failures),
            "record_codec": IMPLEMENTATION,
            "topics": sorted(client.accumulator.topics),
            "batches_unconfirmed": len(client.accumulator.incomplete),
            "requests_in_flight": client.sender.total_in_flight,
            "buffer_bytes_used": pool.total - pool.available,
            "buffer_bytes_total": pool.total,
            "sends_blocked": pool.waiting,
            "producer_id": client.sender.producer_ids.producer_id,
            **dict(described(client.transactions)),
        }


_NAMED: Final = 3  # partitions that an error names; the others are counted


def buffer_exhausted(client: ProducerClient, size: int, topic: str, partition: int | None) -> BufferExhausted:
    """Return the error for a send that got no memory in time; it names the partitions that hold the memory."""
    where = f" for a record to topic {topic!r}"
    if partition is not None:
        where += f", partition {partition}"
    with client.lock:
        held = list(client.accumulator.incomplete)
    text = (
        f"no {size} of buffer_memory={client.config.buffer_memory} bytes became free within "
        f"max_block_ms={client.config.max_block_ms}{where}"
    )
    if held:
        text += f"; {_batches(len(held))} not confirmed yet, of {_places(client, held)}"
    reasons = client.cluster.describe_failures()
    why = f"last failures: {reasons}" if reasons else "the cluster confirms more slowly than records are sent"
    return BufferExhausted(f"{text}; {why}; check the brokers, or raise buffer_memory or max_block_ms")


def not_flushed(client: ProducerClient, deliveries: Iterable[Delivery], timeout: float) -> KafkaTimeout:
    """Return the error for a flush that timed out; it names the partitions not confirmed."""
    pending = {id(found) for delivery in deliveries if (found := delivery.pending()) is not None}
    with client.lock:
        late = list(filter(lambda batch: id(batch.delivery) in pending, client.accumulator.incomplete))
        why = why_unconfirmed(late[0]) if late else ""
    if not pending:
        return KafkaTimeout(f"all records have an outcome, but not all futures were completed within {timeout:g} s")
    text = f"{_batches(len(pending))} not confirmed within {timeout:g} s"
    if late:
        text += f", of {_places(client, late)}; {late[0].queue.name}: {why}"
    reasons = client.cluster.describe_failures()
    if reasons and reasons not in text:
        text += f"; last failures: {reasons}"
    return KafkaTimeout(f"{text}; they are still being sent: flush again with more time, or check the brokers")


def new_closed() -> ClosedError:
    """Return the error of a call to a producer that is closed."""
    return ClosedError("the producer is closed: make a new one to send more")


def closed_before(client: ProducerClient) -> ClosedError:
    """Return the error of records that are not confirmed when the producer closes."""
    reasons = client.cluster.describe_failures()
    text = "the producer was closed before the record was confirmed"
    if reasons:
        text += f"; last failures: {reasons}"
    return ClosedError(f"{text}; flush() before close(), or give close() more time")


def no_partition(topic: str, partition: int, count: int, max_block_ms: int) -> UnknownTopicOrPartition:
    """Return the error for a partition that the topic did not have in time."""
    return UnknownTopicOrPartition(
        f"there is no partition {partition} in topic {topic!r}: it has {count}, numbered from 0, and got no more "
        f"within max_block_ms={max_block_ms}; send to one of them, or add partitions"
    )


def perhaps_no_partition(topic: str, partition: int, count: int, error: KafkaTimeout) -> KafkaTimeout:
    """Return the error for a partition that may not exist: no broker confirmed the partition count in time."""
    return KafkaTimeout(
        f"topic {topic!r} has no partition {partition} as far as is known: it had {count}, numbered from 0, and "
        f"the current number could not be fetched: {error}; send to one of them, add partitions, or raise max_block_ms"
    )


def _batches(count: int) -> str:
    return "1 batch was" if count == 1 else f"{count} batches were"


def _places(client: ProducerClient, batches: Iterable[ProducerBatch]) -> str:
    """Return the partitions of these batches with their leaders; if there are many, the first ones and a count."""
    queues = list(dict.fromkeys(batch.queue for batch in batches))
    named = ", ".join(_place(client, queue) for queue in queues[:_NAMED])
    others = len(queues) - _NAMED
    return f"{named} and {others} other partition{'s' if others > 1 else ''}" if others > 0 else named


def _place(client: ProducerClient, queue: PartitionQueue) -> str:
    if queue.leader == NO_LEADER:
        return f"{queue.name}, which has no leader"
    return f"{queue.name} at {client.cluster.name_of(queue.leader)}"
