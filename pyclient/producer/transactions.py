"""Transactions: runs a `TransactionManager` on the producer's event loop: its requests, and the calls that wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyclient.backoff import Backoff
from pyclient.clock import Clock, Rng
from pyclient.cluster.client import ClusterClient
from pyclient.errors import ConnectionFailed, KafkaError, KafkaTimeout
from pyclient.net.connection import Connection
from pyclient.producer.config import ProducerConfig
from pyclient.producer.lock import ProducerLock
from pyclient.producer.transaction_manager import OPEN, TransactionManager, TransactionState
from pyclient.producer.transaction_requests import TransactionRequest, without_producer_id
from pyclient.protocol.messages.end_txn import EndTxnRequest
from pyclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pyclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from pyclient.producer.sender import Sender
    from pyclient.producer.sender_thread import SenderLoop

logger: Final = logging.getLogger("pyclient.producer")

_KEEPS_ITS_ID: Final = 3  # version of InitProducerId with the producer's present id (KIP-360)
_INITIALIZING: Final = frozenset({TransactionState.INITIALIZING, TransactionState.RESOLVING})
_FAILED: Final = frozenset({TransactionState.ABORTABLE_ERROR, TransactionState.FATAL_ERROR})


def offsets_of(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets of a call by partition; raise `TypeError` or `ValueError` for anything else."""
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets are a mapping of (topic, partition) to the next offset to read, not {offsets!r}")
    found = {}
    for (topic, partition), position in offsets.items():
        at = position if isinstance(position, OffsetAndMetadata) else OffsetAndMetadata(position)
        if isinstance(at.offset, bool) or not isinstance(at.offset, int) or at.offset < 0:
            raise ValueError(f"the offset of {topic}-{partition} is a whole number from 0, not {at.offset!r}")
        found[TopicPartition(topic, partition)] = at
    return found


def group_of(group: Any) -> GroupMetadata:
    """Return the group of a call; raise `TypeError` if it is no `GroupMetadata`."""
    if not isinstance(group, GroupMetadata):
        raise TypeError(f"the group is what consumer.group_metadata() returns, not {group!r}")
    return group


