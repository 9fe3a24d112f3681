"""Splitting of batches that the broker refuses as too large (KIP-126)."""

from __future__ import annotations

from pyclient.producer.batch import NO_SEQUENCE, ProducerBatch
from pyclient.producer.buffer_pool import BufferPool
from pyclient.producer.delivery import Delivery
from pyclient.producer.idempotence import add_sequence
from pyclient.records import HEADER_SIZE, Record, decode_batch, read_header, record_size_bound


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
