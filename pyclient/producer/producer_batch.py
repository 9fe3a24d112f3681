"""ProducerBatch: the bytes of one batch of a partition, its place in the order, its state, and how it is split."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyclient.producer.buffer_pool import BufferPool
from pyclient.producer.delivery import Delivery
from pyclient.producer.futures import DeliveryFuture
from pyclient.producer.idempotence import add_sequence
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


class BatchState(Enum):
    """The states of a batch; `TRANSITIONS` has what may follow each."""

    OPEN = "open"
    """It takes records and may not be sent yet: it lingers."""
    READY = "ready"
    """It may be sent, and takes records until then."""
    CLOSED = "closed"
    """It takes no more records, and no request holds it: it waits to be sent (again), or for its outcome."""
    IN_FLIGHT = "on the wire"
    """A request with its bytes is in flight: the buffer must not be reused."""
    EXPIRED_IN_FLIGHT = "expired on the wire"
    """Its futures failed while it was in flight; the request still holds the buffer."""
    EXPIRED = "expired"
    """Its futures failed while it was in flight, and the request has ended."""
    RELEASED = "released"
    """Its buffer went back to the pool."""

    following: tuple[BatchState, ...]


TRANSITIONS: Final[Mapping[BatchState, tuple[BatchState, ...]]] = MappingProxyType(
    {
        BatchState.OPEN: (BatchState.READY, BatchState.CLOSED),
        BatchState.READY: (BatchState.CLOSED,),
        BatchState.CLOSED: (BatchState.IN_FLIGHT, BatchState.RELEASED),
        BatchState.IN_FLIGHT: (BatchState.CLOSED, BatchState.EXPIRED_IN_FLIGHT),
        BatchState.EXPIRED_IN_FLIGHT: (BatchState.EXPIRED,),
        BatchState.EXPIRED: (BatchState.RELEASED,),
        BatchState.RELEASED: (),
    }
)

for _state, _following in TRANSITIONS.items():
    _state.following = _following  # a look-up by the state would call Enum.__hash__, which is Python code

_TAKE_RECORDS: Final = (BatchState.OPEN, BatchState.READY)
_HELD_BY_REQUEST: Final = (BatchState.IN_FLIGHT, BatchState.EXPIRED_IN_FLIGHT)


class ProducerBatch:
    """Records of one partition that are sent, succeed and fail together.

    Times are monotonic seconds. `position` is the index of its first record among all of the partition's, by which
    batches keep their order when they are retried or split.
    """

    __slots__ = (
        "_sealed", "attempts", "base_sequence", "buffer", "builder", "created", "deadline", "delivery", "last_error",
        "outcome_unknown", "position", "producer_epoch", "producer_id", "queue", "retry_at", "split_from_unknown",
        "state",
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
        self.state = BatchState.OPEN  # changed by `become` only
        self.outcome_unknown = False  # of an attempt: the batch may be written
        self.split_from_unknown = False  # the broker may have the original batch's sequence numbers, not these
        self.attempts = 0
        self.retry_at = 0.0
        self.last_error: BaseException | None = None
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self._sealed: memoryview | None = None

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.queue.name} {self.state.value} records={self.count} sequence={self.base_sequence}>"
        )

    def become(self, state: BatchState) -> None:
        """Change the state; raise `RuntimeError` if it may not follow the present one.

        An interrupt comes before the change, not between it and the caller's next lines if those make no calls.
        """
        if state not in self.state.following:
            raise RuntimeError(f"{self!r} cannot become {state.name}: a defect of pyclient, please report it")
        self.state = state

    @property
    def closed(self) -> bool:
        """True if the batch takes no more records."""
        return self.state not in _TAKE_RECORDS

    @property
    def on_wire(self) -> bool:
        """True if a request with its bytes is in flight."""
        return self.state in _HELD_BY_REQUEST

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

        Makes the outcome known: new numbers are given only if the broker certainly refuses the old ones.
        """
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, epoch, base_sequence
        self.outcome_unknown = self.split_from_unknown = False
        if self._sealed is not None:
            stamp_producer(self._sealed, producer_id, epoch, base_sequence)

    def seal(self, compression: Compression, level: int | None, *, transactional: bool = False) -> memoryview:
        """Return the bytes that are sent; built once, so that retries send the same bytes."""
        if self._sealed is None:
            self._sealed = self.builder.seal(
                compression=compression,
                level=level,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=transactional,
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
    delivery = Delivery(old.context, old.topic, old.partition, count=len(records))
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
    part.become(BatchState.CLOSED)
    part.last_error = batch.last_error
    if batch.base_sequence != NO_SEQUENCE:
        part.number(batch.producer_id, batch.producer_epoch, add_sequence(batch.base_sequence, start))
    part.outcome_unknown = part.split_from_unknown = batch.outcome_unknown
    return part
