"""ProducerBatch: the bytes of one batch of a partition, its place in the order, its state, and how it is split."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.producer.buffer_pool import BufferPool
from pyclient.producer.delivery import Delivery
from pyclient.producer.futures import DeliveryFuture
from pyclient.producer.transaction_manager import add_sequence
from pyclient.records import (
    HEADER_SIZE,
    BatchBuilder,
    Compression,
    Record,
    decode_batch,
    read_header,
    record_size_bound,
    stamp_producer,
)

if TYPE_CHECKING:
    from pyclient.producer.record_accumulator import PartitionQueue


NO_SEQUENCE = -1


class ProducerBatch:
    """Records of one partition that are sent, succeed and fail together.

    Times are monotonic seconds. `position` is the index of its first record among all of the partition's, by which
    batches keep their order when they are retried or split.
    """

    __slots__ = (
        "_sealed", "attempts", "base_sequence", "buffer", "builder", "closed", "created", "deadline", "delivery",
        "doubtful", "expired", "last_error", "on_wire", "part_of_doubtful", "position", "producer_epoch", "producer_id",
        "queue", "ready", "retry_at",
    )  # fmt: skip

    def __init__(
        self,
        queue: PartitionQueue,
        delivery: Delivery,
        buffer: bytearray,
        *,
        position: int,
        created: float,
        deadline: float,
    ) -> None:
        self.queue = queue
        self.delivery = delivery
        self.buffer: bytearray | None = buffer
        self.builder = BatchBuilder(buffer, delivery, DeliveryFuture)
        self.position = position
        self.created = created
        self.deadline = deadline
        self.closed = False  # takes no more records
        self.ready = False  # may be sent though it still takes records
        self.on_wire = False  # a request with its bytes is in flight: the buffer must not be reused
        self.expired = False  # its futures failed while it was in flight
        self.doubtful = False  # an attempt ended with unknown outcome: the batch may be written
        self.part_of_doubtful = False  # split from a doubtful batch: the broker may know that one's numbers, not these
        self.attempts = 0
        self.retry_at = 0.0
        self.last_error: BaseException | None = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self._sealed: memoryview | None = None

    def __repr__(self) -> str:
        state = "on the wire" if self.on_wire else "closed" if self.closed else "open"
        return f"<ProducerBatch {self.queue.name} {state} records={self.count} sequence={self.base_sequence}>"

    @property
    def count(self) -> int:
        """The number of records."""
        return self.builder.count

    @property
    def size(self) -> int:
        """The size in bytes before compression."""
        return self.builder.size

    def number(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Set the producer id, epoch and sequence by which the broker detects duplicates (KIP-98).

        Clears the doubt of earlier attempts: new numbers are given only if the broker certainly refuses the old ones.
        """
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, epoch, base_sequence
        self.doubtful = self.part_of_doubtful = False
        if self._sealed is not None:
            stamp_producer(self._sealed, producer_id, epoch, base_sequence)

    def seal(self, compression: Compression, level: int | None) -> memoryview:
        """Return the bytes that are sent; built once, so that retries send the same bytes."""
        if self._sealed is None:
            self._sealed = self.builder.seal(
                compression=compression,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
        return self._sealed

    def unsealed(self) -> memoryview:
        """Return the uncompressed batch, to read its records from; a later `seal` builds the bytes again."""
        self._sealed = None
        return self.builder.seal()

    def take_buffer(self) -> bytearray | None:
        """Detach and return the buffer of a completed batch, to be released to the pool."""
        buffer, self.buffer, self._sealed = self.buffer, None, None
        return buffer


def split_batch(batch: ProducerBatch, pool: BufferPool) -> list[ProducerBatch]:
    """Split a batch of at least two records into halves that keep the order and the sequence numbers.

    The futures move to the parts. Their memory is allocated even if the pool has none left, as the records were
    accepted.
    """
    data = batch.unsealed()
    records = decode_batch(data, 0, read_header(data), batch.queue.topic.name, batch.queue.partition)
    middle = len(records) // 2
    starts = [0, middle]
    parts = [_part(batch, records[:middle], 0, pool), _part(batch, records[middle:], middle, pool)]
    batch.delivery.split(starts, [part.delivery for part in parts])
    return parts


def _part(
    batch: ProducerBatch, records: list[Record[bytes | None, bytes | None]], start: int, pool: BufferPool
) -> ProducerBatch:
    queue, old = batch.queue, batch.delivery
    delivery = Delivery(old.desk, old.topic, old.partition, count=len(records))
    room = HEADER_SIZE + sum(record_size_bound(record.key, record.value, record.headers) for record in records)
    part = ProducerBatch(
        queue,
        delivery,
        pool.force_acquire(room),
        position=batch.position + start,
        created=batch.created,
        deadline=batch.deadline,
    )
    pool.unowned = None  # the part owns it
    for record in records:
        written = part.builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        assert written is not None
    part.closed = True
    part.last_error = batch.last_error
    if batch.base_sequence != NO_SEQUENCE:
        part.number(batch.producer_id, batch.producer_epoch, add_sequence(batch.base_sequence, start))
    part.doubtful = part.part_of_doubtful = batch.doubtful
    return part
