"""`AsyncProducer`: the asynchronous API, on the caller's event loop."""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar, Unpack

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import resolve
from pyclient.config.reference import document
from pyclient.errors import ClosedError, DeliveryFailed, ForkError, KafkaError
from pyclient.net.tasks import shared
from pyclient.producer.buffer_pool import Waiter
from pyclient.producer.callbacks import LoopCallbacks
from pyclient.producer.checks import (
    WRONG_RECORD,
    Headers,
    check_callback,
    check_partition,
    check_seconds,
    check_timestamp,
    check_topic,
    explain,
)
from pyclient.producer.columns import columns_of, opened, pairs
from pyclient.producer.config import ProducerConfig, ProducerOptions
from pyclient.producer.core import ProducerCore
from pyclient.producer.delivery import Delivery
from pyclient.producer.engine import EXIT_SECONDS
from pyclient.producer.futures import BatchFuture, DeliveryFuture, await_done
from pyclient.producer.interceptors import Interceptors, ProducerRecord, as_pairs
from pyclient.producer.lanes import lanes_of
from pyclient.producer.lock import producer_lock, tell_after_fork
from pyclient.producer.record_accumulator import ATOMIC_APPEND, TopicQueues
from pyclient.producer.send_many import TOPIC_UNKNOWN, BulkAppend, SentRows, records_of
from pyclient.producer.transactions import Transactions, group_of, offsets_of
from pyclient.records import RecordAppender
from pyclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

logger: Final = logging.getLogger("pyclient.producer")

_abandoned: dict[asyncio.Task[None], AsyncGenerator[None, None] | None] = {}


