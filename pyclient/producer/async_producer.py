"""`AsyncProducer`: the asynchronous API, on the caller's event loop."""

from __future__ import annotations

import logging
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, NoReturn, Self, Unpack

from pyclient.clock import SYSTEM_CLOCK
from pyclient.config import resolve
from pyclient.config.reference import document
from pyclient.errors import ClosedError, DeliveryFailed, ForkError, KafkaError
from pyclient.producer.async_runner import AsyncRunner
from pyclient.producer.buffer_pool import Waiter
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
from pyclient.producer.client import ProducerClient
from pyclient.producer.columns import columns_of, opened, pairs
from pyclient.producer.config import ProducerConfig, ProducerOptions
from pyclient.producer.futures import BatchFuture, DeliveryFuture
from pyclient.producer.implementation import RecordAppender
from pyclient.producer.interceptors import Interceptors, ProducerRecord, as_pairs
from pyclient.producer.lock import call_after_fork
from pyclient.producer.partition_slices import slices_of
from pyclient.producer.record_accumulator import ATOMIC_APPEND, TopicQueues
from pyclient.producer.send_many import TOPIC_UNKNOWN, BulkAppend, SentRows, records_of
from pyclient.producer.thread_runner import EXIT_SECONDS
from pyclient.producer.transactions import Transactions, group_of, offsets_of
from pyclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

logger: Final = logging.getLogger("pyclient.producer")


