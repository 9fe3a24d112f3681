"""Sender: the producer's decisions, without I/O: what goes into which Produce request, and what its response means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyclient.backoff import Backoff
from pyclient.clock import Rng
from pyclient.errors import (
    ConcurrentTransactions,
    DeliveryTimeout,
    KafkaError,
    MalformedMessage,
    OutOfOrderSequenceNumber,
)
from pyclient.producer.delivery import BatchResult
from pyclient.producer.idempotence import KNOWN_SECONDS, Phase, ProducerIds
from pyclient.producer.metrics import ProducerMetrics
from pyclient.producer.produce_response import (
    DUPLICATE,
    FENCED,
    LOST_ITS_PLACE,
    NOT_WRITTEN,
    STALE_METADATA,
    Disposition,
    PartitionAnswer,
    at_partition,
    disposition_of,
    error_of,
    record_errors_of,
    with_detail,
    with_maybe_persisted,
)
from pyclient.producer.producer_batch import NO_SEQUENCE, BatchState, ProducerBatch, split_batch
from pyclient.producer.record_accumulator import NEVER, NO_LEADER, PartitionQueue, RecordAccumulator
from pyclient.producer.transaction_manager import TransactionManager, pause_for_markers

MAX_THROTTLE: Final = 3_600.0  # seconds; upper limit for a broker's throttle time

_MAY_BE_WRITTEN: Final = "a request without a response may still be applied there, so a retry could duplicate records"

OVERLOADED_RESPONSES: Final = 40
"""Responses after which partitions still had to wait for the next one: then one more connection is opened."""


class Node:
    """Requests in flight to one broker: at most `depth` on each of at most `most` connections.

    Kafka handles the requests of one connection one at a time, so a producer with more to send would wait for a broker
    that is mostly idle. Each partition keeps to one connection, and so its order. Connections have an index, from 0;
    `set_connections` sets how many are in use, `wanted` is how many should be. Times are in seconds.
    """

    __slots__ = (
        "_answered", "_depth", "_most", "_others", "_overload", "connections", "in_flight", "stalled_since",
        "throttled_until",
    )  # fmt: skip

    def __init__(self, depth: int, most: int) -> None:
        self.in_flight = 0  # on all connections
        self.throttled_until = 0.0
        self.stalled_since = float("inf")
        self.connections = 1  # connections over which its partitions are spread
        self._depth = depth
        self._most = most
        self._others = [0] * (most - 1)  # in flight on each connection after the first
        self._overload = 0
        self._answered = False  # a response came since the last `drained`; without one it counts nothing

    def __repr__(self) -> str:
        return f"<Node in_flight={self.in_flight} connections={self.connections}>"

    def in_flight_on(self, connection_index: int) -> int:
        """Return the number of requests in flight on this connection."""
        return self._others[connection_index - 1] if connection_index else self.in_flight - sum(self._others)

    def is_full(self, connection_index: int) -> bool:
        """Return True if this connection has its maximum of requests in flight."""
        return self.in_flight_on(connection_index) >= self._depth

    def began(self, connection_index: int) -> None:
        """Count a request that is sent on this connection."""
        self.in_flight += 1
        if connection_index:
            self._others[connection_index - 1] += 1

    def ended(self, connection_index: int) -> None:
        """Count a request on this connection as ended."""
        self.in_flight -= 1
        if connection_index:
            self._others[connection_index - 1] -= 1
        self._answered = True

    def drained(self, left: int) -> None:
        """Update the load after a drain that left `left` partitions with more to send."""
        if not left:
            self._overload = max(0, self._overload - 1)
        elif self._answered and left > self.connections and any(map(self.is_full, range(self.connections))):
            self._overload += 1
            self._answered = False

    def reset(self) -> None:
        """Return to one connection, as nothing is in flight and nothing waits."""
        self.set_connections(1)
        self._overload = 0

    @property
    def wanted(self) -> int:
        """The number of connections that the load calls for."""
        return min(self.connections + 1, self._most) if self._overload >= OVERLOADED_RESPONSES else self.connections

    def set_connections(self, count: int) -> None:
        """Set the number of connections in use."""
        if count != self.connections:
            self.connections = count
            self._overload = 0


@dataclass(slots=True)
class ProduceWork:
    """The batches of one Produce request to broker `node` on one of its connections, at most one of each partition."""

    node: int
    batches: list[ProducerBatch]
    size: int
    connection_index: int = 0

    def __repr__(self) -> str:
        return f"<ProduceWork node={self.node} {', '.join(repr(batch) for batch in self.batches)}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """The options of a producer that its `Sender` needs; `availability_timeout` is in seconds, 0 for none."""

    idempotent: bool
    max_in_flight: int
    """Requests per connection."""
    max_connections: int = 1
    """Connections per broker."""
    max_request_size: int
    retries: int
    backoff: Backoff
    delivery_timeout_ms: int
    availability_timeout: float = 0.0


class Sender:
    """Drains the accumulator into requests and decides the outcome of their batches.

    The caller holds the producer's lock and passes the time (monotonic seconds). A batch's buffer goes back to the
    pool only when no request holds it, however long ago its future failed.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        rng: Rng,
        config: SenderConfig,
    ) -> None:
        self.accumulator = accumulator
        self.producer_ids = ProducerIds()
        self.transactions: TransactionManager | None = None  # of a producer with a transactional id
        self.metrics = ProducerMetrics()
        self.nodes: dict[int, Node] = {}
        self.refresh_wanted = False  # metadata is stale
        self.describe_failures: Callable[[], str] = str  # why brokers cannot be reached; empty if they can
        self._rng = rng
        self._config = config
        self._next_round = NEVER
        self._now = 0.0
        if config.availability_timeout:
            accumulator.stalled_nodes = self._stalled_nodes

    # -- draining

    def begin(self, now: float) -> list[BatchResult]:
        """Start a round of draining: end lingers, and fail batches not confirmed within the delivery timeout."""
        self._now, self._next_round = now, NEVER
        self.accumulator.end_linger(now)
        results = self._expire(now)
        if self.transactions is not None and (error := self.transactions.unsent_fail) is not None:
            results += self.abort(error, on_wire=False)
        return results

    def node(self, number: int) -> Node:
        """Return the state of a broker, created on first use."""
        state = self.nodes.get(number)
        if state is None:
            state = self.nodes[number] = Node(self._config.max_in_flight, self._config.max_connections)
        return state

    def drain(self, node: int, now: float, connection_index: int = 0) -> ProduceWork | None:
        """Return the next request for a broker's connection; None if there is nothing (more) to send now."""
        state = self.node(node)
        if state.throttled_until > now:
            self._next_round = min(self._next_round, state.throttled_until)
            return None
        if state.is_full(connection_index):
            self.stalled(node, now)
            return None
        batches: list[ProducerBatch] = []
        size = 0
        for queue in self.accumulator.ready_queues(node):
            if state.connections > 1 and queue.turn % state.connections != connection_index:
                continue
            batch = self._sendable(queue, node, now, connection_index)
            if batch is None:
                continue
            more = batch.builder.size
            if batches and size + more > self._config.max_request_size:
                break
            self._take(batch, node, connection_index)
            batches.append(batch)
            size += more
        if not batches:
            return None
        state.began(connection_index)
        self.metrics.requests += 1
        state.stalled_since = NEVER
        return ProduceWork(node, batches, size, connection_index)

    def drain_all(self, node: int, now: float, connection_index: int = 0) -> list[ProduceWork]:
        """Return all requests that may be sent now on a broker's connection."""
        works = []
        while self.accumulator.ready_at(node) and (work := self.drain(node, now, connection_index)) is not None:
            works.append(work)
        return works

    def forget_idle(self, before: float) -> None:
        """Remove topics that nothing was sent to since `before` (monotonic seconds), with their sequence numbers."""
        if self.transactions is not None:
            return  # it cannot raise the epoch of a partition, which the numbers would need when it is used again
        for topic in self.accumulator.forget_idle(before):
            for queue in topic.queues:
                self.producer_ids.begin_after(queue.sequence.producer_id, queue.sequence.epoch)

    def stalled(self, node: int, now: float) -> None:
        """Note that a broker accepts no requests although some are ready for it."""
        state = self.node(node)
        state.stalled_since = min(state.stalled_since, now)

    def next_round(self) -> float:
        """Return the time of the next round if no event comes before."""
        return min(self._next_round, self.accumulator.next_change())

    @property
    def has_more_to_do(self) -> bool:
        """True if a round after a response would find anything to do."""
        decided = self.transactions is not None or self.refresh_wanted or self.producer_ids.wanted
        return decided or self.accumulator.has_ready

    @property
    def quiet(self) -> bool:
        """True if no record waits for its outcome and no request is in flight."""
        return not self.accumulator.incomplete and not self.total_in_flight

    @property
    def total_in_flight(self) -> int:
        """The number of requests in flight to all brokers."""
        return sum(node.in_flight for node in self.nodes.values())

    @property
    def connections(self) -> int:
        """The number of connections to brokers that have requests in flight."""
        return sum(node.connections for node in self.nodes.values() if node.in_flight)

    def _sendable(self, queue: PartitionQueue, node: int, now: float, connection_index: int) -> ProducerBatch | None:
        batch = queue.waiting[0] if queue.waiting else None
        if batch is None or batch.state is BatchState.OPEN:
            self.accumulator.unmark(queue)
            return None
        if batch.retry_at > now:
            self._next_round = min(self._next_round, batch.retry_at)
            return None
        if queue.on_wire and queue.wire_connection != connection_index and queue.wire_node == node:
            return None  # batches in flight on the partition's other connection come first
        if self._config.idempotent:
            if queue.on_wire and queue.wire_node != node:
                return None
            if self.transactions is not None and not self._in_transaction(queue, self.transactions, now):
                return None
            sequence = queue.sequence
            steady = sequence.phase is Phase.STEADY
            if steady and not queue.outstanding and now - sequence.confirmed_at > KNOWN_SECONDS:
                sequence.start_probing()
                steady = False
            if not steady and not sequence.prepare(queue.on_wire, self.producer_ids, queue.outstanding):
                return None
        elif queue.on_wire and self._config.max_in_flight == 1:  # keeps the order without idempotence
            return None
        return batch

    def _in_transaction(self, queue: PartitionQueue, transactions: TransactionManager, now: float) -> bool:
        """Return True if the partition belongs to the transaction; its sequence numbers start at 0 in each epoch."""
        sequence, ids = queue.sequence, self.producer_ids
        if (sequence.producer_id, sequence.epoch) != (ids.producer_id, ids.epoch) and not queue.outstanding:
            sequence = queue.sequence = sequence.in_next_epoch(ids, now)
        if sequence.phase is Phase.BROKEN:
            transactions.batch_failed(OutOfOrderSequenceNumber(f"{queue.name}: the topic was created again"))
            return False
        return transactions.may_send(queue.topic.name, queue.partition)

    def _take(self, batch: ProducerBatch, node: int, connection_index: int) -> None:
        queue = batch.queue
        self.accumulator.taken(batch)
        if self._config.idempotent and batch.base_sequence == NO_SEQUENCE:
            queue.sequence.assign(batch)
            queue.outstanding.append(batch)
        batch.become(BatchState.IN_FLIGHT)
        batch.attempts += 1
        queue.on_wire += 1
        queue.wire_node, queue.wire_connection = node, connection_index

    def _stalled_nodes(self) -> set[int]:
        since = self._now - self._config.availability_timeout
        return {node for node, state in self.nodes.items() if state.stalled_since < since}

    # -- responses

    def answered(
        self, work: ProduceWork, answers: Mapping[tuple[str, int], PartitionAnswer], throttle_ms: int, now: float
    ) -> list[BatchResult]:
        """Handle the response to a Produce request; return the outcomes."""
        self._ended(work)
        if throttle_ms > 0:
            node = self.nodes[work.node]
            node.throttled_until = max(node.throttled_until, now + min(throttle_ms / 1000, MAX_THROTTLE))
        results: list[BatchResult] = []
        for batch in work.batches:
            queue = batch.queue
            answer = answers.get((queue.topic.name, queue.partition))
            if answer is None:
                missing = MalformedMessage(f"broker {work.node} left {queue.name} out of its Produce response")
                results += self._unknown(batch, missing, True, now)
            else:
                results += self._handle_answer(batch, answer, work.node, now)
        return results

    def delivered(self, work: ProduceWork, answer: PartitionAnswer, now: float) -> list[BatchResult]:
        """Handle the response to a request with one batch that was written without an error."""
        self._ended(work)
        return self._delivered(work.batches[0], answer, now)

    def lost(self, work: ProduceWork, error: KafkaError, *, written: bool, now: float) -> list[BatchResult]:
        """Handle a Produce request that ended without a response; `written`: the broker may have received it."""
        self._ended(work)
        self.refresh_wanted = True
        return [result for batch in work.batches for result in self._unknown(batch, error, written, now)]

    def unanswered(self, work: ProduceWork, now: float) -> list[BatchResult]:
        """Handle a Produce request with acks=0 that was handed to the network: its batches count as delivered."""
        self._ended(work)
        return [self._written(batch, PartitionAnswer(0), now) for batch in work.batches]

    def _ended(self, work: ProduceWork) -> None:
        node = self.nodes[work.node]
        node.ended(work.connection_index)
        if not node.in_flight and not self.accumulator.ready_at(work.node):
            node.reset()
        for batch in work.batches:
            expired = batch.state is BatchState.EXPIRED_IN_FLIGHT
            batch.become(BatchState.EXPIRED if expired else BatchState.CLOSED)
            batch.queue.on_wire -= 1

    def _handle_answer(self, batch: ProducerBatch, answer: PartitionAnswer, node: int, now: float) -> list[BatchResult]:
        code, queue = answer.code, batch.queue
        if code == 0:
            return self._delivered(batch, answer, now)
        if self._config.idempotent and code in LOST_ITS_PLACE:
            return self._out_of_order(batch, answer, node, now)
        disposition = disposition_of(
            code, count=batch.count, attempts=batch.attempts, retries=self._config.retries,
            idempotent=self._config.idempotent, outcome_unknown=batch.outcome_unknown or self.transactions is not None,
        )  # fmt: skip
        if disposition is Disposition.DELIVERED:
            return self._delivered(batch, answer, now)
        batch.last_error = error_of(answer, queue.name, node, batch.attempts)
        batch.outcome_unknown = batch.outcome_unknown or code not in NOT_WRITTEN
        self.refresh_wanted = self.refresh_wanted or code in STALE_METADATA
        if code == FENCED:
            queue.sequence.mark_broken(batch.position, replace_id=True)
        else:
            queue.sequence.start_probing()
        results: list[BatchResult] = []
        if batch.state is BatchState.EXPIRED:
            self._drop(batch)
        elif disposition is Disposition.SPLIT:
            self._split(batch)
        elif disposition is Disposition.RETRY:
            self._retry(batch, now, soon=code == ConcurrentTransactions.code)
        else:
            results = [self._failed(batch, batch.last_error, record_errors_of(answer, queue.name, node))]
        return results + self._decided(queue, now)

    def _out_of_order(self, batch: ProducerBatch, answer: PartitionAnswer, node: int, now: float) -> list[BatchResult]:
        """Handle an error by which the broker misses an earlier batch or forgot this one; see `idempotence`.

        In a transaction nothing is concluded from later batches: the transaction is aborted.
        """
        queue, sequence = batch.queue, batch.queue.sequence
        if batch.outcome_unknown and self.transactions is None and sequence.is_written(batch.position):
            return self._delivered(batch, PartitionAnswer(DUPLICATE), now)
        batch.last_error = error = error_of(answer, queue.name, node, batch.attempts)
        sequence.start_probing()
        results: list[BatchResult] = []
        first = queue.first_pending is batch
        if batch.state is BatchState.EXPIRED:
            self._drop(batch)
        elif not first:  # refused because of an earlier batch: this does not count as an attempt
            batch.attempts -= 1
            self.accumulator.put_back([batch])
        elif batch.outcome_unknown and self.transactions is None:
            queue.undecided.append(batch)
        elif batch.attempts > self._config.retries or self.transactions is not None:
            results = [self._failed(batch, error)]
        else:
            sequence.mark_broken(batch.position)
            self._retry(batch, now)
        return results + self._decided(queue, now)

    def _decided(self, queue: PartitionQueue, now: float) -> list[BatchResult]:
        """Return the results of batches with unknown outcome that no response can decide now; see `idempotence`."""
        sequence, undecided = queue.sequence, queue.undecided
        if queue.on_wire:
            return []
        following = queue.first_pending
        failing: list[ProducerBatch] = []
        if undecided and not (following is not None and following.outcome_unknown):
            queue.undecided = []
            if sequence.may_still_arrive or any(batch.split_from_unknown for batch in undecided):
                failing = undecided
            else:
                for batch in undecided:
                    batch.outcome_unknown = False
                    self._retry(batch, now)
                sequence.mark_broken(undecided[0].position)
        failing += [each for each in queue.outstanding if each.outcome_unknown and sequence.is_uncertain(each.position)]
        results = []
        for batch in dict.fromkeys(failing):
            if batch in queue.waiting:
                self.accumulator.remove(batch)
            error = batch.last_error
            assert error is not None
            results.append(self._failed(batch, with_detail(error, _MAY_BE_WRITTEN)))
        return results

    def _delivered(self, batch: ProducerBatch, answer: PartitionAnswer, now: float) -> list[BatchResult]:
        """Complete a written batch, and the undecided ones before it."""
        if not self._config.idempotent:
            return [self._written(batch, answer, now)]
        queue, results = batch.queue, []
        if queue.undecided and queue.undecided[0].position < batch.position:
            undecided, queue.undecided = queue.undecided, []
            for earlier in undecided:
                queue.outstanding.remove(earlier)
                results.append(self._written(earlier, PartitionAnswer(DUPLICATE), now))
        queue.sequence.delivered(batch.position, now)
        if queue.outstanding and queue.outstanding[0] is batch:
            queue.sequence.confirmed(batch.position)
        queue.outstanding.remove(batch)
        results.append(self._written(batch, answer, now))
        return results

    def _written(self, batch: ProducerBatch, answer: PartitionAnswer, now: float) -> BatchResult:
        base_offset = -1 if answer.code == DUPLICATE else answer.base_offset
        count = batch.builder.count
        result = BatchResult(batch.delivery, count, base_offset, answer.log_append_time_ms)
        self.metrics.delivered(count, batch.builder.size, now - batch.created, now)
        self.accumulator.release(batch, patient=True)
        return result

    def _unknown(self, batch: ProducerBatch, error: KafkaError, written: bool, now: float) -> list[BatchResult]:
        queue = batch.queue
        batch.outcome_unknown = batch.outcome_unknown or written
        batch.last_error = error
        queue.sequence.start_probing()
        results: list[BatchResult] = []
        if batch.state is BatchState.EXPIRED:
            self._drop(batch)
        elif batch.attempts > self._config.retries or not (written or error.retriable):
            results = [self._failed(batch, error)]
        else:
            self._retry(batch, now)
        return results + self._decided(queue, now)

    def _retry(self, batch: ProducerBatch, now: float, *, soon: bool = False) -> None:
        self.metrics.batches_retried += 1
        delay = self._config.backoff.delay(batch.attempts - 1, self._rng)
        batch.retry_at = now + (min(pause_for_markers(batch.attempts - 1), delay) if soon else delay)
        self.accumulator.put_back([batch])

    def _split(self, batch: ProducerBatch) -> None:
        self.metrics.batches_split += 1
        parts = split_batch(batch, self.accumulator.pool)
        if batch.base_sequence != NO_SEQUENCE:
            index = batch.queue.outstanding.index(batch)
            batch.queue.outstanding[index : index + 1] = parts
        self.accumulator.replace(batch, parts)
        self.accumulator.put_back(parts)
        self.accumulator.release(batch)

    # -- failures

    def abort(self, error: KafkaError, *, on_wire: bool = True) -> list[BatchResult]:
        """Fail all batches, or with `on_wire=False` those that are not in flight."""
        batches = [batch for batch in self.accumulator.incomplete if on_wire or not batch.on_wire]
        return self._fail_all([(batch, at_partition(error, batch.queue.name)) for batch in batches])

    def no_producer_id(self, error: KafkaError) -> list[BatchResult]:
        """Fail the batches that cannot be sent without a new producer id."""
        batches = [
            batch
            for batch in self.accumulator.incomplete
            if not batch.on_wire and batch.queue.sequence.needs_id(batch.position)
        ]
        return self._fail_all([(batch, at_partition(error, batch.queue.name)) for batch in batches])

    def _expire(self, now: float) -> list[BatchResult]:
        expired: list[ProducerBatch] = []
        for batch in self.accumulator.incomplete:
            if batch.deadline > now:
                break
            expired.append(batch)
        if not expired:
            return []
        timeout, reasons = self._config.delivery_timeout_ms, self.describe_failures()
        return self._fail_all([(batch, too_late(batch, timeout, reasons)) for batch in expired])

    def _fail_all(self, failing: list[tuple[ProducerBatch, KafkaError]]) -> list[BatchResult]:
        results = [self._fail_anywhere(batch, error) for batch, error in failing]
        for queue in dict.fromkeys(batch.queue for batch, _ in failing):
            results += self._decided(queue, self._now)
        return results

    def _fail_anywhere(self, batch: ProducerBatch, error: KafkaError) -> BatchResult:
        """Fail a batch in any state; one in flight keeps its buffer until its request has ended."""
        if batch in batch.queue.undecided:
            batch.queue.undecided.remove(batch)
            return self._failed(batch, error)
        if not batch.on_wire:
            self.accumulator.remove(batch)
            return self._failed(batch, error)
        batch.become(BatchState.EXPIRED_IN_FLIGHT)
        if self.transactions is not None:
            self.transactions.batch_failed(error)
        self.accumulator.incomplete.pop(batch, None)
        fresh = with_maybe_persisted(error, True)
        return BatchResult(batch.delivery, batch.count, error=fresh)

    def _failed(
        self, batch: ProducerBatch, error: KafkaError, record_errors: Mapping[int, BaseException] | None = None
    ) -> BatchResult:
        if self.transactions is not None:
            self.transactions.batch_failed(error)
        fresh = with_maybe_persisted(error, batch.outcome_unknown)
        result = BatchResult(batch.delivery, batch.count, error=fresh, record_errors=record_errors)
        self._drop(batch)
        return result

    def _drop(self, batch: ProducerBatch) -> None:
        """Release a batch that will not be sent again. If it had numbers, they may be missing at the broker."""
        queue = batch.queue
        if batch.base_sequence != NO_SEQUENCE:
            queue.outstanding.remove(batch)
            if self.transactions is not None:
                self.transactions.lost_a_batch()
            if batch.outcome_unknown:
                queue.sequence.gave_up(batch.position)
            else:
                queue.sequence.mark_broken(batch.position)
        self.accumulator.release(batch)


def too_late(batch: ProducerBatch, timeout_ms: int, reasons: str) -> DeliveryTimeout:
    """Return the error of records not confirmed in time; `reasons` are the last failures of broker addresses."""
    detail = why_unconfirmed(batch)
    if reasons and not batch.on_wire and reasons not in detail:
        detail = f"{detail}; last failures: {reasons}"
    advice = "it was not written, and can be sent again"
    if batch.outcome_unknown or batch.on_wire:
        advice = "it may still have been written: check that before sending it again"
    text = f"{batch.queue.name}: the record was not confirmed within delivery_timeout_ms={timeout_ms}; {detail}"
    error = DeliveryTimeout(f"{text}; {advice}; look at the broker, or raise delivery_timeout_ms")
    error.__cause__ = batch.last_error
    return error


def why_unconfirmed(batch: ProducerBatch) -> str:
    """Return why a batch is not confirmed so far."""
    queue = batch.queue
    if batch.last_error is not None:
        return f"the last of {batch.attempts} attempts: {batch.last_error}"
    if batch.on_wire:
        return f"broker {queue.wire_node} has not answered"
    if queue.leader == NO_LEADER:
        return "the partition has no leader"
    return f"it could not be sent to broker {queue.leader}"
