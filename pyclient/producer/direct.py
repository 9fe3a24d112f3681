"""DirectSend: at linger 0, write a single record from the caller's thread if nothing else is in flight.

Waking the loop's thread for it takes as long as all that this thread then does (docs/measurements.md, "Latency at
linger 0"). Under load the record joins a batch instead.
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

LARGEST: Final = 16_384  # bytes of the largest batch that the caller's thread writes: it is copied for that


class DirectSend:
    """Sends from any thread that holds the producer's lock; responses are handled on the sender's loop."""

    def __init__(self, loop: SenderLoop, desk: DeliveryDesk, config: ProducerConfig, clock: Clock) -> None:
        self._loop = loop
        self._sender = loop.sender
        self._desk = desk
        self._monotonic = clock.monotonic
        self._enabled = config.linger_ms == 0 and config.acks != 0
        self._idempotent = config.idempotent
        self._timeout = config.delivery_timeout_ms / 1000
        self._largest = min(config.max_request_size, LARGEST)

    def send(
        self, queue: PartitionQueue, timestamp_ms: int, key: Any, value: Any, headers: Any
    ) -> DeliveryFuture | None:
        """Send the record in a batch of its own; return None, with no effect, if it must go through the accumulator.

        If it raises before the batch is in flight, its buffer is left in `BufferPool.unowned`.
        """
        loop, sender, number = self._loop, self._sender, queue.leader
        lone, node, connection = queue.lone, sender.nodes.get(number), loop.links.get(number)
        if (
            not self._enabled or lone is None or node is None or connection is None or loop.scheduled
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
        future: DeliveryFuture = append(timestamp_ms, key, value, headers)  # never None: the size bound fits
        builder.close()
        work = ProduceWork(number, [batch], builder.size)
        on_response = ResponseCallback(loop.loop, partial(loop.answered_plainly, work))
        try:
            # No calls up to `on_wire = True`: an interrupt comes before or after all of these lines.
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
            if not connection.send_from_thread(ProduceRequest, lone.version, make, lone.answer, on_response):
                loop.loop.call_soon_threadsafe(self._send_on_loop, connection, work, on_response)
            accumulator.count_closed(batch)
        except BaseException as error:
            if batch.on_wire:
                loop.loop.call_soon_threadsafe(connection.interrupted, on_response, error)
            raise
        return future

    def _send_on_loop(self, connection: Connection, work: ProduceWork, on_response: ResponseCallback) -> None:
        """On the loop: send a request that the thread could not, unless an interrupt has failed it."""
        if not on_response.done():
            on_response.forget()
            self._loop.send(connection, work)
