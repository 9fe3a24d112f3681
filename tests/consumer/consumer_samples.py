"""Sample batches and assigned partitions."""

from __future__ import annotations

from typing import Any

from pyclient.consumer.completed_fetch import FetchedBatch, parse_records
from pyclient.consumer.subscription import AssignedPartition, SubscriptionState
from pyclient.records import BatchBuilder, Compression, build_batch, read_header, stamp_offsets
from pyclient.types import TopicPartition

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def batch_of(base_offset: int, count: int, *, leader_epoch: int = 0, **options: Any) -> bytes:
    """Return a batch whose record at offset n has the value b"n"."""
    rows = [(f"k{offset}".encode(), f"{offset}".encode()) for offset in range(base_offset, base_offset + count)]
    return build_batch(rows, timestamp_ms=1_000, base_offset=base_offset, leader_epoch=leader_epoch, **options)


def compacted(base_offset: int, kept: list[int], span: int) -> bytes:
    """Return a batch of `span` offsets with records only at the (relative) offsets `kept`."""
    builder = BatchBuilder(bytearray(4096), None)
    full = []
    for delta in range(span):
        before = builder.size
        builder.append(1_000, b"k", f"{base_offset + delta}".encode(), ())
        full.append((before, builder.size))
    sealed = bytearray(builder.seal())
    records = b"".join(bytes(sealed[start:stop]) for delta, (start, stop) in enumerate(full) if delta in kept)
    batch = bytearray(sealed[:61] + records)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = len(kept).to_bytes(4, "big")
    return _resealed(batch, base_offset)


def _resealed(batch: bytearray, base_offset: int) -> bytes:
    import crc32c

    stamp_offsets(batch, 0, base_offset, 0)
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def marker(offset: int, producer_id: int, key: bytes = ABORT) -> bytes:
    """Return a control batch that ends a producer's transaction."""
    return build_batch(
        [(key, b"\0\0\0\0\0\0")],
        timestamp_ms=1_000,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        control=True,
        transactional=True,
    )


def fetched(data: bytes, topic: str = "t", partition: int = 0) -> FetchedBatch:
    """Return the one batch in `data`."""
    return FetchedBatch(topic, partition, memoryview(data), 0, read_header(data))


def assigned(*partitions: TopicPartition, position: int = 0) -> tuple[SubscriptionState, list[AssignedPartition]]:
    """Return a subscription with these partitions, ready to fetch at `position`."""
    subscription = SubscriptionState(looks_up_committed=False)
    subscription.assign(partitions)
    for state in subscription:
        state.start_at(position)
    return subscription, list(subscription)


__all__ = [
    "ABORT",
    "COMMIT",
    "T0",
    "T1",
    "Compression",
    "assigned",
    "batch_of",
    "compacted",
    "fetched",
    "marker",
    "parse_records",
]
