"""One batch of a partition: its bytes, its place in the order, and what happened to it so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.producer.delivery import Delivery
from pyclient.producer.delivery_future import DeliveryFuture
from pyclient.records import BatchBuilder, Compression, stamp_producer

if TYPE_CHECKING:
    from pyclient.producer.partition_queue import PartitionQueue

NO_SEQUENCE = -1


class ProducerBatch:
    """Records of one partition that travel, succeed and fail together.

    Times are monotonic seconds. `position` is the number of its first record among all of its partition's, so that
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
        self.on_wire = False  # a request with its bytes has not ended: the buffer must not be reused
        self.expired = False  # its future has failed while it was on the wire
        self.doubtful = False  # an attempt ended without anybody knowing whether it was written
        self.part_of_doubtful = False  # as part of a larger batch, whose numbers the broker may know and not these
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
        """How many records it holds."""
        return self.builder.count

    @property
    def size(self) -> int:
        """Its bytes before compression."""
        return self.builder.size

    def number(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Gives it the producer id, epoch and sequence that the broker tells duplicates by (KIP-98).

        Attempts under other numbers count no more: it gets new ones when the broker will certainly not take the old.
        """
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, epoch, base_sequence
        self.doubtful = self.part_of_doubtful = False
        if self._sealed is not None:
            stamp_producer(self._sealed, producer_id, epoch, base_sequence)

    def seal(self, compression: Compression, level: int | None) -> memoryview:
        """The batch as it goes to the broker; made once, retries send the same bytes."""
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
        """The batch without compression, to read its records from; `seal` starts anew after it."""
        self._sealed = None
        return self.builder.seal()

    def take_buffer(self) -> bytearray | None:
        """The buffer, to be given back to the pool; the batch is over."""
        buffer, self.buffer, self._sealed = self.buffer, None, None
        return buffer
