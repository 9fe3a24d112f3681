"""One record straight from its caller to the socket, where nothing else is on its way: what linger 0 is asked for.

To wake the loop's thread for it takes as long as everything that this thread then does (docs/measurements.md,
"Latency at linger 0"). Under load the record joins a batch instead.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from pyclient.clock import Clock
from pyclient.net.connection import Connection
from pyclient.net.in_flight import ResponseCallback
from pyclient.producer.accumulator import NEVER
from pyclient.producer.batch import ProducerBatch
from pyclient.producer.config import ProducerConfig
from pyclient.producer.delivery import Delivery
from pyclient.producer.delivery_desk import DeliveryDesk
from pyclient.producer.delivery_future import DeliveryFuture
from pyclient.producer.idempotence import KNOWN_SECONDS, MAX_SEQUENCE, Phase
from pyclient.producer.partition_queue import Append, PartitionQueue
from pyclient.producer.sender_loop import SenderLoop
from pyclient.producer.work import ProduceWork
from pyclient.protocol.messages.produce import ProduceRequest
from pyclient.records import HEADER_SIZE, record_size_bound

LARGEST: Final = 16_384  # bytes of a batch that the caller writes himself: it is copied for that


class DirectSend:
    """Sends from any thread that holds the producer's lock; answers come to the sender's loop."""

    def __init__(self, loop: SenderLoop, desk: DeliveryDesk, config: ProducerConfig, clock: Clock) -> None:
        self._loop = loop
        self._sender = loop.sender
        self._desk = desk
        self._monotonic = clock.monotonic
        self._wanted = config.linger_ms == 0 and config.acks != 0
        self._idempotent = config.idempotent
        self._timeout = config.delivery_timeout_ms / 1000
        self._largest = min(config.max_request_size, LARGEST)

    def send(
        self, queue: PartitionQueue, timestamp_ms: int, key: Any, value: Any, headers: Any
    ) -> DeliveryFuture | None:
        """A batch with this record, on its way. None, and nothing has happened, if the record has to go the usual way.

        What raises before the batch is on its way leaves its memory in `BufferPool.unowned`.
        """
        loop, sender, number = self._loop, self._sender, queue.leader
        lone, node, connection = queue.lone, sender.nodes.get(number), loop.links.get(number)
        if (
            not self._wanted or lone is None or node is None or connection is None or loop.scheduled
            or queue.waiting or queue.outstanding or queue.on_wire or node.in_flight
            or (self._idempotent and queue.sequence.phase is not Phase.STEADY)
            or connection.version_used(ProduceRequest) != lone.version
        ):  # fmt: skip
            return None
        now = self._monotonic()
        if self._idempotent and now - queue.sequence.confirmed_at > KNOWN_SECONDS:
            return None
        if node.throttled_until > now or now >= loop.idle_check_at or now + self._timeout < loop.next_look:
            return None
        accumulator, topic = sender.accumulator, queue.topic
        pool, size = accumulator.pool, HEADER_SIZE + record_size_bound(key, value, headers)
        buffer = pool.try_acquire(max(size, accumulator.batch_size)) if size <= self._largest else None
        if buffer is None:
            return None
        delivery = Delivery(self._desk, topic.name, queue.partition)
        deadline = now + self._timeout
        batch = ProducerBatch(queue, delivery, buffer, position=queue.records, created=now, deadline=deadline)
        builder = batch.builder
        append: Append = builder.append
        future: DeliveryFuture = append(timestamp_ms, key, value, headers)  # it fits: the bound did
        builder.close()
        work = ProduceWork(number, [batch], builder.size)
        told = ResponseCallback(loop.loop, partial(loop.answered_plainly, work))
        try:
            # Nothing is called from here to the last of these lines, so that Ctrl-C comes before all of them or after.
            sequence = queue.sequence
            if self._idempotent:
                batch.producer_id, batch.producer_epoch = sequence.producer_id, sequence.epoch
                batch.base_sequence, sequence.next = sequence.next, (sequence.next + 1) & MAX_SEQUENCE
                queue.outstanding = [batch]
            accumulator.incomplete[batch] = pool.unowned = None
            queue.records += 1
            queue.wire_node, queue.wire_link = number, 0
            batch.attempts = queue.on_wire = 1
            batch.closed = batch.on_wire = True
            node.in_flight += 1

            node.stalled_since, topic.last_used = NEVER, now
            sender.metrics.requests += 1
            make = partial(lone.request, loop.seal(batch))
            if not connection.send_from_thread(ProduceRequest, lone.version, make, lone.answer, told):
                loop.loop.call_soon_threadsafe(self._hand_on, connection, work, told)
            accumulator.count_closed(batch)
        except BaseException as error:
            if batch.on_wire:
                loop.loop.call_soon_threadsafe(connection.interrupted, told, error)
            raise
        return future

    def _hand_on(self, connection: Connection, work: ProduceWork, told: ResponseCallback) -> None:
        """On the loop: sends what is left to it, unless Ctrl-C came first and the request was told to have failed."""
        if not told.done():
            told.forget()
            self._loop.send(connection, work)