class AsyncProducer(RecordAppender):
    """Send records to Kafka from asyncio, with the options, errors and guarantees of `Producer`.

        async with AsyncProducer("localhost:9092") as producer:
            future = await producer.send("orders", b"...", key=b"42")   # accepted
            metadata = await future                                     # delivered

    It belongs to the event loop that first uses it, and has no thread of its own; only host names are resolved in a
    short-lived one, `pyclient-dns-<host>`, because the system's resolver blocks.

    A cancelled call may leave the outcome of its record unknown, if no future of it was returned: it may be delivered
    (of a `send_many`, any of its rows). The producer stays usable and loses nothing else; a cancelled `flush` or
    `close` can be called again.
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
        self._forked = False
        self._client: ProducerClient | None = None
        self._topics: dict[str, TopicQueues] = {}
        self._interceptors = Interceptors(self._config.interceptors) if self._config.interceptors else None
        self._plain = self._config.plain
        self._runner = AsyncRunner(self._config)
        clock = self._runner.clock
        self._stamp_with(clock.time_ms, system=clock is SYSTEM_CLOCK)
        call_after_fork(self)

    async def start(self) -> None:
        """Start to connect to the cluster; `async with` and the first call do it, too."""
        await self._started()

    async def _started(self) -> ProducerClient:
        """Return the `ProducerClient` of the open producer."""
        self._check_process()
        client = await self._runner.started()
        if self._client is None:
            self._attach(client)
        return client

    def _attach(self, client: ProducerClient) -> None:
        """Let `_append` and `_learn` find the open batches and the topics of the `ProducerClient`."""
        self._client, self._topics = client, client.topics
        self._append_lock = None if ATOMIC_APPEND else client.lock
        self._open_batches = client.accumulator.open_batches

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
        if on_delivery is not None:
            check_callback(on_delivery, "on_delivery")
        future: DeliveryFuture | None = None
        if self._plain and headers is None and timestamp_ms is None and (partition is None or type(partition) is int):
            try:  # noqa: SIM105  # `suppress` would take longer than the append
                future = self._append(topic, None, key, value, None, partition)
            except WRONG_RECORD:  # `_send` raises the error
                pass
        if future is None:
            future = await self._send(topic, value, key, headers, partition, timestamp_ms)
        if on_delivery is not None:
            future.add_done_callback(on_delivery)
        return future

    async def _send(
        self, topic: str, value: Any, key: Any, headers: Any, partition: int | None, timestamp_ms: int | None
    ) -> DeliveryFuture:
        """Send a record, with all that its topic and the options demand."""
        if self._interceptors is not None:
            record = ProducerRecord(topic, value, key, as_pairs(headers), partition, timestamp_ms)
            return await self._send_intercepted(self._interceptors, record, self._deadline())
        deadline: float | None = None  # shared by all waits of this call
        if not self._plain:
            key, value = (self._client or await self._started()).serialize(topic, key, value)
            if partition is None and not self._config.partitions_by_key:
                deadline = self._deadline()
                partition = await self._choose(topic, key, deadline)
        if headers is not None:
            headers = pairs(headers)
        if timestamp_ms is not None and (type(timestamp_ms) is not int or timestamp_ms < 0):
            timestamp_ms = check_timestamp(timestamp_ms)
        if partition is not None and (type(partition) is not int or partition < 0):
            partition = check_partition(partition)
        try:
            future: DeliveryFuture | None = self._append(topic, timestamp_ms, key, value, headers, partition)
            if future is None:
                if timestamp_ms is None:
                    timestamp_ms = self._runner.clock.time_ms()
                client = await self._started()
                await self._runner.pace()
                future = client.try_append(topic, timestamp_ms, key, value, headers, partition)
                if future is None:
                    if deadline is None:
                        deadline = self._deadline()
                    future = await self._send_slowly(topic, timestamp_ms, key, value, headers, partition, deadline)
        except WRONG_RECORD as error:
            raise explain(topic, key, value, error, partition, timestamp_ms) from error
        return future

    async def _send_intercepted(
        self, interceptors: Interceptors, record: ProducerRecord, deadline: float
    ) -> DeliveryFuture:
        """Pass the record through the interceptors and send the result."""
        record = interceptors.on_send(record)
        topic, key, value, partition = record.topic, record.key, record.value, record.partition
        try:
            time = self._runner.clock.time_ms() if record.timestamp_ms is None else check_timestamp(record.timestamp_ms)
            key, value = (self._client or await self._started()).serialize(topic, key, value)
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
        """Append a record; wait for metadata and for memory if necessary."""
        client = await self._started()
        check_topic(topic)
        partition = check_partition(partition)

        def attempt(waiter: Waiter) -> DeliveryFuture | Waiter | None:
            return client.append(topic, timestamp_ms, key, value, headers, partition, waiter)

        while (result := await self._runner.until(attempt, deadline)) is None:
            await self._learn(topic, partition, deadline)
        if isinstance(result, Waiter):
            raise client.exhausted(result.size, topic, partition)
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
        """Enqueue a column of records and return one future for all of them.

        `values` and `keys` are lists, other iterables, or Arrow arrays of binary or string type (`TypeError` for
        anything else); `timestamps_ms` are epoch milliseconds, one for all or one for each, by default now. All columns
        have the same length (`ValueError`). `values` may also be an Arrow table or record batch, as `Records.to_arrow`
        returns: of its columns `value`, `key`, `headers` (list of struct of key or name, and value), `timestamp` (any
        timestamp, or epoch ms) and `partition` are sent, `topic`, `offset`, `leader_epoch` and `timestamp_type`
        ignored; others are a `ValueError`. Wait and raise like `send`; once some records are accepted, others that
        are refused (too large, not bytes, no memory in time) are failures of the future and not an error of the call.
        Rows of one partition keep their order.
        """
        client = await self._started()
        check_topic(topic)
        given = opened(topic, values, keys, headers, timestamps_ms, partition)
        runner, deadline = self._runner, self._deadline()
        if self._interceptors is not None:
            sent = SentRows(client.context, topic, len(given.values))
            for row, record in enumerate(records_of(topic, given)):
                try:
                    sent.sent(row, await self._send_intercepted(self._interceptors, record, deadline))
                except (KafkaError, ValueError) as error:
                    sent.refused(row, error)
            return sent.future()
        rows = columns_of(client, topic, given)
        queues = await self._learn(topic, given.highest_partition, deadline)
        bulk = BulkAppend(client, topic, slices_of(client, queues, given, rows), len(rows), runner.keep_pace)
        try:
            while (left := await runner.until(bulk.advance, deadline)) is TOPIC_UNKNOWN:
                await self._learn(topic, bulk.partition, deadline)
            if isinstance(left, Waiter):
                bulk.give_up(client.exhausted(left.size, topic, partition))
        except KafkaError as error:
            bulk.give_up(error)
        return bulk.future()

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the topic's partition numbers; wait for metadata up to `max_block_ms`, then raise `KafkaTimeout`."""
        await self._started()
        check_topic(topic)
        return list(range((await self._learn(topic, None, self._deadline())).count))

    async def _choose(self, topic: str, key: Any, deadline: float) -> int:
        client = await self._started()
        check_topic(topic)
        return client.choose(await self._learn(topic, None, deadline), key)

    def _deadline(self) -> float:
        return self._runner.clock.monotonic() + self._config.max_block_ms / 1000

    async def _learn(self, topic: str, partition: int | None, deadline: float) -> TopicQueues:
        client = await self._started()
        queues = self._topics.get(topic) or client.learn_listed(topic)
        if queues is not None and (partition is None or partition < queues.count):
            return queues
        left = max(0.0, deadline - self._runner.clock.monotonic())
        return await self._runner.run(client.learn_topic, topic, partition, left)

    # -- transactions

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id for the `transactional_id`, once, before the first transaction.

        Earlier producers with that id are shut out: their calls raise `ProducerFenced`, and their open transaction is
        aborted. Raise `KafkaTimeout` after `timeout` seconds (`max_block_ms` by default); call it again to wait on.
        """
        check_seconds(timeout)
        await self._runner.run((await self._transactions()).initialize, timeout)

    async def begin_transaction(self, timeout: float | None = None) -> None:
        """Begin a transaction, to which every record belongs that is sent until its end.

        Raise `TransactionStateError` if one is open. It waits only after an error: if no answer says how the last
        transaction ended, or a request of it may still arrive, the coordinator is asked first for a new epoch.
        """
        check_seconds(timeout)
        transactions = await self._transactions()
        if not transactions.try_begin():
            await self._runner.run(transactions.begin, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver the transaction's records and commit them, with the offsets of `send_offsets_to_transaction`.

        If a record failed, raise its error; with `error.action` ABORT the transaction can only be aborted. So does a
        timeout, unless the commit was asked for already: then raise `TransactionOutcomeUnknown`. ProducerFenced means
        that a newer producer has taken over.
        """
        check_seconds(timeout)
        await self._runner.run((await self._transactions()).commit, timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: records not sent yet fail with `TransactionAborted`, the others are never visible.

        Raise `KafkaTimeout` if that takes longer; call it again to wait on.
        """
        check_seconds(timeout)
        await self._runner.run((await self._transactions()).abort, timeout)

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: GroupMetadata,
        timeout: float | None = None,
    ) -> None:
        """Commit the offsets of a consumer's group with the transaction (KIP-447).

        `offsets` has the next offset to read of each partition, `group_metadata` is that of
        `consumer.group_metadata()`, by which offsets of a former owner are refused: `CommitFailed`, whose action is
        ABORT. The consumer commits nothing itself.
        """
        check_seconds(timeout)
        transactions, positions, group = await self._transactions(), offsets_of(offsets), group_of(group_metadata)
        await self._runner.run(transactions.send_offsets, positions, group, timeout)

    @asynccontextmanager
    async def transaction(self, timeout: float | None = None) -> AsyncIterator[Self]:
        """Begin a transaction; commit it at the end of the `async with` block, or abort it after an exception.

        `timeout` is that of each call. The exception is raised in any case; if aborting fails, too, that is logged.
        """
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
        """Send all records accepted before this call and wait until they are complete and their callbacks have run.

        Raise `KafkaTimeout` after `timeout` seconds (None: no limit but `delivery_timeout_ms`), `DeliveryFailed` if
        records failed since the last flush and their futures were not checked, and `RuntimeError` if no thread can be
        started for callbacks that are due.
        """
        check_seconds(timeout)
        await self._started()
        await self._runner.flush(timeout)

    async def purge(self) -> None:
        """Fail every record that waits to be sent with `ClosedError`; those in flight are not affected.

        They count as failed: the next `flush` or `close` raises `DeliveryFailed` if their futures were not checked by
        then.
        """
        await self._started()
        await self._runner.abort(ClosedError("the record was purged before it was sent"), on_wire=False)

    async def close(self, timeout: float | None = None) -> None:
        """Deliver accepted records and end the producer. Idempotent; a no-op in a forked child.

        After `timeout` seconds (None: no limit) records that are not confirmed fail with `ClosedError`. Raise
        `DeliveryFailed` like `flush`.
        """
        if self._forked:
            return
        check_seconds(timeout)
        self._topics, self._open_batches = {}, {}
        await self._runner.close(timeout)

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
        runner: AsyncRunner | None = getattr(self, "_runner", None)
        if runner is None or runner.ended or self._forked:
            return
        warnings.warn(
            f"{self!r} was not closed: use `async with`, or close()", ResourceWarning, source=self, stacklevel=2
        )
        runner.abandon()

    # -- state

    @property
    def closed(self) -> bool:
        """True once `close()` was called: no records are accepted; `health()` and `metrics()` still work."""
        return self._runner.closed

    def health(self) -> dict[str, Any]:
        """Return the producer's state in plain values: connections, last failures by address, batches, buffer use."""
        self._check_process()
        return self._runner.health()

    def metrics(self) -> dict[str, Any]:
        """Return counts since the producer was created, as plain numbers that `json.dumps` accepts.

        Records, bytes (before compression) and batches delivered, records failed, batches retried and split, requests;
        `records_failed` counts records whose future failed, also rows that `send_many` refused among others, but not
        those of a call that raises, which have no future;
        `records_per_second` and `bytes_per_second` over the last 30 s; `latency_ms` from `send` to the confirmation of
        a batch's first record, as `p50`, `p99`, `max` and a histogram (`buckets`, upper bound as a string -> batches);
        the number of connections over which partitions are spread (`max_connections_per_broker`), and the buffer's use.
        """
        self._check_process()
        return self._runner.metrics()

    def __repr__(self) -> str:
        servers = ",".join(self._config.bootstrap_servers)
        if self._forked:
            return f"<AsyncProducer {servers} of another process>"
        return f"<AsyncProducer {servers} {self._runner.state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an AsyncProducer holds connections and cannot be copied or pickled: make one in each process")

    def after_fork(self) -> None:
        """Refuse all further use in a forked child; not for users."""
        self._forked = True
        self._topics, self._open_batches = {}, {}

    def _check_process(self) -> None:
        if self._forked:
            raise ForkError("this producer belongs to the parent process: after fork() make one of your own")


document(AsyncProducer, ProducerConfig)