async def all_done(deliveries: list[Delivery], timeout: float | None) -> bool:
    """Wait until all are complete and their callbacks have run; return False after `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout) as limit:
            for delivery in deliveries:
                while (pending := delivery.pending()) is not None:
                    await await_done(pending, 0)
    except TimeoutError:
        if not limit.expired():
            raise
        if any(delivery.pending() is not None for delivery in deliveries):  # the last may just have completed
            return False
    await asyncio.sleep(0)  # the last callbacks, which may observe failures, run in this iteration of the loop
    return True


async def finish(core: ProducerCore, timeout: float | None) -> None:
    """Deliver accepted records within `timeout` seconds, fail the rest, and close the connections.

    Calls may overlap: the first whose time is over fails the rest for all of them.
    """
    core.stop_accepting()
    await core.end_transaction(timeout)
    await all_done(core.begin_flush(), timeout)
    if not core.ended:
        await core.shut_down()


async def until_the_loop_ends(core: ProducerCore) -> AsyncGenerator[None, None]:
    """Finish a producer that was not closed when its loop ends: `asyncio.run` closes all generators and awaits them.

    Its accepted records are delivered within `EXIT_SECONDS`, or fail and are logged. Do nothing in a forked child,
    where the producer is the parent's.
    """
    try:
        yield
    finally:
        if not core.ended and not core.desk.foreign:
            await finish(core, EXIT_SECONDS)


def finish_in_background(core: ProducerCore, last_chance: AsyncGenerator[None, None] | None) -> None:
    """Deliver the accepted records of a producer that was dropped without `close`; they fail when the loop ends."""
    if core.desk.foreign:  # forked between the drop and this iteration of the loop
        return
    task = asyncio.get_running_loop().create_task(finish(core, None))
    _abandoned[task] = last_chance
    task.add_done_callback(_forget)


def _forget(task: asyncio.Task[None]) -> None:
    if not task.cancelled():  # the end of the loop cancels it, and then closes the generator
        _abandoned.pop(task, None)


T = TypeVar("T")


class AsyncProducer(RecordAppender):
    """Send records to Kafka from asyncio, with the options, errors and guarantees of `Producer`.

        async with AsyncProducer("localhost:9092") as producer:
            future = await producer.send("orders", b"...", key=b"42")   # accepted
            metadata = await future                                     # delivered

    It belongs to the event loop that first uses it, and has no thread of its own; only host names are resolved in a
    short-lived one, `pyclient-dns-<host>`, because the system's resolver blocks.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        given = {**options} if bootstrap_servers is None else {**options, "bootstrap_servers": bootstrap_servers}
        self._config = resolve(ProducerConfig, given, config)
        self._clock = SYSTEM_CLOCK
        self._stamp_with(self._clock.time_ms, system=self._clock is SYSTEM_CLOCK)
        self._forked = False
        self._closed = False
        self._core: ProducerCore | None = None
        self._last: tuple[dict[str, Any], dict[str, Any]] = ({"state": "new"}, {})  # health, metrics without a core
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._last_chance: AsyncGenerator[None, None] | None = None
        self._lock = producer_lock()
        self._topics: dict[str, TopicQueues] = {}
        self._interceptors = Interceptors(self._config.interceptors) if self._config.interceptors else None
        self._plain = self._config.plain
        tell_after_fork(self)

    async def start(self) -> None:
        """Start to connect to the cluster; `async with` and the first call do it, too."""
        await self._started()

    async def _started(self) -> ProducerCore:
        self._check_process()
        if self._closed:
            raise ClosedError("the producer is closed: make a new one to send more")
        loop = asyncio.get_running_loop()
        if self._core is None:
            self._loop = loop
            core = ProducerCore(self._config, LoopCallbacks(loop), loop=loop, clock=self._clock)
            self._lock = core.lock
            self._topics = core.topics
            self._lanes = core.accumulator.lanes
            self._append_lock = None if ATOMIC_APPEND else self._lock
            self._core = core
            self._starting = loop.create_task(self._start(core))
        if self._loop is not loop:
            raise RuntimeError("an AsyncProducer belongs to the event loop that first used it")
        assert self._starting is not None
        if not self._starting.done():
            await shared(self._starting)
        return self._core

    async def _start(self, core: ProducerCore) -> None:
        self._last_chance = until_the_loop_ends(core)
        await anext(self._last_chance)
        core.cluster.outlives_tasks = True
        await core.start()

    # -- sending

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: Callable[[DeliveryFuture], object] | None = None,
    ) -> DeliveryFuture:
        """Enqueue one record and return its future; await that for the metadata.

        See `Producer.send`. `on_delivery(future)` runs on the loop: a `SystemExit` or `KeyboardInterrupt` that it
        raises ends `asyncio.run`, as in any callback of a loop; other exceptions are logged.
        """
        check_callback(on_delivery, "on_delivery")
        deadline: float | None = None  # shared by all waits of this call
        if not self._plain:
            if self._interceptors is not None:
                record = ProducerRecord(topic, value, key, as_pairs(headers), partition, timestamp_ms)
                future = await self._send_intercepted(self._interceptors, record, self._deadline())
                if on_delivery is not None:
                    future.add_done_callback(on_delivery)
                return future
            key, value = (await self._started()).serialize(topic, key, value)
            if partition is None and not self._config.partitions_by_key:
                deadline = self._deadline()
                partition = await self._choose(topic, key, deadline)
        if headers is not None:
            headers = pairs(headers)
        if timestamp_ms is not None and (type(timestamp_ms) is not int or timestamp_ms < 0):
            timestamp_ms = check_timestamp(timestamp_ms)
        if partition is not None and type(partition) is not int:
            partition = check_partition(partition)
        try:
            accepted: DeliveryFuture | None = self._append(topic, timestamp_ms, key, value, headers, partition)
            if accepted is None:
                if timestamp_ms is None:
                    timestamp_ms = self._clock.time_ms()
                if deadline is None:
                    deadline = self._deadline()
                accepted = await self._send_slowly(topic, timestamp_ms, key, value, headers, partition, deadline)
        except WRONG_RECORD as error:
            raise explain(topic, key, value, error, partition, timestamp_ms) from error
        if on_delivery is not None:
            accepted.add_done_callback(on_delivery)
        return accepted

    async def _send_intercepted(
        self, interceptors: Interceptors, record: ProducerRecord, deadline: float
    ) -> DeliveryFuture:
        """Pass the record through the interceptors and send the result."""
        record = interceptors.on_send(record)
        topic, key, value, partition = record.topic, record.key, record.value, record.partition
        try:
            time = self._clock.time_ms() if record.timestamp_ms is None else check_timestamp(record.timestamp_ms)
            key, value = (await self._started()).serialize(topic, key, value)
            if partition is None and not self._config.partitions_by_key:
                partition = await self._choose(topic, key, deadline)
            future = await self._send_slowly(topic, time, key, value, record.headers or None, partition, deadline)
        except WRONG_RECORD as error:
            explained = explain(topic, key, value, error, partition)
            interceptors.refused(record, explained)
            raise explained from error
        except Exception as error:
            interceptors.refused(record, error)
            raise
        interceptors.watch(record, future)
        return future

    async def _send_slowly(
        self, topic: str, timestamp_ms: int, key: Any, value: Any, headers: Any, partition: int | None, deadline: float
    ) -> DeliveryFuture:
        core = await self._started()
        check_topic(topic)
        partition = check_partition(partition)
        if core.loop.scheduled:
            await asyncio.sleep(0)  # let the sender run: a caller that never waits would starve it

        def attempt(waiter: Waiter) -> DeliveryFuture | Waiter | None:
            return core.append(topic, timestamp_ms, key, value, headers, partition, waiter)

        while (result := await self._until(attempt, deadline)) is None:
            await self._learn(topic, partition, deadline)
        if isinstance(result, Waiter):
            raise core.exhausted(result.size, topic, partition)
        return result

    async def send_many(
        self,
        topic: str,
        values: Any,
        keys: Any = None,
        headers: Sequence[Headers | None] | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        partition: int | None = None,
    ) -> BatchFuture:
        """Enqueue a column of records and return one future for all of them; see `Producer.send_many`."""
        core = await self._started()
        check_topic(topic)
        given = opened(topic, values, keys, headers, timestamps_ms, partition)
        deadline = self._deadline()
        if self._interceptors is not None:
            sent = SentRows(core.desk, topic, len(given.values))
            for row, record in enumerate(records_of(topic, given)):
                try:
                    sent.sent(row, await self._send_intercepted(self._interceptors, record, deadline))
                except (KafkaError, ValueError) as error:
                    sent.refused(row, error)
            return sent.future()
        rows = columns_of(core, topic, given)
        queues = await self._learn(topic, given.highest_partition, deadline)
        bulk = BulkAppend(core, topic, lanes_of(core, queues, given, rows), len(rows))
        try:
            while (left := await self._until(bulk.advance, deadline)) is TOPIC_UNKNOWN:
                await self._learn(topic, bulk.partition, deadline)
            if isinstance(left, Waiter):
                bulk.give_up(core.exhausted(left.size, topic, partition))
        except KafkaError as error:
            bulk.give_up(error)
        return bulk.future()

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partition numbers; wait for metadata up to `max_block_ms`, then raise `KafkaTimeout`."""
        await self._started()
        check_topic(topic)
        return list(range((await self._learn(topic, None, self._deadline())).count))

    async def _choose(self, topic: str, key: Any, deadline: float) -> int:
        core = await self._started()
        check_topic(topic)
        return core.choose(await self._learn(topic, None, deadline), key)

    async def _learn(self, topic: str, partition: int | None, deadline: float) -> TopicQueues:
        core = await self._started()
        queues = self._topics.get(topic)
        if queues is not None and (partition is None or partition < queues.count):
            return queues
        return await core.learn_topic(topic, partition, max(0.0, deadline - self._clock.monotonic()))

    async def _until(self, attempt: Callable[[Waiter], T], deadline: float) -> T:
        """Call `attempt(waiter)` until it does not return the waiter; see `Engine.until`."""
        core = await self._started()
        granted = asyncio.Event()
        waiter = Waiter(granted.set)
        try:
            while (result := attempt(waiter)) is waiter:
                left = deadline - self._clock.monotonic()
                try:
                    await asyncio.wait_for(granted.wait(), max(0.0, left))
                except TimeoutError:
                    break
                granted.clear()
            return result
        finally:
            core.give_up(waiter)

    def _deadline(self) -> float:
        return self._clock.monotonic() + self._config.max_block_ms / 1000

    # -- transactions

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id for the `transactional_id`; see `Producer.init_transactions`."""
        check_seconds(timeout)
        await (await self._transactions()).initialize(timeout)

    async def begin_transaction(self, timeout: float | None = None) -> None:
        """Begin a transaction; see `Producer.begin_transaction`."""
        check_seconds(timeout)
        transactions = await self._transactions()
        if not transactions.try_begin():
            await transactions.begin(timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver the transaction's records and commit them; see `Producer.commit_transaction`."""
        check_seconds(timeout)
        await (await self._transactions()).commit(timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction; see `Producer.abort_transaction`."""
        check_seconds(timeout)
        await (await self._transactions()).abort(timeout)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Commit the offsets of a consumer's group with the transaction; see `Producer.send_offsets_to_transaction`."""
        check_seconds(timeout)
        positions, group = offsets_of(offsets), group_of(group_metadata)
        await (await self._transactions()).send_offsets(positions, group, timeout)

    @asynccontextmanager
    async def transaction(self, timeout: float | None = None) -> AsyncIterator[Self]:
        """Begin a transaction, commit it at the end of the `async with` block; see `Producer.transaction`."""
        await self.begin_transaction(timeout)
        transactions = await self._transactions()
        try:
            yield self
            if transactions.open:
                await self.commit_transaction(timeout)
        except BaseException:
            if transactions.abortable:
                try:
                    await self.abort_transaction(timeout)
                except KafkaError as failed:
                    logger.error("the transaction could not be aborted: %s", failed)
            raise

    async def _transactions(self) -> Transactions:
        return (await self._started()).transactions_of()

    # -- flush, purge, close

    async def flush(self, timeout: float | None = None) -> None:
        """Send all records accepted before this call and wait until they are complete; see `Producer.flush`."""
        check_seconds(timeout)
        core = await self._started()
        deliveries = core.begin_flush()
        if not await all_done(deliveries, timeout):
            raise core.not_flushed(deliveries, timeout or 0.0)
        core.raise_unobserved()

    async def purge(self) -> None:
        """Fail every record that waits to be sent with `ClosedError`; those in flight are not affected.

        See `Producer.purge`.
        """
        core = await self._started()
        core.abort(ClosedError("the record was purged before it was sent"), on_wire=False)

    async def close(self, timeout: float | None = None) -> None:
        """Deliver accepted records and end the producer; see `Producer.close`."""
        if self._forked:
            return
        check_seconds(timeout)
        self._topics, self._lanes = {}, {}
        self._closed = True
        core = self._core
        if core is None:
            self._last = ({**self._last[0], "state": "closed"}, self._last[1])
            return
        await finish(core, timeout)  # if it is cancelled, close may be called again
        if self._last_chance is not None:
            await self._last_chance.aclose()
        self._core, self._last = None, (core.health(), core.metrics())
        core.raise_unobserved()

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the producer; after an exception within 10 s: records not delivered by then fail and are logged."""
        try:
            await self.close(None if error is None else EXIT_SECONDS)
        except DeliveryFailed as failed:
            if error is None:
                raise
            logger.error("closing the producer after %r: %s", error, failed)

    def __del__(self) -> None:
        core: ProducerCore | None = getattr(self, "_core", None)
        if core is None or core.ended or self._forked:
            return
        warnings.warn(
            f"{self!r} was not closed: use `async with`, or close()", ResourceWarning, source=self, stacklevel=2
        )
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(finish_in_background, core, self._last_chance)

    # -- state

    @property
    def closed(self) -> bool:
        """True once `close()` was called: no records are accepted; `health()` and `metrics()` still work."""
        return self._closed

    def health(self) -> dict[str, Any]:
        """Return the producer's state; see `Producer.health`."""
        self._check_process()
        return self._last[0] if self._core is None else self._core.health()

    def metrics(self) -> dict[str, Any]:
        """Return counts since the producer was created; see `Producer.metrics`. Empty before the first use."""
        self._check_process()
        return self._last[1] if self._core is None else self._core.metrics()

    def __repr__(self) -> str:
        servers = ",".join(self._config.bootstrap_servers)
        if self._forked:
            return f"<AsyncProducer {servers} of another process>"
        if self._closed or self._core is None:
            return f"<AsyncProducer {servers} {'closed' if self._closed else 'new'}>"
        return f"<AsyncProducer {servers} open, {len(self._core.accumulator.incomplete)} batches unconfirmed>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncProducer holds connections and cannot be copied or pickled: make one in each process")

    def after_fork(self) -> None:
        """Refuse all further use in a forked child; not for users."""
        self._forked = True
        self._topics, self._lanes = {}, {}
        self._lock = producer_lock()

    def _check_process(self) -> None:
        if self._forked:
            raise ForkError("this producer belongs to the parent process: after fork() make one of your own")


document(AsyncProducer, ProducerConfig)