class Transactions:
    """The transactions of one producer; its coroutines run on the producer's event loop, `step` after each round.

    A call that is not done in time gives up, which decides what may follow: see `TransactionManager.give_up`.
    """

    def __init__(
        self,
        sender: Sender,
        loop: SenderLoop,
        cluster: ClusterClient,
        lock: ProducerLock,
        *,
        config: ProducerConfig,
        clock: Clock,
        rng: Rng,
    ) -> None:
        backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        assert config.transactional_id is not None
        self.manager = TransactionManager(
            config.transactional_id,
            config.transaction_timeout_ms,
            sender.producer_ids,
            lambda attempt: backoff.delay(attempt, rng),
        )
        self._sender = sender
        self._loop = loop
        self._cluster = cluster
        self._lock = lock
        self._clock = clock
        self._request_timeout = config.request_timeout_ms / 1000
        self.patience = config.max_block_ms / 1000  # seconds that a call waits by default
        self._running = False
        self._woken = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        sender.transactions = self.manager
        loop.after_round = self.step

    @property
    def open(self) -> bool:
        """True while a transaction has not ended."""
        return self.manager.state in OPEN

    @property
    def abortable(self) -> bool:
        """True if `abort` is possible."""
        return self.manager.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR)

    # -- calls

    async def initialize(self, timeout: float | None) -> None:
        """Get a producer id, and shut out earlier producers with this transactional id."""
        with self._lock:
            self.manager.initialize()
        await self._until_initialized(timeout, "init_transactions()")

    def try_begin(self) -> bool:
        """Begin a transaction if that needs no request; else return False."""
        with self._lock:
            if self.manager.state is TransactionState.OUTCOME_UNKNOWN or self.manager.state in _INITIALIZING:
                return False
            self.manager.begin()
            return True

    async def begin(self, timeout: float | None) -> None:
        """Begin a transaction; ask for another epoch first if the last one needs that."""
        with self._lock:
            if self.manager.state is TransactionState.OUTCOME_UNKNOWN:
                self.manager.resolve()
        await self._until_initialized(timeout, "begin_transaction()")
        with self._lock:
            self.manager.begin()

    async def commit(self, timeout: float | None) -> None:
        """Deliver the transaction's records and commit it."""
        await self._end(self.manager.commit, TransactionState.COMMITTING, timeout, "commit_transaction()")

    async def abort(self, timeout: float | None) -> None:
        """Fail the records that are not sent yet, and abort."""
        await self._end(self.manager.abort, TransactionState.ABORTING, timeout, "abort_transaction()")

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, timeout: float | None
    ) -> None:
        """Write a group's offsets as part of the transaction."""
        with self._lock:
            pending = self.manager.add_offsets(offsets, group)
        open_states = (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING)
        await self._until(
            lambda: pending.done or self.manager.state not in open_states, timeout, "send_offsets_to_transaction()"
        )
        if not pending.done:
            self._raise_failure()

    async def close(self, timeout: float | None) -> None:
        """Abort an open transaction, or wait for the end that is under way; failures are logged."""
        state = self.manager.state
        try:
            if state is TransactionState.COMMITTING:
                await self.commit(timeout)
            elif state in OPEN:
                logger.warning("%r: closed with an open transaction, which is aborted", self.manager)
                await self.abort(timeout)
        except KafkaError as error:
            logger.warning("%r: not ended before the producer closed: %s", self.manager, error)

    async def _end(self, call: Callable[[], object], state: TransactionState, timeout: float | None, what: str) -> None:
        with self._lock:
            call()
            self._sender.accumulator.close_all()
        try:
            await self._until(lambda: self.manager.state is not state, timeout, what)
            self._raise_failure()
        finally:
            if self.manager.state is not state:
                self._sender.accumulator.context.failures.take()  # this call has raised, or an abort was wanted

    async def _until_initialized(self, timeout: float | None, what: str) -> None:
        await self._until(lambda: self.manager.state not in _INITIALIZING, timeout, what)
        if self.manager.state is TransactionState.FATAL_ERROR:
            self._raise_failure()

    def _raise_failure(self) -> None:
        if self.manager.state in _FAILED:
            with self._lock:
                self.manager.check_send()

    # -- waiting

    async def _until(self, done: Callable[[], bool], timeout: float | None, what: str) -> None:
        limit = self.patience if timeout is None else timeout
        self._loop.run_round()
        try:
            async with asyncio.timeout(limit):
                while not done():
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
        except TimeoutError:
            if done():
                return
            error = self._too_late(what, limit)
            with self._lock:
                raised = self.manager.give_up(error)
            self._loop.schedule()
            self._wake_waiters()
            raise raised from raised.__cause__

    def _too_late(self, what: str, limit: float) -> KafkaTimeout:
        text = f"transactional id {self.manager.transactional_id!r}: {what} was not done within {limit:g} s"
        failure = self.manager.last_failure
        reasons = self._cluster.describe_failures()
        facts = [*([str(failure)] if failure else ()), *([reasons] if reasons else ())]
        if not facts and not self._sender.quiet:
            facts = ["records are not confirmed yet"]
        error = KafkaTimeout("; ".join([text, *facts]))
        error.__cause__ = failure
        return error

    def _wake_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # -- requests

    def step(self) -> None:
        """Send the request that is due, if any."""
        self._woken.set()
        if not self._running:
            request, pause = self._due()
            self._wake_waiters()
            self._running = request is not None or pause > 0
            if self._running and not (request is not None and self._send_now(request)):
                self._loop.spawn(self._run(request))

    def _send_now(self, request: TransactionRequest) -> bool:
        """Send an EndTxn if its coordinator is known and connected, without a task; return False otherwise."""
        message = request.message
        connection = self._cluster.try_coordinator(request.key, request.kind)
        if connection is None or not isinstance(message, EndTxnRequest):
            return False
        try:
            version = connection.version_for(EndTxnRequest, request.maximum)
        except KafkaError:  # reported where the request is sent by a task
            return False
        connection.send(message, partial(self._answered, request, connection), version=version)
        return True

    def _answered(
        self, request: TransactionRequest, connection: Connection, response: Any, failure: BaseException | None
    ) -> None:
        """Take the end of a request that was sent without a task, and send the next one."""
        self._running = False
        if response is not None:
            self._take(request, connection, response)
            self.step()
        elif isinstance(failure, KafkaError):
            self._lose(request, failure, written=True)
        else:
            self._lose(request, ConnectionFailed(f"the request failed: {failure!r}"), written=True)
        self._loop.schedule()  # batches that waited, or the next attempt

    def _due(self) -> tuple[TransactionRequest | None, float]:
        """Return the request to send now, or else the seconds until one is due again; 0 if none is."""
        with self._lock:
            now = self._clock.monotonic()
            request = self.manager.next_request(now, quiet=self._sender.quiet)
            return request, 0.0 if request is not None else max(0.0, self.manager.retry_at - now)

    async def _run(self, request: TransactionRequest | None) -> None:
        pause = 0.0
        try:
            while True:
                if request is not None:
                    await self._exchange(request)
                    self._loop.schedule()  # batches that waited for the answer
                elif pause > 0:
                    self._woken.clear()
                    await _first(self._woken.wait(), pause)
                request, pause = self._due()
                self._wake_waiters()
                if request is None and pause <= 0:
                    return
        finally:
            self._running = False

    async def _exchange(self, request: TransactionRequest) -> None:
        written = False
        try:
            node = await self._cluster.find_coordinator(request.key, kind=request.kind, timeout=self._request_timeout)
            connection = await self._cluster.connection(node)
            message: Any = request.message
            version = connection.version_for(type(message), request.maximum)
            if isinstance(message, InitProducerIdRequest) and version < _KEEPS_ITS_ID:
                message = without_producer_id(request).message
            written = not connection.closed
            response = await connection.request(message, version=version)
        except KafkaError as error:
            self._lose(request, error, written=written)
        else:
            self._take(request, connection, response)

    def _lose(self, request: TransactionRequest, error: KafkaError, *, written: bool) -> None:
        self._cluster.forget_coordinator(request.key, request.kind)
        logger.debug("%r: %s failed: %s", self.manager, request.message.name, error)
        with self._lock:
            self.manager.lost(request, error, self._clock.monotonic(), written=written)

    def _take(self, request: TransactionRequest, connection: Connection, response: Any) -> None:
        manager = self.manager
        with self._lock:
            manager.cluster_version = connection.finalized_features.get("transaction.version", 0)
            moved = manager.answered(request, response, self._clock.monotonic())
        if moved:
            self._cluster.forget_coordinator(request.key, request.kind)


async def _first(awaitable: Any, seconds: float) -> None:
    """Wait for the awaitable, at most so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except TimeoutError:
        return


def described(transactions: Transactions | None) -> Iterable[tuple[str, Any]]:
    """Yield what `health` says about transactions; nothing for a producer without them."""
    if transactions is not None:
        manager = transactions.manager
        yield "producer_epoch", manager.ids.epoch
        yield "transactional_id", manager.transactional_id
        yield "transaction_state", manager.state.value
