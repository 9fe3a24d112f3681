"""Sending records: `Producer`, `AsyncProducer`, and the futures that they return."""

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
