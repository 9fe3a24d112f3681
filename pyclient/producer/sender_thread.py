"""SenderLoop: the I/O around `Sender`: sends its requests on connections and passes it their responses."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.cluster.metadata import ClusterMetadata
from pyclient.errors import ClientError, ConnectionFailed, KafkaError, from_code
from pyclient.net.connection import Connection
from pyclient.producer.config import ProducerConfig
from pyclient.producer.delivery import BatchResult
from pyclient.producer.idempotence import ProducerIds
from pyclient.producer.lock import ProducerLock, call_after_fork
from pyclient.producer.produce_response import PartitionAnswer, answers_by_partition
from pyclient.producer.produce_template import ProduceTemplate
from pyclient.producer.producer_batch import ProducerBatch
from pyclient.producer.record_accumulator import NEVER, NO_LEADER, PartitionQueue
from pyclient.producer.sender import ProduceWork, Sender
from pyclient.producer.silent_brokers import SilentBrokerCheck
from pyclient.producer.transaction_manager import IMPLICIT_PARTITIONS
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from pyclient.records import Compression

logger: Final = logging.getLogger("pyclient.producer")

_IDLE_CHECK_SECONDS: Final = 30.0
_GRANT_SECONDS: Final = 0.001  # delay before little free memory is granted to waiters
_ADDS_PARTITIONS: Final = 12  # version of Produce by which leaders add partitions to the transaction (KIP-890)
_SMALL_REQUEST: Final = 65_536  # bytes; smaller requests are written together, larger ones while the next is sealed


class SenderTasks:
    """Keeps tasks until they end, and logs the exceptions of those that fail."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Cancel the tasks that have not ended."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a background task of the producer failed", exc_info=task.exception())


PAUSE = 30.0
"""Seconds between two attempts to open the same additional connection, which is optional."""


class BrokerConnections:
    """Connections to brokers, used on the event loop; `schedule` is called when an attempt to connect has ended."""

    def __init__(
        self, cluster: ClusterClient, tasks: SenderTasks, backoff: Backoff, rng: Rng, *, schedule: Callable[[], object]
    ) -> None:
        self.used: dict[int, Connection] = {}  # by broker; it may have ended since
        self._cluster = cluster
        self._tasks = tasks
        self._backoff = backoff
        self._rng = rng
        self._schedule = schedule
        self._connecting: set[int] = set()
        self._additional: dict[tuple[int, int], Connection] = {}
        self._opening: set[tuple[int, int]] = set()

    def ready(self, node: int, count: int) -> list[Connection]:
        """Return up to `count` open connections, none if the first is missing; open missing ones in the background."""
        first = self._first(node)
        if first is None:
            return []
        connections = [first]
        for index in range(1, count):
            connection = self._additional.get((node, index))
            if connection is None or connection.closed:
                if (node, index) not in self._opening:
                    self._opening.add((node, index))
                    self._tasks.spawn(self._open(node, index))
                break
            connections.append(connection)
        return connections

    def all(self) -> list[tuple[int, Connection]]:
        """Return all connections by their brokers; some may have ended."""
        return [*self.used.items(), *((node, each) for (node, _index), each in self._additional.items())]

    def _first(self, node: int) -> Connection | None:
        connection = self.used.get(node)
        if connection is None or connection.closed:
            connection = self._cluster.try_connection(node)
            if connection is None or connection.closed:
                self.used.pop(node, None)
                if node not in self._connecting:
                    self._connecting.add(node)
                    self._tasks.spawn(self._connect(node))
                return None
            self.used[node] = connection
        return connection

    async def _connect(self, node: int) -> None:
        try:
            await self._cluster.connection(node)
        except KafkaError as error:
            logger.debug("no connection to broker %d: %s", node, error)
            self._cluster.request_refresh()  # the broker's address or the partitions' leaders may have changed
            await asyncio.sleep(self._backoff.delay(0, self._rng))
        finally:
            self._connecting.discard(node)
        self._schedule()

    async def _open(self, node: int, index: int) -> None:
        """Open an additional connection, which brokers may refuse or close; retry after `PAUSE` at the earliest."""
        try:
            self._additional[node, index] = await self._cluster.optional_connection(node, f"produce-{index}")
            self._schedule()
        except KafkaError as error:
            logger.debug("no additional connection to broker %d: %s", node, error)
        try:
            await asyncio.sleep(PAUSE)
        finally:
            self._opening.discard((node, index))


