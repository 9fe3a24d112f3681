"""Producers: send records one by one, as columns, or in transactions.

`Producer`, which is generated from `AsyncProducer`, appends records in the caller's thread and sends on an event loop.
`ProducerClient` is the implementation shared by both, run by a `ThreadRunner` or an `AsyncRunner`, with these parts:

- `RecordAccumulator`: the open and waiting `ProducerBatch` objects of each partition, in memory of the `BufferPool`.
- `Sender` decides what goes into a request and what its response means; `SenderLoop` does the I/O.
- `ProducerIds` and `PartitionSequence`: idempotence. `TransactionManager` and `Transactions`: transactions.
- `Delivery`: the outcome of a batch, read by `DeliveryFuture` and `BatchFuture`, reported by the `CallbackThread`.
- `FastPathOwner`: the compiled fast path of single records. `BulkAppend`: `send_many`.
- `RecordSender`, `OpenBatches`: the work per record, compiled (`_speedups`) or in Python (`implementation.py` chooses).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyclient.lazy_names import importer

if TYPE_CHECKING:
    from pyclient.producer.async_producer import AsyncProducer
    from pyclient.producer.config import ProducerConfig, ProducerOptions
    from pyclient.producer.futures import BatchFuture, BatchMetadata, DeliveryFuture
    from pyclient.producer.interceptors import ProducerInterceptor, ProducerRecord
    from pyclient.producer.producer import Producer

__all__ = [
    "AsyncProducer",
    "BatchFuture",
    "BatchMetadata",
    "DeliveryFuture",
    "Producer",
    "ProducerConfig",
    "ProducerInterceptor",
    "ProducerOptions",
    "ProducerRecord",
]

_MODULES = {
    "AsyncProducer": "pyclient.producer.async_producer",
    "BatchFuture": "pyclient.producer.futures",
    "BatchMetadata": "pyclient.producer.futures",
    "DeliveryFuture": "pyclient.producer.futures",
    "Producer": "pyclient.producer.producer",
    "ProducerConfig": "pyclient.producer.config",
    "ProducerInterceptor": "pyclient.producer.interceptors",
    "ProducerOptions": "pyclient.producer.config",
    "ProducerRecord": "pyclient.producer.interceptors",
}

if not TYPE_CHECKING:  # to a type checker, a module with this function has every name
    __getattr__ = importer(__name__, _MODULES)