_NO_TRANSACTION_TIMEOUT: Final = 2**31 - 1


class ProducerIdSearch:
    """Asks any broker until one responds; calls `refused` with an error that is not retriable."""

    def __init__(
        self,
        producer_ids: ProducerIds,
        cluster: ClusterClient,
        lock: ProducerLock,
        backoff: Backoff,
        rng: Rng,
        *,
        refused: Callable[[KafkaError], object],
        ended: Callable[[], object],
    ) -> None:
        self.asking = False  # a search is scheduled or runs
        self._producer_ids = producer_ids
        self._cluster = cluster
        self._lock = lock
        self._backoff = backoff
        self._rng = rng
        self._refused = refused
        self._ended = ended

    async def run(self) -> None:
        """Retry until there is an id."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT)
        attempt = 0
        try:
            while True:
                error = await self._try(request)
                if error is None:
                    return
                if not error.retriable:
                    logger.error("client %r: no producer id: %s", self._cluster.config.client_id, error)
                    self._refused(error)
                await asyncio.sleep(self._backoff.delay(attempt, self._rng))
                attempt += 1
        finally:
            self.asking = False
            self._ended()

    async def _try(self, request: InitProducerIdRequest) -> KafkaError | None:
        try:
            response = await self._cluster.request(request)
        except KafkaError as error:
            return error
        if response.error_code:
            text = "requesting a producer id, which enable_idempotence=True needs"
            return from_code(response.error_code, text, request.name)
        with self._lock:
            self._producer_ids.obtained(response.producer_id, response.producer_epoch)
        text = "client %r: its producer id is %d, epoch %d"
        logger.info(text, self._cluster.config.client_id, response.producer_id, response.producer_epoch)
        return None


class SenderLoop:
    """Runs a `Sender` on the event loop; only `wake` may be called from other threads.

    `lock` is the producer's: it is held for decisions, never while futures are completed or bytes are sealed and sent.
    """

    def __init__(
        self,
        sender: Sender,
        cluster: ClusterClient,
        lock: ProducerLock,
        *,
        config: ProducerConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.sender = sender
        self.next_round = NEVER  # time of the timer
        self.learning: Counter[str] = Counter()  # topics whose metadata callers wait for, and how many callers
        self.listed: list[str] = []  # new topics found in the metadata of all topics, to be refreshed from now on
        self._cluster = cluster
        self._lock = lock
        self._config = config
        self.loop = loop
        self._clock = clock
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._tasks = SenderTasks(loop)
        self._brokers = BrokerConnections(cluster, self._tasks, backoff, rng, schedule=self.schedule)
        self.connections = self._brokers.used  # the first connection to each broker
        self._silent_brokers = SilentBrokerCheck(loop, self._brokers.all, self._is_left_behind, cluster.request_refresh)
        self._id_search = ProducerIdSearch(
            sender.producer_ids, cluster, lock, backoff, rng, refused=self._no_producer_id, ended=self.schedule
        )
        self._compression = Compression.from_name(config.compression_type)
        self._level = config.compression_level
        self.scheduled = False  # `_step` runs in the loop's next iteration
        self.after_round: Callable[[], object] = lambda: None  # after each round of a transactional producer
        self.when_idle: Callable[[PartitionQueue, float], object] | None = None
        """Called under the lock when a batch that was sent alone is confirmed and nothing is left to do."""
        self._timer: asyncio.TimerHandle | None = None
        self._grant_due = False
        self.idle_check_at = clock.monotonic() + _IDLE_CHECK_SECONDS
        self._stopped = False
        call_after_fork(self)

    def start(self) -> None:
        """Subscribe to metadata updates and, for an idempotent producer, request a producer id."""
        self._cluster.listeners.append(self._on_metadata)
        if self._config.idempotent and self.sender.transactions is None:
            self.sender.producer_ids.wanted = True
        self._silent_brokers.start()
        self._step()

    def stop(self) -> None:
        """Stop sending. Requests in flight are still completed when their connections end."""
        self._stopped = self.scheduled = True
        if self._timer is not None:
            self._timer.cancel()
        self._silent_brokers.stop()
        self._tasks.cancel()

    def after_fork(self) -> None:
        """Stop in a forked child, which sends and completes nothing, even if it runs a copy of this loop.

        The loop is not touched and no lock taken: a thread of the parent may have held it.
        """
        self._stopped = self.scheduled = True
        context = self.sender.accumulator.context
        deliveries = [batch.delivery for batch in self.sender.accumulator.incomplete]
        deliveries += context.unnotified
        if context.fast_path is not None:
            deliveries += [record.delivery for record in context.fast_path.records]
        context.after_fork(deliveries)

    def wake(self) -> None:
        """Schedule a round, from any thread."""
        if not self.scheduled and not self._stopped:
            self.scheduled = True
            self.loop.call_soon_threadsafe(self._step)

    def schedule(self) -> None:
        """Schedule a round, from the loop itself."""
        if not self.scheduled and not self._stopped:
            self.scheduled = True
            self.loop.call_soon(self._step)

    def run_round(self) -> None:
        """Run a round now, on the loop itself."""
        self._step()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Start a task that `stop` cancels."""
        self._tasks.spawn(coroutine)

    def notify(self, results: list[BatchResult]) -> None:
        """Complete futures, outside the lock."""
        for result in results:
            self._complete(result)

    def notify_failed(self, results: list[BatchResult]) -> None:
        """Complete futures that failed together; those that are not observed are logged in one line."""
        with self.sender.accumulator.context.failures.in_one_line():
            results.reverse()
            while results:  # frees each one, and with it its futures, once it is completed
                self._complete(results.pop())

    def _complete(self, result: BatchResult) -> None:
        try:
            result.notify()
        except Exception:  # for example no thread for callbacks: the other batches must still be completed
            topic, partition = result.delivery.topic, result.delivery.partition
            logger.exception("%s-%d: not all futures and callbacks of a batch were notified", topic, partition)

    def _complete_delivered(self, results: list[BatchResult]) -> None:
        """Complete the futures of a response, and schedule the grant of the memory that it freed."""
        self.notify(results)
        if self.sender.accumulator.pool.withheld:
            self._grant_soon()

    def _grant_soon(self) -> None:
        if not self._grant_due:
            self._grant_due = True
            self.loop.call_later(_GRANT_SECONDS, self._grant)

    def _grant(self) -> None:
        self._grant_due = False
        with self._lock:
            self.sender.accumulator.pool.grant()

    # -- one round

    def _step(self) -> None:
        if self._stopped:
            return  # stays `scheduled`, which disables `wake` and `schedule`
        self.scheduled = False
        now = self._clock.monotonic()
        requests: list[tuple[Connection, list[ProduceWork]]] = []
        sender = self.sender
        with self._lock:
            results = sender.begin(now)
            for node in sender.accumulator.ready_nodes():
                if node == NO_LEADER:
                    sender.refresh_wanted = True
                    continue
                state = sender.node(node)
                connections = self._brokers.ready(node, state.wanted)
                if not connections:
                    sender.stalled(node, now)
                    continue
                state.set_connections(len(connections))
                for index, connection in enumerate(connections):
                    if works := sender.drain_all(node, now, index):
                        requests.append((connection, works))
                state.drained(sender.accumulator.ready_at(node))
            next_round = sender.next_round()
        if results:
            self.notify_failed(results)
        for connection, works in requests:
            self._send_all(connection, works)
        self._follow_up(now, next_round)

    def _follow_up(self, now: float, next_round: float) -> None:
        if self.listed:
            with self._lock:
                listed, self.listed = self.listed, []
            self._cluster.use_listed(listed)
        if self.sender.refresh_wanted:
            self.sender.refresh_wanted = False
            self._cluster.request_refresh()
        if self.sender.producer_ids.wanted and not self._id_search.asking:
            self._id_search.asking = True
            self._tasks.spawn(self._id_search.run())
        if self.sender.transactions is not None:
            self.after_round()
        if now >= self.idle_check_at:
            self.idle_check_at = now + _IDLE_CHECK_SECONDS
            self._forget_idle_topics(now)
        if next_round < self.next_round:  # never postponed: an early round costs less than a new timer at each record
            if self._timer is not None:
                self._timer.cancel()
            self.next_round = next_round
            self._timer = self.loop.call_later(max(0.0, next_round - now), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.next_round = NEVER
        self._step()

    def _is_left_behind(self, node: int) -> bool:
        with self._lock:
            return self.sender.accumulator.is_left_behind(node)

    # -- topics

    def _forget_idle_topics(self, now: float) -> None:
        with self._lock:
            self.sender.forget_idle(now - self._config.metadata_max_idle_ms / 1000)
        self.ask_for_topics_in_use()

    def ask_for_topics_in_use(self) -> None:
        """Refresh metadata from now on only of topics that are sent to or that a `send` waits for."""
        self._cluster.set_topics({*self.sender.accumulator.topics, *self.learning})

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        now = self._clock.monotonic()
        with self._lock:
            topics = self.sender.accumulator.topics
            for name in list(topics) if metadata.updated is None else metadata.updated & topics.keys():
                info = metadata.topics.get(name)
                if info is not None and info.partitions:  # no partitions: an error, perhaps a transient one
                    leaders = [partition.leader for partition in info.partitions]
                    self.sender.accumulator.update_topic(name, info.topic_id, leaders, now)
        self.schedule()

    # -- Produce

    def _send_all(self, connection: Connection, works: list[ProduceWork]) -> None:
        together = len(works) > 1 and works[0].size < _SMALL_REQUEST
        if together:
            connection.cork()
        for work in works:
            self.send(connection, work)
        if together:
            connection.uncork()

    def seal(self, batch: ProducerBatch) -> memoryview:
        """Return the batch's bytes to send."""
        return batch.seal(self._compression, self._level, transactional=self._config.transactional_id is not None)

    def send(self, connection: Connection, work: ProduceWork) -> None:
        """Put the batches of a drained request on the wire; they fail or are retried if that is not possible."""
        try:
            sealed = [self.seal(batch) for batch in work.batches]
        except Exception as error:  # a compression library may raise anything: only these records fail
            logger.exception("a batch could not be encoded: %r", work)
            self._lost(work, ClientError(f"the batch could not be encoded: {error!r}"), written=False)
            return
        if connection.closed:
            self._lost(work, ConnectionFailed(f"{connection.address}: the connection ended"), written=False)
            return
        try:
            if self._config.acks == 0:
                connection.send_only(request_of(work, sealed, self._config))
                self._tasks.spawn(self._until_taken(connection, work))
                return
            version = self._version(connection)
            if len(sealed) == 1:
                template = self._template(work.batches[0].queue, version)
                make, answered = partial(template.request, sealed[0]), partial(self.answered_plainly, work)
                connection.send_prepared(ProduceRequest, version, make, template.answer, answered)
            else:
                request = request_of(work, sealed, self._config)
                connection.send(request, partial(self._answered, work), version=version)
        except KafkaError as error:  # no common version: nothing was sent
            self._lost(work, error, written=False)

    def _version(self, connection: Connection) -> int:
        transactions = self.sender.transactions
        if transactions is None or transactions.version < IMPLICIT_PARTITIONS:
            return connection.version_for(ProduceRequest)
        return connection.version_for(ProduceRequest, _ADDS_PARTITIONS)

    def _template(self, queue: PartitionQueue, version: int) -> ProduceTemplate:
        template = queue.template
        if template is None or template.version != version:
            config = self._config
            template = queue.template = ProduceTemplate(
                queue.topic.name, queue.partition, version,
                client_id=config.client_id, acks=config.acks, timeout_ms=config.request_timeout_ms,
                transactional_id=config.transactional_id,
            )  # fmt: skip
        return template

    def answered_plainly(self, work: ProduceWork, answer: Any, error: BaseException | None) -> None:
        """Handle the response to a request with one batch: a `PartitionAnswer` if it was written without an error."""
        if type(answer) is not PartitionAnswer:
            self._answered(work, answer, error)
            return
        sender, now = self.sender, self._clock.monotonic()
        with self._lock:
            results = sender.delivered(work, answer, now)
            more, withheld = sender.has_more_to_do, sender.accumulator.pool.withheld
            if not more and self.when_idle is not None:
                self.when_idle(work.batches[0].queue, now)
        self.notify(results)
        if withheld:
            self._grant_soon()
        if more:  # a round that finds nothing to do takes as long as sending a record
            self.schedule()

    def fast_path_ended(self, record: Any, answer: Any, error: BaseException | None) -> None:
        """Handle the end of a request of the fast path (`FastPathOwner`)."""
        with self._lock:  # acquiring it makes `FastPathOwner` take over the record
            work = record.work
        self.answered_plainly(work, answer, error)

    def call_with_lock(self, then: Callable[[float], object]) -> None:
        """Call `then` under the lock, which stops the fast path and collects its counts."""
        with self._lock:
            if not self._stopped:
                then(self._clock.monotonic())

    def _answered(self, work: ProduceWork, response: ProduceResponse | None, error: BaseException | None) -> None:
        if response is not None:
            with self._lock:
                results = self.sender.answered(
                    work, answers_by_partition(response), response.throttle_time_ms, self._clock.monotonic()
                )
                more = self.sender.has_more_to_do
            self._complete_delivered(results)
            if more:
                self.schedule()
        elif isinstance(error, KafkaError):
            self._lost(work, error, written=True)
        else:
            failure = ConnectionFailed(f"the request failed: {error!r}")
            failure.__cause__ = error
            self._lost(work, failure, written=True)

    def _lost(self, work: ProduceWork, error: KafkaError, *, written: bool) -> None:
        with self._lock:
            results = self.sender.lost(work, error, written=written, now=self._clock.monotonic())
        self.notify(results)
        self.schedule()

    async def _until_taken(self, connection: Connection, work: ProduceWork) -> None:
        """Complete an acks=0 request when the network has taken its bytes from the buffers."""
        try:
            await connection.drain()
        except KafkaError as error:
            self._lost(work, error, written=True)
            return
        except asyncio.CancelledError:
            self._lost(work, ConnectionFailed("the producer was closed"), written=True)
            raise
        with self._lock:
            results = self.sender.unanswered(work, self._clock.monotonic())
        self._complete_delivered(results)
        self.schedule()

    def _no_producer_id(self, error: KafkaError) -> None:
        with self._lock:
            results = self.sender.no_producer_id(error)
        self.notify_failed(results)


def request_of(work: ProduceWork, sealed: list[memoryview], config: ProducerConfig) -> ProduceRequest:
    """Return the request for the work's batches; `sealed` has their bytes, in the same order."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch, records in zip(work.batches, sealed, strict=True):
        queue = batch.queue
        topics.setdefault(queue.topic.name, []).append(PartitionProduceData(index=queue.partition, records=records))
    return ProduceRequest(
        transactional_id=config.transactional_id,
        acks=config.acks,
        timeout_ms=config.request_timeout_ms,
        topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
    )
